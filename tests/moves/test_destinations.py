"""Destinations: what workers report adds up, shares never exceed the budget, and runs wait while nothing may be sent."""

import asyncio
from datetime import timedelta
from itertools import count, pairwise
from typing import Any
from uuid import UUID

import msgspec
import pytest

from duly.clock import Rng
from duly.domain.errors import InvalidOption, NotFound, WorkerExpired
from duly.domain.runs.outcome import Failed, Outcome, Succeeded, TimedOut, WaitForDestination
from duly.domain.targets.circuit import State
from duly.domain.targets.target import WEBHOOK
from duly.domain.tenancy.api_key import Secret
from duly.domain.tenancy.sealing import CannotOpen, new_key_line, read_keyring
from duly.moves.admin.destinations import close, leave_alone, limit, make, mind, report, rotate, secrets_for, secrets_of
from duly.moves.claim import claim
from duly.moves.defer import Deferred, defer
from duly.moves.settle import Settled, settle
from duly.moves.workers.retire import retire
from duly.store.boxes import history
from duly.store.connection.database import Database
from duly.store.connection.session import Sessions
from duly.store.retention import Aging, forget_older
from duly.store.tables import destinations
from duly.store.tables.destinations import Allowed, Destination, DestinationReport
from tests.builders import QUEUE, a_leased_run, a_ready_run, a_worker, boxes_of, claimed, counts

ORIGIN = "https://hooks.example"
NUMBERS = count(1)
_LONG = timedelta(hours=1)
RNG = Rng(5)
KEYRING = read_keyring(new_key_line(RNG.secret).reveal(), "test")


async def told(database: Database, worker_id: UUID, *, number: int | None = None, **more: Any) -> Allowed:
    """Report one destination. Gives what is allowed."""
    one = DestinationReport(**{"fresh_id": RNG.uuid(), "tenant": 1, "origin": ORIGIN, **more})
    [allowed] = await report(database, worker_id, next(NUMBERS) if number is None else number, [one], RNG)
    return allowed


async def the_destination(database: Database, origin: str = ORIGIN) -> Destination:
    """Read the destination, as people see it."""
    destination_id = await destinations.find_by_origin(database, 1, origin)
    assert destination_id is not None
    found = await destinations.find(database, 1, destination_id)
    assert found is not None
    return found


def turns_of(allowed: Allowed, at: float) -> list[float]:
    """Give the moments of the turns that were granted at one."""
    assert allowed.rate is not None
    return [at + allowed.first_seconds + number / allowed.rate for number in range(allowed.tokens or 0)]


async def shares(database: Database) -> int:
    """Add up what all workers may have under way."""
    return int(await database.fetchval("select coalesce(sum(slots), 0) from duly.destination_shares"))


async def budget(database: Database, slots: int, rate: float | None = None) -> None:
    """Make the destination, with a budget."""
    destination_id = await make(database, KEYRING, 1, ORIGIN, RNG)
    await limit(database, 1, destination_id, slots=slots, rate=rate)


async def wait_for_destination(database: Database, number: int, origin: str = ORIGIN) -> list[UUID]:
    """Park some runs. Gives them in the order in which they are due."""
    worker_id = await a_worker(database)
    run_ids = [await a_ready_run(database) for _ in range(number)]
    held = {run.run_id: run for run in await claimed(database, worker_id, limit=1_000)}
    await defer(database, worker_id, [Deferred(held[run_id], None, WaitForDestination(origin)) for run_id in run_ids])
    return run_ids


async def opened(database: Database) -> UUID:
    """Let the destination fail. Gives the worker that saw it."""
    worker_id = await a_worker(database)
    assert (await told(database, worker_id, failing=5, streak=5)).health.state is State.OPEN
    return worker_id


