"""Schedules from Python: every kind is said in one option, and what contradicts is refused when it is said."""

import re
from datetime import UTC, datetime, timedelta

import msgspec
import psycopg
import pytest

from duly import App, InvalidOption, InvalidSchedule, TriggerError
from duly.domain.triggers.jitter import spread
from duly.store.tables import jobs
from duly.store.tenancy import tenants
from duly.store.tenancy.tenants import Limits
from tests.clock import START  # Monday, 2026-11-02 09:00:00 UTC

TOMORROW = START + timedelta(days=1)
HOLIDAYS = {"name": "holidays", "dates": ["2026-11-03"]}


def at(day, hour, minute=0):
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


async def stored(database, handle):
    found = await jobs.find(database, handle.job_id)
    assert found
    return msgspec.json.decode(found["schedule"])


async def test_cron_in_a_zone_tells_its_next_three_fires_and_itself_in_english(tick):
    handle = await tick.options(cron="30 2 * * 1-5", tz="Europe/Paris", name="nightly").submit()

    assert handle.next_fires == [at(3, 1, 30), at(4, 1, 30), at(5, 1, 30)]
    assert handle.description == "At 02:30, Monday to Friday, Europe/Paris time"
    assert handle.scheduled_at == at(3, 1, 30)
    assert await handle.status() == "active"


async def test_english_is_a_schedule(tick, database):
    handle = await tick.options(when="every weekday at 9:30am", tz="Europe/Paris").submit()

    assert handle.next_fires == [at(3, 8, 30), at(4, 8, 30), at(5, 8, 30)]
    assert (await stored(database, handle))["requested"]["text"] == "every weekday at 9:30am"


async def test_english_may_be_a_moment(tick):
    handle = await tick.options(when="tomorrow at 9am", tz="Europe/Paris").submit()

    assert handle.next_fires == [at(3, 8)]
    assert handle.description == "Once, at 2026-11-03 08:00:00 UTC"


@pytest.mark.parametrize(
    ("trigger", "description", "fires"),
    [
        (
            {"type": "rrule", "rrule": "FREQ=MONTHLY;BYDAY=-1FR", "dtstart": "2026-11-01T09:00:00"},
            "Every month on the last Friday of the month at 09:00",
            [at(27, 9), datetime(2026, 12, 25, 9, tzinfo=UTC), datetime(2027, 1, 29, 9, tzinfo=UTC)],
        ),
        (
            {"type": "iso8601", "text": "R2/2026-11-05T09:00:00Z/PT1H"},
            "Every hour from 2026-11-05 09:00:00 UTC, 2 times",
            [at(5, 9), at(5, 10)],
        ),
        (
            {"type": "any", "of": [{"type": "cron", "expr": "0 9 * * *"}, {"type": "cron", "expr": "0 12 * * *"}]},
            None,
            [at(2, 9), at(2, 12), at(3, 9)],
        ),
    ],
)
async def test_full_schedule_shape_accepts_any_trigger(tick, trigger, description, fires):
    handle = await tick.options(schedule={"trigger": trigger}).submit()

    assert handle.next_fires == fires
    assert description is None or handle.description == description


async def test_full_schedule_shape_combines_with_other_options(tick, database):
    shape = {"trigger": {"type": "cron", "expr": "0 9 * * *"}, "misfire": {"policy": "skip"}}

    handle = await tick.options(schedule=shape, overlap="queue", max_runs=2).submit()

    kept = await stored(database, handle)
    assert (kept["misfire"], kept["overlap"], kept["max_runs"]) == ({"policy": "skip"}, {"policy": "queue"}, 2)
    assert len(handle.next_fires) == 2


async def test_schedule_stores_every_option(app, tick, database):
    await app.put_calendar(HOLIDAYS)

    handle = await tick.options(
        cron="0 2 * * *",
        tz="Europe/Paris",
        start=TOMORROW,
        end="2026-12-01T00:00:00",
        max_runs=10,
        jitter=timedelta(minutes=5),
        misfire={"policy": "fire_all", "rate": 2},
        overlap="queue",
        calendars=["holidays", {"name": "holidays", "mode": "exclude", "on_hit": "defer"}],
        pause_on_failure=3,
    ).submit()

    kept = await stored(database, handle)
    assert kept["start"] == "2026-11-03T09:00:00Z"
    assert (kept["jitter"], kept["misfire"], kept["overlap"]) == (
        {"max": "PT5M"},
        {"policy": "fire_all", "rate": 2},
        {"policy": "queue"},
    )
    assert [use["name"] for use in kept["calendars"]] == ["holidays", "holidays"]
    assert (kept["max_runs"], kept["pause_on_failure"]) == (10, 3)


