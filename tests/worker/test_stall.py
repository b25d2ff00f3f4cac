"""A worker that cannot start anything: what it has not started goes back unused, and people see which handler holds it."""

import asyncio
import os
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from duly.clock import SystemClock
from duly.moves.cancel import CancelAnswer, cancel_run
from duly.moves.claim import claim as moves_claim
from duly.moves.settle import hand_back
from duly.store.tables import workers
from duly.worker.execute.executor import Ended, Executor
from duly.worker.heartbeat.shared_state import CAPACITY, SharedState
from duly.worker.heartbeat.stall import Stall
from duly.worker.slots import Kind
from duly.worker.targets import Targets
from tests.clock import START
from tests.worker.app import app
from tests.worker.stories import (
    a_run,
    attempts_of,
    claim_by,
    ended,
    in_box,
    registry_of,
    state_of,
    submitted,
    until,
    working,
)
from tests.worker.test_leases import a_worker_process

LEASE_SECONDS = 1.5  # of the process that is frozen
WITHIN_SECONDS = LEASE_SECONDS + 5


@asynccontextmanager
async def held(store, tmp_path, handler="hold_the_interpreter"):
    """Let a handler hold the worker until the story is told. Gives its run, and what releases it."""
    mark, pipe = tmp_path / "mark", tmp_path / "pipe"
    os.mkfifo(pipe)
    descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        run_id = await submitted(store, handler, payload={"mark": str(mark), "pipe": str(pipe)}, delay=1.5)
        yield run_id, mark, lambda: os.write(descriptor, b"x")
    finally:
        os.write(descriptor, b"x")
        await asyncio.sleep(0.1)
        os.close(descriptor)


async def test_unstarted_runs_are_returned_while_a_handler_blocks_the_interpreter(url, store, tmp_path):
    async with a_worker_process(url), held(store, tmp_path) as (holder, mark, release):
        await until(lambda: workers.live(store))
        ahead = [
            await submitted(store, handler, payload={"path": str(tmp_path / f"line{number}")}, delay=4.0)
            for number, handler in enumerate(["add_line", "add_line_in_thread"] * 5)
        ]
        await until(lambda: _held(store, 11))
        [before] = await workers.live(store)
        await until(mark.exists)
        frozen_at = time.monotonic()
        await until(lambda: _held(store, 1), WITHIN_SECONDS)

        assert await store.fetchval("select array_agg(distinct attempt) from duly.ready") == [0]
        [row] = await workers.live(store)
        assert row.stalled_in == ["hold_the_interpreter"]
        assert row.stalled_at is not None
        assert row.read_at - row.stalled_at < timedelta(seconds=time.monotonic() - frozen_at + 1)
        await asyncio.sleep(2 * LEASE_SECONDS)
        assert await state_of(store, holder) == "running"

        release()
        assert {await ended(store, run_id) for run_id in [holder, *ahead]} == {"succeeded"}
        [row] = await until(lambda: _turning(store))
        assert (row.worker_id, row.stalled_at, row.stalled_in) == (before.worker_id, None, [])

    assert {tuple(await attempts_of(store, run_id)) for run_id in [holder, *ahead]} == {((1, "succeeded"),)}
    assert [len((tmp_path / f"line{number}").read_text().split()) for number in range(10)] == [1] * 10


@pytest.mark.parametrize("delay", [1.5, 1.6], ids=["in its executor", "in its wheel"])
async def test_a_worker_that_was_frozen_starts_nothing_that_another_has_taken(url, store, tmp_path, delay):
    """Some wait for their thread or the loop when the interpreter is taken, some in the wheel; some had started."""
    async with a_worker_process(url) as process, held(store, tmp_path) as (holder, mark, release):
        ahead = [
            await submitted(store, handler, payload={"path": str(tmp_path / f"line{number}")}, delay=delay)
            for number, handler in enumerate(["add_line", "add_line_in_thread"] * 10)
        ]
        await until(lambda: _held(store, 21))
        await until(mark.exists)
        async with working(url, app.registry):
            assert {await ended(store, run_id) for run_id in ahead} == {"succeeded"}
            release()
            assert await ended(store, holder) == "succeeded"
            await asyncio.sleep(0.5)

    by = [(tmp_path / f"line{number}").read_text().split() for number in range(20)]
    assert [len(lines) for lines in by] == [1] * 20
    assert {tuple(await attempts_of(store, run_id)) for run_id in [holder, *ahead]} == {((1, "succeeded"),)}
    assert str(process.pid) not in {line for lines in by for line in lines} or delay == 1.5