class TestShares:
    async def test_the_first_report_makes_the_destination_and_gives_a_share(self, database):
        worker_id = await a_worker(database)

        allowed = await told(database, worker_id, waiting=1, wanted=8)

        assert (allowed.slots, allowed.tokens, allowed.health.state) == (8, None, State.CLOSED)
        assert (await the_destination(database)).waiting == 1

    async def test_worker_is_granted_only_slots_that_no_other_worker_has(self, database):
        await budget(database, 10)
        first, second = await a_worker(database), await a_worker(database)

        assert (await told(database, first, in_flight=0, waiting=8, wanted=8)).slots == 8
        assert (await told(database, second, waiting=8, wanted=8)).slots == 2
        assert await shares(database) == 10

    async def test_a_share_that_shrinks_is_free_when_its_holder_has_confirmed(self, database):
        await budget(database, 10)
        first, second = await a_worker(database), await a_worker(database)
        await told(database, first, waiting=10, wanted=10)
        assert (await told(database, second, waiting=10, wanted=10)).slots == 0

        # It has ten under way; told to have five, it may still have started more than it knew of.
        assert (await told(database, first, in_flight=10, wanted=10, holds=10)).slots == 5
        assert (await told(database, second, waiting=10, wanted=10)).slots == 0
        assert (await told(database, first, in_flight=7, wanted=10, holds=7)).slots == 5
        assert (await told(database, second, waiting=10, wanted=10, holds=0)).slots == 3
        assert await shares(database) == 10

    async def test_worker_is_granted_all_free_slots_when_no_other_waits(self, database):
        await budget(database, 10)
        first, second = await a_worker(database), await a_worker(database)
        await told(database, first, in_flight=1, wanted=1, holds=1)

        assert (await told(database, second, waiting=20, wanted=20)).slots == 9

    async def test_slots_that_a_worker_gives_up_become_free(self, database):
        await budget(database, 4)
        first, second = await a_worker(database), await a_worker(database)
        await told(database, first, waiting=4, wanted=4)

        assert (await told(database, first, wanted=0, holds=0)).slots == 0
        assert await shares(database) == 0
        assert (await told(database, second, waiting=4, wanted=4)).slots == 4

    async def test_destination_report_that_arrives_late_changes_nothing(self, database):
        await budget(database, 10)
        worker_id = await a_worker(database)
        await told(database, worker_id, number=7, in_flight=5, wanted=5, holds=5)

        one = DestinationReport(fresh_id=RNG.uuid(), tenant=1, origin=ORIGIN, holds=1, wanted=1, in_flight=1, healthy=3)
        assert await report(database, worker_id, 6, [one], RNG) == []
        assert await shares(database) == 5
        assert (await the_destination(database)).healthy_total == 0

    async def test_late_report_changes_nothing_after_the_worker_gave_up_its_share(self, database):
        worker_id = await a_worker(database)
        await told(database, worker_id, number=5, waiting=1, wanted=1)
        await told(database, worker_id, number=7)

        late = DestinationReport(
            fresh_id=RNG.uuid(), tenant=1, origin=ORIGIN, in_flight=1, holds=1, wanted=1, healthy=3
        )
        assert await report(database, worker_id, 6, [late], RNG) == []
        assert (await the_destination(database)).in_flight == 0
        assert (await the_destination(database)).healthy_total == 0

    async def test_report_number_is_deleted_with_its_worker(self, database):
        worker_id = await a_worker(database)
        await told(database, worker_id, waiting=1, wanted=1)

        await retire(database, worker_id, [])

        assert await database.fetchval("select count(*) from duly.destination_reports") == 0

    async def test_share_of_a_retired_worker_becomes_free(self, database):
        await budget(database, 5)
        first, second = await a_worker(database), await a_worker(database)
        await told(database, first, waiting=5, wanted=5)

        await retire(database, first, [])

        assert (await told(database, second, waiting=5, wanted=5)).slots == 5
        assert await shares(database) == 5

    async def test_load_of_a_retired_worker_is_no_longer_counted(self, database):
        first, second = await a_worker(database), await a_worker(database)
        await told(database, first, in_flight=3, waiting=2, wanted=5, holds=3)
        await told(database, second, in_flight=1, wanted=1, holds=1)
        found = await the_destination(database)
        assert (found.in_flight, found.waiting) == (4, 2)

        await retire(database, first, [])

        found = await the_destination(database)
        assert (found.in_flight, found.waiting) == (1, 0)
        assert (await destinations.totals(database, 10)).in_flight == 1

    async def test_load_of_a_destination_is_shown_to_its_tenant_only(self, database):
        await told(database, await a_worker(database), in_flight=3, wanted=3, holds=3)
        destination_id = (await the_destination(database)).destination_id
        seen = []
        async with Sessions(database) as sessions:
            for tenant in (1, 2):
                async with sessions.open(tenant) as session:
                    seen.append(
                        await session.fetchval("select in_flight from duly.load_of_destination($1)", destination_id)
                    )

        assert seen == [3, 0]

    async def test_the_share_of_a_worker_that_is_silent_is_its_own_until_its_lease_ends(self, database, clock):
        await budget(database, 5)
        first = await a_worker(database)
        await told(database, first, waiting=5, wanted=5)
        await clock.advance(60)  # Its lease is over, but nobody has taken it away.
        second = await a_worker(database)

        assert (await told(database, second, waiting=5, wanted=5)).slots == 0
        with pytest.raises(WorkerExpired):
            await told(database, first, waiting=5, wanted=5)

    async def test_a_smaller_budget_is_reached_as_requests_end(self, database):
        await budget(database, 10)
        worker_id = await a_worker(database)
        await told(database, worker_id, waiting=10, wanted=10)
        await budget(database, 3)

        assert (await told(database, worker_id, in_flight=10, wanted=10, holds=10)).slots == 3
        assert await shares(database) == 10
        assert (await told(database, worker_id, in_flight=2, wanted=10, holds=3)).slots == 3
        assert await shares(database) == 3

    async def test_any_number_of_reports_in_any_order_never_exceed_the_budget(self, database):
        """Workers that keep to the protocol, with answers that are lost now and then."""
        await budget(database, 7)
        ids = [await a_worker(database) for _ in range(4)]
        ceilings, in_flight = dict.fromkeys(ids, 0), dict.fromkeys(ids, 0)
        for _ in range(300):
            one = ids[int(RNG.uniform() * 4)]
            waiting = int(RNG.uniform() * 6)
            holds = max(ceilings[one], in_flight[one])
            allowed = await told(
                database, one, in_flight=in_flight[one], waiting=waiting, wanted=in_flight[one] + waiting, holds=holds
            )
            if RNG.uniform() < 0.8:
                ceilings[one] = allowed.slots
            in_flight[one] = max(0, in_flight[one] - int(RNG.uniform() * 3))
            if RNG.uniform() < 0.7:
                in_flight[one] = max(in_flight[one], min(ceilings[one], in_flight[one] + waiting))
            assert sum(in_flight.values()) <= 7
            assert await shares(database) <= 7

    async def test_a_budget_that_does_not_divide_is_used_to_the_full(self, database):
        await budget(database, 5)
        workers = [await a_worker(database) for _ in range(3)]
        held = dict.fromkeys(workers, 0)
        for _ in range(4):  # What one gives up, another has when it next asks.
            for one in workers:
                held[one] = (
                    await told(database, one, in_flight=held[one], waiting=9, wanted=20, holds=held[one])
                ).slots
                assert await shares(database) <= 5
        assert sorted(held.values()) == [1, 2, 2]


