"""Options of a run: decoded once into policy, metadata and history, and written back flat."""

import json
from uuid import UUID

import pytest

from duly.domain.runs.callbacks import Callback, Then
from duly.domain.runs.metadata import NO_HISTORY, NO_METADATA, RunHistory, RunMetadata
from duly.domain.runs.policy import PLAIN, RunPolicy
from duly.domain.runs.retry import Retry
from duly.domain.targets.target import Webhook
from duly.moves.claim import claim
from duly.store.boxes.options import NONE, decode, encode_history
from tests.builders import a_worker

PARENT, FLOW = UUID(int=7), UUID(int=8)


def read(**options):
    return decode(json.dumps(options))


def test_each_key_is_in_its_struct():
    policy, metadata, history = read(
        retry={"max_attempts": 3},
        timeout_seconds=30,
        target={"type": "webhook", "url": "https://a.example/"},
        gate=["orders", 1],
        fifo=12,
        rate=["mail", 0.5, 1],
        expires_at=9.5,
        expires_seconds=60,
        rearm=True,
        watch=3,
        tags=["new"],
        request_id="r-1",
        traceparent="00-a",
        parent=str(PARENT),
        node=[str(FLOW), "extract"],
        after=[[str(PARENT), "always"]],
        then={"done": {"job": "next"}},
        again_of=str(FLOW),
        replays=1,
        attempts_before=4,
        since=5.5,
        snoozes=2,
        probes=3,
        missed=6,
        waited=True,
    )

    assert policy == RunPolicy(
        Retry(3),
        30,
        Webhook("https://a.example/"),
        own=True,
        gate=("orders", 1),
        fifo=12,
        rate=("mail", 0.5, 1),
        expires_at=9.5,
        expires_seconds=60,
        rearm=True,
        watch=3,
    )
    assert metadata == RunMetadata(
        ("new",),
        "r-1",
        "00-a",
        PARENT,
        (FLOW, "extract"),
        ((str(PARENT), "always"),),
        Then(done=Callback(job="next")),
        FLOW,
    )
    assert history == RunHistory(1, 4, 5.5, 2, 3, 6, waited=True)


def test_a_part_that_says_nothing_is_shared():
    assert decode(None) is NONE
    for text in ("{}", '{"held": true, "overlap": ["queue", 1], "outside": true}'):
        assert [*map(id, decode(text))] == [*map(id, NONE)]
    assert read(tags=["a"])[0] is PLAIN
    assert read(missed=2)[:2] == (PLAIN, NO_METADATA)
    assert read(own=True)[1:] == (NO_METADATA, NO_HISTORY)


@pytest.mark.parametrize(
    "own",
    [
        {"own": True},
        {"retry": {}},
        {"retry": {"max_attempts": 5}},
        {"timeout_seconds": 9},
        {"timeout_seconds": None},
        {"target": {"type": "command", "argv": ["true"]}},
    ],
)
def test_a_policy_is_the_jobs_own_when_it_says_so_or_names_retries_a_timeout_or_a_target(own):
    assert read(**own, tags=["a"])[0].own


@pytest.mark.parametrize(
    "added",
    [{"gate": ["overlap/1", 1]}, {"rearm": True}, {"watch": 2}, {"missed": 3}, {"expires_at": 7}, {"own": False}],
)
def test_a_key_that_the_engine_adds_leaves_the_handlers_policy(added):
    policy, *_ = read(**added)
    handlers = RunPolicy(Retry(2), timeout_seconds=9, expires_seconds=60)

    both = policy.or_handlers(handlers)

    assert not policy.own
    assert (both.retry, both.timeout_seconds, both.expires_seconds) == (Retry(2), 9, 60)
    assert (both.gate, both.rearm, both.watch, both.expires_at) == (
        policy.gate,
        policy.rearm,
        policy.watch,
        policy.expires_at,
    )


def test_an_own_policy_takes_nothing_from_the_handler_and_an_own_expiry_wins():
    handlers = RunPolicy(Retry(2), timeout_seconds=9, expires_seconds=60)
    own = RunPolicy(own=True)

    assert own.or_handlers(handlers) is own
    assert PLAIN.or_handlers(handlers) is handlers
    assert RunPolicy(expires_seconds=5).or_handlers(handlers).expires_seconds == 5


def test_a_target_that_cannot_be_read_is_left_out_and_the_rest_stays():
    policy, metadata, _ = read(target={"type": "robot"}, timeout_seconds=3, tags=["a"])

    assert policy == RunPolicy(timeout_seconds=3, own=True)
    assert metadata.tags == ("a",)


@pytest.mark.parametrize("text", ['{"timeout_seconds": "x"}', "[]", '{"parent": "nobody"}', '{"retry": null}'])
def test_options_that_cannot_be_read_are_an_own_policy_of_defaults(text):
    assert decode(text) == (RunPolicy(own=True), NO_METADATA, NO_HISTORY)


def test_a_history_is_written_flat_and_without_its_defaults():
    assert encode_history(None) is None
    written = encode_history(RunHistory(attempts_before=2, since=5.5))

    assert written is not None
    assert json.loads(written) == {"attempts_before": 2, "since": 5.5}
    assert decode(written) == (PLAIN, NO_METADATA, RunHistory(attempts_before=2, since=5.5))


async def test_own_is_taken_from_plain_sql_as_true_and_as_nothing_else(database):
    submit = "select duly.submit('greet', options => $1::text::jsonb)"

    await database.execute(submit, '{"own": true}')

    [run] = await claim(database, await a_worker(database), ["default"], ["greet"], 1)
    assert run.policy == RunPolicy(own=True)
    for other in ("false", "1", '"yes"', "null"):
        with pytest.raises(Exception, match="none we know"):
            await database.execute(submit, f'{{"own": {other}}}')
