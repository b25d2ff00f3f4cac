"""Setting aside and bringing back beside other moves, in every order: no run is lost, doubled, or forgotten where it stands."""

import pytest

from duly.moves.cancel import CancelAnswer, cancel_run
from duly.moves.claim import claim
from duly.moves.unroutable import UnroutableLimits, mark_unroutable, restore_routable
from duly.moves.workflows.workflows import run_workflow_tasks
from duly.store.tables import workflows
from tests.builders import HANDLER, QUEUE, a_ready_run, a_worker, counts
from tests.graphs import a_workflow
from tests.interleavings.test_pairs import both_claims

TYPO = "app:typo"
FEW = UnroutableLimits(runs=3, runs_more=2, looks=6)
STORIES: list[type] = []


def story(told: type) -> type:
    """Take a story up: `set_up` gives its two moves, `check` hears what they answered."""
    STORIES.append(told)
    return told


def setting_aside(side):
    """Set aside, as maintenance does."""
    return mark_unroutable(side, FEW)


def claiming(worker_id, handler=TYPO, limit=10):
    """Give a claim as a move."""
    return lambda side: claim(side, worker_id, [QUEUE], [handler], limit)


class Strangers:
    """Three runs of a handler that nobody knows, and one that somebody does."""

    are_aside = False

    async def set_up(self, database):
        self.worker_id = await a_worker(database)
        self.strangers = {await a_ready_run(database, handler=TYPO) for _ in range(3)}
        if self.are_aside:
            assert (await setting_aside(database))[0] == 3
        self.known = await a_ready_run(database)
        return await self.moves(database)

    async def moves(self, database):
        raise NotImplementedError


@story
class SetAsideAndClaim(Strangers):
    async def moves(self, database):
        return setting_aside, claiming(self.worker_id, HANDLER)

    async def check(self, database, left, right):
        assert left[0] == 3
        assert [run.run_id for run in right] == [self.known]
        assert await counts(database) == {"ready": 3, "leased": 1}


@story
class SetAsideAndRegister(Strangers):
    """The registry was read before the worker was in it: its next claim has what it did not get with the first."""

    async def moves(self, database):
        async def come_and_claim(side):
            self.newcomer = await a_worker(side, handlers=[TYPO])
            return await claiming(self.newcomer)(side)

        return setting_aside, come_and_claim

    async def check(self, database, left, right):
        taken = [*right, *await claiming(self.newcomer)(database)]
        assert sorted(run.run_id for run in taken) == sorted(self.strangers)


@story
class SetAsideAndSetAside(Strangers):
    async def moves(self, database):
        return setting_aside, setting_aside

    async def check(self, database, left, right):
        assert left[0] + right[0] == 3
        assert await database.fetchval("select count(*) from duly.ready where is_unroutable") == 3


@story
class SetAsideAndCancel(Strangers):
    async def moves(self, database):
        self.unwanted = min(self.strangers)
        return setting_aside, lambda side: cancel_run(side, self.unwanted)

    async def check(self, database, left, right):
        assert right is CancelAnswer.CANCELLED
        assert await counts(database) == {"ready": 3}


@story
class SetAsideAndPauseOfAWorkflow(Strangers):
    """A node that is just being set aside is passed over by the pause, and taken back by its errand."""

    async def moves(self, database):
        await database.execute("delete from duly.ready")
        self.workflow_id = await a_workflow(database, "a b c", handler=TYPO)
        return setting_aside, lambda side: workflows.pause(side, 1, self.workflow_id)

    async def check(self, database, left, right):
        for _ in range(5):
            await database.clock.advance(1)
            await run_workflow_tasks(database)
        assert await counts(database) == {"blocked": 3}


@story
class BringBackAndClaim(Strangers):
    are_aside = True

    async def moves(self, database):
        self.newcomer = await a_worker(database, handlers=[TYPO])
        return restore_routable, claiming(self.newcomer)

    async def check(self, database, left, right):
        taken = [*right, *await claiming(self.newcomer)(database)]
        assert sorted(run.run_id for run in taken) == sorted(self.strangers)


@story
class BringBackAndCancel(Strangers):
    are_aside = True

    async def moves(self, database):
        await a_worker(database, handlers=[TYPO])
        self.unwanted = min(self.strangers)
        return restore_routable, lambda side: cancel_run(side, self.unwanted)

    async def check(self, database, left, right):
        assert right is CancelAnswer.CANCELLED
        assert await counts(database) == {"ready": 3}


@story
class ClaimAndClaimOfWhatStandsAside(Strangers):
    are_aside = True

    async def moves(self, database):
        self.newcomers = [await a_worker(database, handlers=[TYPO]) for _ in range(2)]
        return tuple(claiming(worker_id, limit=2) for worker_id in self.newcomers)

    async def check(self, database, left, right):
        taken = [*left, *right, *await claiming(self.newcomers[0])(database)]
        assert sorted(run.run_id for run in taken) == sorted(self.strangers)


@story
class BringBackAndSetAside(Strangers):
    """The worker that knew them leaves while they are brought back: they stand in one place or the other, and are ready."""

    are_aside = True

    async def moves(self, database):
        newcomer = await a_worker(database, handlers=[TYPO])

        async def leave_and_set_aside(side):
            await side.execute("delete from duly.workers where worker_id = $1", newcomer)
            return await setting_aside(side)

        return restore_routable, leave_and_set_aside

    async def check(self, database, left, right):
        newcomer = await a_worker(database, handlers=[TYPO])
        assert {run.run_id for run in await claiming(newcomer)(database)} == self.strangers


@both_claims(STORIES)
@pytest.mark.usefixtures("way_to_claim")
async def test_in_every_order_no_run_is_forgotten(story, every_order):
    assert await every_order(story) >= 4
