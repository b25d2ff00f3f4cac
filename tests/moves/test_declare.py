"""Schedules declared in code: one job a name, whoever looks, whichever version, and however often it is cut short."""

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from duly.domain.errors import DeclaredInCode
from duly.domain.jobs.declaration import REMOVED, Declarations
from duly.domain.jobs.job import Recurring
from duly.moves.cancel import cancel_job
from duly.moves.schedules.declare import declare
from duly.moves.schedules.edit import edit
from duly.moves.schedules.pause import pause, resume
from duly.moves.trigger import trigger
from duly.store.connection.database import Database, Unavailable
from duly.store.tables import schedules, workers
from duly.store.tenancy import tenants
from duly.store.tenancy.tenants import Limits
from tests.builders import LEASE, RNG, a_key, a_schedule, a_worker, an_active_schedule, jobs_listed, staged
from tests.clock import START

NAME = "app:nightly"
AT_TEN, AT_ELEVEN, AT_NOON = "0 10 * * *", "0 11 * * *", "0 12 * * *"


def hour(number: int):
    return START.replace(hour=number)


class Program:
    """One version of a program, with a worker that runs it."""

    def __init__(self, database: Database, *jobs: Recurring, source: str = "app:app", tenant: int = 1) -> None:
        self.declarations = Declarations(tenant, source, jobs)
        self._database = database
        self._worker_id: UUID | None = None

    async def start(self) -> list[tuple[str, str]]:
        """Let a worker begin to live, and look."""
        self._worker_id = await a_worker(self._database, declares=self.declarations.entries())
        return await self.look()

    async def look(self) -> list[tuple[str, str]]:
        """Let it look again, alive as it is."""
        assert self._worker_id
        await workers.heartbeat(self._database, self._worker_id)
        return [(one.name, one.became) for one in await declare(self._database, self.declarations, RNG)]

    async def end(self) -> None:
        """Let its worker go in good order."""
        assert self._worker_id
        await workers.leave(self._database, self._worker_id, [])


def declared(cron: str, *, name: str = NAME, source: str = "app:app", **schedule) -> Recurring:
    shape = {"trigger": {"type": "cron", "expr": cron}, **schedule}
    return Recurring("nightly", "{}", "default", 5, shape, name, owner="code", source=source)


def at(database: Database, cron: str, **more) -> Program:
    return Program(database, declared(cron, **more))


async def the_job(database: Database, name: str = NAME) -> dict:
    [job] = [job for job in await jobs_listed(database) if job["name"] == name]
    return job


async def next_of(database: Database) -> tuple:
    job = await the_job(database)
    return job["state"], job["next_run_at"]


async def test_declared_schedule_is_created(database):
    assert await at(database, AT_TEN).start() == [(NAME, "created")]

    job = await the_job(database)
    assert (job["state"], job["owner"], job["source"]) == ("active", "code", "app:app")
    assert (job["handler"], job["queue"], job["next_run_at"]) == ("nightly", "default", hour(10))


async def test_looked_at_again_there_is_nothing_to_do(database):
    program = at(database, AT_TEN)
    await program.start()

    assert await program.look() == []
    assert (await the_job(database))["generation"] == 1


async def test_a_changed_declaration_changes_the_job(database):
    first = at(database, AT_TEN)
    await first.start()
    job = await the_job(database)
    await first.end()

    assert await at(database, AT_ELEVEN).start() == [(NAME, "changed")]

    assert await next_of(database) == ("active", hour(11))
    assert (await the_job(database))["job_id"] == job["job_id"]


async def test_five_that_start_at_once_make_one_job(database):
    programs = [at(database, AT_TEN) for _ in range(5)]

    became = await asyncio.gather(*(program.start() for program in programs))

    assert sorted(became, key=len) == [[], [], [], [], [(NAME, "created")]]
    assert (await the_job(database))["generation"] == 1


async def test_five_that_change_it_at_once_change_it_once(database):
    await at(database, AT_TEN).start()

    became = await asyncio.gather(*(at(database, AT_ELEVEN).start() for _ in range(5)))

    assert sorted(became, key=len) == [[], [], [], [], [(NAME, "changed")]]
    assert (await the_job(database))["generation"] == 2


