"""Permits: what workers may send together never exceeds what the destination takes, and who cannot be sent soon is told so."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import asyncpg
import pytest

from duly.clock import Rng
from duly.domain.targets.circuit import Health, Verdict
from duly.log import Log
from duly.moves.admin import destinations as moves
from duly.moves.workers.retire import retire
from duly.store.connection.database import Database, Unavailable
from duly.store.tables import destinations
from duly.store.tables.destinations import Allowed
from duly.worker.targets.permits import Permits
from duly.worker.targets.share import LINGER_SECONDS, Share
from tests.builders import a_worker

ORIGIN = "https://hooks.example"
RNG = Rng(11)


class Sender:
    """A worker's permits, reported by hand."""

    def __init__(self, database: Database, worker_id: UUID) -> None:
        self.database = database
        self.worker_id = worker_id
        self.permits = Permits(rng=RNG, log=Log("test"), clock=database.clock)
        self.in_flight = 0

    async def report(self) -> None:
        """Tell the store, and hear what it says."""
        await self.permits.step(self.database, self.worker_id)

    async def send(self, number: int = 1, *, reports: int = 1) -> int:
        """Let so many ask at once. Gives how many were let out; those who still wait are turned away."""
        asking = [asyncio.create_task(self.permits.enter(1, ORIGIN)) for _ in range(number)]
        for _ in range(reports):
            await asyncio.sleep(0)
            await self.report()
        await asyncio.sleep(0)
        let_out = [task for task in asking if task.done() and task.result()]
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        self.in_flight += len(let_out)
        return len(let_out)

    def end(self, number: int, verdict: Verdict = Verdict.HEALTHY, retry_after: float | None = None) -> None:
        """Let so many requests end."""
        for _ in range(number):
            self.permits.leave(1, ORIGIN, verdict, retry_after)
        self.in_flight -= number


async def senders(database: Database, number: int) -> Sequence[Sender]:
    return [Sender(database, await a_worker(database)) for _ in range(number)]


async def budget(database: Database, slots: int, rate: float | None = None) -> None:
    destination_id = await destinations.make(database, RNG.uuid(), 1, ORIGIN)
    await moves.limit(database, 1, destination_id, slots=slots, rate=rate)


async def held(database: Database) -> int:
    return int(await database.fetchval("select coalesce(sum(slots), 0) from duly.destination_shares"))


async def waiting(database: Database, sender: Sender) -> int:
    statement = "select coalesce(sum(waiting), 0) from duly.destination_shares where worker_id = $1"
    return int(await database.fetchval(statement, sender.worker_id))


@asynccontextmanager
async def locked(database: Database, table: str) -> AsyncIterator[None]:
    """Let nobody write to a table meanwhile."""
    connection = await asyncpg.connect(database.url)
    try:
        async with connection.transaction():
            await connection.execute(f"lock table {table}")
            yield
    finally:
        await connection.close()


async def test_the_first_request_waits_for_one_report_and_the_next_for_none(database):
    [sender] = await senders(database, 1)

    assert await sender.send() == 1
    assert await sender.permits.enter(1, ORIGIN)


async def test_permit_is_refused_when_no_slot_becomes_free_soon(database):
    await budget(database, 1)
    [sender] = await senders(database, 1)
    assert await sender.send() == 1

    assert not await sender.permits.enter(1, ORIGIN)  # Its patience is short, and of real time.


async def test_released_permit_slot_goes_to_a_waiting_request(database):
    await budget(database, 1)
    [sender] = await senders(database, 1)
    await sender.send()
    waiting = asyncio.create_task(sender.permits.enter(1, ORIGIN))
    await asyncio.sleep(0)

    sender.end(1)

    assert await waiting


