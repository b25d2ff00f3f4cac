"""Pending fires after a change of their zone's rules."""

from datetime import UTC, datetime, timedelta

import pytest

from duly.domain.triggers.calendars import read_calendar
from duly.domain.triggers.schedule.reading import load_schedule
from duly.domain.triggers.zones import zones
from duly.domain.triggers.zones.change import is_listed, pending_after_change, zones_of
from tests.triggers.editions import CHANGING, QUIET, an_edition

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
ONE_AHEAD = an_edition("2026a")
TWO_AHEAD = an_edition("2026b", 2)
BEHIND = an_edition("2026b", 0)


def at(hour, minute=0, *, day=2):
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


def compiled(edition, trigger, **more):
    with zones.using(edition):
        return load_schedule({"trigger": trigger, **more}, {})


def cron(expr, tz=CHANGING):
    return {"type": "cron", "expr": expr, "tz": tz}


def moved(trigger, pending_at, old=ONE_AHEAD, new=TWO_AHEAD, created_at=LONG_AGO, **more):
    was, becomes = compiled(old, trigger, **more), compiled(new, trigger, **more)
    assert was.next_after(pending_at - timedelta(seconds=1)).scheduled_at == pending_at
    return pending_after_change(was, becomes, pending_at, created_at)


@pytest.mark.parametrize(
    ("new", "becomes"),
    [(TWO_AHEAD, at(10)), (BEHIND, at(12)), (an_edition("2026b"), at(11))],
    ids=["ahead", "behind", "as before"],
)
def test_fixed_local_time_stays_the_same_after_a_zone_change(new, becomes):
    assert moved(cron("0 12 * * *"), at(11), new=new) == becomes


def test_local_time_does_not_fire_again_when_a_zone_change_delays_it():
    # 12:00 fired at 11:00Z; by the new rules it is 12:00 at 12:00Z.
    assert moved(cron("0 12 * * *"), at(11, day=3), new=BEHIND) == at(12, day=3)


def test_a_moment_that_has_been_does_not_come_again():
    # 12:00 fired at 11:00Z, where it is 13:00 by the new rules.
    assert moved(cron("0 12,13 * * *"), at(12), new=TWO_AHEAD) == at(10, day=3)


def test_cron_wildcard_follows_elapsed_time_not_local_time():
    for new in (TWO_AHEAD, BEHIND):
        assert moved(cron("*/15 * * * *"), at(11, 15), new=new) == at(11, 15)


def test_fire_moved_by_a_cancelled_clock_change_returns_to_its_local_time():
    jump = an_edition("2026a", 1, [(at(1), 2)])  # 02:00 becomes 03:00
    assert moved(cron("30 2 * * *"), at(1), old=jump, new=ONE_AHEAD) == at(1, 30)
    assert moved(cron("30 2 * * *"), at(0, 30, day=3), old=jump, new=ONE_AHEAD) == at(1, 30, day=3)


def test_zone_change_ignores_occurrences_before_the_job_was_created():
    assert moved(cron("0 12 * * *"), at(11), created_at=at(10, 30)) == at(10, day=3)


def test_zone_change_moves_each_member_of_an_any_trigger_separately():
    trigger = {"type": "any", "of": [cron("0 12 * * *"), cron("30 12 * * *", QUIET)]}

    assert moved(trigger, at(11, 30), new=BEHIND) == at(11, 30), "the other zone's is not passed over"
    assert moved(trigger, at(11, day=3), new=BEHIND) == at(11, 30, day=3)


def test_elapsed_time_one_shots_and_bounds_do_not_depend_on_clocks():
    every = {"type": "interval", "every": "PT90M", "anchor": "2026-11-02T00:00:00Z"}
    assert moved(every, at(10, 30)) == at(10, 30)
    once = {"type": "at", "at": "2026-11-02T10:30:00Z", "tz": CHANGING}
    assert moved(once, at(10, 30), created_at=at(10, 31)) == at(10, 30)
    assert moved(cron("0 12 * * *"), at(11), new=BEHIND, end="2026-11-02T12:00:00Z") is None


def test_zones_are_those_of_the_trigger_its_members_and_the_calendars():
    calendar = {"name": "holidays", "tz": QUIET, "dates": ["2026-12-25"]}
    with zones.using(ONE_AHEAD):
        known = {"holidays": read_calendar(calendar)}
        schedule = load_schedule({"trigger": cron("0 12 * * *"), "calendars": [{"name": "holidays"}]}, known)
    assert zones_of(schedule) == {CHANGING, QUIET}


def test_more_than_a_minute_is_listed():
    assert not is_listed(at(10), at(10, 1))
    assert is_listed(at(10), at(10, 1) + timedelta(seconds=1))
    assert is_listed(at(10), None)


def test_zone_edition_lists_zones_whose_offsets_change_from_a_moment_on():
    before = an_edition("2026a", 1, [(at(0), 2)])
    now = int(at(12).timestamp())

    assert an_edition("2026b", 1, [(at(0), 3)]).changed_since(before, now) == [CHANGING]
    assert an_edition("2026b", 1, [(at(0), 2), (at(13), 3)]).changed_since(before, now) == [CHANGING]
    assert an_edition("2026b", 0, [(at(0), 2)]).changed_since(before, now) == [], "only the past is another"
    assert zones.installed().changed_since(before, now) == [], "zones of which one edition knows nothing are no change"


def test_an_edition_that_was_packed_is_the_same_again():
    installed = zones.installed()
    again = zones.Edition(installed.version, zones.unpack(installed.packed))

    assert again.names == installed.names
    assert again.zone("Europe/London") == installed.zone("Europe/London")
    assert len(installed.packed) < 500_000


def test_synthetic_zone_files_have_the_expected_offsets():
    zone = an_edition("x", 1, [(at(1), 2)]).zone(CHANGING)
    assert (zone.offset_at(int(at(0).timestamp())), zone.offset_at(int(at(1).timestamp()))) == (3600, 7200)