class TestVersions:
    """Two versions of a program side by side."""

    async def test_the_newer_wins_and_the_older_does_not_fight(self, database):
        older, newer = at(database, AT_TEN), at(database, AT_ELEVEN)
        await older.start()
        await newer.start()

        for _ in range(5):
            assert await older.look() == [(NAME, "outdated")]
            assert await newer.look() == []

        assert await next_of(database) == ("active", hour(11))
        assert (await the_job(database))["generation"] == 2

    async def test_two_that_start_at_once_agree_on_one(self, database):
        one, other = at(database, AT_TEN), at(database, AT_ELEVEN)
        await asyncio.gather(one.start(), other.start())
        job = await the_job(database)

        assert sorted([len(await one.look()), len(await other.look())]) == [0, 1]
        assert await the_job(database) == job

    async def test_rolled_back_version_waits_until_the_newer_one_ends(self, database):
        older, newer = at(database, AT_TEN), at(database, AT_ELEVEN)
        await older.start()
        await newer.start()
        await older.end()
        rolled_back = at(database, AT_TEN)

        assert await rolled_back.start() == [(NAME, "outdated")]
        await newer.end()
        assert await rolled_back.look() == [(NAME, "changed")]

        assert await next_of(database) == ("active", hour(10))

    async def test_crashed_newer_version_yields_when_its_lease_expires(self, database, clock):
        older, newer = at(database, AT_TEN), at(database, AT_ELEVEN)
        await older.start()
        await newer.start()

        await clock.advance(LEASE - timedelta(seconds=1))
        assert await older.look() == [(NAME, "outdated")]
        await clock.advance(timedelta(seconds=1))
        assert await older.look() == [(NAME, "changed")]

    async def test_rollback_persists_while_a_newer_version_restarts(self, database):
        older, newer = at(database, AT_TEN), at(database, AT_ELEVEN)
        await older.start()
        await newer.start()
        await newer.end()
        await older.look()

        assert await newer.start() == [(NAME, "outdated")]
        assert await older.look() == []

    async def test_rollback_restores_the_most_recent_older_declaration(self, database):
        programs = [at(database, cron) for cron in (AT_TEN, AT_ELEVEN, AT_NOON)]
        for program in programs:
            await program.start()
        await programs[2].end()

        assert await programs[0].look() == [(NAME, "outdated")]
        assert await programs[1].look() == [(NAME, "changed")]
        assert await next_of(database) == ("active", hour(11))

    async def test_older_version_does_not_remove_jobs_that_only_the_newer_declares(self, database):
        older, newer = Program(database), at(database, AT_TEN)
        await older.start()
        await newer.start()

        assert await older.look() == []
        assert await next_of(database) == ("active", hour(10))

    async def test_only_so_many_definitions_are_remembered(self, database):
        for minute in range(40):
            program = at(database, f"{minute} 10 * * *")
            await program.start()
            await program.end()

        remembered = await database.fetchval("select cardinality(definitions) from duly.jobs")
        assert remembered == 32

    async def test_the_same_function_under_another_app_is_the_same_job(self, database):
        one, other = at(database, AT_TEN), at(database, AT_TEN, source="shop:app")
        other.declarations = Declarations(1, "shop:app", other.declarations.jobs)
        await one.start()
        await one.end()

        assert await other.start() == [(NAME, "changed")]
        assert (await the_job(database))["source"] == "shop:app"
        assert await Program(database).start() == []