async def test_where_so_many_wait_another_does_not(database):
    await budget(database, 1)
    [sender] = await senders(database, 1)
    await sender.send()
    waiting = [asyncio.create_task(sender.permits.enter(1, ORIGIN)) for _ in range(8)]
    await asyncio.sleep(0)

    async with asyncio.timeout(0.1):
        assert not await sender.permits.enter(1, ORIGIN)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_three_workers_never_have_more_under_way_than_the_budget(database):
    await budget(database, 7)
    workers = await senders(database, 3)
    served = dict.fromkeys(workers, 0)
    for _ in range(120):
        worker = workers[int(RNG.uniform() * 3)]
        served[worker] += await worker.send(int(RNG.uniform() * 6))
        assert sum(each.in_flight for each in workers) <= 7
        assert await held(database) <= 7
        ending = workers[int(RNG.uniform() * 3)]
        ending.end(int(RNG.uniform() * (ending.in_flight + 1)))

    assert all(count >= 20 for count in served.values())


async def test_reports_of_two_workers_at_once_leave_the_sum_within_the_budget(database):
    await budget(database, 5)
    workers = await senders(database, 2)
    for _ in range(20):
        sent = await asyncio.gather(*(worker.send(5) for worker in workers))
        assert sum(worker.in_flight for worker in workers) <= 5, sent
        for worker in workers:
            worker.end(worker.in_flight)


async def test_slots_of_a_worker_that_stops_sending_are_released_after_a_delay(database, clock):
    await budget(database, 4)
    first, second = await senders(database, 2)
    assert await first.send(4) == 4
    first.end(4)
    await clock.advance(LINGER_SECONDS + 0.1)
    await first.report()
    await first.report()

    assert await held(database) == 0
    assert await second.send(4) == 4


async def test_free_permit_slots_move_to_a_worker_with_a_waiting_request(database):
    await budget(database, 4)
    first, second = await senders(database, 2)
    await first.send(4)
    first.end(4)
    waiting = asyncio.create_task(second.permits.enter(1, ORIGIN))
    await asyncio.sleep(0)
    await second.report()  # It finds all places taken.
    await first.report()  # Told that somebody waits, it keeps to none.
    await first.report()  # It confirms.
    await second.report()

    assert await waiting


async def test_unused_destination_shares_are_not_reported(database, clock):
    [sender] = await senders(database, 1)
    await sender.send()
    sender.end(1)
    for _ in range(4):
        await sender.report()
        await clock.advance(LINGER_SECONDS)

    assert await sender.permits.step(database, sender.worker_id) == 1.0
    assert await database.fetchval("select count(*) from duly.destination_shares") == 0


async def test_permit_report_repeats_the_content_of_a_lost_one(database):
    """Otherwise the store would wait for ever for one who waits no more, and let nobody try a destination that is half open."""
    await budget(database, 1)
    first, second = await senders(database, 2)
    await first.send()
    await second.send()  # In vain: it is told that one waits, and then it waits no more.
    assert await waiting(database, second) == 1
    async with Database(database.url, command_timeout=0.1) as impatient, locked(database, "duly.destinations"):
        with pytest.raises(Unavailable):
            await second.permits.step(impatient, second.worker_id)

    await second.report()

    assert await waiting(database, second) == 0


async def test_consecutive_failures_stop_requests_before_they_are_reported(database):
    [sender] = await senders(database, 1)
    await sender.send(5)
    sender.end(5, Verdict.FAILING)
    entering = asyncio.create_task(sender.permits.enter(1, ORIGIN))
    await asyncio.sleep(0)
    assert not entering.done()

    await sender.report()

    assert not await entering
    async with asyncio.timeout(0.1):
        assert not await sender.permits.enter(1, ORIGIN)


async def test_failures_seen_by_one_worker_open_the_circuit_for_the_others(database):
    first, second = await senders(database, 2)
    await first.send(5)
    await second.send(1)
    first.end(5, Verdict.FAILING)
    await first.report()

    await second.report()

    async with asyncio.timeout(0.1):
        assert not await second.permits.enter(1, ORIGIN)


