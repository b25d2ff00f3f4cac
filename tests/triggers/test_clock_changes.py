"""Clock changes, by example: what is promised to people who write times between two and three in the morning."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from duly import triggers
from duly.domain.triggers.zones import zones

NEW_YORK = "America/New_York"


def fires(expr: str, zone: str, day: str, days: int = 1) -> list[str]:
    """Give the local times, with offset, at which it fires on a local day."""
    start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    end = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)) + timedelta(days=days)
    found = triggers.compile({"type": "cron", "expr": expr, "tz": zone}).between(start, end)
    return [f"{moment.astimezone(ZoneInfo(zone)):%H:%M%z}" for moment in found]


def test_a_fixed_time_that_is_jumped_fires_at_the_first_instant_after():
    assert fires("30 2 * * *", NEW_YORK, "2026-03-08") == ["03:00-0400"]


def test_several_jumped_times_fire_once():
    assert fires("0,15,30,45 2 * * *", NEW_YORK, "2026-03-08") == ["03:00-0400"]


def test_a_jumped_time_and_one_due_at_that_instant_fire_once():
    assert fires("0 2,3 * * *", NEW_YORK, "2026-03-08") == ["03:00-0400"]


def test_fixed_time_that_occurs_twice_fires_at_the_first():
    assert fires("30 1 * * *", NEW_YORK, "2026-11-01") == ["01:30-0400"]


def test_cron_wildcard_follows_elapsed_time_not_local_time():
    for day, hours in (("2026-03-08", 23), ("2026-11-01", 25)):
        start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(NEW_YORK)).astimezone(UTC)
        quarter = timedelta(minutes=15)
        found = list(
            triggers.compile({"type": "cron", "expr": "*/15 * * * *", "tz": NEW_YORK}).between(
                start, start + hours * 4 * quarter
            )
        )
        assert found == [start + number * quarter for number in range(hours * 4)]


def test_a_wildcard_that_names_a_jumped_hour_does_not_fire_and_preview_warns():
    assert fires("*/30 2 * * *", NEW_YORK, "2026-03-08") == []
    shown = triggers.preview(
        {"trigger": {"type": "cron", "expr": "*/30 2 * * *", "tz": NEW_YORK}}, datetime(2026, 1, 1, tzinfo=UTC)
    )
    assert [warning["code"] for warning in shown["warnings"]] == ["CLOCK_CHANGE"]
    assert shown["kind"] == "wildcard"


def test_a_wildcard_that_names_a_repeated_hour_fires_at_both():
    assert fires("*/30 1 * * *", NEW_YORK, "2026-11-01") == ["01:00-0400", "01:30-0400", "01:00-0500", "01:30-0500"]


def test_a_jump_of_half_an_hour():
    assert fires("15 2 * * *", "Australia/Lord_Howe", "2026-10-04") == ["02:30+1100"]
    assert fires("45 1 * * *", "Australia/Lord_Howe", "2026-04-05") == ["01:45+1100"]


def test_a_midnight_that_does_not_exist():
    assert fires("0 0 * * *", "America/Santiago", "2026-09-06") == ["01:00-0300"]


def test_a_whole_day_that_does_not_exist():
    found = triggers.compile({"type": "cron", "expr": "0 10 * * *", "tz": "Pacific/Apia"})
    start = datetime(2011, 12, 29, 0, tzinfo=ZoneInfo("Pacific/Apia"))
    local = [
        f"{moment.astimezone(ZoneInfo('Pacific/Apia')):%d %H:%M}"
        for moment in found.between(start, start + timedelta(days=3))
    ]
    # The 30th never was; its run is at the first instant of the 31st.
    assert local[:3] == ["29 10:00", "31 00:00", "31 10:00"]


def test_seconds_and_hashes_play_no_part_in_the_kind():
    def kind(expr: str) -> str:
        return triggers.compile({"type": "cron", "expr": expr}, job_id="job").kind

    assert kind("* 30 2 * * *") == "fixed"
    assert kind("H 2 * * *") == "fixed"
    assert kind("*/5,7 2 * * *") == "wildcard"
    assert kind("7,*/5 2 * * *") == "fixed"
    assert kind("@hourly") == "wildcard"
    assert kind("@daily") == "fixed"


def test_calendar_units_keep_the_time_of_day_and_clock_units_the_distance():
    start = datetime(2026, 3, 7, 14, tzinfo=UTC)
    by_day = triggers.compile({"type": "iso8601", "text": "R/2026-03-07T09:00:00/P1D", "tz": NEW_YORK})
    by_clock = triggers.compile({"type": "iso8601", "text": "R/2026-03-07T09:00:00/PT24H", "tz": NEW_YORK})
    assert by_day.next_after(start) == datetime(2026, 3, 8, 13, tzinfo=UTC)
    assert by_clock.next_after(start) == datetime(2026, 3, 8, 14, tzinfo=UTC)


def test_the_end_of_january_and_a_month():
    trigger = triggers.compile({"type": "iso8601", "text": "R4/2026-01-31T09:00:00Z/P1M"})
    found = list(trigger.between(datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)))
    assert [f"{moment:%m-%d}" for moment in found] == ["01-31", "02-28", "03-31", "04-30"]


def test_a_start_may_be_the_second_of_two():
    trigger = triggers.compile({"type": "iso8601", "text": "R/2026-11-01T01:30:00-05:00/P1D", "tz": NEW_YORK})
    start = datetime(2026, 11, 1, 6, 30, tzinfo=UTC)
    assert trigger.next_after(start - timedelta(hours=2)) == start
    assert trigger.next_after(start) == start + timedelta(days=1)
    assert trigger.latest_at_or_before(start + timedelta(hours=1)) == start
    assert trigger.latest_at_or_before(start - timedelta(seconds=1)) is None


def test_a_lost_time_of_a_rule_is_moved_and_counts():
    rule = {"type": "rrule", "rrule": "FREQ=DAILY;COUNT=2", "dtstart": "2026-03-07T02:30:00", "tz": NEW_YORK}
    found = list(triggers.compile(rule).between(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)))
    assert found == [datetime(2026, 3, 7, 7, 30, tzinfo=UTC), datetime(2026, 3, 8, 7, tzinfo=UTC)]


def test_an_exception_counts_and_may_name_a_lost_time():
    rule = {"type": "rrule", "rrule": "FREQ=DAILY;COUNT=3", "dtstart": "2026-03-07T02:30:00", "tz": NEW_YORK}
    rule["exdates"] = ["2026-03-08T02:30:00"]  # type: ignore[assignment]
    found = list(triggers.compile(rule).between(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)))
    assert [f"{moment:%d %H:%M}" for moment in found] == ["07 07:30", "09 06:30"]


@pytest.mark.parametrize("name", sorted(zones.names()))
def test_zone_table_matches_zoneinfo(name: str):
    table, clock = zones.current().zone(name), ZoneInfo(name)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    around = [instant + by for instant in table.instants[1:] for by in (-1, 0)]
    regular = range(-2_208_988_800, 7_258_118_400, 40_000_000)
    for second in [*around, *regular]:
        moment = epoch + timedelta(seconds=second)
        if 1800 < moment.year < 2200:
            offset = moment.astimezone(clock).utcoffset()
            assert offset == timedelta(seconds=table.offset_at(second)), moment