async def test_the_next_fires_know_of_jitter_and_calendars(app, tick):
    await app.put_calendar(HOLIDAYS)

    handle = await tick.options(cron="0 12 * * *", jitter={"max": "PT1H"}, calendars=["holidays"]).submit()

    delay = timedelta(seconds=spread(str(handle.job_id), 3600))
    assert handle.next_fires == [at(2, 12) + delay, at(4, 12) + delay, at(5, 12) + delay]


async def test_of_a_delay_after_each_run_only_the_first_fire_is_known(tick):
    handle = await tick.options(every="PT1H", mode="fixed_delay", at=TOMORROW).submit()

    assert handle.next_fires == [TOMORROW]
    assert handle.description == "1 hour after the end of each run, the first at 2026-11-03 09:00:00 UTC"


async def test_the_same_key_is_the_same_schedule_however_much_later(tick, database, clock):
    options = tick.options(cron="H H * * *", key="k")
    first = await options.submit()
    await clock.advance(30)

    again = await options.submit()

    assert (again.job_id, again.replayed) == (first.job_id, True)
    assert again.next_fires == first.next_fires
    assert again.description == first.description


async def test_a_schedule_may_be_submitted_inside_the_callers_transaction(tick, database_url, database):
    with psycopg.connect(database_url) as connection:
        handle = tick.options(cron="0 12 * * *", connection=connection).submit_sync()
        assert handle.next_fires[0] == at(2, 12)
        assert await jobs.find(database, handle.job_id) is None, "not committed yet"
    assert await handle.status() == "active"


async def test_a_calendar_that_changes_arms_its_schedules_anew(app, tick):
    await app.put_calendar({"name": "holidays"})
    handle = await tick.options(cron="0 12 * * *", calendars=["holidays"]).submit()

    assert await app.put_calendar({"name": "holidays", "dates": ["2026-11-02"]}) == 1
    assert (await handle.details()).next_fires[0] == at(3, 12)
    assert app.put_calendar_sync(HOLIDAYS) == 1
    assert (await handle.details()).next_fires[:2] == [at(2, 12), at(4, 12)]


async def test_a_calendar_that_is_not_there_is_refused_at_submit(tick):
    with pytest.raises(TriggerError, match=r"calendars\[0\].name 'holidays' is not a calendar; .*duly calendars put"):
        await tick.options(cron="0 12 * * *", calendars=["holidays"]).submit()


