"""The intake: a worker asks for what it can start, and holds what is not yet due; it does not hoard."""

import asyncio
import threading
import time
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.domain.jobs.job import Submission
from duly.moves import settle as move
from duly.moves.claim import claim
from duly.moves.settle import hand_back
from duly.moves.submit import submit_many
from duly.store.boxes import ready
from duly.store.connection import hints
from duly.worker import claim as claiming
from duly.worker import engine, outbox
from duly.worker.context import RunContext
from duly.worker.intake import AHEAD_PER_SLOT_MAX, CLAIM_MAX, Room
from tests.worker.stories import claim_by, ended, engine_of, in_box, registry_of, submitted, until, working

counts = st.integers(0, 10_000)


@given(st.integers(1, 1_000), st.floats(0, 1e6), counts, counts, counts)
def test_the_room_is_never_negative_and_never_beyond_one_batch(slots, rate, free, waiting, leased_ahead):
    room = Room(slots, rate=rate)
    assert 0 <= room.left(free=min(free, slots), waiting=waiting, leased_ahead=leased_ahead) <= CLAIM_MAX


def test_nothing_is_claimed_ahead_while_runs_wait_for_a_slot():
    room = Room(10)
    assert room.left(free=10, waiting=0, leased_ahead=0) == 20
    assert room.left(free=0, waiting=1, leased_ahead=0) == 0


def test_intake_claims_ahead_for_slots_that_free_within_a_quarter_second():
    room = Room(10)
    room.observe(finished=400, seconds=1.0)
    assert room.left(free=0, waiting=50, leased_ahead=0) == 50
    assert room.left(free=0, waiting=60, leased_ahead=0) == 0  # Not worth asking for: more are coming.


def test_the_budget_ahead_is_learnt():
    room = Room(10)
    for _ in range(20):
        room.grow()
    assert room.left(free=0, waiting=0, leased_ahead=0) == 10 * AHEAD_PER_SLOT_MAX
    room.shrink()
    assert room.left(free=0, waiting=0, leased_ahead=0) == 0
    room.grow()
    assert room.left(free=0, waiting=0, leased_ahead=0) == 2


def test_intake_rate_adapts_to_the_finished_runs():
    room = Room(10)
    for _ in range(50):
        room.observe(finished=100, seconds=0.1)
    assert room.rate == pytest.approx(1_000, rel=0.01)
    for _ in range(100):
        room.observe(finished=0, seconds=0.1)
    assert room.rate < 1


def test_runs_that_end_together_do_not_make_the_rate_swing():
    room = Room(10)
    seen = []
    for turn in range(100):
        room.observe(finished=10 if turn % 4 == 0 else 0, seconds=0.05)
        seen.append(room.soon)
    assert max(seen[-20:]) - min(seen[-20:]) <= 3


@pytest.fixture
def moved(monkeypatch):
    """Count what the workers of this process claim and hand back."""
    counted = {"claims": 0, "claimed": 0, "handed back": 0}

    async def counting_claim(*args):
        claimed = await claim(*args)
        counted["claims"] += 1
        counted["claimed"] += len(claimed)
        return claimed

    async def counting_hand_back(*args):
        back = await hand_back(*args)
        counted["handed back"] += len(back)
        return back

    claim_by(monkeypatch, counting_claim)
    monkeypatch.setattr(engine, "hand_back", counting_hand_back)
    return counted


