"""Workers of two tenants: what belongs to one is not there for the other, by the door and in the database."""

from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from duly.domain.runs.progress import Progress
from duly.domain.runs.run import HORIZON
from duly.moves.claim import claim
from duly.store.boxes import leased, runs
from duly.store.connection.database import Database
from duly.store.connection.session import Sessions
from duly.store.tables import remote_workers, workers
from tests.api.remote import Remote, a_job_due_now, a_remote, lease_of
from tests.builders import a_worker, history_of


@pytest.fixture
async def ours(front):
    """A tenant, its worker, and a run in its hands."""
    caller = await front.stranger()
    remote = await a_remote(caller)
    await a_job_due_now(caller)
    [run] = await remote.claim()
    return remote, run


@pytest.fixture
async def theirs(front) -> Remote:
    return await a_remote(await front.stranger())


class TestAtTheDoor:
    async def test_a_worker_is_given_the_runs_of_its_tenant_alone(self, front, api):
        callers = [api, await front.stranger(), await front.stranger()]
        remotes = [await a_remote(caller) for caller in callers]
        made = [{await a_job_due_now(caller) for _ in range(2)} for caller in callers]

        given = [{run["run_id"] for run in await remote.claim()} for remote in remotes]

        assert given == made

    async def test_the_engines_own_workers_serve_every_tenant(self, front, database):
        await a_job_due_now(await front.stranger())

        assert len(await claim(database, await a_worker(database), ["default"], ["app:mail"], 10)) == 1

    async def test_another_tenants_worker_is_as_unknown_as_one_that_never_was(self, ours, theirs):
        remote, run = ours
        for worker_id in (remote.worker_id, str(uuid4())):
            stolen = Remote(theirs.caller, worker_id)
            answers = [
                await stolen.ask("claim", number=99),
                await stolen.ask("renew", leases=[lease_of(run)], answered=99),
                await stolen.leave(),
                await stolen.ask("progress", **lease_of(run), done=1),
                await stolen.ask("checkpoint", **lease_of(run), value=1),
                await stolen.ask("logs", **lease_of(run), lines=[{"message": "x"}]),
            ]
            assert [answer.status_code for answer in answers] == [404, 404, 404, 409, 409, 409]
            assert await stolen.settle(run) == "fenced"
        assert await remote.settle(run) == "settled"

    async def test_a_worker_cannot_touch_another_tenants_run_under_its_own_name(self, ours, theirs, database):
        remote, run = ours

        assert await theirs.settle(run) == "fenced"
        assert (await theirs.renew(run))["lost"] == [lease_of(run)]
        assert (await theirs.ask("checkpoint", **lease_of(run), value=1)).status_code == 409

        assert await history_of(database, UUID(run["run_id"])) == []
        assert await remote.settle(run) == "settled"

    async def test_settled_run_answers_another_tenants_worker_as_fenced(self, ours, theirs):
        remote, run = ours
        await remote.settle(run)

        assert await Remote(theirs.caller, remote.worker_id).settle(run) == "fenced"
        assert await remote.settle(run) == "settled"


class TestInTheDatabase:
    """The second wall: the statements themselves, called as the door would call them if it were wrong."""

    async def test_statements_change_no_run_of_another_tenant(self, ours, theirs, sessions, database):
        remote, run = ours
        worker_id, run_id, fence = UUID(remote.worker_id), UUID(run["run_id"]), run["fence"]
        [held] = await leased.held_by(database, worker_id, 10)
        moved = leased.Moved(held, None, None, "succeeded", "succeeded")
        async with sessions.open(theirs.caller.tenant) as session:
            for holder in (worker_id, UUID(theirs.worker_id)):
                assert await remote_workers.held(session, holder, [(run_id, fence)]) == {}
                assert await leased.settle(session, holder, [moved], HORIZON) == set()
                assert await leased.hand_back(session, holder, [held]) == set()
                assert not await runs.save_checkpoint(session, run_id, fence, holder, "1")
                assert not await runs.save_progress(session, run_id, fence, holder, Progress(1.0))
                assert await remote_workers.append_logs(session, holder, (run_id, fence), [("info", "x", None)]) is None
                await remote_workers.refuse(session, holder, [((run_id, fence), "succeeded")])

        assert await remote.settle(run) == "settled"

    async def test_a_session_reads_no_worker_and_calls_no_move_of_the_engine(self, ours, theirs, sessions):
        for statement, arguments in (
            ("select * from duly.workers", ()),
            (remote_workers.SQL["foresee"], (UUID(ours[0].worker_id), ours[0].caller.tenant)),
            (workers.SQL["heartbeat"], (UUID(ours[0].worker_id),)),
            (leased.SQL["finish"], (UUID(ours[0].worker_id), [], [], [], [], [])),
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await ask(sessions, theirs.caller.tenant, statement, arguments)


async def ask(sessions: Sessions, tenant: int, statement: str, arguments: tuple[Any, ...]) -> None:
    """Run a statement as the door's role, past the table of guarded twins."""
    async with sessions.open(tenant) as session:
        await Database.fetch(session, statement, *arguments)