class TestRates:
    async def test_reservations_match_the_rate_and_reach_half_a_second_ahead(self, database, clock):
        await budget(database, 100, rate=8)
        worker_id = await a_worker(database)
        turns: list[float] = []
        for number in range(40):
            await clock.advance(0.1)
            turns += turns_of(await told(database, worker_id, waiting=50, wanted=50, holds=50, tokens=50), number * 0.1)

        assert [round(after - before, 6) for before, after in pairwise(turns)] == [0.125] * (len(turns) - 1)
        assert turns[0] == 0
        assert 3.9 + 0.5 - 0.125 < turns[-1] <= 3.9 + 0.5

    async def test_no_turn_is_given_to_two_workers(self, database, clock):
        await budget(database, 100, rate=4)
        ids = [await a_worker(database, lease=_LONG) for _ in range(3)]
        await clock.advance(100)

        given = [turns_of(await told(database, one, waiting=2, wanted=2, tokens=2), 0) for one in ids]

        assert given == [[0, 0.25], [0.5], []]

    async def test_reports_that_come_late_lose_no_turn(self, database, clock):
        await budget(database, 100, rate=200)
        worker_id = await a_worker(database, lease=_LONG)
        drawn = 0
        for _ in range(20):
            drawn += (await told(database, worker_id, waiting=300, wanted=50, holds=50, tokens=300)).tokens or 0
            await clock.advance(0.5)

        assert drawn == pytest.approx(200 * 10, abs=25)

    async def test_reservations_of_a_higher_rate_delay_a_lower_one_by_a_second_at_most(self, database, clock):
        await budget(database, 100, rate=1_000)
        worker_id = await a_worker(database, lease=_LONG)
        assert (await told(database, worker_id, waiting=900, wanted=50, tokens=900)).tokens == 501
        await limit(database, 1, (await the_destination(database)).destination_id, rate=2.0)

        await clock.advance(1)

        assert turns_of(await told(database, worker_id, waiting=9, wanted=9, tokens=9), 0) == [0.5]

    @pytest.mark.parametrize("rate", [8, None])
    async def test_circuit_closed_by_hand_grants_no_reservation_twice(self, database, clock, rate):
        await budget(database, 100, rate=rate)
        worker_id = await a_worker(database)
        destination_id = (await the_destination(database)).destination_id
        turns, waiting = [], {"waiting": 50, "wanted": 50, "holds": 50, "tokens": 50}
        for number in range(4):
            if number or rate is None:
                await leave_alone(database, 1, destination_id, timedelta(minutes=1))
                await close(database, 1, destination_id)
            turns += turns_of(await told(database, worker_id, **waiting), number * 0.1)
            await clock.advance(0.1)

        assert len(turns) >= 5
        assert all(after - before >= 1 / (rate or 10) - 1e-6 for before, after in pairwise(turns))

    async def test_nor_does_one_that_has_shown_to_be_well(self, database, clock):
        await budget(database, 100, rate=8)
        worker_id = await opened(database)
        await clock.advance(2)
        await mind(database, RNG)
        turns = turns_of(await told(database, worker_id, waiting=4, wanted=4, tokens=4), 0)
        assert len(turns) == 4

        await clock.advance(0.2)
        await told(database, worker_id, healthy=2)
        turns += turns_of(await told(database, worker_id, waiting=50, wanted=50, tokens=50), 0.2)

        assert len(turns) > 4
        assert all(after - before >= 1 / 8 - 1e-6 for before, after in pairwise(turns))

    async def test_reservations_granted_long_ago_delay_no_new_ones(self, database, clock):
        await budget(database, 100, rate=8)
        worker_id = await a_worker(database, lease=_LONG)
        destination_id = (await the_destination(database)).destination_id
        await told(database, worker_id, waiting=50, wanted=50, holds=50, tokens=50)
        await leave_alone(database, 1, destination_id, timedelta(minutes=1))
        await clock.advance(1)

        await close(database, 1, destination_id)

        assert turns_of(await told(database, worker_id, waiting=50, wanted=50, tokens=50), 0)[0] == pytest.approx(1 / 8)

    async def test_spare_reservations_are_granted_only_while_no_other_worker_waits(self, database, clock):
        await budget(database, 100, rate=40)
        first, second = await a_worker(database, lease=_LONG), await a_worker(database, lease=_LONG)
        assert (await told(database, first, in_flight=1, wanted=5, holds=5, spare=4)).tokens == 4

        await told(database, second, waiting=99, wanted=5, tokens=99)
        await clock.advance(0.5)

        assert (await told(database, first, in_flight=1, wanted=5, holds=5, spare=4)).tokens == 0
        assert (await told(database, first, in_flight=1, wanted=5, waiting=2, holds=5, tokens=2, spare=4)).tokens == 2

    async def test_spare_reservations_are_not_granted_while_deferred_runs_wait(self, database):
        await budget(database, 100, rate=40)
        await wait_for_destination(database, 1)
        worker_id = await a_worker(database, lease=_LONG)

        assert (await told(database, worker_id, in_flight=1, wanted=5, holds=5, spare=4)).tokens == 0

    async def test_worker_with_a_reservation_does_not_wait_for_slots_of_others(self, database):
        await budget(database, 10, rate=40)
        first, second = await a_worker(database), await a_worker(database)
        await told(database, first, waiting=15, wanted=4, tokens=15)

        allowed = await told(database, second, waiting=2, wanted=6, tokens=2)

        assert (allowed.slots, allowed.is_contended) == (6, False)

    async def test_a_low_rate_is_not_split_into_nothing(self, database, clock):
        await budget(database, 100, rate=0.1)
        ids = [await a_worker(database, lease=_LONG) for _ in range(3)]
        drawn = []
        for number in range(24):
            await clock.advance(5)
            drawn.append((await told(database, ids[number % 3], waiting=1, wanted=1, tokens=1)).tokens or 0)

        assert sum(drawn) == 12

    async def test_without_a_rate_there_are_no_tokens_to_wait_for(self, database):
        worker_id = await a_worker(database)
        assert (await told(database, worker_id, waiting=1, wanted=1, tokens=1)).tokens is None


