"""A lease that stands, a lease in doubt, a lease that is lost."""

import asyncio
import os
import signal
import sys
import threading
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg

from duly.clock import Rng
from duly.domain.runs.retry import Retry
from duly.domain.runs.run import Run
from duly.log import Log
from duly.moves.claim import claim
from duly.store.boxes import leased, runs
from duly.store.connection.database import Unavailable
from duly.store.tables import workers
from duly.worker import claim as claiming
from duly.worker import engine
from duly.worker.context import RunContext
from duly.worker.outbox import Outbox
from duly.worker.service import Worker, WorkerOptions
from tests.worker import app, family
from tests.worker.family import is_gone
from tests.worker.stories import (
    LEASE_SHORT,
    PATIENCE_SECONDS,
    a_registered_worker,
    attempts_of,
    claim_by,
    ended,
    engine_of,
    is_regular,
    leased_runs,
    reaping,
    registry_of,
    state_of,
    submitted,
    until,
    working,
)

OTHERS = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"


async def test_a_run_ten_times_longer_than_the_lease_finishes_in_one_attempt(url, store):
    async def long() -> None:
        await asyncio.sleep(10 * LEASE_SHORT.total_seconds())

    async with reaping(store) as reaper, working(url, registry_of(long), lease=LEASE_SHORT) as worker:
        run_id = await submitted(store, "long")
        assert await ended(store, run_id, 60) == "succeeded"
        assert (worker.health.lives, reaper.reaped) == (1, 0)

    assert await attempts_of(store, run_id) == [(1, "succeeded")]


async def test_a_handler_that_blocks_its_loop_delays_neither_the_heartbeat_nor_a_thread(url, store):
    moments: dict[str, float] = {}

    async def block() -> None:
        time.sleep(3.0)
        moments["unblocked"] = time.monotonic()

    def quick() -> None:
        moments["quick"] = time.monotonic()

    async with working(url, registry_of(block, quick), lease=LEASE_SHORT) as worker:
        blocked = await submitted(store, "block", delay=0.3)
        meanwhile = await submitted(store, "quick", delay=0.8)
        await until(lambda: len(moments) == 2)
        assert await ended(store, blocked) == "succeeded"
        assert await ended(store, meanwhile) == "succeeded"
        assert worker.health.lives == 1

    assert moments["quick"] < moments["unblocked"]
    assert await attempts_of(store, blocked) == [(1, "succeeded")]


async def test_story_09_a_handler_that_holds_the_interpreter_does_not_cost_the_lease(url, store):
    """One long computation in C: no other thread of this process runs meanwhile, for twice the lease."""

    def hold() -> float:
        began = time.monotonic()
        while time.monotonic() - began < 2 * LEASE_SHORT.total_seconds():
            sum(range(60_000_000))
        return time.monotonic() - began

    async with reaping(store) as reaper, working(url, registry_of(hold), lease=LEASE_SHORT) as worker:
        run_id = await submitted(store, "hold")
        assert await ended(store, run_id) == "succeeded"
        assert (worker.health.lives, reaper.reaped) == (1, 0)

    assert await attempts_of(store, run_id) == [(1, "succeeded")]


async def test_computation_longer_than_the_lease_keeps_the_lease(url, store):
    numbers = _numbers_for(2 * LEASE_SHORT.total_seconds())

    def hold() -> float:
        began = time.monotonic()
        sum(range(numbers))
        return time.monotonic() - began

    async with working(url, registry_of(hold), lease=LEASE_SHORT) as worker:
        run_id = await submitted(store, "hold")
        assert await ended(store, run_id) == "succeeded"
        assert worker.health.lives == 1

    assert await attempts_of(store, run_id) == [(1, "succeeded")]


def _numbers_for(seconds: float) -> int:
    began = time.monotonic()
    sum(range(10_000_000))
    return int(10_000_000 * seconds / (time.monotonic() - began))


async def lose_the_lease(worker: Worker) -> None:
    """Stop a worker's heart until it has given its life up, and wait for the next one."""
    async with no_heartbeat():
        await until(lambda: not worker.health.registered)
    await until(lambda: worker.health.lives == 2)


