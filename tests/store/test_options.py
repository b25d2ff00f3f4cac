"""Options of a run: decoded once into policy, metadata and history, and written back flat."""

import json
from uuid import UUID

import pytest

from duly.domain.runs.callbacks import Callback, Callbacks
from duly.domain.runs.options import (
    NO_HISTORY,
    NO_METADATA,
    NO_OPTIONS,
    PLAIN,
    RunHistory,
    RunMetadata,
    RunPolicy,
    options_of,
)
from duly.domain.runs.retry import Retry
from duly.domain.targets.target import Webhook
from duly.moves.claim import claim
from duly.store.boxes.options import decode, encode, encode_history
from tests.builders import a_worker

PARENT, FLOW = UUID(int=7), UUID(int=8)


def read(**options):
    return decode(json.dumps(options))


def test_each_key_is_in_its_struct():
    options = read(
        retry={"max_attempts": 3},
        timeout_seconds=30,
        target={"type": "webhook", "url": "https://a.example/"},
        concurrency=["orders", 1],
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
        depends_on=[[str(PARENT), "always"]],
        callbacks={"end": {"job": "next"}},
        rerun_of=str(FLOW),
        replays=1,
        attempts_before=4,
        since=5.5,
        snoozes=2,
        probes=3,
        missed=6,
        waited=True,
    )

    assert options.policy == RunPolicy(
        Retry(3),
        30,
        Webhook("https://a.example/"),
        own=True,
        concurrency=("orders", 1),
        fifo=12,
        rate=("mail", 0.5, 1),
        expires_at=9.5,
        expires_seconds=60,
        rearm=True,
        watch=3,
    )
    assert options.metadata == RunMetadata(
        ("new",),
        "r-1",
        "00-a",
        PARENT,
        (FLOW, "extract"),
        ((str(PARENT), "always"),),
        Callbacks(end=Callback(job="next")),
        FLOW,
    )
    assert options.history == RunHistory(1, 4, 5.5, 2, 3, 6, waited=True)


def test_empty_option_parts_are_shared():
    assert decode(None) is NO_OPTIONS
    for text in ("{}", '{"has_slot": true, "overlap": ["queue", 1], "outside": true}'):
        options = decode(text)
        assert options.policy is PLAIN
        assert options.metadata is NO_METADATA
        assert options.history is NO_HISTORY
    assert read(tags=["a"]).policy is PLAIN
    assert read(missed=2).metadata is NO_METADATA
    assert read(own=True).history is NO_HISTORY


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
def test_policy_is_the_jobs_own_when_declared_or_with_a_policy_option(own):
    assert read(**own, tags=["a"]).policy.own


@pytest.mark.parametrize(
    "added",
    [
        {"concurrency": ["overlap/1", 1]},
        {"rearm": True},
        {"watch": 2},
        {"missed": 3},
        {"expires_at": 7},
        {"own": False},
    ],
)
def test_a_key_that_the_engine_adds_leaves_the_handlers_policy(added):
    policy = read(**added).policy
    handlers = RunPolicy(Retry(2), timeout_seconds=9, expires_seconds=60)

    both = policy.or_handlers(handlers)

    assert not policy.own
    assert (both.retry, both.timeout_seconds, both.expires_seconds) == (Retry(2), 9, 60)
    assert (both.concurrency, both.rearm, both.watch, both.expires_at) == (
        policy.concurrency,
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
    options = read(target={"type": "robot"}, timeout_seconds=3, tags=["a"])

    assert options == options_of(timeout_seconds=3, tags=("a",))


@pytest.mark.parametrize("text", ['{"timeout_seconds": "x"}', "[]", '{"parent": "nobody"}', '{"retry": null}'])
def test_options_that_cannot_be_read_are_an_own_policy_of_defaults(text):
    assert decode(text) == options_of(own=True)


def test_a_history_is_written_flat_and_without_its_defaults():
    assert encode_history(None) is None
    written = encode_history(RunHistory(attempts_before=2, since=5.5))

    assert written is not None
    assert json.loads(written) == {"attempts_before": 2, "since": 5.5}
    assert decode(written) == options_of(attempts_before=2, since=5.5)


@pytest.mark.parametrize(
    "options",
    [
        NO_OPTIONS,
        options_of(own=True),
        options_of(concurrency=("orders", 3), fifo=True, rate=("mail", 0.5, 1)),
        options_of(retry=Retry(3), timeout_seconds=2.5, target=Webhook("https://a.example/", headers={"A": "b"})),
        options_of(
            tags=("a", "b"),
            parent=PARENT,
            depends_on=((str(FLOW), "always"),),
            callbacks=Callbacks(failure=Callback(job="x")),
        ),
        options_of(expires_at=5.5, missed=3, waited=True, rerun_of=FLOW, node=(FLOW, "extract")),
    ],
)
def test_options_are_read_as_they_were_written(options):
    assert decode(encode(options)) == options


def test_options_that_say_nothing_are_not_written():
    assert encode(NO_OPTIONS) is None
    assert encode(options_of(tags=())) is None


async def test_own_is_taken_from_plain_sql_as_true_and_as_nothing_else(database):
    submit = "select duly.submit('greet', options => $1::text::jsonb)"

    await database.execute(submit, '{"own": true}')

    [run] = await claim(database, await a_worker(database), ["default"], ["greet"], 1)
    assert run.policy == RunPolicy(own=True)
    for other in ("false", "1", '"yes"', "null"):
        with pytest.raises(Exception, match="none we know"):
            await database.execute(submit, f'{{"own": {other}}}')