class TestBreaker:
    async def test_failures_that_several_workers_see_add_up(self, database):
        first, second = await a_worker(database), await a_worker(database)

        assert (await told(database, first, failing=3, streak=3)).health.state is State.CLOSED
        assert (await told(database, second, failing=2, streak=2)).health.state is State.OPEN
        assert (await the_destination(database)).state is State.OPEN

    async def test_a_healthy_answer_between_them_breaks_the_row(self, database):
        worker_id = await a_worker(database)
        await told(database, worker_id, failing=4, streak=4)
        await told(database, worker_id, healthy=1, failing=3, streak=3)

        assert (await told(database, worker_id, failing=1, streak=1)).health.state is State.CLOSED
        assert (await told(database, worker_id, failing=1, streak=1)).health.state is State.OPEN

    async def test_circuit_opens_when_half_the_responses_in_the_window_fail(self, database, clock):
        worker_id = await a_worker(database)
        await told(database, worker_id, healthy=8, failing=4, streak=0)
        await clock.advance(6)
        assert (await told(database, worker_id, healthy=2, failing=6, streak=0)).health.state is State.OPEN

    async def test_circuit_ignores_responses_older_than_the_window(self, database, clock):
        worker_id = await a_worker(database)
        await told(database, worker_id, failing=9, healthy=10, streak=0)
        await clock.advance(11)
        assert (await told(database, worker_id, healthy=1, failing=4, streak=4)).health.state is State.CLOSED

    async def test_open_circuit_grants_no_slots(self, database, clock):
        worker_id = await opened(database)
        other = await a_worker(database)

        allowed = await told(database, other, waiting=3, wanted=3)

        assert (allowed.slots, allowed.health.state) == (0, State.OPEN)
        assert 0.7 < allowed.health.wait_seconds < 1.3
        assert (await told(database, worker_id, in_flight=2, wanted=9, holds=2)).slots == 0

    async def test_half_open_circuit_grants_one_slot(self, database, clock):
        first = await opened(database)
        second = await a_worker(database)
        await clock.advance(2)

        assert (await told(database, first, waiting=5, wanted=5)).health.state is State.HALF_OPEN
        assert (await told(database, first, waiting=5, wanted=5)).slots == 1
        assert (await told(database, second, waiting=5, wanted=5)).slots == 0
        assert await shares(database) == 1

    async def test_two_good_answers_close_it_at_a_rate(self, database, clock):
        worker_id = await opened(database)
        await clock.advance(2)
        await told(database, worker_id, waiting=1, wanted=1)
        await told(database, worker_id, healthy=1)
        assert (await told(database, worker_id, healthy=1)).health.state is State.CLOSED

        found = await the_destination(database)
        assert (found.state, found.ramp_rate) == (State.CLOSED, 10)
        allowed = await told(database, worker_id, waiting=50, wanted=50, tokens=50)
        assert turns_of(allowed, 0) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])

    async def test_a_failure_shuts_it_for_longer(self, database, clock):
        worker_id = await opened(database)
        await clock.advance(2)
        await told(database, worker_id)
        again = await told(database, worker_id, failing=1, streak=1)

        assert again.health.state is State.OPEN
        assert 1.4 < again.health.wait_seconds < 2.6

    async def test_retry_after_is_heard_at_once_and_by_all(self, database, clock):
        first, second = await a_worker(database), await a_worker(database)
        await told(database, first, failing=1, streak=1, requested_seconds=120)

        heard = await told(database, second, waiting=1, wanted=1)
        assert (heard.slots, heard.health.state) == (0, State.OPEN)
        assert heard.health.wait_seconds == pytest.approx(120, abs=1)
        await clock.advance(119)
        await mind(database, RNG)
        assert (await the_destination(database)).state is State.OPEN
        await clock.advance(2)
        await mind(database, RNG)
        assert (await the_destination(database)).state is State.HALF_OPEN

    async def test_wait_requested_by_a_destination_stays_over_when_the_clock_steps_back(self, database, clock):
        worker_id = await a_worker(database, lease=timedelta(hours=1))
        for before in ("-infinity", clock.at.isoformat()):  # One that is over may stand there still.
            await told(database, worker_id)
            await database.execute("update duly.destinations set requested_until = $1::text::timestamptz", before)
            await clock.advance(10)
            await told(database, worker_id)
            await clock.step(-600)

            assert (await told(database, worker_id, waiting=1, wanted=1)).slots > 0
            await clock.step(600)

    async def test_circuit_opens_only_once_for_two_failure_reports(self, database):
        worker_id = await opened(database)
        found = await the_destination(database)

        await told(database, worker_id, failing=9, streak=9)

        assert (await the_destination(database)).state_version == found.state_version
        assert found.openings == 1

    async def test_destinations_of_one_origin_and_two_tenants_are_two(self, database):
        worker_id = await opened(database)

        other = await told(database, worker_id, tenant=2, waiting=1, wanted=1)

        assert (other.slots, other.health.state) == (1, State.CLOSED)

    async def test_the_usual_rate_is_measured_while_it_is_closed(self, database, clock):
        worker_id = await a_worker(database, lease=_LONG)
        for _ in range(30):
            await told(database, worker_id, healthy=20, in_flight=1, wanted=1, holds=1)
            await clock.advance(0.5)

        assert (await the_destination(database)).steady_rate == pytest.approx(40, rel=0.1)

    async def test_outage_does_not_change_the_steady_rate(self, database, clock):
        worker_id = await a_worker(database, lease=_LONG)
        for _ in range(22):
            await told(database, worker_id, healthy=20)
            await clock.advance(0.5)
        before = (await the_destination(database)).steady_rate
        for _ in range(30):
            await told(database, worker_id, failing=5, streak=5)
            await clock.advance(0.5)

        assert before is not None
        assert (await the_destination(database)).steady_rate == pytest.approx(before, rel=0.1)