async def test_half_open_circuit_admits_one_probe_at_a_time_and_closes_after_two(database, clock):
    first, second = await senders(database, 2)
    await first.send(5)
    first.end(5, Verdict.FAILING)
    await first.report()
    await clock.advance(2)

    assert await first.send(3, reports=2) == 1
    assert await second.send(3) == 0
    first.end(1)
    assert await first.send(3) == 1
    first.end(1)
    await first.report()
    await clock.advance(0.5)

    assert await second.send(3) >= 1  # At ten a second.


async def test_a_failure_when_it_is_tried_shuts_it_again(database, clock):
    [sender] = await senders(database, 1)
    await sender.send(5)
    sender.end(5, Verdict.FAILING)
    await sender.report()
    await clock.advance(2)
    assert await sender.send(1, reports=2) == 1
    sender.end(1, Verdict.FAILING)
    await sender.report()

    async with asyncio.timeout(0.1):
        assert not await sender.permits.enter(1, ORIGIN)


async def test_failed_probe_of_a_half_open_circuit_admits_no_other(database, clock):
    [sender] = await senders(database, 1)
    await sender.send(5)
    sender.end(5, Verdict.FAILING)
    await sender.report()
    await clock.advance(2)
    await sender.report()
    asking = [asyncio.create_task(sender.permits.enter(1, ORIGIN)) for _ in range(2)]
    for _ in range(2):
        await asyncio.sleep(0)
        await sender.report()
    await asyncio.sleep(0)
    assert [task.done() for task in asking] == [True, False]

    sender.permits.leave(1, ORIGIN, Verdict.FAILING)
    await asyncio.sleep(0)
    assert not asking[1].done()  # The place is free, and nobody is let in before the store has heard.
    await sender.report()
    assert await asking[1] is False


async def test_manually_closed_circuit_admits_a_request_soon(database, clock):
    [sender] = await senders(database, 1)
    await sender.send(1)
    sender.end(1, Verdict.FAILING, retry_after=3600)
    await sender.report()
    destination_id = await destinations.make(database, RNG.uuid(), 1, ORIGIN)
    await moves.close(database, 1, destination_id)

    await clock.advance(3)

    assert await sender.send(1, reports=2) == 1


async def test_retry_after_is_kept_to_by_all(database, clock):
    first, second = await senders(database, 2)
    await first.send(2)
    first.end(1, Verdict.FAILING, retry_after=60)
    await first.report()
    assert await second.send(1) == 0

    await clock.advance(10)
    first.end(1)
    assert await second.send(1) == 0


async def test_requests_aborted_by_the_worker_do_not_open_the_circuit(database):
    [sender] = await senders(database, 1)
    await sender.send(9)
    sender.end(9, Verdict.IGNORED)
    await sender.report()

    assert await sender.send(1) == 1


async def test_with_a_rate_all_workers_together_keep_to_it(database, clock):
    await budget(database, 100, rate=20)
    workers = await senders(database, 3)
    sent = []
    for _ in range(30):
        now = 0
        for worker in workers:
            now += await worker.send(8)
            worker.end(worker.in_flight)
            await worker.report()
        sent.append(now)
        await clock.advance(0.1)

    for begin in range(len(sent) - 10):
        assert sum(sent[begin : begin + 10]) <= 20 * 1.25 + 1
    assert sum(sent) >= 20 * 3 * 0.8


async def test_request_cancelled_during_admission_releases_its_permit_slot(database):
    await budget(database, 1)
    [sender] = await senders(database, 1)
    await sender.send()
    waiting = asyncio.create_task(sender.permits.enter(1, ORIGIN))
    await asyncio.sleep(0)
    sender.end(1)  # The place is now the waiter's, who does not know yet.
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert await sender.permits.enter(1, ORIGIN)


async def test_a_new_life_begins_with_nothing(database):
    [sender] = await senders(database, 1)
    await sender.send()
    sender.end(1)
    await retire(database, sender.worker_id, [])
    sender.worker_id = await a_worker(database)
    await sender.permits.begin(database, sender.worker_id)
    await sender.permits.end()

    assert await sender.send() == 1