@asynccontextmanager
async def no_heartbeat():
    """Stop the hearts of all workers in this process for a while."""
    pulses = family.children("duly.worker.heartbeat.process")
    for pulse in pulses:
        pulse.suspend()
    try:
        yield
    finally:
        for pulse in pulses:
            if not is_gone(pulse.pid):
                pulse.resume()


async def test_a_worker_that_cannot_renew_stops_itself_and_lives_on_under_a_new_name(url, store):
    stopped: list[float] = []

    async def work(run: RunContext) -> int:
        if run.attempt == 1:
            try:
                await asyncio.sleep(60)
            finally:
                stopped.append(time.time())
        return run.attempt

    async with working(url, registry_of(work), lease=timedelta(seconds=3)) as worker:
        run_id = await submitted(store, "work")
        await until(lambda: worker.health.running)
        async with no_heartbeat():
            lapses_at = (await store.fetchval("select until from duly.workers")).timestamp()
            await until(lambda: stopped)
            assert stopped[0] < lapses_at
            await until(lambda: not worker.health.registered)
        assert await ended(store, run_id) == "succeeded"
        assert worker.health.fenced == 0

    assert await attempts_of(store, run_id) == [(1, "failed"), (2, "succeeded")]


async def test_worker_continues_after_a_failover_that_led_briefly_to_a_standby(url, store, caplog):
    """Here the database takes no writes in new sessions, and all others are ended; as a name that leads to a standby does."""

    async def work() -> None: ...

    def is_refused() -> bool:
        told = [record.__dict__["fields"] for record in caplog.records if record.getMessage() != "heartbeat_failed"]
        return any("read-only transaction" in str(fields) for fields in told)

    with psycopg.connect(url, autocommit=True) as admin:
        name = admin.info.dbname
        try:
            async with working(url, registry_of(work)):
                admin.execute(f"alter database {name} set default_transaction_read_only = on")
                admin.execute(OTHERS)
                await until(is_refused)
                admin.execute(f"alter database {name} reset default_transaction_read_only")
                [(run_id,)] = admin.execute("select duly.submit('work')").fetchall()
                await until(
                    lambda: (
                        admin.execute("select from duly.attempts where run_id = %s", [run_id]).fetchone() is not None
                    )
                )
        finally:
            admin.execute(f"alter database {name} reset default_transaction_read_only")
            admin.execute(OTHERS)


async def test_worker_that_stops_itself_returns_its_unstarted_runs_unused(url, store):
    async def work() -> None: ...

    async with working(url, registry_of(work), lease=LEASE_SHORT) as worker:
        run_id = await submitted(store, "work", delay=4.5)
        await until(lambda: worker.health.held == 1)
        async with no_heartbeat():
            await until(lambda: worker.health.held == 0)
        assert await ended(store, run_id) == "succeeded"

    assert await attempts_of(store, run_id) == [(1, "succeeded")]


async def test_a_thread_that_outlives_its_lease_is_refused_and_takes_no_slot_from_the_next_life(
    url, store, monkeypatch
):
    monkeypatch.setattr(engine, "LAST_WORDS_SECONDS", 0.2)
    started, release = threading.Event(), threading.Event()

    def work(run: RunContext) -> int:
        if run.attempt == 1:
            started.set()
            assert release.wait(20)
        return run.attempt

    async with reaping(store), working(url, registry_of(work), lease=LEASE_SHORT, threads=1) as worker:
        run_id = await submitted(store, "work")
        await until(started.is_set)
        await lose_the_lease(worker)
        assert await ended(store, run_id) == "succeeded"
        release.set()
        await until(lambda: worker.health.fenced == 1)
        assert worker.health.running == 0
        more = [await submitted(store, "work") for _ in range(3)]
        assert [await ended(store, one) for one in more] == ["succeeded"] * 3

    assert await attempts_of(store, run_id) == [(1, "fenced"), (1, "lost"), (2, "succeeded")]