async def test_story_20_a_slow_worker_with_a_long_queue_neither_hoards_nor_churns(url, store, moved):
    """Ten slots, and work for half a minute: what is claimed is started, not handed back several times a second."""
    held: list[int] = []

    async def slow() -> None:
        await asyncio.sleep(0.2)

    for _ in range(300):
        await submitted(store, "slow")
    async with working(url, registry_of(slow), slots=10) as worker:

        def enough() -> bool:
            held.append(worker.health.held)
            return worker.health.settled >= 120

        await until(enough)

    assert moved["handed back"] <= 40
    assert sorted(held)[len(held) // 2] <= 30  # Three times the slots; a hoarder would hold them all.


async def test_idle_worker_holds_all_runs_of_one_instant_before_it_comes(url, store):
    async def work() -> None: ...

    async with working(url, registry_of(work), slots=20) as worker:
        shots = [Submission("work", "{}", "default", 5, delay=timedelta(seconds=4.5))] * 900
        await submit_many(store, shots, key="instant")
        await until(lambda: worker.health.held == 900, seconds=3)
        assert worker.health.running == 0


async def test_plain_functions_that_fill_their_threads_are_left_to_others(url, store):
    """Four long ones and two workers with two threads each: all four start at once, however many slots there are besides."""
    together = threading.Barrier(4, timeout=20)

    def meet() -> None:
        together.wait()

    async def other() -> None: ...

    registry = registry_of(meet, other)
    for _ in range(4):
        await submitted(store, "meet")
    async with working(url, registry, threads=2) as one, working(url, registry, threads=2) as two:
        await until(lambda: one.health.settled + two.health.settled == 4)

    assert one.health.settled == two.health.settled == 2


async def test_full_threads_do_not_keep_the_loop_idle(url, store):
    release = threading.Event()

    def stay() -> None:
        assert release.wait(20)

    async def quick() -> None: ...

    for _ in range(30):
        await submitted(store, "stay")
    async with working(url, registry_of(stay, quick), slots=2, threads=2) as worker:
        await until(lambda: worker.health.running == 2)
        run_ids = [await submitted(store, "quick") for _ in range(20)]
        assert [await ended(store, run_id) for run_id in run_ids] == ["succeeded"] * 20
        release.set()
        await until(lambda: worker.health.settled == 50)


async def test_an_idle_worker_asks_rarely(url, store, moved):
    """With one slot free and nothing to do it polls, and does not spin."""

    async def work() -> None: ...

    async with working(url, registry_of(work), slots=1):
        began, before = time.monotonic(), moved["claims"]
        await asyncio.sleep(1.5)
        assert moved["claims"] - before <= (time.monotonic() - began) / claiming.POLL_SECONDS + 2


async def test_worker_with_its_last_slot_free_and_a_full_wheel_does_not_spin(url, store, moved):
    async def work() -> None:
        await asyncio.sleep(2)

    async with working(url, registry_of(work), slots=2) as worker:
        for _ in range(300):
            await submitted(store, "work", delay=4.9)
        await submitted(store, "work")
        await until(lambda: worker.health.running == 1)
        before = moved["claims"]
        await asyncio.sleep(1.0)
        assert moved["claims"] - before <= 8


async def test_runs_waiting_for_a_slot_start_in_order_of_priority(url, store):
    started: list[int] = []
    first, release = asyncio.Event(), asyncio.Event()

    async def work(number: int) -> None:
        started.append(number)
        first.set()
        if number == 99:
            await release.wait()

    async def all_are_in_hand() -> bool:
        return await in_box(store, "leased") == 6

    async with working(url, registry_of(work), slots=1) as worker:
        await submitted(store, "work", payload={"number": 99})
        await asyncio.wait_for(first.wait(), 20)
        for room in engine_of(worker)._claiming.rooms.values():
            room.rate = 1e9  # As if runs ended so fast that all of these are worth having in hand.
        order = (7, 2, 9, 0, 5)
        await submit_many(
            store, [Submission("work", f'{{"number": {number}}}', "default", number) for number in order], key="five"
        )
        await until(all_are_in_hand)
        release.set()
        await until(lambda: worker.health.settled == 6)

    assert started == [99, 0, 2, 5, 7, 9]


async def test_a_full_outbox_closes_the_intake_until_it_is_written(url, store, monkeypatch):
    open_again = threading.Event()

    async def settle(*args):
        while not open_again.is_set():
            await asyncio.sleep(0.01)
        return await move.settle(*args)

    ran = []

    async def work() -> None:
        ran.append(True)

    monkeypatch.setattr(outbox, "settle", settle)
    monkeypatch.setattr(outbox, "FULL", 10)
    for _ in range(100):
        await submitted(store, "work")
    async with working(url, registry_of(work), slots=5) as worker:
        await until(lambda: len(ran) >= 10)
        await asyncio.sleep(0.6)
        assert len(ran) <= 30
        open_again.set()
        await until(lambda: worker.health.settled == 100)


async def test_run_with_an_unknown_handler_stays_ready_and_is_listed_as_unroutable(url, store):
    async def known() -> None: ...

    async with working(url, registry_of(known)):
        unknown = await submitted(store, "unknown")
        assert await ended(store, await submitted(store, "known")) == "succeeded"
        [named] = await ready.unroutable(store)
        assert (named["handler"], named["runs"]) == ("unknown", 1)
        assert await store.fetchval("select attempt from duly.ready where run_id = $1", unknown) == 0

    async def unknown() -> None: ...  # type: ignore[no-redef]

    async with working(url, registry_of(unknown)):  # type: ignore[arg-type]
        await until(lambda: _nothing_unknown(store))


async def _nothing_unknown(store):
    return not await ready.unroutable(store)


async def test_a_worker_takes_only_from_its_queues(url, store):
    async def work(run: RunContext) -> None: ...

    async with working(url, registry_of(work), queues=("mail", "reports")) as worker:
        elsewhere = await submitted(store, "work", queue="default")
        run_ids = [await submitted(store, "work", queue=queue) for queue in ("mail", "reports") * 5]
        assert [await ended(store, run_id) for run_id in run_ids] == ["succeeded"] * 10
        assert worker.health.settled == 10
        assert await store.fetchval("select run_id from duly.ready") == elsewhere


async def test_a_hint_wakes_the_intake_before_it_would_have_looked(url, store, monkeypatch):
    monkeypatch.setattr(claiming, "POLL_SECONDS", 60.0)

    async def work() -> None: ...

    async with working(url, registry_of(work)):
        await until(lambda: _somebody_listens(store))
        run_id = await submitted(store, "work")
        await store.execute(f"notify {hints.READY_CHANNEL}")
        assert await ended(store, run_id) == "succeeded"


async def test_a_hint_wakes_only_the_intakes_that_can_serve_it(url, store, monkeypatch):
    monkeypatch.setattr(claiming, "POLL_SECONDS", 60.0)
    asked: list[set[str]] = []

    async def recorded(database, worker_id, queues, handlers, limit, weights=()):
        asked.append(set(handlers))
        return await claim(database, worker_id, queues, handlers, limit, weights)

    async def on_the_loop() -> None: ...

    def in_a_thread() -> None: ...

    claim_by(monkeypatch, recorded)
    async with working(url, registry_of(on_the_loop, in_a_thread)):
        await until(lambda: _somebody_listens(store))
        await until(lambda: {"on_the_loop"} in asked and {"in_a_thread"} in asked)
        asked.clear()

        await hints.send(store, ["another_queue"])
        assert await ended(store, await submitted(store, "in_a_thread")) == "succeeded"  # long before the next poll
        assert {"on_the_loop"} not in asked

        await hints.send_to_all(store)
        await until(lambda: {"on_the_loop"} in asked)


async def _somebody_listens(store):
    return await store.fetchval(
        "select exists (select from pg_stat_activity where datname = current_database() and query ilike 'listen%')"
    )


async def test_without_any_hint_the_poll_finds_the_work(url, store, monkeypatch):
    async def deaf(_: object) -> None:
        await asyncio.sleep(3600)

    async def work() -> None: ...

    monkeypatch.setattr(claiming.Claiming, "listen", deaf)
    async with working(url, registry_of(work)):
        began = time.monotonic()
        assert await ended(store, await submitted(store, "work")) == "succeeded"
        assert time.monotonic() - began < 5