class TestMinding:
    async def test_open_circuit_releases_no_deferred_run(self, database):
        await opened(database)
        run_ids = await wait_for_destination(database, 3)

        await mind(database, RNG)

        assert [await boxes_of(database, run_id) for run_id in run_ids] == [["blocked"]] * 3
        assert await history.verify(database) == []

    async def test_story_24_half_open_circuit_releases_a_single_probe(self, database, clock):
        await opened(database)
        await wait_for_destination(database, 3)
        await clock.advance(2)

        await mind(database, RNG)
        assert (await the_destination(database)).state is State.HALF_OPEN
        await mind(database, RNG)

        assert await counts(database) == {"ready": 1, "blocked": 2}

    async def test_no_second_probe_while_one_is_under_way(self, database, clock):
        worker_id = await opened(database)
        await wait_for_destination(database, 3)
        await clock.advance(2)
        await mind(database, RNG)
        await told(database, worker_id, waiting=1, wanted=1)
        await mind(database, RNG)

        assert (await counts(database)).get("ready", 0) == 0

    async def test_closed_circuit_releases_as_many_runs_as_there_are_slots(self, database):
        await budget(database, 4)
        await wait_for_destination(database, 10)

        await mind(database, RNG)

        assert await counts(database) == {"ready": 4, "blocked": 6}

    async def test_after_an_outage_they_go_at_a_rate_and_the_ramp_lasts_as_long(self, database, clock):
        worker_id = await a_worker(database, lease=_LONG)
        await told(database, worker_id, failing=5, streak=5)
        await database.execute("update duly.destinations set steady_rate = 20")
        await wait_for_destination(database, 200)
        await clock.advance(2)
        await mind(database, RNG)
        await told(database, worker_id, healthy=2)

        turns: list[float] = []
        waiting = went = 0
        for number in range(20):
            before = (await counts(database)).get("blocked", 0)
            await clock.advance(0.25)
            await mind(database, RNG)
            went += (gone := before - (await counts(database)).get("blocked", 0))
            # Whoever claims them draws their turns; who gets none waits on.
            waiting += gone
            allowed = await told(database, worker_id, waiting=waiting, wanted=9, holds=9, tokens=waiting)
            turns += turns_of(allowed, number * 0.25)
            waiting -= allowed.tokens or 0

        assert all(after - before >= 1 / 30 - 1e-6 for before, after in pairwise(turns))
        assert 30 * 20 * 0.25 * 0.95 <= len(turns) <= went <= len(turns) + 30 * 0.5
        assert (await the_destination(database)).ramp_rate == 30

    async def test_the_ramp_ends_when_nothing_waits(self, database, clock):
        worker_id = await opened(database)
        await clock.advance(2)
        await mind(database, RNG)
        await told(database, worker_id, healthy=2)
        assert (await the_destination(database)).ramp_rate is not None

        await clock.advance(3)

        assert (await the_destination(database)).ramp_rate is None
        assert (await told(database, worker_id, waiting=1, wanted=1, tokens=1)).tokens is None

    async def test_with_a_rate_they_go_at_the_rate(self, database, clock):
        await budget(database, 100, rate=0.5)
        await wait_for_destination(database, 5)
        worker_id = await a_worker(database, lease=_LONG)
        went = []
        for _ in range(8):
            await mind(database, RNG)
            went.append((await counts(database)).get("ready", 0))
            await told(database, worker_id, waiting=1, wanted=1, tokens=1)
            await told(database, worker_id)
            await clock.advance(1)

        assert went == [1, 1, 2, 2, 3, 3, 4, 4]

    async def test_concurrency_key_without_a_destination_gets_a_destination(self, database):
        [run_id] = await wait_for_destination(database, 1)

        await mind(database, RNG)
        await mind(database, RNG)

        assert await boxes_of(database, run_id) == ["ready"]

    async def test_runs_waiting_at_open_circuits_do_not_delay_healthy_destinations(self, database, monkeypatch):
        monkeypatch.setattr("duly.moves.admin.destinations.WATCHED_MAX", 2)
        worker_id = await a_worker(database)
        ill = [f"https://{number}.example" for number in range(4)]
        for origin in ill:
            await told(database, worker_id, origin=origin, failing=5, streak=5)
        await budget(database, 4)
        for origin in ill:
            await wait_for_destination(database, 1, origin)
        [run_id] = await wait_for_destination(database, 1)

        assert await mind(database, RNG) == 5

        assert await boxes_of(database, run_id) == ["ready"]
        assert await counts(database) == {"ready": 1, "blocked": 4}

    async def test_open_circuits_become_half_open_however_many_already_are(self, database, clock, monkeypatch):
        monkeypatch.setattr("duly.moves.admin.destinations.WATCHED_MAX", 2)
        worker_id = await a_worker(database)
        origins = [f"https://{number}.example" for number in range(5)]
        for origin in origins:
            await told(database, worker_id, origin=origin, failing=5, streak=5)
        await clock.advance(2)
        for _ in range(3):
            await mind(database, RNG)

        assert [(await the_destination(database, origin)).state for origin in origins] == [State.HALF_OPEN] * 5

    async def test_second_release_of_the_same_runs_frees_no_more(self, database):
        await budget(database, 4)
        await wait_for_destination(database, 10)
        seen = await destinations.watched(database, None, 10)

        going = [(seen[0], 4)]
        assert await destinations.release(database, going) == 4
        assert await destinations.release(database, going) == 0

    async def test_release_locks_destinations_in_the_order_of_reports(self, database):
        origins = ["https://a.example", "https://b.example"]
        for number, origin in zip((9, 3), origins, strict=True):
            await destinations.make(database, UUID(int=number), 1, origin)
            await wait_for_destination(database, 1, origin)
        seen = await destinations.watched(database, None, 10)
        lock = "select from duly.destinations where origin = $1 for update nowait"
        stuck = "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"

        async with database.transaction() as reporter:
            await reporter.execute(lock, origins[0])
            releasing = asyncio.create_task(destinations.release(database, [(one, 1) for one in seen]))
            async with asyncio.timeout(10):
                while not await database.fetch(stuck):
                    await asyncio.sleep(0.01)
            await reporter.execute(lock, origins[1])

        assert await releasing == 2

    async def test_circuit_closed_by_hand_releases_waiting_runs(self, database):
        await opened(database)
        [run_id] = await wait_for_destination(database, 1)
        found = await close(database, 1, (await the_destination(database)).destination_id)
        assert found.state is State.CLOSED
        assert found.ramp_rate is not None

        await database.execute("update duly.destinations set tokens = 1")
        await mind(database, RNG)

        assert await boxes_of(database, run_id) == ["ready"]

    async def test_verify_finds_a_run_that_waits_for_nothing(self, database, clock):
        await budget(database, 4)
        [run_id] = await wait_for_destination(database, 1)
        await clock.advance(61)

        [broken] = await history.verify(database)

        assert (broken["broken"], broken["id"]) == ("run waiting for a destination that would take it", str(run_id))
        await mind(database, RNG)
        assert await history.verify(database) == []


