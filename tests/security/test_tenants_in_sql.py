"""Two tenants: under the session of one, what belongs to the other is as unknown as what never was."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from duly.domain.errors import NotFound
from duly.domain.jobs.filter import Filter
from duly.domain.runs.outcome import Failed
from duly.domain.runs.progress import Progress
from duly.moves.cancel import cancel_job, cancel_run
from duly.moves.schedules import calendars
from duly.moves.schedules.backfill import backfill, cancel_backfill
from duly.moves.schedules.edit import edit
from duly.moves.schedules.pause import pause, resume
from duly.moves.schedules.skip_next import skip_next
from duly.moves.submit import submit, submit_many, submit_recurring
from duly.moves.trigger import trigger
from duly.store.boxes import runs
from duly.store.connection.session import Sessions
from duly.store.reads import lists, overview
from duly.store.reads.lists import RunPage
from duly.store.tables import applied, declared, jobs, schedules
from tests.builders import (
    RNG,
    a_key,
    a_leased_run,
    a_schedule,
    a_submission,
    a_worker,
    seconds,
    settled,
)
from tests.clock import START

A, B = 1, 2
PLACES = ("waiting", "ready", "blocked", "leased", "dead", "done")
BIG = '{"text": "' + "x" * 2000 + '"}'
TABLES = """
select relname from pg_class where relnamespace = 'duly'::regnamespace and relkind in ('r', 'p') and not relispartition
   and relname not in ('migrations', 'functions', 'made_for_tests', 'test_clock') order by 1
"""


class Estate:
    """What tenant A has: something in every box, and beside it."""

    schedule: UUID
    pending: datetime
    waiting: UUID
    ready: UUID
    blocked: UUID
    leased: UUID
    dead: UUID
    done: UUID
    backfill: UUID

    @property
    def run_ids(self) -> list[UUID]:
        return [getattr(self, place) for place in PLACES]


@pytest.fixture
async def sessions(database):
    await database.execute("insert into duly.tenants (tenant, name, created_at) values (2, 'other', duly.clock_now())")
    async with Sessions(database, size_max=2) as opened:
        yield opened


@pytest.fixture
async def estate(database, clock):
    """Fill A's boxes by the engine's own moves."""
    made = Estate()
    worker_id = await a_worker(database)
    _, done = await a_leased_run(database, worker_id, payload=BIG)
    line = runs.LogLine(done.run_id, done.fence, 1, 1, START, "info", "hello", None)
    await runs.append_logs(database, worker_id, [line])
    await settled(database, worker_id, done)
    made.done = done.run_id
    _, dead = await a_leased_run(database, worker_id, payload=BIG)
    await settled(database, worker_id, dead, Failed("broken", retryable=False))
    made.dead = dead.run_id
    _, held = await a_leased_run(database, worker_id, payload=BIG, gate=None)
    await runs.save_checkpoint(database, held.run_id, held.fence, worker_id, '{"at": 1}')
    await runs.save_progress(database, held.run_id, held.fence, worker_id, Progress(1, 2, "half"))
    made.leased = held.run_id
    made.waiting = (await submit(database, a_submission(delay=600, payload=BIG), key="waiting")).job_id
    made.ready = (await submit(database, a_submission(payload=BIG), key="ready")).job_id
    made.blocked = (await submit(database, a_submission(), key="blocked")).job_id
    await block(database, made.blocked)
    await calendars.put_calendar(database, {"name": "holidays", "tz": "UTC", "dates": ["2026-12-25"]})
    shape: dict[str, Any] = {"calendars": [{"name": "holidays", "mode": "exclude"}]}
    marks: dict[str, Any] = {"name": "report", "payload": BIG, "options": '{"tags": ["nightly"]}'}
    schedule = a_schedule(anchor=START - seconds(3600), **marks, **shape)
    job = await submit_recurring(database, schedule, key="schedule")
    made.schedule = job.job_id
    made.pending = await database.fetchval(
        "select scheduled_at from duly.timers where job_id = $1 and run_id is null", job.job_id
    )
    await clock.advance(seconds(0))
    asked = await backfill(database, job.job_id, START - seconds(600), START, RNG)
    assert asked.backfill_id is not None
    made.backfill = asked.backfill_id
    return made


async def block(database, run_id):
    """Put a run before a gate that is full."""
    await database.execute("insert into duly.gates (tenant, gate, places, active) values (1, 'door', 1, 1)")
    await database.execute(
        "with gone as (delete from duly.ready where run_id = $1 returning *) insert into duly.blocked"
        " select run_id, job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,"
        " suspect, payload_stored, queue, handler, payload, options, 'door', due_at from gone",
        run_id,
    )


async def everything(database) -> dict[str, list[str]]:
    """Read all that is stored."""
    names = [row[0] for row in await database.fetch(TABLES)]
    return {
        name: sorted(row[0] for row in await database.fetch(f"select t::text from duly.{name} as t")) for name in names
    }


async def rows(session, page):
    """Give the rows of a page; none where the tenant it is of is unknown here."""
    try:
        async with session.savepoint():
            return (await page).rows
    except NotFound:
        return []


def reader_of(place: str):
    """Read A's run of a place."""
    return lambda session, estate: runs.find(session, getattr(estate, place))


