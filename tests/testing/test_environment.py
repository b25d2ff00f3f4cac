"""A user's test: no server, a clock that moves, and what fired."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from duly import App, DeclaredInCode, Handle, InvalidSchedule, NonRetryable, Retry, Run, RunFailed, Snooze
from duly.store.boxes import runs
from duly.store.tables import schedules
from duly.testing import START, Fire, Line, environment


@pytest.fixture
def app():
    return App()


@pytest.fixture
async def env(app):
    async with environment(app) as env:
        yield env


def moments(fires: list[Fire]) -> list[timedelta]:
    return [fire.fired_at - START for fire in fires]


def hours(*numbers: float) -> list[timedelta]:
    return [timedelta(hours=number) for number in numbers]


async def test_due_run_executes_while_a_later_run_waits(app, env):
    @app.handler
    async def greet(name: str) -> str:
        return f"hello {name}"

    handle = await greet.submit("world")
    later = await greet.options(delay="PT1H").submit("moon")

    [fire] = await env.run_due()

    assert (fire.handler, fire.arguments, fire.result) == ("greet", {"name": "world"}, "hello world")
    assert (fire.outcome, fire.state, fire.attempt, fire.fired_at) == ("succeeded", "succeeded", 1, START)
    assert fire.run_id == handle.run_id
    assert await handle.result(timeout=0) == "hello world"
    assert await later.status() == "scheduled"


async def test_a_schedule_fires_at_each_of_its_moments(app, env):
    seen = []

    @app.handler
    def nightly(run: Run) -> None:
        seen.append((run.scheduled_at, run.previous_scheduled_at))

    await nightly.options(every="P1D").submit()
    fired = await env.advance("P3D")

    days = [START + timedelta(days=day) for day in range(4)]
    assert [fire.scheduled_at for fire in fired] == days
    assert seen == list(zip(days, [None, *days[:3]], strict=True))
    assert env.now == START + timedelta(days=3)


async def test_time_passes_in_pieces_as_in_one(app, env):
    @app.handler
    def tick() -> None: ...

    await tick.options(every="PT1H").submit()
    for _ in range(8):
        await env.advance("PT15M")

    assert moments(env.fires) == hours(0, 1, 2)


async def test_run_within_the_horizon_waits_for_its_due_time(app, env):
    @app.handler
    def tick() -> None: ...

    await tick.options(delay=3).submit()

    assert await env.advance(2.9) == []
    assert [fire.fired_at for fire in await env.advance(0.1)] == [START + timedelta(seconds=3)]


async def test_schedules_fire_in_the_order_of_their_moments(app, env):
    @app.handler
    async def short() -> None: ...

    @app.handler
    def long() -> None: ...

    await long.options(every="PT3H", at=START + timedelta(hours=3)).submit()
    await short.options(every="PT2H", at=START + timedelta(hours=2)).submit()
    await env.advance("PT6H")

    assert [fire.handler for fire in env.fires[:3]] == ["short", "long", "short"]
    assert moments(env.runs(short)) == hours(2, 4, 6)
    assert moments(env.runs("long")) == hours(3, 6)


async def test_a_failure_is_tried_again_and_buried_at_last(app, env):
    @app.handler(retry=Retry(max_attempts=3, base="PT1M", cap="PT1H"))
    def broken() -> None:
        raise ValueError("no luck")

    handle = await broken.submit()
    fires = await env.advance("PT1H")

    assert [(fire.attempt, fire.outcome, fire.state) for fire in fires] == [
        (1, "failed", "retrying"),
        (2, "failed", "retrying"),
        (3, "failed", "dead"),
    ]
    assert fires[0].reason == "ValueError: no luck"
    assert 'raise ValueError("no luck")' in str(fires[0].traceback)
    assert [fire.attempt for fire in env.runs(broken)] == [3]
    with pytest.raises(RunFailed, match="of broken is dead: ValueError: no luck") as failed:
        await handle.result(timeout=0)
    assert (failed.value.state, failed.value.attempts, failed.value.run_id) == ("dead", 3, handle.run_id)
    assert 'raise ValueError("no luck")' in str(failed.value.traceback)


async def test_the_same_seed_gives_the_same_retries(app):
    @app.handler(retry=Retry(base="PT1M"))
    def broken() -> None:
        raise ValueError

    seen = []
    for seed in (1, 1, 2):
        async with environment(app, seed=seed) as env:
            await broken.submit()
            seen.append(moments(await env.advance("P1D")))

    assert seen[0] == seen[1] != seen[2]


async def test_non_retryable_failure_is_dead_immediately(app, env):
    @app.handler
    async def refuse() -> None:
        raise NonRetryable("no such customer")

    await refuse.submit()

    assert [fire.state for fire in await env.advance("P1D")] == ["dead"]


async def test_snoozed_run_returns_after_its_delay(app, env):
    @app.handler
    async def wait(run: Run) -> int:
        if run.attempt < 3:
            raise Snooze("PT1H")
        return run.attempt

    handle = await wait.submit()
    await env.advance("PT3H")

    assert [fire.outcome for fire in env.fires] == ["snoozed", "snoozed", "succeeded"]
    assert moments(env.fires) == hours(0, 1, 2)
    assert await handle.result() == 3


@pytest.mark.parametrize("sync", [True, False])
async def test_a_checkpoint_is_handed_to_the_next_attempt(app, env, sync):
    @app.handler(retry=Retry(base=1))
    async def count(run: Run) -> int:
        if run.saved is None:
            await run.checkpoint({"page": 7})
            await run.progress(1, 2, "half")
            raise ValueError
        return int(run.saved["page"])

    @app.handler(retry=Retry(base=1))
    def count_plainly(run: Run) -> int:
        if run.saved is None:
            run.checkpoint_sync({"page": 8})
            run.progress_sync(1, 2, "half")
            raise ValueError
        return int(run.saved["page"])

    handle = await (count_plainly if sync else count).submit()
    await env.run_due()
    progress = await runs.read_progress(await app.connections.database(), handle.run_id)
    await env.advance("PT1M")

    assert await handle.result(timeout=0) == (8 if sync else 7)
    assert progress is not None
    assert (progress["fraction"], progress["note"]) == (0.5, "half")


async def test_log_lines_are_there_to_assert(app, env):
    @app.handler
    def build(run: Run, customer: int) -> None:
        run.log.info("building", customer=customer)

    await build.submit(7)

    assert (await env.run_due())[0].logs == (Line("info", "building", {"customer": 7}),)


async def test_a_handler_submits_another_in_the_same_world(app, env):
    @app.handler
    async def child(number: int) -> int:
        return number

    @app.handler
    async def parent() -> None:
        await child.submit(1)

    @app.handler
    def plain_parent() -> None:
        child.options(delay="PT1H").submit_sync(2)

    await parent.submit()
    await plain_parent.submit()
    await env.advance("PT1H")

    assert [(fire.result, fire.fired_at) for fire in env.runs(child)] == [
        (1, START),
        (2, START + timedelta(hours=1)),
    ]


async def test_a_handler_that_calls_itself_for_ever_is_named(app, env, monkeypatch):
    monkeypatch.setattr("duly.testing.environments.FIRES_AT_ONE_MOMENT_MAX", 20)

    @app.handler
    async def again() -> None:
        await again.submit()

    await again.submit()

    with pytest.raises(RuntimeError, match=r"21 runs fired at 2026-01-01 .*: does again call itself\?"):
        await env.run_due()


async def test_a_cancelled_job_does_not_fire(app, env):
    @app.handler
    def tick() -> None: ...

    schedule = await tick.options(every="PT1H").submit()
    one = await tick.options(delay=3).submit()
    await env.run_due()

    assert [await schedule.cancel(), await one.cancel()] == ["cancelled", "cancelled"]
    assert await env.advance("P1D") == []
    assert await one.cancel() == "too_late"
    with pytest.raises(RunFailed, match="is cancelled: cancelled"):
        await one.result()


async def test_a_run_that_cancels_itself_and_fails_is_not_tried_again(app, env):
    handles: list[Handle[None]] = []

    @app.handler
    async def stop() -> None:
        assert await handles[0].cancel() == "requested"
        raise ValueError

    handles.append(await stop.submit())
    await env.advance("PT1H")

    assert len(env.fires) == 1
    assert await handles[0].status() == "cancelled"


async def test_large_payloads_come_whole(app, env):
    @app.handler
    def measure(text: str) -> int:
        return len(text)

    await measure.submit("x" * 100_000)

    assert (await env.run_due())[0].result == 100_000


async def test_every_queue_is_served(app, env):
    @app.handler(queue="mail")
    def send() -> None: ...

    await send.submit()
    await send.options(queue="other").submit()

    assert len(await env.run_due()) == 2


async def test_an_unknown_handler_waits(app, env):
    @app.handler
    def known() -> None: ...

    database = await app.connections.database()
    await database.execute("select duly.submit('unknown', '{}')")
    await known.submit()

    assert [fire.handler for fire in await env.advance("PT1H")] == ["known"]


async def test_a_timeout_stops_an_async_handler(app, env):
    @app.handler(timeout=0.01, retry=Retry(max_attempts=1))
    async def slow(run: Run) -> None:
        assert run.deadline == START + timedelta(seconds=0.01)
        await asyncio.sleep(30)

    await slow.submit()

    assert [(fire.outcome, fire.state) for fire in await env.run_due()] == [("timed_out", "dead")]


@pytest.mark.parametrize(("timeout", "outcome"), [(0.01, "timed_out"), (60, "succeeded")])
async def test_a_plain_function_that_outlasts_its_timeout_has_not_succeeded(app, env, timeout, outcome):
    @app.handler(timeout=timeout, retry=Retry(max_attempts=1))
    def slow() -> str:
        time.sleep(0.02)
        return "a worker would have killed it before"

    await slow.submit()
    assert [fire.outcome for fire in await env.run_due()] == [outcome]


async def test_environment_time_begins_at_the_given_moment(app):
    @app.handler
    def tick() -> None: ...

    begin = datetime(2027, 3, 28, 0, 30, tzinfo=UTC)
    async with environment(app, at=begin) as env:
        handle = await tick.options(delay=60).submit()

        assert env.now == begin
        assert handle.scheduled_at == begin + timedelta(seconds=60)


async def test_environment_time_never_goes_backward(env):
    with pytest.raises(InvalidSchedule, match="advance -1 is negative; time only goes on"):
        await env.advance(-1)


async def test_environments_do_not_see_each_other(app):
    @app.handler
    def tick() -> None: ...

    async with environment(app) as env:
        await tick.submit()
        assert len(await env.run_due()) == 1
    async with environment(app) as env:
        assert await env.run_due() == []


async def test_afterwards_the_app_is_where_it_was():
    app = App("postgresql:///elsewhere")

    async with environment(app):
        assert "elsewhere" not in app.locate()
    assert app.locate() == "postgresql:///elsewhere"


def test_a_plain_test_needs_no_loop(app):
    @app.handler
    def tick() -> None: ...

    with environment(app) as env:
        tick.options(every="PT1H").submit_sync()
        assert len(env.advance_sync("PT2H")) == 3
        assert env.run_due_sync() == []


async def test_a_result_that_takes_longer_than_the_caller_waits(app, env):
    @app.handler
    def tick() -> int:
        return 7

    handle = await tick.submit()
    with pytest.raises(TimeoutError, match=r"of tick is ready after 0\.0"):
        await handle.result(timeout=0.02)

    waiting = asyncio.create_task(handle.result(timeout=10))
    await env.run_due()
    assert await waiting == 7


async def test_the_result_of_a_schedule_is_that_of_its_first_run(app, env):
    @app.handler
    def tick(run: Run) -> int:
        return run.attempt

    handle = await tick.options(every="PT1H").submit()
    await env.advance("PT2H")

    assert await handle.result(timeout=0) == 1


async def test_a_declared_schedule_is_there_on_entering_and_fires(app):
    @app.handler(cron="0 2 * * *", tz="Europe/Paris", payload={"days": 7})
    def nightly(days: int) -> int:
        return days

    async with environment(app) as env:
        await env.advance("P2D")

    assert moments(env.runs(nightly)) == hours(1, 25)
    assert [fire.result for fire in env.fires] == [7, 7]


async def test_a_declared_schedule_is_edited_in_the_code_alone(app):
    @app.handler(every="PT1H")
    def hourly() -> None: ...

    async with environment(app) as env:
        await env.run_due()
        job = app.job(f"{__name__}:hourly")
        for change in (job.edit(every="PT2H"), job.cancel()):
            with pytest.raises(DeclaredInCode, match="is declared in testing"):
                await change
        assert (await job.pause(), await job.resume()) == ("paused", "active")
        assert (await job.trigger()).state == "ready"


def test_a_declared_schedule_fires_in_a_plain_test_too(app):
    @app.handler(when="every 15 minutes")
    def often() -> None: ...

    with environment(app) as env:
        env.advance_sync("PT30M")

    assert moments(env.fires) == hours(0, 0.25, 0.5)


async def test_schedule_declared_later_fires_from_then_on(app, env):
    await env.advance("PT1H")

    @app.handler(every="PT1H")
    def hourly() -> None: ...

    await env.advance("PT2H")

    assert moments(env.fires) == hours(1, 2, 3)


async def test_declared_schedule_is_refused_until_its_calendar_exists(app):
    @app.handler(cron="0 2 * * *", calendars=["closed"])
    def nightly() -> None: ...

    async with environment(app) as env:
        where = r"test_environment:nightly: calendars\[0\].name 'closed'"
        with pytest.raises(InvalidSchedule, match=rf"{where} .*duly calendars put FILE"):
            await env.advance("P1D")
        await schedules.put_calendar(await app.connections.database(), 1, "closed", '{"name": "closed"}')
        await env.advance("P1D")

    assert len(env.fires) == 1