async def test_a_new_life_does_not_wait_for_handlers_that_block_their_loop(own_database):
    permits, blocked, free = Permits(rng=RNG, log=Log("test")), threading.Event(), threading.Event()

    async def block() -> None:
        await permits.enter(1, ORIGIN)
        blocked.set()
        free.wait(20)

    handlers = threading.Thread(target=lambda: asyncio.run(block()), daemon=True)
    handlers.start()
    try:
        assert await asyncio.to_thread(blocked.wait, 20)
        async with asyncio.timeout(5):
            await permits.begin(own_database, await a_worker(own_database))
            await permits.end()
    finally:
        free.set()
        await asyncio.to_thread(handlers.join, 20)


async def test_a_life_reports_by_itself(own_database):
    worker_id = await a_worker(own_database)
    permits = Permits(rng=RNG, log=Log("test"))
    await permits.begin(own_database, worker_id)
    try:
        assert await permits.enter(1, ORIGIN)
        permits.leave(1, ORIGIN, Verdict.HEALTHY)
        async with asyncio.timeout(10):
            while not await own_database.fetchval("select healthy_total from duly.destinations"):
                await asyncio.sleep(0.01)
    finally:
        await permits.end()


class TestRetryBudget:
    """Retries are a part of what is sent, and a few a second besides; what is more waits, and fails by nothing."""

    async def entered(self, sender: Sender, number: int, *, is_retry: bool) -> int:
        found = 0
        for _ in range(number):
            if await sender.permits.enter(1, ORIGIN, is_retry=is_retry):
                sender.permits.leave(1, ORIGIN, Verdict.HEALTHY)
                found += 1
        return found

    async def test_a_few_are_free_and_then_each_first_attempt_pays_for_its_part(self, database):
        [sender] = await senders(database, 1)
        assert await sender.send() == 1
        sender.end(1)

        assert await self.entered(sender, 50, is_retry=True) == 10, "ten seconds' worth of one a second"
        assert await self.entered(sender, 50, is_retry=False) == 50
        assert await self.entered(sender, 50, is_retry=True) == 10, "a fifth"

    async def test_time_pays_for_one_a_second(self, database, clock):
        [sender] = await senders(database, 1)
        assert await sender.send() == 1
        sender.end(1)
        await self.entered(sender, 50, is_retry=True)
        await clock.advance(3)
        await sender.send()
        sender.end(1)

        assert await self.entered(sender, 50, is_retry=True) == 3

    def test_the_free_ones_are_shared_by_the_workers(self):
        share = Share(1, ORIGIN, RNG.uuid())
        share.hear(
            Allowed(
                destination_id=RNG.uuid(), tenant=1, origin=ORIGIN, slots=9, tokens=None, health=Health(), workers=4
            ),
            0.0,
            0.0,
        )
        while share.spend_retry(0.0):
            pass

        assert [share.spend_retry(8.0) for _ in range(3)] == [True, True, False]

    async def test_retry_cancelled_while_waiting_spends_no_retry_budget(self, database):
        await budget(database, 1)
        [sender] = await senders(database, 1)
        assert await sender.send() == 1
        waiting = [asyncio.create_task(sender.permits.enter(1, ORIGIN, is_retry=True)) for _ in range(4)]
        await asyncio.sleep(0)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        sender.end(1)

        assert await self.entered(sender, 50, is_retry=True) == 10

    async def test_retry_budget_reports_sent_and_rejected_retries(self, database):
        [sender] = await senders(database, 1)
        await sender.send()
        sender.end(1)
        await self.entered(sender, 15, is_retry=True)
        await sender.report()

        [found] = await destinations.page(database, 1, None, 10)

        assert (found.retry_share, found.retries_total, found.rejected_total) == (0.2, 10, 5)

    async def test_retry_budget_of_all_requests_rejects_no_retry(self, database):
        await budget(database, 100)
        destination_id = await destinations.make(database, RNG.uuid(), 1, ORIGIN)
        await moves.limit(database, 1, destination_id, retry_share=1)
        [sender] = await senders(database, 1)
        await sender.send()
        sender.end(1)

        assert await self.entered(sender, 60, is_retry=True) == 60