def canceller_of(place: str):
    """Cancel A's run of a place."""
    return lambda session, estate: cancel_run(session, getattr(estate, place))


async def rows_of(reading):
    """Give what is on a page."""
    return (await reading).rows


READS = {
    "job": lambda s, e: jobs.find(s, e.schedule),
    "jobs": lambda s, e: rows(s, lists.jobs(s, A, Filter(), 100)),
    "jobs of a tag": lambda s, e: rows(s, lists.jobs(s, A, Filter(tags=("nightly",)), 100)),
    "waiting runs outside": lambda s, e: jobs.waiting_outside(s, e.waiting, 9),
    "waiting runs": lambda s, e: jobs.waiting_runs(s, e.waiting, 9),
    "leased runs": lambda s, e: jobs.leased_runs(s, e.leased),
    "held ahead": lambda s, e: jobs.held_ahead(s, e.leased),
    "runs": lambda s, e: rows(s, lists.runs(s, A, Filter(), 100)),
    "runs of a job": lambda s, e: rows(s, lists.runs(s, A, Filter(words={"job_id": (str(e.ready),)}), 100)),
    "dead": lambda s, e: rows(s, lists.dead(s, A, Filter(), 100)),
    "backfill": lambda s, e: schedules.find_backfill(s, A, e.backfill),
    "applied": lambda s, e: applied.standing(s, A, "file", ["report"]),
    "exported": lambda s, e: applied.exported(s, A, "file", 100, by_hand=True),
    "progress": lambda s, e: runs.read_progress(s, e.leased),
    "checkpoints": lambda s, e: runs.checkpoints(s, e.run_ids),
    "payloads": lambda s, e: runs.payloads(s, [(id_, 1) for id_ in (*e.run_ids, e.schedule)]),
    "logs": lambda s, e: runs.read_logs(s, e.done, (0, 0)),
    "job by name": lambda s, e: overview.job_by_name(s, "report", A),
    "arguments": lambda s, e: overview.arguments(s, e.ready),
    "finished of job": lambda s, e: overview.finished_of_job(s, e.done, START - seconds(60)),
    "backfills": lambda s, e: schedules.backfills(s, None, 100),
    "calendars": lambda s, e: schedules.calendars(s, A, None),
    "using a calendar": lambda s, e: schedules.using_calendar(s, A, "holidays", None, 100),
    "left out": lambda s, e: schedules.left_out(s, [e.schedule]),
    "standing": lambda s, e: declared.standing(s, A, "app", ["report"]),
    **{f"run {place}": reader_of(place) for place in PLACES},
}
SILENT = {
    "left out",
    "waiting runs",
    "waiting runs outside",
    "held ahead",
    "finished of job",
}  # A has none of these to be found.