async def test_outcome_of_a_thread_that_ends_before_a_takeover_is_accepted(url, store, monkeypatch):
    monkeypatch.setattr(engine, "LAST_WORDS_SECONDS", 0.2)
    started, release = threading.Event(), threading.Event()

    def work(run: RunContext) -> int:
        started.set()
        assert release.wait(20)
        return run.attempt

    async with working(url, registry_of(work), lease=LEASE_SHORT, threads=1) as worker:
        run_id = await submitted(store, "work")
        await until(started.is_set)
        await lose_the_lease(worker)
        release.set()
        assert await ended(store, run_id) == "succeeded"
        assert worker.health.fenced == 0

    assert await attempts_of(store, run_id) == [(1, "succeeded")]


async def test_a_thread_that_ends_while_its_worker_gives_its_life_up_is_believed(url, store, monkeypatch):
    """What the handlers have said is not answered, and the outcomes of that life were all written."""
    monkeypatch.setattr(engine, "LAST_WORDS_SECONDS", 0.2)
    started, release, silent = threading.Event(), threading.Event(), Silent(monkeypatch, "append_logs")

    def work(run: RunContext) -> int:
        run.log.info("said")
        started.set()
        assert release.wait(20)
        return run.attempt

    async with working(url, registry_of(work), lease=LEASE_SHORT, threads=1) as worker:
        outbox = engine_of(worker).outbox
        run_id = await submitted(store, "work")
        await until(started.is_set)
        async with no_heartbeat(), silent:
            await until(lambda: outbox.is_done)
            release.set()
            assert await ended(store, run_id) == "succeeded"

    assert await attempts_of(store, run_id) == [(1, "succeeded")]


async def test_an_outcome_that_waits_for_its_progress_outlives_its_life(url, store, monkeypatch):
    monkeypatch.setattr(engine, "LAST_WORDS_SECONDS", 0.2)
    silent = Silent(monkeypatch, "save_progresses")

    async def work(run: RunContext) -> int:
        await run.progress(1, 2)
        return run.attempt

    async with working(url, registry_of(work), lease=LEASE_SHORT) as worker:
        outbox = engine_of(worker).outbox
        async with silent:
            run_id = await submitted(store, "work")
            await until(silent.asked.is_set)
            async with no_heartbeat():
                await until(lambda: outbox.is_done)
        assert await ended(store, run_id) == "succeeded"

    assert await attempts_of(store, run_id) == [(1, "succeeded")]


async def test_a_worker_between_two_lives_ends_though_a_handler_blocks_its_loop(url, store):
    started, free, told = threading.Event(), threading.Event(), threading.Event()

    async def block() -> None:
        started.set()
        free.wait(3 * PATIENCE_SECONDS)

    options = WorkerOptions("worker", lease=LEASE_SHORT, grace_seconds=0.1)
    worker = Worker(url, registry_of(block), options, rng=Rng(), log=Log("worker"), on_left_running=told.set)
    living = threading.Thread(target=lambda: asyncio.run(worker.run()), daemon=True)
    living.start()
    try:
        await submitted(store, "block")
        await until(started.is_set)
        await lose_the_lease(worker)
        worker.stop()
        await until(told.is_set)
    finally:
        free.set()
        await asyncio.to_thread(living.join, PATIENCE_SECONDS)


class Silent:
    """As long as it is entered, the store does not answer one of the things that are asked about runs."""

    def __init__(self, monkeypatch: Any, name: str) -> None:
        self.asked, self._is_silent = threading.Event(), threading.Event()
        self._real = getattr(runs, name)
        monkeypatch.setattr(runs, name, self._ask)

    async def __aenter__(self) -> None:
        self._is_silent.set()

    async def __aexit__(self, *_: object) -> None:
        self._is_silent.clear()

    async def _ask(self, *args: Any, **options: Any) -> None:
        while self._is_silent.is_set():
            self.asked.set()
            await asyncio.sleep(0.01)
        await self._real(*args, **options)


async def test_claim_with_a_lost_reply_is_returned_unused(url, store, monkeypatch):
    lost: list[Run] = []

    async def unlucky_claim(*args):
        claimed = await claim(*args)
        if claimed and not lost:
            lost.extend(claimed)
            raise Unavailable("the answer was lost")
        return claimed

    async def work(run: RunContext) -> int:
        return run.fence

    claim_by(monkeypatch, unlucky_claim)
    async with working(url, registry_of(work)) as worker:
        run_ids = [await submitted(store, "work") for _ in range(3)]
        assert [await ended(store, run_id, 10) for run_id in run_ids] == ["succeeded"] * 3
        assert worker.health.lives == 1

    for run_id in run_ids:
        assert await attempts_of(store, run_id) == [(1, "succeeded")]
    assert {run.run_id for run in lost} <= set(run_ids)