async def test_runs_waiting_for_a_blocked_loop_are_returned_while_threads_run_on(url, store, tmp_path):
    async with a_worker_process(url), held(store, tmp_path, "block_until_told") as (holder, mark, release):
        await until(mark.exists)
        waiting = [
            await submitted(store, "add_line", payload={"path": str(tmp_path / f"line{number}")}) for number in range(5)
        ]
        plain = await submitted(store, "add_line_in_thread", payload={"path": str(tmp_path / "plain")})
        assert await ended(store, plain) == "succeeded"
        await until(lambda: _held(store, 1), WITHIN_SECONDS)
        [row] = await until(lambda: _stalled(store))
        assert row.stalled_in == ["block_until_told"]
        await asyncio.sleep(1.0)
        assert await _held(store, 1), "nothing more is claimed for a loop that is blocked"

        release()
        assert {await ended(store, run_id) for run_id in [holder, *waiting]} == {"succeeded"}
        await until(lambda: _turning(store))

    assert {tuple(await attempts_of(store, run_id)) for run_id in [holder, *waiting]} == {((1, "succeeded"),)}
    assert [len((tmp_path / f"line{number}").read_text().split()) for number in range(5)] == [1] * 5


async def test_a_run_that_waits_for_a_blocked_loop_can_be_cancelled(url, store, tmp_path):
    path = tmp_path / "line"
    async with a_worker_process(url), held(store, tmp_path, "block_until_told") as (holder, mark, release):
        await until(mark.exists)
        waiting = await submitted(store, "add_line", payload={"path": str(path)})
        await until(lambda: _held(store, 2))

        assert await cancel_run(store, waiting) is CancelAnswer.CANCELLED

        release()
        assert await ended(store, holder) == "succeeded"
    assert not path.exists()


async def test_a_handler_that_blocks_its_loop_is_named_in_the_log_after_a_second(url, store, caplog):
    async def block() -> None:
        time.sleep(2.0)

    async with working(url, registry_of(block)):
        run_id = await submitted(store, "block")
        assert await ended(store, run_id) == "succeeded"

    [told] = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "handlers_loop_blocked"]
    assert (told["handler"], told["run_id"]) == ("block", run_id)


async def test_a_claim_that_is_answered_after_the_worker_stood_still_is_handed_back(url, store, monkeypatch):
    """The heartbeat has handed back all that hung on the worker; what the claim had taken may be among it."""
    ran: list[int] = []
    stalled: list[UUID] = []

    async def work() -> None:
        ran.append(1)

    async def claim(database, worker_id, *words):
        claimed = await moves_claim(database, worker_id, *words)
        if claimed and not stalled:
            stalled.append(claimed[0].run_id)
            await hand_back(database, worker_id, claimed)
            worker_lease._heed({"kept": []})
        return claimed

    claim_by(monkeypatch, claim)
    async with working(url, registry_of(work)) as worker:
        worker_lease: Any = worker._worker_lease
        run_id = await submitted(store, "work")
        assert await ended(store, run_id) == "succeeded"

    assert stalled == [run_id]
    assert ran == [1]
    assert await attempts_of(store, run_id) == [(1, "succeeded")]


@pytest.mark.parametrize(("kind", "handler"), [(Kind.LOOP, "on_loop"), (Kind.THREAD, "plain")])
async def test_a_run_that_was_handed_back_is_not_started_though_it_has_its_thread(kind, handler):
    """It was marked between the moment at which the heartbeat looked and the moment at which starts are safe again."""
    called: list[int] = []
    came: list[Ended] = []
    run = a_run(handler)

    def plain() -> None:
        called.append(1)

    async def on_loop() -> None:
        called.append(1)

    def becomes_safe() -> bool:
        executor.revoke({(run.run_id, run.fence)})
        return True

    clock = SystemClock()
    clock.observe(START)
    executor = Executor(
        registry_of(plain, on_loop),
        Targets(),
        loop=asyncio.get_running_loop(),
        threads=1,
        clock=clock,
        is_safe=becomes_safe,
        on_ended=came.extend,
    )
    executor.start(None, [(kind, run, None)])  # type: ignore[arg-type]
    await until(lambda: came)
    executor.close()
    assert (called, came) == ([], [Ended(kind, run, None)])