MOVES = {
    "edit": lambda s, e: edit(s, e.schedule, a_schedule(every=5)),
    "pause": lambda s, e: pause(s, e.schedule, "enough"),
    "resume": lambda s, e: resume(s, e.schedule),
    "skip next": lambda s, e: skip_next(s, e.schedule),
    "trigger": lambda s, e: trigger(s, e.schedule, key=a_key()),
    "backfill": lambda s, e: backfill(s, e.schedule, START - seconds(60), START, RNG),
    "cancel backfill": lambda s, e: cancel_backfill(s, e.backfill),
    "cancel job": lambda s, e: cancel_job(s, e.schedule),
    "drop calendar": lambda s, e: calendars.drop_calendar(s, "holidays", A),
    "put calendar": lambda s, e: calendars.put_calendar(
        s, {"name": "holidays", "tz": "UTC", "dates": ["2026-12-26"]}, A
    ),
    "edit dead": lambda s, e: runs.edit_dead(s, A, [e.dead], "{}"),
    "submit": lambda s, e: submit(s, a_submission(), key="fresh", tenant=A),
    "submit again": lambda s, e: submit(s, a_submission(payload=BIG), key="ready", tenant=A),
    "submit many": lambda s, e: submit_many(s, [a_submission()], key="fresh", tenant=A),
    "submit a schedule": lambda s, e: submit_recurring(s, a_schedule(), key="fresh", tenant=A),
    **{f"cancel {place}": canceller_of(place) for place in PLACES},
}
# Those that a caller could send without having looked first.
STATEMENTS = {
    "cancel": lambda s, e: runs.cancel(s, e.run_ids, "x"),
    "signal": lambda s, e: runs.signal(s, e.run_ids, "cancel"),
    "replay": lambda s, e: runs.replay(s, e.run_ids, [timedelta()] * len(e.run_ids)),
    "discard": lambda s, e: runs.discard(s, e.run_ids),
    "edit dead": lambda s, e: runs.edit_dead(s, B, e.run_ids, "{}"),
    "cancel schedule": lambda s, e: jobs.cancel_schedule(s, e.schedule, e.pending, None),
    "give reason": lambda s, e: schedules.give_reason(s, e.schedule, "x", "y"),
    "retime": lambda s, e: schedules.retime(s, [schedules.Retiming(e.schedule, 1, START, 1, START, 0)], {}),
    "submit backfill": lambda s, e: schedules.submit_backfill(
        s, RNG.uuid(), e.schedule, START, START + seconds(9), 1.0, 9, None, 1
    ),
    "cancel backfill": lambda s, e: schedules.cancel_backfill(s, e.backfill),
}


@pytest.mark.parametrize("name", READS)
async def test_a_read_of_anothers_ids_finds_nothing(sessions, estate, name):
    async with sessions.open(B) as session:
        assert not await READS[name](session, estate)

    async with sessions.open(A) as session:
        assert bool(await READS[name](session, estate)) is (name not in SILENT)


@pytest.mark.parametrize("place", ["schedule", "ready", "done"])
async def test_the_runs_of_anothers_job_are_none_of_ours(sessions, estate, place):
    chosen = Filter(words={"job_id": (str(getattr(estate, place)),)})

    async with sessions.open(B) as session:
        assert await lists.runs(session, B, chosen, 1, looks=1) == RunPage([], None)


@pytest.mark.parametrize("name", MOVES)
async def test_a_move_of_anothers_ids_is_refused_as_unknown_and_changes_nothing(database, sessions, estate, name):
    before = await everything(database)

    with pytest.raises(NotFound):
        async with sessions.open(B) as session:
            await MOVES[name](session, estate)

    assert await everything(database) == before


@pytest.mark.parametrize("name", STATEMENTS)
async def test_a_statement_with_anothers_ids_changes_nothing(database, sessions, estate, name):
    before = await everything(database)

    async with sessions.open(B) as session:
        assert not await STATEMENTS[name](session, estate)

    assert await everything(database) == before