class TestRemoved:
    """A decorator is taken away, and comes back."""

    async def test_job_that_is_no_longer_declared_is_paused_with_a_reason(self, database):
        program = at(database, AT_TEN)
        await program.start()
        await program.end()

        assert await Program(database).start() == [(NAME, "removed")]

        job = await the_job(database)
        assert (job["state"], job["pause_reason"], job["next_run_at"]) == ("paused", REMOVED, None)
        assert job["removed_at"] == START

    async def test_removed_declaration_is_reported_only_the_first_time(self, database):
        await (program := at(database, AT_TEN)).start()
        await program.end()
        without = Program(database)
        await without.start()

        assert await without.look() == []

    async def test_job_declared_again_resumes_with_its_next_occurrence(self, database, clock):
        await (program := at(database, AT_TEN)).start()
        await program.end()
        await (without := Program(database)).start()
        await without.end()
        await clock.advance(timedelta(hours=2))

        assert await program.start() == [(NAME, "restored")]

        job = await the_job(database)
        assert (job["state"], job["removed_at"]) == ("active", None)
        assert job["next_run_at"] == hour(10) + timedelta(days=1)
        [skip] = await database.fetch("select reason, scheduled_at from duly.attempts")
        assert tuple(skip) == ("skipped_paused", hour(10))

    async def test_job_declared_again_with_a_change_resumes_as_changed(self, database):
        await (program := at(database, AT_TEN)).start()
        await program.end()
        await (without := Program(database)).start()
        await without.end()

        assert await at(database, AT_ELEVEN).start() == [(NAME, "changed"), (NAME, "restored")]
        assert await next_of(database) == ("active", hour(11))

    async def test_a_removal_that_came_too_late_or_was_cut_short_is_taken_back_at_the_next_look(self, database):
        await (program := at(database, AT_TEN)).start()
        await pause(database, (await the_job(database))["job_id"], REMOVED)

        assert await program.look() == [(NAME, "restored")]
        assert await next_of(database) == ("active", hour(10))

    async def test_another_programs_jobs_are_not_ours_to_remove(self, database):
        await (program := at(database, AT_TEN)).start()
        await program.end()

        assert await Program(database, source="other:app").start() == []
        assert await Program(database, tenant=2).start() == []
        assert (await the_job(database))["state"] == "active"


class TestPeople:
    """What people do to a declared job."""

    async def test_a_persons_pause_survives_a_new_version(self, database):
        await (program := at(database, AT_TEN)).start()
        await pause(database, (await the_job(database))["job_id"], "month's end")
        await program.end()

        assert await at(database, AT_TEN).start() == []
        assert await at(database, AT_ELEVEN).start() == [(NAME, "changed")]

        job = await the_job(database)
        assert (job["state"], job["pause_reason"]) == ("paused", "month's end")

    async def test_a_persons_pause_survives_removal_and_return(self, database):
        await (program := at(database, AT_TEN)).start()
        await pause(database, (await the_job(database))["job_id"], "month's end")
        await program.end()
        await (without := Program(database)).start()
        await without.end()

        assert await program.start() == [(NAME, "restored")]
        job = await the_job(database)
        assert (job["state"], job["pause_reason"], job["removed_at"]) == ("paused", "month's end", None)

    async def test_removed_job_paused_by_hand_stays_paused_when_declared_again(self, database):
        await (program := at(database, AT_TEN)).start()
        await program.end()
        await (without := Program(database)).start()
        await without.end()
        assert await pause(database, (await the_job(database))["job_id"], "month's end") == "already"

        await program.start()
        job = await the_job(database)
        assert (job["state"], job["pause_reason"]) == ("paused", "month's end")

    async def test_removed_job_resumed_by_hand_stays_active(self, database):
        await (program := at(database, AT_TEN)).start()
        await program.end()
        await (without := Program(database)).start()

        assert await resume(database, (await the_job(database))["job_id"]) == "active"
        assert await without.look() == []
        assert await next_of(database) == ("active", hour(10))

    async def test_declared_job_can_be_triggered_but_not_edited(self, database):
        await at(database, AT_TEN).start()
        job_id = (await the_job(database))["job_id"]

        with pytest.raises(DeclaredInCode, match="'app:nightly' is declared in app:app; change it there"):
            await edit(database, job_id, a_schedule(name=NAME))
        assert (await trigger(database, job_id, key=a_key())).state == "ready"
        assert await next_of(database) == ("active", hour(10))

    async def test_declared_job_is_cancelled_only_when_no_program_would_recreate_it(self, database):
        await (program := at(database, AT_TEN)).start()
        job_id = (await the_job(database))["job_id"]

        with pytest.raises(DeclaredInCode, match="'app:nightly' is declared in app:app, which would create it"):
            await cancel_job(database, job_id)
        await program.end()
        assert await cancel_job(database, job_id) == "cancelled"
        assert await program.start() == [(NAME, "created")]

    async def test_declaration_leaves_an_api_job_of_the_same_name_unchanged(self, database):
        theirs = await an_active_schedule(database, name=NAME)
        program = at(database, AT_TEN)

        assert await program.start() == [(NAME, "name_taken")]
        assert (await the_job(database))["owner"] == "api"

        await cancel_job(database, theirs.job_id)
        assert await program.look() == [(NAME, "created")]