class TestStall:
    """By the shared state alone: a lease of 15 s, starts allowed for the last time up to second 110."""

    RUN, OTHER = UUID(int=1), UUID(int=2)

    @pytest.fixture
    def shared_state(self):
        shared_state = SharedState()
        shared_state.tick(100.0)
        shared_state.start(self.RUN, 7, is_inside=True)
        return shared_state

    @pytest.fixture
    def stall(self, shared_state):
        stall = Stall(shared_state, 15.0, 0)
        stall.resume(110.0, START)
        return stall

    def test_running_engine_is_not_reported_as_stalled(self, stall, shared_state):
        assert stall.look(103.0) is None
        assert not shared_state.is_stalled

    def test_nothing_is_handed_back_before_the_last_allowed_moment_has_passed(self, stall, shared_state):
        kept = {now: stall.look(now).kept for now in (104.0, 107.0, 110.0)}

        assert kept == {104.0: None, 107.0: None, 110.0: None}
        assert shared_state.is_stalled
        assert not stall.wants_heartbeat(110.0)
        assert stall.wants_heartbeat(110.1)

    def test_all_that_is_not_marked_is_handed_back_then(self, stall, shared_state):
        stall.look(104.0)
        report = stall.look(110.1)

        assert (report.kept, report.holders, report.is_safe) == ([(self.RUN, 7)], [(self.RUN, 7)], False)
        assert report.seconds == pytest.approx(10.1)

    def test_stall_seen_for_a_moment_only_returns_no_runs(self, stall, shared_state):
        """We have stood still ourselves, with the whole machine: the engine has not had the time to turn."""
        assert stall.look(170.0).kept is None
        assert stall.look(170.6).kept is not None

    def test_where_more_has_started_than_can_be_marked_nothing_is_handed_back(self, stall, shared_state):
        for number in range(CAPACITY):
            shared_state.start(UUID(int=number + 10), 1, is_inside=False)
        stall.look(104.0)

        assert stall.look(120.0).kept is None
        assert not stall.wants_heartbeat(120.0)

    def test_recovered_engine_may_start_runs_again(self, stall, shared_state):
        stall.look(104.0)
        stall.reported(stall.look(111.0), START, 0)
        shared_state.tick(112.0)

        assert stall.wants_heartbeat(112.0)
        assert stall.look(112.0) is None
        assert stall.kept == [(self.RUN, 7)]
        stall.resume(122.0, START)
        assert (stall.kept, shared_state.is_stalled) == (None, False)

    def test_stall_keeps_its_report_of_returned_runs_when_the_reply_is_lost(self, stall, shared_state):
        stall.look(104.0)
        stall.look(111.0)
        shared_state.tick(112.0)

        assert stall.look(112.0) is None
        assert stall.kept == [(self.RUN, 7)]

    def test_replacement_heartbeat_keeps_to_the_limit_that_its_predecessor_allowed(self, shared_state):
        shared_state.renew(110.0)
        stall: Any = Stall(shared_state, 15.0, 0)
        stall.look(104.0)

        assert stall.look(109.0).kept is None
        assert stall.look(110.1).kept is not None

    def test_a_mark_that_was_taken_back_is_free_again(self, stall, shared_state):
        shared_state.end(self.RUN, 7)
        shared_state.start(self.OTHER, 8, is_inside=False)

        assert [(one.run_id, one.fence) for one in SharedState(os.dup(shared_state.descriptor)).started] == [
            (self.OTHER, 8)
        ]


async def _stalled(store):
    return [row for row in await workers.live(store) if row.stalled_at is not None]


async def _held(store, number):
    return await in_box(store, "leased") == number


async def _turning(store):
    return [row for row in await workers.live(store) if row.stalled_at is None]