class TestForgetting:
    YEAR = timedelta(days=365)

    async def test_unused_destination_is_deleted_with_its_secret(self, database, clock):
        await make(database, KEYRING, 1, ORIGIN, RNG)
        await make(database, KEYRING, 2, ORIGIN, RNG)
        await clock.advance(self.YEAR.total_seconds() - 1)
        assert await forget_older(database, Aging.DESTINATIONS, self.YEAR, 10) == 0
        await clock.advance(2)
        worker_id = await a_worker(database)
        await told(database, worker_id, tenant=2, healthy=1)

        assert await forget_older(database, Aging.DESTINATIONS, self.YEAR, 10) == 1

        assert await database.fetchval("select array_agg(tenant) from duly.destinations") == [2]
        assert await database.fetchval("select array_agg(tenant) from duly.destination_secrets") == [2]
        await make(database, KEYRING, 1, ORIGIN, RNG)  # It begins anew.

    async def test_cleanup_forgets_the_longest_unused_destinations_first(self, database, clock):
        for tenant in (3, 1, 2):
            await make(database, KEYRING, tenant, ORIGIN, RNG)
            await clock.advance(1)
        await clock.advance(self.YEAR.total_seconds())
        for left in ([1, 2], [2], []):
            assert await forget_older(database, Aging.DESTINATIONS, self.YEAR, 1) == 1
            assert [row[0] for row in await database.fetch("select tenant from duly.destinations order by 1")] == left

    async def test_destination_with_a_configured_limit_is_not_deleted(self, database, clock):
        await budget(database, 7)
        await clock.advance(2 * self.YEAR.total_seconds())
        assert await forget_older(database, Aging.DESTINATIONS, self.YEAR, 10) == 0

    async def test_cleanup_of_a_destination_also_removes_abandoned_shares(self, database, clock):
        worker_id = await a_worker(database)
        await told(database, worker_id, waiting=1, wanted=1)
        await clock.advance(2 * self.YEAR.total_seconds())
        assert await forget_older(database, Aging.DESTINATIONS, self.YEAR, 10) == 1
        assert await shares(database) == 0


