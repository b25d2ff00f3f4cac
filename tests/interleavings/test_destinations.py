"""Two who report, turn, release or rotate at once, in every order: the budget holds, and of two who decide one does."""

from datetime import timedelta

import pytest
from msgspec import UNSET

from duly.domain.errors import WorkerExpired
from duly.domain.runs.outcome import WaitForDestination
from duly.domain.targets.circuit import State, StateChange
from duly.domain.tenancy.api_key import Secret
from duly.domain.tenancy.sealing import new_key_line, read_keyring
from duly.moves.admin.destinations import limit, report
from duly.moves.defer import Deferred, defer
from duly.moves.workers.retire import retire
from duly.store.tables import destinations, workers
from duly.store.tables.destinations import DestinationReport
from tests.builders import RNG, a_leased_run, a_worker, counts

ORIGIN = "https://hooks.example"
STORIES: list[type] = []


def story(told: type) -> type:
    """Take a story up."""
    STORIES.append(told)
    return told


def reporting(worker_id, number=1, **more):
    """Give a report as a move."""
    told = DestinationReport(**{"fresh_id": RNG.uuid(), "tenant": 1, "origin": ORIGIN, **more})
    return lambda side: report(side, worker_id, number, [told], RNG)


async def with_budget(database, slots: int):
    destination_id = await destinations.make(database, RNG.uuid(), 1, ORIGIN)
    await destinations.limit_destination(database, destination_id, slots, None, UNSET)
    return destination_id


async def shares(database) -> int:
    return int(await database.fetchval("select coalesce(sum(slots), 0) from duly.destination_shares"))


@story
class TwoWorkersWantAllPlaces:
    async def set_up(self, database):
        await with_budget(database, 5)
        return [reporting(await a_worker(database), waiting=5, wanted=5) for _ in range(2)]

    async def check(self, database, left, right):
        assert left[0].slots + right[0].slots == 5
        assert await shares(database) == 5


@story
class TwoWorkersMakeTheSameDestination:
    async def set_up(self, database):
        return [reporting(await a_worker(database), waiting=1, wanted=1) for _ in range(2)]

    async def check(self, database, left, right):
        assert left[0].destination_id == right[0].destination_id
        assert await shares(database) == 2


@story
class OneGivesUpWhatAnotherWants:
    async def set_up(self, database):
        await with_budget(database, 4)
        first, second = await a_worker(database), await a_worker(database)
        await reporting(first, waiting=4, wanted=4)(database)
        return reporting(first, 2), reporting(second, waiting=4, wanted=4)

    async def check(self, database, left, right):
        assert left[0].slots == 0
        assert right[0].slots in (0, 4)
        assert await shares(database) == right[0].slots


@story
class OneGivesAllUpWhileItsReportBeforeIsStillUnderWay:
    async def set_up(self, database):
        await with_budget(database, 4)
        worker_id = await a_worker(database)
        return reporting(worker_id, 1, in_flight=1, holds=1, wanted=1), reporting(worker_id, 2)

    async def check(self, database, left, right):
        assert right[0].slots == 0
        assert await shares(database) == 0


@story
class AWorkerIsTakenAwayWhileItReports:
    async def set_up(self, database):
        worker_id = await a_worker(database)
        await reporting(worker_id, 1, waiting=1, wanted=1)(database)
        return lambda side: retire(side, worker_id, []), reporting(worker_id, 2, waiting=1, wanted=1)

    async def check(self, database, _, right):
        assert isinstance(right, WorkerExpired) or right[0].slots == 1
        assert await database.fetchval("select count(*) from duly.destination_reports") == 0


@story
class AWorkerIsTakenAwayWhileAnotherReports:
    async def set_up(self, database):
        await with_budget(database, 4)
        first, second = await a_worker(database), await a_worker(database)
        await reporting(first, waiting=4, wanted=4)(database)
        await database.clock.advance(60)
        await database.execute(
            "update duly.workers set until = duly.clock_now() + '1 hour' where worker_id = $1", second
        )
        return lambda side: workers.expire(side, first, 0), reporting(second, waiting=4, wanted=4)

    async def check(self, database, _, right):
        assert right[0].slots in (0, 4)
        assert await shares(database) == 4


@story
class TwoWorkersSeeItFail:
    async def set_up(self, database):
        await with_budget(database, 4)
        return [reporting(await a_worker(database), failing=5, streak=5) for _ in range(2)]

    async def check(self, database, left, right):
        assert left[0].health.state is right[0].health.state is State.OPEN
        row = await database.fetchrow("select state, state_version, openings from duly.destinations")
        assert tuple(row) == ("open", 1, 1)


@story
class TwoWorkersTurnWhatBothHaveSeen:
    async def set_up(self, database):
        destination_id = await with_budget(database, 4)
        turn = StateChange(state=State.OPEN, openings=1, wait_seconds=9)
        return [lambda side: destinations.change_state(side, destination_id, 0, turn)] * 2

    async def check(self, database, left, right):
        assert sorted([left, right]) == [False, True]


@story
class TwoSchedulersLetGoWhatWaits:
    async def set_up(self, database):
        await with_budget(database, 2)
        worker_id = None
        for _ in range(4):
            worker_id, run = await a_leased_run(database, worker_id)
            await defer(database, worker_id, [Deferred(run, None, WaitForDestination(ORIGIN))])
        [seen] = await destinations.watched(database, None, 10)
        return [lambda side: destinations.release(side, [(seen, 2)])] * 2

    async def check(self, database, left, right):
        assert sorted([left, right]) == [0, 2]
        assert await counts(database) == {"ready": 2, "blocked": 2}


@story
class OneLimitsPlacesAndAnotherTheRate:
    async def set_up(self, database):
        destination_id = await with_budget(database, 2)
        return [
            lambda side: limit(side, 1, destination_id, slots=7),
            lambda side: limit(side, 1, destination_id, rate=2.5),
        ]

    async def check(self, database, left, right):
        row = await database.fetchrow("select slots, rate_per_second from duly.destinations")
        assert tuple(row) == (7, 2.5)


@story
class TwoRotateTheSameSecret:
    async def set_up(self, database):
        destination_id = await with_budget(database, 2)
        sealed = read_keyring(new_key_line(RNG.secret).reveal(), "test").seal(Secret("x"), b"x", RNG.secret)
        kept = timedelta(hours=1)
        return [lambda side: destinations.keep_secret(side, destination_id, 1, sealed, kept)] * 2

    async def check(self, database, left, right):
        assert sorted([left, right]) == [False, True]
        assert await database.fetchval("select count(*) from duly.destination_secrets") == 1


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
async def test_in_every_order_the_budget_holds_and_one_decides(story, every_order):
    assert await every_order(story) >= 2
