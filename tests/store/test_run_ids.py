"""SQL and Python name a run alike."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duly.domain.runs.run_id import occurrence_id, run_id

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Up to 2200: what can be submitted lies within a hundred years.
# From 2106 on, a double, which is what SQL counts seconds with, no longer tells every microsecond apart.
MOMENTS = st.integers(0, 136 * 365 * 86_400 * 10**6).map(lambda count: EPOCH + timedelta(microseconds=count))
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)


@pytest.fixture
def ask(database_url):
    """Ask the database one value, over one connection for all examples."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield lambda query, *values: next(iter(connection.execute(query, values)))[0]


FOR_ALL = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=300)


@FOR_ALL
@given(at=MOMENTS, name=TEXTS)
def test_a_name_is_the_same_in_both(ask, at, name):
    assert ask("select duly.run_id(%s, %s)", at, name) == run_id(at, name)


@FOR_ALL
@given(job=st.uuids(), at=MOMENTS, origin=TEXTS)
def test_an_occurrence_is_the_same_in_both(ask, job, at, origin):
    assert ask("select duly.occurrence_id(%s, %s, %s)", job, at, origin) == occurrence_id(job, at, origin)


@FOR_ALL
@given(job=st.uuids())
def test_every_job_has_one_of_64_shards(ask, job):
    assert 0 <= ask("select duly.shard_of(%s)", job) < 64


def test_jobs_of_one_instant_spread_evenly_over_the_shards(ask):
    names = [run_id(EPOCH, str(number)) for number in range(6400)]

    shards = Counter(ask("select array_agg(duly.shard_of(id)) from unnest(%s::uuid[]) as names(id)", names))

    assert len(shards) == 64
    assert min(shards.values()) > 50
    assert max(shards.values()) < 160


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/St_Johns"])
def test_the_time_zone_of_the_session_changes_no_name(database_url, zone):
    at = EPOCH + timedelta(days=20_000, microseconds=123_456)
    with psycopg.connect(database_url) as connection:
        connection.execute(f"set timezone = '{zone}'")
        [(found,)] = connection.execute("select duly.occurrence_id(%s, %s, 'schedule')", [UUID(int=7), at])

    assert found == occurrence_id(UUID(int=7), at, "schedule")