async def test_past_time_is_refused_by_the_database_clock(tick):
    with pytest.raises(TriggerError, match="in the past"):
        await tick.options(when="2026-11-01 at noon").submit()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"cron": "0 25 * * *"}, TriggerError, "hour 25 is outside 0–23"),
        ({"cron": "0 0 30 2 *"}, TriggerError, "no date"),
        ({"cron": 7}, TriggerError, "expr 7 is not text"),
        ({"cron": "0 2 * * *", "tz": "EST"}, TriggerError, "America/New_York"),
        ({"when": "every banana"}, TriggerError, 'stopped at "banana"'),
        ({"when": "every day at 9am", "start": "yesterday"}, TriggerError, "start 'yesterday'"),
        ({"cron": "0 2 * * *", "start": "2026-11-03T00:00:00"}, TriggerError, "has no offset"),
        ({"cron": "0 2 * * *", "start": START, "end": START}, TriggerError, "is not after start; give a later end"),
        ({"cron": "0 2 * * *", "start": datetime(2026, 1, 1)}, InvalidSchedule, "has no time zone"),  # noqa: DTZ001
        ({"cron": "0 2 * * *", "jitter": "5 minutes"}, TriggerError, "jitter.max '5 minutes'"),
        ({"cron": "0 2 * * *", "jitter": "PT25H"}, TriggerError, "over 24 hours"),
        ({"cron": "0 2 * * *", "jitter": {"max": "PT5M", "per": "day"}}, TriggerError, "jitter.per 'day' is unknown"),
        ({"cron": "0 2 * * *", "misfire": "later"}, TriggerError, "misfire.policy 'later' is unknown; use fire_once"),
        ({"cron": "0 2 * * *", "overlap": "buffer"}, TriggerError, "overlap.policy 'buffer' is unknown; use skip"),
        ({"cron": "0 2 * * *", "max_runs": 0}, TriggerError, "max_runs 0 is not a whole number from 1"),
        ({"cron": "0 2 * * *", "pause_on_failure": True}, TriggerError, "pause_on_failure True"),
        ({"cron": "0 2 * * *", "calendars": "holidays"}, TriggerError, "calendars 'holidays' is not a list"),
        ({"cron": "0 2 * * *", "calendars": [{"name": "x", "mode": "only"}]}, TriggerError, "mode 'only' is unknown"),
        ({"every": 60, "mode": "fixed"}, TriggerError, "mode 'fixed' is unknown; use fixed_rate or fixed_delay"),
        ({"schedule": {"type": "cron"}}, TriggerError, "'type' is not a key here"),
        ({"schedule": {"trigger": {"type": "crom"}}}, TriggerError, "did you mean cron?"),
        ({"schedule": "0 2 * * *"}, InvalidOption, "schedule= '0 2 * * *' is not the shape of a schedule"),
        ({"cron": "0 2 * * *", "every": 60}, InvalidOption, "every= and cron= are both triggers; give one"),
        ({"cron": "0 2 * * *", "when": "hourly"}, InvalidOption, "cron= and when= are both triggers"),
        ({"cron": "0 2 * * *", "at": START}, InvalidOption, "with cron=, give start="),
        ({"cron": "0 2 * * *", "delay": 5}, InvalidOption, "delay= goes with neither at= nor every="),
        ({"cron": "0 2 * * *", "mode": "fixed_delay"}, InvalidOption, "mode= is for every="),
        ({"every": 60, "tz": "Nope/Zone"}, TriggerError, "'Nope/Zone' is not a time zone here"),
        ({"schedule": {"trigger": {}}, "tz": "UTC"}, InvalidOption, "tz= goes into the trigger of schedule="),
        (
            {"schedule": {"trigger": {}, "overlap": {"policy": "skip"}}, "overlap": "queue"},
            InvalidOption,
            "overlap= is in schedule= already; give it once",
        ),
        ({"tz": "Europe/Paris"}, InvalidOption, "tz= belongs to a schedule; give every=, cron=, when= or schedule="),
        ({"at": START, "jitter": "PT5M"}, InvalidOption, "jitter= belongs to a schedule"),
        ({"delay": 5, "overlap": "queue"}, InvalidOption, "overlap= belongs to a schedule"),
    ],
)
def test_invalid_schedule_options_are_refused_immediately(options, error, words):
    app = App("postgresql:///nowhere")

    @app.handler
    def tick() -> None: ...

    with pytest.raises(error, match=re.escape(words)):
        tick.options(**options)


def test_schedule_errors_are_raised_together():
    app = App("postgresql:///nowhere")

    @app.handler
    def tick() -> None: ...

    with pytest.raises(TriggerError) as refused:
        tick.options(cron="60 25 * * *", overlap="never")  # type: ignore[arg-type]
    assert [error.field for error in refused.value.errors] == ["trigger.expr", "trigger.expr", "overlap.policy"]


@pytest.mark.parametrize(
    "dense", [{"every": "PT1M"}, {"cron": "* * * * *"}, {"every": 60, "mode": "fixed_delay"}], ids=str
)
async def test_schedule_denser_than_the_tenant_limit_is_refused(tick, database, database_url, dense):
    await tenants.set_limits(database, 1, Limits(least_period=timedelta(minutes=2)))

    with pytest.raises(TriggerError, match=r"PT2M apart or more.* duly tenants limits") as refused:
        await tick.options(**dense).submit()
    assert (refused.value.code, refused.value.field) == ("LIMIT", "trigger")
    with psycopg.connect(database_url) as connection, pytest.raises(TriggerError, match="PT2M apart or more"):
        tick.options(**dense, connection=connection).submit_sync()

    handle = await tick.options(every="PT2M").submit()
    with pytest.raises(TriggerError, match="PT2M apart or more"):
        await handle.edit(**dense)