async def test_a_schedule_that_cannot_be_kept_holds_up_no_other(database):
    shut = declared(AT_TEN, calendars=[{"name": "closed"}])
    program = Program(database, shut, declared(AT_ELEVEN, name="app:other"))

    assert await program.start() == [(NAME, "refused"), ("app:other", "created")]
    await schedules.put_calendar(database, 1, "closed", '{"name": "closed"}')
    assert await program.look() == [(NAME, "created")]


async def test_declared_schedule_whose_end_is_past_is_refused_without_an_error(database):
    rule = {"type": "rrule", "rrule": "FREQ=DAILY;COUNT=3", "dtstart": "2020-01-01T00:00:00"}
    job = Recurring("nightly", "{}", "default", 5, {"trigger": rule}, NAME, owner="code", source="app:app")

    [one] = await declare(database, Declarations(1, "app:app", [job]), RNG)
    assert (one.became, one.reason) == (
        "refused",
        "trigger: it has no future occurrence; give a later end or another trigger",
    )


async def test_completed_job_stays_completed_until_a_new_declaration(database, clock):
    program = at(database, AT_TEN, max_runs=1)
    await program.start()
    await clock.advance(timedelta(hours=1))
    await staged(database)
    assert (await the_job(database))["state"] == "completed"

    assert await program.look() == []
    assert await at(database, AT_ELEVEN, max_runs=1).start() == [(NAME, "created")]
    states = await database.fetch("select state from duly.jobs order by created_at")
    assert [row[0] for row in states] == ["completed", "active"]
    assert await program.look() == [(NAME, "outdated")]


class CutShort(Database):
    """Loses one answer: the `at`-th, before or after the statement was carried out."""

    at = -1
    asked = 0
    is_done = False

    async def fetch(self, query, *args):
        number, self.asked = self.asked, self.asked + 1
        if number == self.at and not self.is_done:
            raise Unavailable("cut short before")
        rows = await super().fetch(query, *args)
        if number == self.at:
            raise Unavailable("cut short after")
        return rows


@pytest.mark.parametrize("is_done", [False, True])
async def test_cut_short_anywhere_the_next_look_finishes_it(database_url, database, clock, is_done):
    """A life with a creation, a change, a removal and a return, each interrupted at each of its statements."""
    lives = [[declared(AT_TEN)], [declared(AT_ELEVEN)], [], [declared(AT_NOON)]]
    ends = [("active", hour(10)), ("active", hour(11)), ("paused", None), ("active", hour(12))]
    cut = CutShort(database_url, clock=clock)
    cut.is_done = is_done
    async with cut:
        for at_number in range(30):
            await database.execute("delete from duly.jobs; delete from duly.timers; delete from duly.workers")
            for life, end in zip(lives, ends, strict=True):
                declarations = Declarations(1, "app:app", life)
                await database.execute("delete from duly.workers")
                await a_worker(database, declares=declarations.entries())
                cut.at, cut.asked = at_number, 0
                try:
                    await declare(cut, declarations, RNG)
                except Unavailable:
                    await declare(database, declarations, RNG)
                assert await next_of(database) == end
                assert await declare(database, declarations, RNG) == []
        assert cut.asked < 30


async def test_schedule_too_dense_for_its_tenant_is_refused_and_blocks_no_other(database):
    await tenants.set_limits(database, 1, Limits(least_period=timedelta(hours=1)))

    looked = await Program(database, declared("* * * * *"), declared(AT_TEN, name="app:rare")).start()

    assert sorted(looked) == [("app:nightly", "refused"), ("app:rare", "created")]