class TestSecrets:
    async def test_the_first_use_makes_one_and_the_next_finds_it(self, database):
        [one] = await secrets_for(database, KEYRING, 1, ORIGIN, RNG)
        [again] = await secrets_for(database, KEYRING, 1, ORIGIN, RNG)

        assert one.text == again.text
        assert one.text.reveal().startswith("whsec_")

    async def test_rotation_keeps_the_previous_secret_for_a_day(self, database, clock):
        [old] = await secrets_for(database, KEYRING, 1, ORIGIN, RNG)
        destination_id = (await the_destination(database)).destination_id

        new = await rotate(database, KEYRING, 1, destination_id, RNG)

        assert new.text != old.text
        assert [one.number for one in await secrets_for(database, KEYRING, 1, ORIGIN, RNG)] == [2, 1]
        await clock.advance(24 * 3600 - 1)
        assert len(await secrets_for(database, KEYRING, 1, ORIGIN, RNG)) == 2
        await clock.advance(2)
        assert [one.text for one in await secrets_for(database, KEYRING, 1, ORIGIN, RNG)] == [new.text]

    async def test_no_more_than_two_are_good_at_a_time(self, database):
        await secrets_for(database, KEYRING, 1, ORIGIN, RNG)
        destination_id = (await the_destination(database)).destination_id
        for _ in range(3):
            await rotate(database, KEYRING, 1, destination_id, RNG)

        assert [one.number for one in await secrets_of(database, KEYRING, 1, destination_id)] == [4, 3]
        assert await database.fetchval("select count(*) from duly.destination_secrets") == 2

    async def test_in_the_database_it_cannot_be_read(self, database):
        [one] = await secrets_for(database, KEYRING, 1, ORIGIN, RNG)
        kept = await database.fetchval("select sealed from duly.destination_secrets")

        assert one.text.reveal().encode() not in kept
        assert one.text.reveal()[6:].encode() not in kept

    async def test_secret_copied_into_another_row_does_not_open(self, database):
        await secrets_for(database, KEYRING, 1, ORIGIN, RNG)
        await secrets_for(database, KEYRING, 1, "https://other.example", RNG)
        await database.execute(
            "update duly.destination_secrets set sealed = (select sealed from duly.destination_secrets as other"
            " where other.destination_id <> destination_secrets.destination_id)"
        )

        with pytest.raises(CannotOpen):
            await secrets_for(database, KEYRING, 1, ORIGIN, RNG)

    async def test_secret_stored_first_is_kept(self, database):
        destination_id = await destinations.make(database, RNG.uuid(), 1, ORIGIN)
        sealed = KEYRING.seal(Secret("x"), b"x", RNG.secret)
        kept = destinations.keep_secret

        assert await kept(database, destination_id, 1, sealed, _LONG)
        assert not await kept(database, destination_id, 1, sealed, _LONG)
        assert not await kept(database, destination_id, 3, sealed, _LONG)