async def test_a_worker_asks_a_database_that_is_away_again_at_no_fixed_pace(url, monkeypatch):
    asked: list[float] = []

    async def unanswered(*_):
        asked.append(time.monotonic())
        raise Unavailable("it does not answer")

    async def work() -> None: ...

    claim_by(monkeypatch, unanswered)
    async with working(url, registry_of(work)):
        await until(lambda: len(asked) >= 8)

    assert not is_regular(asked)


async def test_unknown_leases_are_found_behind_all_known_ones(url, store, monkeypatch):
    lost: list[Run] = []
    go_on = asyncio.Event()

    async def unlucky_claim(*args):
        claimed = await claim(*args)
        if not lost and any(run.handler == "work" for run in claimed):
            lost.extend(claimed)
            raise Unavailable("the answer was lost")
        return claimed

    async def hold() -> None:
        await go_on.wait()

    async def work() -> None: ...

    claim_by(monkeypatch, unlucky_claim)
    monkeypatch.setattr(claiming, "UNKNOWN_LEASES_BATCH", 2)
    async with working(url, registry_of(hold, work)) as worker:
        known = [await submitted(store, "hold") for _ in range(4)]
        await until(lambda: worker.health.running == 4)
        run_id = await submitted(store, "work")
        assert run_id > max(known), "ids rise with time, so what we know comes first"
        assert await ended(store, run_id, 10) == "succeeded"
        go_on.set()

    assert [run.run_id for run in lost] == [run_id]


async def test_a_claim_that_is_merely_slow_is_not_taken_for_lost(url, store, monkeypatch):
    """Its runs hang on us and are unknown to us, for longer than the belt waits."""
    looked: list[bool] = []

    async def slow_claim(*args):
        claimed = await claim(*args)
        if claimed:
            assert worker._engine
            worker._engine._claiming.doubt()
            for _ in range(200):
                await asyncio.sleep(0.01)
                if looked:
                    break
        return claimed

    calls: list[str] = []

    async def work(run: RunContext) -> None:
        calls.append(f"{run.id} {run.fence}")

    async def held_by(*args):
        looked.append(True)
        return await _held_by(*args)

    _held_by = leased.held_by
    monkeypatch.setattr(leased, "held_by", held_by)
    claim_by(monkeypatch, slow_claim)
    monkeypatch.setattr(claiming, "UNKNOWN_LEASES_IN_DOUBT_SECONDS", 0.01)
    async with working(url, registry_of(work)) as worker:
        run_id = await submitted(store, "work")
        assert await ended(store, run_id) == "succeeded"
        assert worker.health.fenced == 0

    assert looked
    assert len(calls) == 1
    assert await attempts_of(store, run_id) == [(1, "succeeded")]


async def test_a_suspect_is_announced_until_its_outcome_is_written(url, store, monkeypatch):
    """Were it retracted earlier, a worker that dies in between would seem not to have started it."""
    named: list[str] = []
    real = Outbox.flush

    async def flush(outbox):
        named.extend(await outbox._database.fetchval("select named from duly.workers"))
        await real(outbox)

    monkeypatch.setattr(Outbox, "flush", flush)
    run_id = await submitted(store, "add_on_loop", payload={"a": 1, "b": 1})
    await store.execute("update duly.ready set suspect = true")
    async with working(url, app.app.registry, app_path=app.PATH):
        assert await ended(store, run_id) == "succeeded"
        assert [name.split("/")[0] for name in named] == [str(run_id)] * len(named) != []
        await until(lambda: _nobody_named(store))


async def test_suspects_that_start_together_are_announced_together(url, store, monkeypatch):
    announced: list[int] = []
    real = workers.announce

    async def announce(database, worker_id, suspects):
        announced.append(len(suspects))
        return await real(database, worker_id, suspects)

    monkeypatch.setattr(workers, "announce", announce)
    run_ids = [await submitted(store, "add_on_loop", payload={"a": 1, "b": 1}) for _ in range(4)]
    await store.execute("update duly.ready set suspect = true")
    async with working(url, app.app.registry, app_path=app.PATH, threads=4):
        assert [await ended(store, run_id) for run_id in run_ids] == ["succeeded"] * 4
        await until(lambda: _nobody_named(store))

    assert announced == [4]


