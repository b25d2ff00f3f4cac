"""Two tenants: under the session of one, what belongs to the other is as unknown as what never was."""

from datetime import timedelta

import pytest

from duly.domain.errors import NotFound
from duly.domain.jobs.filter import Filter
from duly.moves.cancel import cancel_job, cancel_run
from duly.moves.schedules import calendars
from duly.moves.schedules.backfill import backfill, cancel_backfill
from duly.moves.schedules.edit import edit
from duly.moves.schedules.pause import pause, resume, skip_next
from duly.moves.submit import submit, submit_many, submit_recurring
from duly.moves.trigger import trigger
from duly.store.boxes import runs
from duly.store.connection.session import Sessions
from duly.store.reads import lists, overview
from duly.store.reads.lists import Page
from duly.store.tables import applied, declared, jobs, schedules
from tests.builders import (
    RNG,
    a_key,
    a_schedule,
    a_submission,
    seconds,
)
from tests.clock import START
from tests.security.estate import BIG, PLACES, A, B, an_estate, everything


@pytest.fixture
async def sessions(database):
    await database.execute("insert into duly.tenants (tenant, name, created_at) values (2, 'other', duly.clock_now())")
    async with Sessions(database, size_max=2) as opened:
        yield opened


@pytest.fixture
async def estate(database, clock):
    """Fill A's boxes by the engine's own moves."""
    return await an_estate(database, clock)


async def rows(session, page):
    """Give the rows of a page; none where the tenant it is of is unknown here."""
    try:
        async with session.transaction():
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
    "held ahead": lambda s, e: jobs.leased_ahead(s, e.leased),
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
    "cancel schedule": lambda s, e: jobs.cancel_schedule(s, e.schedule, e.pending, ()),
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
        assert await lists.runs(session, B, chosen, 1, looks=1) == Page([], None)


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
