"""The name of a run follows from what it is for."""

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from duly.domain.runs.run_id import occurrence_id, run_id

JOB = UUID(int=7)
AT = datetime(2026, 11, 2, 9, 0, 0, 123_456, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOMENTS = st.integers(0, 8000 * 365 * 86_400 * 10**6).map(lambda count: EPOCH + timedelta(microseconds=count))


def test_story_11_the_same_occurrence_has_the_same_name_in_every_zone_and_process():
    elsewhere = AT.astimezone(timezone(timedelta(hours=5, minutes=45)))

    assert occurrence_id(JOB, AT, "schedule") == occurrence_id(JOB, elsewhere, "schedule")


def test_story_11_another_origin_another_moment_or_another_job_is_another_run():
    names = [
        occurrence_id(JOB, AT, "schedule"),
        occurrence_id(JOB, AT, "manual:1"),
        occurrence_id(JOB, AT, "manual:2"),
        occurrence_id(JOB, AT, "backfill:1"),
        occurrence_id(JOB, AT + timedelta(microseconds=1), "schedule"),
        occurrence_id(UUID(int=8), AT, "schedule"),
    ]

    assert len(set(names)) == len(names)


@given(MOMENTS, st.text(st.characters(codec="utf-8")))
def test_a_name_is_a_uuid_of_version_8_that_tells_its_moment_to_the_millisecond(at, name):
    identifier = run_id(at, name)

    assert (identifier.version, identifier.variant) == (8, "specified in RFC 4122")
    reported_at = EPOCH + timedelta(milliseconds=identifier.int >> 80)
    assert timedelta() <= at - reported_at < timedelta(milliseconds=1)


@given(MOMENTS, MOMENTS)
def test_names_sort_by_moment(one, other):
    if abs(one - other) >= timedelta(milliseconds=1):
        assert (run_id(one, "x") < run_id(other, "y")) == (one < other)