async def _nobody_named(store):
    return await store.fetchval("select named = '{}' from duly.workers")


async def test_suspects_run_one_at_a_time_and_everyone_gets_a_turn(url, store):
    at_once: list[int] = []
    running = 0

    async def work() -> None:
        nonlocal running
        running += 1
        at_once.append(running)
        await asyncio.sleep(0.01)
        running -= 1

    run_ids = [await submitted(store, "work") for _ in range(10)]
    await store.execute("update duly.ready set suspect = true")
    async with working(url, registry_of(work)):
        assert [await ended(store, run_id) for run_id in run_ids] == ["succeeded"] * 10

    assert max(at_once) == 1


async def test_runs_of_an_expired_worker_are_executed_by_another(url, store):
    gone = await a_registered_worker(store, lease=timedelta(seconds=0.5))
    runs_held = await leased_runs(store, gone, 5)

    async def work(run: RunContext) -> int:
        return run.attempt

    async with reaping(store), working(url, registry_of(work)):
        assert [await ended(store, run.run_id) for run in runs_held] == ["succeeded"] * 5

    for run in runs_held:
        assert await attempts_of(store, run.run_id) == [(1, "lost"), (2, "succeeded")]


# ----------------------------------------------------------------------------------------- a worker in a process of its own


@asynccontextmanager
async def a_worker_process(url, *, lease=LEASE_SHORT):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.worker.process", url, str(lease.total_seconds())
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        await asyncio.wait_for(process.wait(), 30)


async def test_a_worker_frozen_past_its_lease_is_refused_and_lives_on_under_a_new_name(url, store, tmp_path):
    async with reaping(store) as reaper, a_worker_process(url) as process:
        mark = tmp_path / "mark"
        retry = Retry(5, base_seconds=0)
        run_id = await submitted(store, "nap_in_thread", payload={"mark": str(mark), "seconds": 1.0}, retry=retry)
        await until(mark.exists)
        [first] = await workers.live(store)
        process.send_signal(signal.SIGSTOP)
        try:
            await until(lambda: reaper.reaped == 1)
            await until(lambda: _has_lost(store, run_id))
        finally:
            process.send_signal(signal.SIGCONT)
        assert await ended(store, run_id) == "succeeded"
        [second] = await workers.live(store)
        assert second.worker_id != first.worker_id
        assert process.returncode is None
        await until(lambda: _has_fenced(store, run_id))

    rows = await store.fetch("select attempt, outcome::text, fence from duly.attempts order by attempt, outcome::text")
    assert [tuple(row)[:2] for row in rows] == [(1, "fenced"), (1, "lost"), (2, "succeeded")]
    assert rows[2]["fence"] > rows[0]["fence"] == rows[1]["fence"]


async def _has_lost(store, run_id):
    return (1, "lost") in await attempts_of(store, run_id)


async def _has_fenced(store, run_id):
    return (1, "fenced") in await attempts_of(store, run_id)


async def test_terminated_worker_finishes_its_run_and_leaves_nothing_behind(url, store, tmp_path):
    async with a_worker_process(url) as process:
        run_id = await submitted(store, "nap", payload={"mark": str(tmp_path / "mark"), "seconds": 0.3})
        await until((tmp_path / "mark").exists)
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 20) == 0

    assert await state_of(store, run_id) == "succeeded"
    assert await workers.live(store) == []


async def test_a_killed_worker_leaves_no_process_behind(url, store, tmp_path):
    async with a_worker_process(url) as process:
        mark = tmp_path / "pids"
        await submitted(store, "sleep_with_child", payload={"mark": str(mark)}, timeout=60)
        await until(mark.exists)
        members = family.family_of(process.pid)
        assert len(members) >= 3  # the pulse, the child, and what the child started
        os.kill(process.pid, signal.SIGKILL)
        await until(lambda: all(is_gone(member) for member in members))
