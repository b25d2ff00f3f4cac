"""Schedules in a user's test: time is advanced, and what fires is what a scheduler would fire."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from duly import App, NonRetryable, Run, Snooze
from duly.domain.triggers.jitter import spread
from duly.testing import START, environment

HOUR = timedelta(hours=1)


@pytest.fixture
def app():
    return App()


@pytest.fixture
async def env(app):
    async with environment(app) as opened:
        yield opened


def moments(fires):
    return [fire.scheduled_at for fire in fires]


async def test_cron_fires_by_the_clock_on_the_wall(app):
    @app.handler
    def nightly() -> None: ...

    async with environment(app, at=datetime(2026, 3, 7, tzinfo=UTC)) as env:
        await nightly.options(cron="30 2 * * *", tz="America/New_York").submit()
        fires = await env.advance("P3D")

    # 02:30 does not exist on the 8th.
    assert [fire.fired_at.strftime("%d %H:%M") for fire in fires] == ["07 07:30", "08 07:00", "09 06:30"]


async def test_words_fire_once_if_they_name_a_moment(app, env):
    @app.handler
    def remind() -> str:
        return "done"

    handle = await remind.options(when="tomorrow at 9am").submit()
    fires = await env.advance("P7D")

    assert moments(fires) == [START + timedelta(days=1, hours=9)]
    assert await handle.result(timeout=0) == "done"
    assert await handle.status() == "completed"


async def test_jitter_delays_each_fire_by_the_same(app, env):
    @app.handler
    def tick() -> None: ...

    handle = await tick.options(cron="0 12 * * *", jitter="PT1H").submit()
    fires = await env.advance("P2D")

    delay = timedelta(seconds=spread(str(handle.job_id), 3600))
    assert [fire.fired_at - fire.scheduled_at for fire in fires] == [delay, delay]
    assert handle.next_fires[:2] == [fire.fired_at for fire in fires]


async def test_outage_replaces_all_missed_runs_by_one(app, env):
    seen = []

    @app.handler
    def hourly(run: Run) -> None:
        seen.append(run.missed)

    await hourly.options(cron="0 * * * *").submit()
    await env.advance("PT1H")
    await env.outage("PT6H30M")
    fires = await env.advance("PT1H")

    assert seen == [fire.missed for fire in env.fires] == [0, 0, 6, 0]
    assert moments(fires) == [START + 7 * HOUR, START + 8 * HOUR]


async def test_outage_with_fire_all_catches_up_at_the_given_rate(app, env):
    @app.handler
    def hourly() -> None: ...

    await hourly.options(cron="0 * * * *", misfire={"policy": "fire_all", "rate": 0.1}).submit()
    await env.outage("PT3H30M")
    fires = await env.advance("PT25M")

    assert moments(fires) == [START + hour * HOUR for hour in (0, 1, 2, 3)]
    assert {later.fired_at - sooner.fired_at for sooner, later in pairwise(fires)} == {timedelta(seconds=10)}


async def test_outage_with_skip_drops_missed_runs(app, env):
    @app.handler
    def hourly() -> None: ...

    await hourly.options(cron="0 * * * *", misfire="skip").submit()
    await env.outage("PT3H30M")

    assert moments(await env.advance("PT1H")) == [START + 4 * HOUR]


@pytest.mark.parametrize(("overlap", "fired"), [("skip", [0, 3]), ("queue", [0, 1, 2, 3]), ("buffer_one", [0, 2, 3])])
async def test_overlap_policy_decides_which_runs_fire(app, env, overlap, fired):
    @app.handler
    def slow(run: Run) -> None:
        if run.scheduled_at == START and run.attempt == 1:
            raise Snooze("PT2H30M")

    await slow.options(cron="0 * * * *", overlap=overlap).submit()
    await env.advance("PT3H")

    assert sorted(moments(env.runs(slow))) == [START + hour * HOUR for hour in fired]


async def test_a_delay_counts_from_the_end_of_each_run(app, env):
    @app.handler
    def poll(run: Run) -> None:
        if run.scheduled_at == START and run.attempt == 1:
            raise Snooze("PT30M")

    await poll.options(every="PT1H", mode="fixed_delay").submit()
    await env.advance("PT3H")

    assert moments(env.runs(poll)) == [START, START + timedelta(minutes=90), START + timedelta(minutes=150)]


async def test_a_schedule_ends_after_so_many_runs(app, env):
    @app.handler
    def tick() -> None: ...

    handle = await tick.options(every="PT1H", max_runs=2).submit()

    assert len(await env.advance("P1D")) == 2
    assert await handle.status() == "completed"


async def test_schedule_pauses_itself_after_repeated_failures(app, env):
    @app.handler
    def broken() -> None:
        raise NonRetryable("no luck")

    handle = await broken.options(every="PT1H", pause_on_failure=2).submit()

    assert len(await env.advance("P1D")) == 2
    assert (await handle.details()).pause_reason == "2 runs in a row failed"


async def test_a_calendar_holds_it_back(app, env):
    @app.handler
    def tick() -> None: ...

    await app.put_calendar({"name": "closed", "dates": ["2026-01-02", "2026-01-03"]})
    await tick.options(cron="0 12 * * *", calendars=["closed"]).submit()

    assert [fire.scheduled_at.day for fire in await env.advance("P4D")] == [1, 4]


async def test_a_backfill_makes_the_past_again(app, env):
    @app.handler
    def daily() -> None: ...

    handle = await daily.options(cron="0 12 * * *").submit()
    await handle.backfill(START - timedelta(days=3), START)
    fires = await env.advance("PT1M")

    assert moments(fires) == [START - timedelta(hours=12, days=days) for days in (2, 1, 0)]
    assert [fire.fired_at - START for fire in fires] == [timedelta(seconds=second) for second in (0, 1, 2)]


async def test_schedule_verbs_work_in_the_test_environment(app, env):
    @app.handler
    def tick(note: str = "") -> str:
        return note

    await tick.options(every="PT1H", at=START + HOUR, name="hourly").submit()
    job = app.job("hourly")

    await job.skip_next()
    assert await env.advance("PT1H") == []
    await job.pause()
    assert await env.advance("PT1H") == []
    await job.resume()
    assert moments(await env.advance("PT1H")) == [START + 3 * HOUR]
    run = await job.trigger({"note": "now"})
    await env.run_due()
    assert await run.result(timeout=0) == "now"
