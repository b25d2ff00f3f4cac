"""Submitting from Python: durable, once, and said in words."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from duly import (
    App,
    InvalidArguments,
    InvalidOption,
    InvalidPayload,
    InvalidSchedule,
    KeyConflict,
    NameTaken,
    NotFound,
    Retry,
    Unavailable,
    UnknownHandler,
    UnknownQueue,
)
from duly.domain.errors import AtPast, DulyError, Refused
from duly.domain.runs.options import options_of
from duly.domain.runs.outcome import Succeeded
from duly.domain.runs.retry import Retry as RetryPolicy
from duly.domain.triggers.errors import TriggerError
from duly.sdk.keywords import Keywords
from duly.store.boxes.options import decode
from duly.store.connection import hints
from duly.store.connection.database import Database
from duly.store.tenancy import tenants
from duly.store.tenancy.tenants import Limits
from duly.worker.handlers import suggestion
from tests.builders import a_worker, claimed, counts, settled
from tests.clock import START
from tests.hints import a_submit_that_stays_open


async def rows(database, box):
    return [dict(row) for row in await database.fetch(f"select * from duly.{box} order by run_id")]


async def test_work_due_now_is_ready_at_once(greet, database):
    handle = await greet.submit("world", times=2)

    [row] = await rows(database, "ready")
    assert row["run_id"] == row["job_id"] == handle.job_id == handle.run_id
    assert (row["handler"], row["queue"], row["priority"], row["options"]) == ("greet", "default", 5, None)
    assert row["payload"] == '{"name": "world", "times": 2}'
    assert handle.next_fires == [START]
    assert handle.description == "Once, at 2026-11-02 09:00:00 UTC"


async def test_a_delay_waits_in_timers(greet, database):
    handle = await greet.options(delay="PT10M", priority=2).submit("world")

    [row] = await rows(database, "timers")
    assert row["due_at"] == handle.scheduled_at == START + timedelta(minutes=10)
    assert row["priority"] == 2


async def test_a_moment_may_be_in_any_zone(greet, database):
    moment = datetime(2026, 11, 3, 10, 0, tzinfo=UTC).astimezone()

    handle = await greet.options(at=moment).submit("world")

    assert handle.scheduled_at == moment


async def test_a_handlers_options_travel_with_its_runs_and_a_submit_may_change_them(app, database):
    @app.handler(queue="mail", priority=3, retry=Retry(max_attempts=7, base="PT2S", cap="PT5M"), timeout="PT30S")
    def careful() -> None: ...

    await careful.submit()
    await careful.options(retry=Retry(max_attempts=1), timeout=None, queue="other", priority=0).submit()

    found = {row["queue"]: row for row in await rows(database, "ready")}
    carried = {queue: decode(row["options"]) for queue, row in found.items()}
    assert carried["mail"] == options_of(retry=RetryPolicy(7, 2.0, 300.0), timeout_seconds=30.0)
    assert carried["other"] == options_of(retry=RetryPolicy(1))
    assert (found["mail"]["priority"], found["other"]["priority"]) == (3, 0)


async def test_a_schedule_tells_its_next_three_fires_and_itself_in_english(tick, database):
    handle = await tick.options(every="PT10S", name="heartbeat").submit()

    assert handle.next_fires == [START, START + timedelta(seconds=10), START + timedelta(seconds=20)]
    assert handle.description == "Every 10 seconds, from 2026-11-02 09:00:00 UTC"
    assert await handle.status() == "active"
    assert [row["job_id"] for row in await rows(database, "timers")] == [handle.job_id]


async def test_a_schedule_may_say_when_it_starts(tick):
    first = START + timedelta(hours=5)

    assert (await tick.options(every="P1D", at=first).submit()).next_fires[1] == first + timedelta(days=1)


async def test_many_are_stored_in_order_in_one_transaction(greet, database):
    handles = await greet.options(delay=60).submit_many([{"name": f"guest {i}"} for i in range(100)])

    found = {row["run_id"]: row["payload"] for row in await rows(database, "timers")}
    assert [found[handle.job_id] for handle in handles] == [f'{{"name": "guest {i}"}}' for i in range(100)]
    assert len(await greet.submit_many([])) == 0


async def test_batch_with_invalid_arguments_stores_nothing(greet, database):
    with pytest.raises(InvalidArguments, match=r"^arguments\[1\]: .*argument name is 7"):
        await greet.submit_many([{"name": "a"}, {"name": 7}])
    with pytest.raises(InvalidArguments, match=r"^arguments\[1\]: arguments 'b' of greet are not a mapping"):
        await greet.submit_many([{"name": "a"}, "b"])
    with pytest.raises(InvalidPayload, match=r"^arguments\[0\]: "):
        await greet.submit_many([{"name": "\ud800"}])
    assert await counts(database) == {}


async def test_the_same_key_and_body_is_the_same_job(greet, database):
    first = await greet.options(key="report-7").submit("world")
    again = await greet.options(key="report-7").submit("world")

    assert again.job_id == first.job_id
    assert (first.replayed, again.replayed) == (False, True)
    assert await counts(database) == {"ready": 1}


async def test_the_same_key_with_another_body_is_a_conflict_with_a_remedy(greet, database):
    await greet.options(key="report-7").submit("world")

    with pytest.raises(KeyConflict, match=r"key 'report-7' was used for another job .* Use another key"):
        await greet.options(key="report-7").submit("moon")
    assert await counts(database) == {"ready": 1}


async def test_without_a_key_each_submit_is_a_job_of_its_own(greet, database):
    first, second = await asyncio.gather(greet.submit("world"), greet.submit("world"))

    assert first.job_id != second.job_id
    assert first.key != second.key


async def test_tenants_have_keys_of_their_own(greet, database):
    another = (await tenants.create(database, "another", Limits())).tenant
    first = await greet.options(key="k").submit("world")
    second = await greet.options(key="k", tenant=another).submit("moon")

    assert first.job_id != second.job_id
    assert {row["tenant"] for row in await rows(database, "ready")} == {1, another}


async def test_a_tenant_that_is_not_there_is_refused(greet, database):
    for submit in (greet.options(tenant=99_999).submit, greet.options(tenant=99_999, every=60).submit):
        with pytest.raises(NotFound, match="no tenant 99999; `duly tenants` lists them"):
            await submit("world")
    with pytest.raises(NotFound, match="no tenant 99999"):
        await greet.options(tenant=99_999).submit_many([{"name": "world"}])
    assert await counts(database) == {}


async def test_two_schedules_of_one_name_are_refused(tick, database):
    await tick.options(every=60, name="heartbeat").submit()

    with pytest.raises(
        NameTaken, match="a schedule named 'heartbeat' exists; choose another name, or cancel that one first"
    ):
        await tick.options(every=30, name="heartbeat").submit()
    assert await counts(database) == {"timers": 1}


class FlakyDatabase(Database):
    """Loses the answer of the first few statements, after they were done."""

    lost = 0

    async def fetch(self, query, *args):
        answer = await super().fetch(query, *args)
        if "submit" in query and self.lost > 0:
            self.lost -= 1
            raise Unavailable("the answer was lost")
        return answer


@pytest.fixture
def flaky(app, database_url, monkeypatch):
    async def database_with_losses(**_):
        return opened

    opened = FlakyDatabase(database_url)
    monkeypatch.setattr("duly.sdk.submitter._RETRY_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(app.connections, "database", database_with_losses)
    return opened


async def test_submit_with_an_unknown_commit_is_retried_and_stored_once(flaky, greet, database):
    async with flaky:
        flaky.lost = 2
        handle = await greet.submit("world")

    assert handle.replayed
    assert await counts(database) == {"ready": 1}


async def test_a_database_that_never_answers_leaves_a_key_to_ask_again_with(flaky, greet, database):
    async with flaky:
        flaky.lost = 100
        with pytest.raises(Unavailable, match="may or may not be stored: submit it again with key='k'") as unknown:
            await greet.options(key="k").submit("world")
        assert "tried 3 times" in str(unknown.value)

        flaky.lost = 0
        await greet.options(key="k").submit("world")
    assert await counts(database) == {"ready": 1}


@pytest.fixture
async def hinted(database):
    """The queues for which a wake-up came."""
    queues: list[str] = []
    async with database.pool.acquire() as connection:
        await connection.add_listener("duly_ready", lambda *event: queues.append(hints.names_of(event[3])[0]))
        await connection.add_listener("duly_due", lambda *_: queues.append("@due"))
        yield queues
        await connection.reset()


async def until(condition) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_work_due_now_wakes_the_workers_of_its_queue(send, greet, hinted):
    await send.submit(7, to="a")
    await until(lambda: hinted == ["mail"])

    await greet.options(delay=60).submit("world")
    await greet.submit("world")
    await until(lambda: hinted == ["mail", "default"])


async def test_a_schedule_that_is_due_soon_wakes_the_schedulers(greet, hinted):
    await greet.options(cron="0 3 * * *").submit("world")  # Its first is hours away
    await greet.options(every=60).submit("world")

    await until(lambda: hinted == ["@due"])


async def test_beside_a_transaction_that_stays_open_the_wake_up_follows_the_commit(send, database, hinted):
    async with a_submit_that_stays_open(database.url):
        await send.submit(7, to="a")
        await until(lambda: hinted == ["mail"])


async def test_wake_ups_after_the_commit_are_gathered(greet, database, hinted, monkeypatch):
    sent = []
    send = hints.send

    async def counted(database, queues):
        sent.append(queues)
        await send(database, queues)

    monkeypatch.setattr(hints, "send", counted)
    async with a_submit_that_stays_open(database.url):
        await asyncio.gather(*(greet.submit(f"guest {i}") for i in range(50)))
        await until(lambda: hinted)

    assert 1 <= len(sent) < 25


async def test_a_wake_up_that_fails_is_nobodys_business(greet, database, monkeypatch):
    async def broken(database, queues):
        raise Unavailable("gone")

    monkeypatch.setattr(hints, "send", broken)

    async with a_submit_that_stays_open(database.url):
        await greet.submit("world")
        await asyncio.sleep(0.01)
    assert await counts(database) == {"ready": 1}


def test_the_decorated_function_is_still_a_plain_call(database_url):
    app = App()

    @app.handler
    def double(x: int) -> int:
        """Double it."""
        return 2 * x

    assert double(4) == 8
    assert (double.__name__, double.__doc__, double.name) == ("double", "Double it.", "double")


def test_handler_keeps_its_old_names_as_aliases():
    app = App()

    @app.handler(name="mail.send", aliases=["send"])
    def send_mail() -> None: ...

    assert app["mail.send"] is app["send"] is send_mail
    assert app.registry.names() == ["mail.send", "send"]


def test_an_unknown_handler_is_refused_with_the_nearest_name():
    app = App()

    @app.handler
    def greet() -> None: ...

    with pytest.raises(UnknownHandler, match="did you mean 'greet'"):
        app["gret"]


def test_of_many_known_handlers_ten_are_named_and_the_rest_counted():
    known = [f"handler_{number:02}" for number in range(12)]

    assert suggestion("nosuch", known).endswith("'handler_09' and 2 more")
    assert suggestion("nosuch", known[:10]).endswith("'handler_09'")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"delay": -1}, InvalidSchedule, "delay -1 is negative"),
        ({"delay": "ten minutes"}, InvalidSchedule, "delay 'ten minutes' is not a duration; write PT30S"),
        ({"delay": "P200000D"}, InvalidSchedule, "delay 'P200000D' is too long; the longest is 100 years"),
        ({"at": datetime(2026, 11, 2)}, InvalidSchedule, "has no time zone"),  # noqa: DTZ001
        ({"delay": 1, "at": START}, InvalidOption, "delay= goes with neither at= nor every="),
        ({"delay": 1, "every": 1}, InvalidOption, "delay= goes with neither at= nor every="),
        ({"every": 0.5}, InvalidSchedule, "shorter than one second"),
        (
            {"every": 99999999999999},
            InvalidSchedule,
            "every 99999999999999 is too long; the longest is 300 years, 9486720000 seconds",
        ),
        (
            {"every": timedelta(days=400_000)},
            InvalidSchedule,
            "every 400000 days is too long; the longest is 300 years",
        ),
        ({"every": None, "delay": b"x"}, InvalidSchedule, "delay b'x' is not a duration; write PT30S"),
        ({"every": 60, "jitter": 1e300}, InvalidSchedule, "jitter 1e+300 is too long; the longest is 300 years"),
        ({"every": "PT1.5S"}, InvalidSchedule, "not a whole number of seconds"),
        (
            {"name": "x"},
            InvalidOption,
            "name= belongs to a schedule; give every=, cron=, when= or schedule= as well, or key=",
        ),
        ({"name": "", "every": 1}, InvalidOption, "name '' is not a name"),
        ({"queue": "a\nb"}, InvalidOption, "is not a name"),
        ({"key": "k" * 201}, InvalidOption, "is not a key: 1 to 200 printable characters; leave it out for none"),
        ({"key": ""}, InvalidOption, "key '' is not a key"),
        ({"key": "a\0b"}, InvalidOption, "key 'a\\x00b' is not a key"),
        ({"key": 5}, InvalidOption, "key 5 is not a key"),
        ({"name": 5, "every": 1}, InvalidOption, "name 5 is not a name"),
        ({"at": "noon"}, InvalidSchedule, "at 'noon' is not a timestamp; use a datetime with a time zone"),
        ({"priority": 10}, InvalidOption, "priority 10 is outside 0"),
        ({"timeout": 0}, InvalidOption, "timeout 0 must be more than 0"),
        ({"tenant": 0}, InvalidOption, "tenant 0 is not a tenant's number"),
        (
            {"tenant": "north"},
            InvalidOption,
            "tenant 'north' is not a tenant's number, 1 or more; `duly tenants` shows",
        ),
        ({"retry": 3}, InvalidOption, "retry 3 is not a policy; give Retry(max_attempts=3)"),
        ({"rate": ("k", 10)}, InvalidOption, "rate ('k', 10) is not a rate limit; write Rate(key, limit)"),
        ({"concurrency": "k"}, InvalidOption, "concurrency 'k' is not a key and a limit; give both"),
        ({"concurrency": ("k", "3")}, InvalidOption, "concurrency '3' is outside 1 to 999999"),
        ({"priority": "high"}, InvalidOption, "priority 'high' is outside 0 (first) to 9 (last), in whole numbers"),
        ({"priority": 2.5}, InvalidOption, "priority 2.5 is outside"),
        ({"traceparent": 7}, InvalidOption, "traceparent 7"),
        ({"delay": "P200Y"}, InvalidSchedule, "years and months have no one length: write days, up to P36500D"),
    ],
)
async def test_invalid_option_is_refused_immediately(options, error, words):
    app = App("postgresql:///nowhere")

    @app.handler
    def tick() -> None: ...

    with pytest.raises(error) as refused:
        tick.options(**options)
    assert words in str(refused.value)


async def test_a_moment_in_the_past_beyond_grace_is_refused_by_the_database(greet, database):
    with pytest.raises(
        InvalidSchedule, match=r"is in the past: the database's clock says .* Give a later time"
    ) as caught:
        await greet.options(at=START - timedelta(minutes=2)).submit("world")
    assert isinstance(caught.value, AtPast)
    assert (caught.value.code, caught.value.field) == ("AT_PAST", "at")
    at = (START - timedelta(minutes=2)).isoformat()
    with pytest.raises(TriggerError) as caught_too:
        await greet.options(schedule={"trigger": {"type": "at", "at": at}}).submit("world")
    assert (caught_too.value.code, caught_too.value.field) == ("AT_PAST", "trigger.at")
    assert await counts(database) == {}

    await greet.options(at=START - timedelta(seconds=30)).submit("world")
    assert await counts(database) == {"ready": 1}


async def test_a_submission_that_is_refused_leaves_its_key_free(greet, database):
    for choices in (
        {"at": START - timedelta(hours=1)},
        {"schedule": {"trigger": {"type": "at", "at": "2020-01-01T00:00Z"}}},
    ):
        with pytest.raises(Refused):
            await greet.options(key="order-7", **choices).submit("world")

    made = await greet.options(key="order-7").submit("world")

    assert (await greet.options(key="order-7").submit("world")).job_id == made.job_id
    assert await counts(database) == {"ready": 1}


async def test_many_schedules_at_once_are_refused(tick):
    with pytest.raises(InvalidOption, match="submit each schedule by itself"):
        await tick.options(every=1).submit_many([{}])


@pytest.mark.parametrize("option", sorted(set(Keywords.__annotations__) - {"connection"}))
@pytest.mark.parametrize("value", ["\ud800", 3.5, -1, 10**30, ("k",), ["x", 1], {"a": 1}, b"x", {1, 2}], ids=repr)
def test_option_value_of_any_kind_is_accepted_or_refused_with_a_duly_error(greet, option, value):
    """What Python itself would say of it names neither the option nor the remedy."""
    with suppress(DulyError, TriggerError):
        greet.options(**{option: value})


def test_a_retry_that_makes_no_sense_is_refused():
    with pytest.raises(InvalidOption, match="max_attempts 0 is outside 1 to 1000"):
        Retry(max_attempts=0)
    with pytest.raises(InvalidOption, match="cap at least base"):
        Retry(base="PT5M", cap="PT2S")


def test_a_strict_app_refuses_an_unknown_queue_with_the_nearest():
    app = App(queues=["mail", "reports"], strict=True)

    with pytest.raises(UnknownQueue, match=r"no queue 'mial'; did you mean 'mail'\? .* App\(queues="):

        @app.handler(queue="mial")
        def broken() -> None: ...

    assert app.registry.names() == []

    @app.handler(queue="mail")
    def send() -> None: ...

    with pytest.raises(UnknownQueue, match=r"no queue 'default'; known are 'mail', 'reports'\. A new queue is"):
        send.options(queue="default")


def test_an_app_that_is_not_strict_takes_any_queue():
    app = App(queues=["mail"])

    @app.handler(queue="other")
    def send() -> None: ...

    assert app.queues == ["mail", "other"]
    assert App().queues == ["default"]


@pytest.mark.parametrize(("queues", "words"), [(None, "names its queues"), ("mail", "give a list")])
def test_strict_app_requires_a_valid_list_of_queues(queues, words):
    with pytest.raises(InvalidOption, match=words):
        App(queues=queues, strict=True)


TRACE = f"00-{'a' * 32}-{'b' * 16}-01"


async def test_marks_travel_with_the_run(greet, database):
    await greet.options(tags=["new", "eu", "new"], request_id="r-7", traceparent=TRACE).submit("world")

    [row] = await rows(database, "ready")
    assert msgspec.json.decode(row["options"]) == {"tags": ["new", "eu"], "request_id": "r-7", "traceparent": TRACE}


async def test_handler_tags_apply_to_its_runs_unless_a_submit_sets_others(app, database):
    @app.handler(tags=["mail"])
    async def post() -> None: ...

    await post.submit()
    await post.options(tags=["urgent"]).submit()

    assert sorted(msgspec.json.decode(row["options"])["tags"][0] for row in await rows(database, "ready")) == [
        "mail",
        "urgent",
    ]


async def test_explicit_defaults_with_tags_override_those_of_the_handler(app, database):
    @app.handler(timeout="PT5S")
    async def post() -> None: ...

    await post.options(timeout=None, tags=["new"]).submit()

    [row] = await rows(database, "ready")
    assert msgspec.json.decode(row["options"]) == {"own": True, "tags": ["new"]}


@pytest.mark.parametrize(
    "marks",
    [
        {"tags": "new"},
        {"tags": [""]},
        {"tags": ["x" * 201]},
        {"tags": [7]},
        {"tags": [str(number) for number in range(33)]},
        {"request_id": ""},
        {"request_id": "a\nb"},
        {"traceparent": "00-1-2-3"},
    ],
)
def test_invalid_metadata_is_refused_immediately(greet, marks):
    with pytest.raises(InvalidOption, match=next(iter(marks)).rstrip("s").replace("_", " ")):
        greet.options(**marks)


async def test_a_policy_rules_and_an_expiry_go_with_the_run(greet, database):
    rules: list[dict[str, Any]] = [
        {"error": ConnectionError, "action": "snooze", "delay": "PT1M"},
        {"error": "ValueError", "action": "dead"},
    ]
    retry = Retry(max_attempts=4, policy="linear", base="PT5S", jitter="equal", max_age="PT1H", rules=rules)

    await greet.options(retry=retry, expires_at=START + timedelta(hours=1), expires_after="PT2H").submit("world")

    [row] = await rows(database, "ready")
    assert msgspec.json.decode(row["options"]) == {
        "own": True,
        "retry": {
            "max_attempts": 4,
            "base_seconds": 5.0,
            "cap_seconds": 600.0,
            "policy": "linear",
            "jitter": 0.5,
            "max_age_seconds": 3600.0,
            "rules": [
                {"action": "snooze", "error": "builtins.ConnectionError", "delay_seconds": 60.0},
                {"action": "dead", "error": "ValueError"},
            ],
        },
        "expires_at": (START + timedelta(hours=1)).timestamp(),
        "expires_seconds": 7200.0,
    }


async def test_an_expiry_alone_leaves_retries_to_the_handler(greet, database):
    await greet.options(expires_after="PT2H").submit("world")

    [row] = await rows(database, "ready")
    assert msgspec.json.decode(row["options"]) == {"expires_seconds": 7200.0}


def test_invalid_expiry_is_refused_immediately(greet):
    with pytest.raises(InvalidOption, match="its due time; choose a later one"):
        greet.options(at=START + timedelta(hours=2), expires_at=START + timedelta(hours=1))
    with pytest.raises(InvalidOption, match="give expires_after="):
        greet.options(every="PT1M", expires_at=START)
    with pytest.raises(InvalidOption, match="must be more than 0"):
        greet.options(expires_after=0)


def test_handler_declares_completion_callbacks_and_expiry(app):
    @app.handler(expires_after="PT5M", on_end="https://hooks.example/done", on_failure="mourn")
    def work() -> None: ...

    options = app.registry["work"].options
    callbacks = options.metadata.callbacks
    assert options.policy.expires_seconds == 300.0
    assert (callbacks.end.url, callbacks.failure.job) == ("https://hooks.example/done", "mourn")


async def test_an_ended_run_is_run_again_as_it_was_or_with_other_arguments(app, greet, database):
    handle = await greet.options(tags=["x"]).submit("world")
    worker_id = await a_worker(database)
    [run] = await claimed(database, worker_id)
    await settled(database, worker_id, run, Succeeded('"hello world"'))

    again = await handle.run.rerun()
    other = await app.run(handle.run_id).rerun({"name": "moon"}, priority=1)

    payloads = {run.run_id: run.payload for run in await claimed(database, worker_id)}
    assert payloads == {again.run_id: '{"name": "world"}', other.run_id: '{"name": "moon"}'}
    with pytest.raises(Refused, match="cannot be run again yet"):
        await again.rerun()
    with pytest.raises(InvalidArguments):
        await handle.run.rerun({"nobody": 1})
