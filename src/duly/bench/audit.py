"""Was anything lost, done twice or started early? Asked of the data afterwards, and of the handlers' own stamps."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from duly.bench.fill import FIRST_AT
from duly.bench.report import Percentiles, Verdict, milliseconds
from duly.bench.stamps import Stamp
from duly.store.boxes import history
from duly.store.connection.database import Database

_COUNT = """
select count(distinct run_id) filter (where outcome = 'succeeded') as finished,
       count(*) filter (where outcome = 'succeeded') - count(distinct run_id) filter (where outcome = 'succeeded') as doubles,
       count(*) filter (where started_at < due_at) as early,
       coalesce(sum((detail->>'count')::integer) filter (where reason = 'skipped_misfire'), 0)::integer as skipped,
       (select count(*) from duly.timers where run_id is not null) + (select count(*) from duly.blocked)
           + (select count(*) from duly.ready) + (select count(*) from duly.leased) + (select count(*) from duly.dead) as waiting
  from duly.attempts
"""
# A next fire is its job's cursor: how far it has come says how many occurrences there must be.
_OCCURRENCES = f"""
select coalesce(sum(round(date_part('epoch', timers.scheduled_at - jobs.first_at) / jobs.every_seconds)), 0)::bigint
  from (select job_id, every_seconds, {FIRST_AT} as first_at from duly.jobs) as jobs
  join duly.timers on timers.job_id = jobs.job_id and timers.run_id is null
"""  # noqa: S608 - an expression of our own
_SKEW = """
select percentile_disc(array[0.5, 0.95, 0.99, 1]) within group (order by date_part('epoch', started_at - due_at)) as skew,
       percentile_disc(array[0.5, 0.95, 0.99, 1]) within group (order by date_part('epoch', finished_at - due_at)) as latency
  from duly.attempts where outcome = 'succeeded' and due_at >= $1 and due_at < $2
"""


async def of_one_shots(database: Database, submitted: int, stamps: Sequence[Stamp] = ()) -> Verdict:
    """Hold what was submitted against what is there."""
    return await _verdict(database, submitted, stamps)


async def of_schedules(database: Database, start: datetime, stamps: Sequence[Stamp] = ()) -> Verdict:
    """Hold how far the schedules have come against what is there; a schedule without its next fire is lost too."""
    occurrences: int = await database.fetchval(_OCCURRENCES, start)
    return await _verdict(database, occurrences, stamps)


async def _verdict(database: Database, expected: int, stamps: Sequence[Stamp]) -> Verdict:
    row = await database.fetchrow(_COUNT)
    assert row is not None
    broken = await history.verify(database)
    called = of_stamps(len(stamps), stamps)
    return Verdict(
        lost=expected - row["finished"] - row["waiting"] - row["skipped"] + len(broken),
        duplicates=max(row["doubles"], called.duplicates),
        early=max(row["early"], called.early),
    )


def of_stamps(submitted: int, stamps: Sequence[Stamp]) -> Verdict:
    """Hold what was submitted against the calls of its handlers alone."""
    called = len({stamp.run_id for stamp in stamps})
    early = sum(stamp.started < stamp.due for stamp in stamps)
    return Verdict(early=early, lost=submitted - called, duplicates=len(stamps) - called)


async def recorded(database: Database, since: datetime, until: datetime) -> tuple[Percentiles, Percentiles]:
    """Read skew (due to start) and latency (due to finish) from the history, of what fell due within a span."""
    row = await database.fetchrow(_SKEW, since, until)
    assert row is not None
    return _percentiles(row["skew"]), _percentiles(row["latency"])


def _percentiles(seconds: Sequence[float] | None) -> Percentiles:
    return Percentiles(*map(milliseconds, seconds)) if seconds else Percentiles()
