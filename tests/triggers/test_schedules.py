"""Schedules: bounds, calendars, jitter, and the preview that shows them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly import triggers
from duly.domain.triggers.calendars import Use, first_permitted
from duly.domain.triggers.jitter import spread
from duly.domain.triggers.moments import second_of
from duly.triggers import Calendar, Schedule, TriggerError, compile_schedule, read_calendar

NOW = datetime(2026, 12, 23, tzinfo=UTC)
HOLIDAYS = read_calendar({"name": "uk", "tz": "Europe/London", "dates": ["2026-12-25", "2026-12-26"]})
NIGHT = read_calendar({"name": "night", "weekly": [{"days": "MON-SUN", "from": "20:00", "to": "24:00"}]})
OFFICE = read_calendar({"name": "office", "weekly": [{"days": "MON-FRI", "from": "09:00", "to": "17:00"}]})
FREEZE = read_calendar(
    {"name": "freeze", "windows": [{"start": "2026-12-24T09:30:00Z", "end": "2026-12-24T11:00:00Z"}]}
)
KNOWN = {calendar.name: calendar for calendar in (HOLIDAYS, NIGHT, OFFICE, FREEZE)}


def cron(expr: str, tz: str = "UTC") -> dict[str, Any]:
    return {"type": "cron", "expr": expr, "tz": tz}


def a_schedule(trigger: dict[str, Any], **parts: Any) -> Schedule:
    return compile_schedule({"trigger": trigger, **parts}, job_id="job", now=NOW, known_calendars=KNOWN)


def fires(schedule: Schedule, count: int, after: datetime = NOW) -> list[str]:
    found: list[str] = []
    fire = schedule.next_after(after)
    while fire is not None and len(found) < count:
        found.append(f"{fire.scheduled_at:%d %H:%M}" + ("*" if fire.deferred_by else ""))
        fire = schedule.next_after(fire.scheduled_at)
    return found


def test_the_start_is_in_and_the_end_is_out():
    bounded = a_schedule(cron("0 9 * * *"), start="2026-12-24T09:00:00Z", end="2026-12-26T09:00:00Z")
    assert fires(bounded, 5) == ["24 09:00", "25 09:00"]


def test_an_excluded_day_is_skipped():
    assert fires(a_schedule(cron("0 9 * * *"), calendars=[{"name": "uk"}]), 4) == [
        "23 09:00",
        "24 09:00",
        "27 09:00",
        "28 09:00",
    ]


def test_blocked_fires_are_folded_into_one_at_the_first_permitted_instant():
    deferred = a_schedule(cron("30 */6 * * *"), calendars=[{"name": "uk", "on_hit": "defer"}])
    assert fires(deferred, 4, datetime(2026, 12, 24, 17, tzinfo=UTC)) == [
        "24 18:30",
        "27 00:00*",
        "27 00:30",
        "27 06:30",
    ]


def test_a_deferred_fire_is_found_from_inside_the_blocked_time():
    deferred = a_schedule(cron("0 9 * * *"), calendars=[{"name": "uk", "on_hit": "defer"}])
    assert fires(deferred, 2, datetime(2026, 12, 26, 12, tzinfo=UTC)) == ["27 00:00*", "27 09:00"]


def test_a_deferred_fire_is_found_however_many_are_skipped_after_it():
    night = read_calendar({"name": "night", "weekly": [{"days": "MON-SUN", "from": "00:00", "to": "06:00"}]})
    june = {"name": "june", "windows": [{"start": "2026-06-01T05:00:00Z", "end": "2026-06-20T06:00:00Z"}]}
    uses = [{"name": "night", "on_hit": "defer"}, {"name": "june", "on_hit": "skip"}]
    schedule = compile_schedule(
        {"trigger": {"type": "cron", "expr": "* * * * *"}, "end": "2026-06-20T05:00:00Z", "calendars": uses},
        job_id=None,
        now=datetime(2026, 5, 1, tzinfo=UTC),
        known_calendars={"night": night, "june": read_calendar(june)},
    )
    fire = schedule.next_after(datetime(2026, 6, 1, 0, 30, tzinfo=UTC))

    assert fire is not None
    assert fire.scheduled_at == datetime(2026, 6, 20, 6, tzinfo=UTC)
    assert schedule.next_after(fire.scheduled_at - timedelta(seconds=1)) == fire, "27,000 are skipped in between"
    assert schedule.latest_at_or_before(fire.scheduled_at) == fire


def test_included_calendar_blocks_moments_it_does_not_cover():
    office = a_schedule(cron("0 */4 * * *"), calendars=[{"name": "office", "mode": "include"}])
    assert fires(office, 4) == ["23 12:00", "23 16:00", "24 12:00", "24 16:00"]


def test_all_calendars_must_permit():
    both = a_schedule(cron("0 */4 * * *"), calendars=[{"name": "office", "mode": "include"}, {"name": "uk"}])
    assert fires(both, 5) == ["23 12:00", "23 16:00", "24 12:00", "24 16:00", "28 12:00"]


def test_a_dense_trigger_crosses_a_long_block_at_once():
    every_second = a_schedule(cron("* * * * * *"), calendars=[{"name": "uk"}])
    fire = every_second.next_after(datetime(2026, 12, 24, 23, 59, 59, tzinfo=UTC))
    assert fire is not None
    assert fire.scheduled_at == datetime(2026, 12, 27, tzinfo=UTC)


def test_a_calendar_that_blocks_all_is_refused():
    with pytest.raises(TriggerError, match="block every occurrence for 400 days"):
        a_schedule(cron("0 21 * * *"), calendars=[{"name": "night"}])


def test_a_dense_trigger_that_is_blocked_for_years_is_refused_at_once():
    years = read_calendar(
        {"name": "years", "windows": [{"start": "2026-01-01T00:00:00Z", "end": "2036-01-01T00:00:00Z"}]}
    )
    for on_hit in ("skip", "defer"):
        shape = {"trigger": cron("* * * * * *"), "calendars": [{"name": "years", "on_hit": on_hit}]}
        with pytest.raises(TriggerError, match="block every occurrence"):
            compile_schedule(shape, job_id="job", now=NOW, known_calendars={"years": years})


def test_a_window_is_half_open():
    around = a_schedule(cron("*/30 * * * *"), calendars=[{"name": "freeze"}])
    assert fires(around, 3, datetime(2026, 12, 24, 8, 45, tzinfo=UTC)) == ["24 09:00", "24 11:00", "24 11:30"]


def test_a_fire_deferred_before_the_end_is_kept_after_it():
    deferred = a_schedule(cron("0 9 * * *"), end="2026-12-26T00:00:00Z", calendars=[{"name": "uk", "on_hit": "defer"}])
    for hour in range(0, 48, 5):
        after = datetime(2026, 12, 25, 9, tzinfo=UTC) + timedelta(hours=min(hour, 38))
        assert fires(deferred, 3, after) == ["27 00:00*"]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_asking_a_schedule_afresh_equals_iterating(seed: int):
    random = Random(seed)
    names = random.sample(sorted(KNOWN), random.randint(1, 3))
    uses = [
        {"name": name, "mode": "exclude", "on_hit": random.choice(["skip", "defer"])}
        for name in names
        if name != "office"
    ]
    if "office" in names:
        uses.append({"name": "office", "mode": "include", "on_hit": random.choice(["skip", "defer"])})
    expr = random.choice(["*/20 * * * *", "15 */3 * * *", "0 10 * * *", "30 19-22 * * *", "0 0 * * *"])
    try:
        schedule = a_schedule(cron(expr, random.choice(["UTC", "Europe/London", "Asia/Tokyo"])), calendars=uses)
    except TriggerError:
        return  # The calendars leave it nothing.
    moment = datetime(2026, 12, 22, tzinfo=UTC) + timedelta(minutes=random.randrange(6000))
    for _ in range(8):
        fire = schedule.next_after(moment)
        assert fire is not None
        assert fire.scheduled_at > moment
        between = moment + (fire.scheduled_at - moment) * random.random()
        assert schedule.next_after(min(between, fire.scheduled_at - timedelta(microseconds=1))) == fire
        moment = fire.scheduled_at


def test_a_local_day_has_the_length_the_clock_gives_it():
    spring = read_calendar({"name": "d", "tz": "America/New_York", "dates": ["2026-03-08", "2026-11-01"]})
    use = [Use(spring)]
    for start, hours in (("2026-03-08T05:00:00+00:00", 23), ("2026-11-01T04:00:00+00:00", 25)):
        second = second_of(datetime.fromisoformat(start))
        assert first_permitted(use, second) == second + hours * 3600
        assert first_permitted(use, second - 1) == second - 1


def h(text: str) -> int:
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big")


def test_jitter_is_one_delay_for_the_job():
    jittered = a_schedule(cron("0 9 * * *"), jitter={"max": "PT5M"})
    for day in (23, 24, 25):
        fire = jittered.next_after(datetime(2026, 12, day, tzinfo=UTC))
        assert fire is not None
        assert jittered.due_at(fire, "job") - fire.scheduled_at == timedelta(seconds=h("job") * 300 >> 64)


def test_jitter_per_occurrence_depends_on_the_scheduled_moment():
    jittered = a_schedule(cron("0 9 * * *"), jitter={"max": "PT5M", "per": "occurrence"})
    fire = jittered.next_after(NOW)
    assert fire is not None
    expected = h("job|2026-12-23T09:00:00Z") * 300 >> 64
    assert jittered.due_at(fire, "job") == fire.scheduled_at + timedelta(seconds=expected)


def test_jitter_preserves_order_and_avoids_calendar_blackouts():
    each_minute = a_schedule(cron("* * * * *"), jitter={"max": "PT24H"}, calendars=[{"name": "freeze"}])
    for job in map(str, range(50)):
        fire = each_minute.next_after(datetime(2026, 12, 24, 9, 28, 59, tzinfo=UTC))
        assert fire is not None
        due = each_minute.due_at(fire, job)
        assert fire.scheduled_at <= due < datetime(2026, 12, 24, 9, 30, tzinfo=UTC)
    assert all(0 <= spread(str(number), 60) < 60 for number in range(1000))


def test_policies_have_their_defaults():
    plain = a_schedule(cron("0 9 * * *"))
    assert (plain.misfire.policy, plain.misfire.grace_seconds, plain.misfire.window_seconds) == ("fire_once", 60, None)
    assert (plain.overlap.policy, plain.overlap.limit) == ("skip", None)
    with pytest.raises(TriggerError, match="overlap 'skip' is not an object with keys: policy, limit"):
        a_schedule(cron("0 9 * * *"), overlap="skip")
    catching_up = a_schedule(cron("0 9 * * *"), misfire={"policy": "fire_all"}, overlap={"policy": "queue"})
    assert (catching_up.misfire.window_seconds, catching_up.misfire.rate, catching_up.misfire.limit) == (
        86_400,
        1,
        1000,
    )
    assert catching_up.overlap.limit == 100


def preview(trigger: dict[str, Any], after: datetime, n: int = 3, **parts: Any) -> dict[str, Any]:
    calendars: dict[str, Calendar] = KNOWN
    return triggers.preview({"trigger": trigger, **parts}, after, n, "job", calendars=calendars)


def test_preview_shows_every_detail_of_a_schedule():
    shown = preview(cron("30 2 * * *", "America/New_York"), datetime(2026, 3, 8, tzinfo=UTC))
    assert shown["valid"]
    assert shown["canonical"] == cron("30 2 * * *", "America/New_York")
    assert shown["description"] == "At 02:30, America/New_York time"
    assert shown["kind"] == "fixed"
    assert shown["tzdb"] == triggers.database_version()
    assert shown["next"][0] == {
        "scheduled_at": "2026-03-08T07:00:00Z",
        "local": "2026-03-08T03:00:00",
        "offset": "-04:00",
        "due_at": "2026-03-08T07:00:00Z",
        "note": "moved from 02:30, which does not exist that day",
    }
    assert [fire["note"] for fire in shown["next"][1:]] == [None, None]
    assert [warning["code"] for warning in shown["warnings"]] == ["CLOCK_CHANGE"]


@pytest.mark.parametrize(
    ("trigger", "after", "notes"),
    [
        (cron("30 1 * * *", "America/New_York"), "2026-11-01T00:00", ["first of two 01:30", None]),
        (cron("*/30 1 * * *", "America/New_York"), "2026-11-01T05:00", ["first of two 01:30", "second of two 01:00"]),
        (
            cron("0 2,3 * * *", "America/New_York"),
            "2026-03-08T05:00",
            ["also stands for 02:00, which does not exist that day", None],
        ),
        (
            cron("0,20,40 2 * * *", "America/New_York"),
            "2026-03-08T05:00",
            ["moved from 02:00, 02:20, 02:40, which do not exist that day", None],
        ),
        (
            {"type": "interval", "every": "PT1H", "mode": "fixed_delay", "anchor": "2026-12-01T00:00:00Z"},
            "2026-11-01T00:00",
            [None, "estimate"],
        ),
    ],
)
def test_preview_annotates_fires_that_clock_changes_affect(
    trigger: dict[str, Any], after: str, notes: list[str | None]
):
    shown = preview(trigger, datetime.fromisoformat(after).replace(tzinfo=UTC), 2)
    assert [fire["note"] for fire in shown["next"]] == notes


def test_preview_shows_a_deferred_fire():
    shown = preview(
        cron("0 9 * * *"), datetime(2026, 12, 24, 12, tzinfo=UTC), 1, calendars=[{"name": "uk", "on_hit": "defer"}]
    )
    assert shown["next"][0]["note"] == "deferred by uk"


def test_a_rare_fire_is_warned_of():
    shown = preview(cron("0 0 29 2 *"), datetime(2026, 12, 24, tzinfo=UTC))
    assert [warning["code"] for warning in shown["warnings"]] == ["RARE"]


def test_preview_of_an_invalid_schedule_lists_its_errors():
    shown = preview(cron("60 25 * * *"), NOW, jitter={"max": "P1D"})
    assert not shown["valid"]
    assert [error["code"] for error in shown["errors"]] == ["CRON_RANGE", "CRON_RANGE", "DURATION_CALENDAR"]
    assert preview(cron("0 9 * * *"), NOW, 1001)["errors"][0]["code"] == "LIMIT"


def test_preview_of_an_english_schedule_shows_its_cron_expression():
    shown = preview({"type": "text", "text": "Every weekday at 9:30am", "tz": "Europe/London"}, NOW)
    assert shown["words"] == "Every weekday at 9:30am"
    assert shown["canonical"] == cron("30 9 * * 1-5", "Europe/London")


def test_a_one_shot_to_the_millisecond():
    shown = preview({"type": "at", "at": "2026-12-24T00:00:00.250Z"}, NOW)
    assert shown["next"][0]["scheduled_at"] == "2026-12-24T00:00:00.250Z"
    assert len(shown["next"]) == 1