class TestLimits:
    @pytest.mark.parametrize(("slots", "rate"), [(0, None), (-1, None), (10**6, None), (1, 0.0), (1, -1.0), (1, 1e9)])
    async def test_limit_out_of_range_is_refused(self, database, slots, rate):
        destination_id = await make(database, KEYRING, 1, ORIGIN, RNG)
        with pytest.raises(InvalidOption):
            await limit(database, 1, destination_id, slots=slots, rate=rate)

    async def test_destination_of_another_tenant_is_not_found(self, database):
        destination_id = await make(database, KEYRING, 2, ORIGIN, RNG)
        with pytest.raises(NotFound):
            await limit(database, 1, destination_id, slots=1, rate=None)
        with pytest.raises(NotFound):
            await rotate(database, KEYRING, 1, destination_id, RNG)
        with pytest.raises(NotFound):
            await close(database, 1, destination_id)


class TestFailures:
    """What failed at a destination is read from the attempts, the last first."""

    async def failed(self, database: Database, to: str, outcome: Outcome | None = None) -> UUID:
        """Let an attempt of a webhook fail."""
        worker_id = await a_worker(database, lease=_LONG)
        run_id = await a_ready_run(database, handler=WEBHOOK)
        [run] = await claim(database, worker_id, [QUEUE], [WEBHOOK], 1)
        detail = msgspec.json.encode({"to": to, "status": 503}).decode()
        now = await database.read_clock()
        ended = outcome or Failed("it answered 503", retryable=False, detail=detail)
        await settle(database, worker_id, [Settled(run, now, now, ended)], RNG)
        return run_id

    async def test_failures_are_listed_latest_first_with_time_outcome_and_run(self, database, clock):
        first = await self.failed(database, f"{ORIGIN}/in?…")
        await clock.advance(5)
        second = await self.failed(database, ORIGIN, TimedOut(3.0, msgspec.json.encode({"to": ORIGIN}).decode()))

        later, sooner = await destinations.failures_page(database, 1, ORIGIN, None, 10)

        assert (later.run_id, later.outcome, later.status, later.reason) == (
            second,
            "timed_out",
            None,
            "timed out after 3 s",
        )
        assert (sooner.run_id, sooner.outcome, sooner.status, sooner.reason) == (
            first,
            "failed",
            503,
            "it answered 503",
        )
        assert later.finished_at - sooner.finished_at == timedelta(seconds=5)

    async def test_failures_exclude_other_origins_successes_and_other_targets(self, database):
        await self.failed(database, "https://hooks.example.org/in")
        await self.failed(database, "https://hooks.example:8443/in")
        await self.failed(database, ORIGIN, Succeeded())
        worker_id, run = await a_leased_run(database)
        now = await database.read_clock()
        spoofed = Failed("no", retryable=False, detail=msgspec.json.encode({"to": ORIGIN}).decode())
        await settle(database, worker_id, [Settled(run, now, now, spoofed)], RNG)

        assert await destinations.failures_page(database, 1, ORIGIN, None, 10) == []

    async def test_pages_go_on_where_the_last_ended_though_they_end_in_one_moment(self, database, clock):
        runs = set()
        for number in range(7):
            runs.add(await self.failed(database, f"{ORIGIN}/{number}"))
            await clock.advance(number % 2)
        seen: list[UUID] = []
        before = None
        while page := await destinations.failures_page(database, 1, ORIGIN, before, 2):
            seen += [one.run_id for one in page]
            before = (page[-1].finished_at, page[-1].run_id, page[-1].attempt)

        assert len(seen) == 7
        assert set(seen) == runs

    async def test_no_other_tenant_sees_them(self, database):
        await self.failed(database, ORIGIN)

        async with Sessions(database) as sessions:
            async with sessions.open(1) as session:
                assert len(await destinations.failures_page(session, 1, ORIGIN, None, 10)) == 1
            async with sessions.open(2) as session:
                assert await destinations.failures_page(session, 2, ORIGIN, None, 10) == []
            with pytest.raises(NotFound, match="no tenant 1"):
                async with sessions.open(2) as session:
                    await destinations.failures_page(session, 1, ORIGIN, None, 10)
