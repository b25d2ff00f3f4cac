"""The heartbeat: a process of its own that lives, falls silent and ends with its worker."""

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from duly.clock import Rng
from duly.log import Log
from duly.store.tables.workers import SQL
from duly.worker.heartbeat.lease import WorkerLease
from duly.worker.heartbeat.shared_state import SharedState
from tests.worker import family
from tests.worker.family import is_gone
from tests.worker.stories import PATIENCE_SECONDS, a_registered_worker, is_regular, until

HANG_UP_ON_OTHERS = """
select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
"""
LEASE = timedelta(seconds=1)
# Stands between us and the pulse, so that it can be stopped and killed.
PARENT = (
    "import subprocess, sys;"
    "subprocess.run([sys.executable, '-m', 'duly.worker.heartbeat.process'], pass_fds=[int(sys.argv[1])])"
)


@pytest.fixture
async def worker_id(store):
    return await a_registered_worker(store, lease=LEASE)


@asynccontextmanager
async def a_pulse(url, worker_id, statement=SQL["heartbeat"], *, parent=False, shared_state=None):
    if shared_state is None:
        shared_state = SharedState()
        shared_state.tick(float("inf"))  # No engine of ours ever stands still.
    command = ["-c", PARENT, str(shared_state.descriptor)] if parent else ["-m", "duly.worker.heartbeat.process"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdin=PIPE, stdout=PIPE, pass_fds=[shared_state.descriptor]
    )
    assert process.stdin
    config = {
        "url": url,
        "worker_id": str(worker_id),
        "lease": LEASE.total_seconds(),
        "statement": statement,
        "stalled": SQL["stall"],
        "pooler": False,
        "shared_state": shared_state.descriptor,
        "seed": 1,
    }
    process.stdin.write(msgspec.json.encode(config) + b"\n")
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.stdin.close()
        await buried(process)


async def buried(process: Process) -> None:
    """Wait for the end of a process, and let go of its pipes on the loop that opened them."""
    await asyncio.wait_for(process.wait(), PATIENCE_SECONDS)
    process._transport.close()  # type: ignore[attr-defined]
    await asyncio.sleep(0)


async def message(process: Process):
    assert process.stdout
    line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS)
    return msgspec.json.decode(line) if line else None


async def beats(store, worker_id):
    return await store.fetchval("select heartbeat from duly.workers where worker_id = $1", worker_id)


async def test_heartbeat_renews_the_lease_and_reports_until_when_it_is_safe(url, store, worker_id):
    began = time.monotonic()
    async with a_pulse(url, worker_id) as pulse:
        for heartbeat in (1, 2, 3):
            said = await message(pulse)
            assert began < said["safe_until"] - LEASE.total_seconds() * 2 / 3 < time.monotonic()
            assert await beats(store, worker_id) >= heartbeat


async def test_lease_safety_counts_from_the_sending_of_the_heartbeat(url, worker_id):
    slow = (
        f"with slow as materialized (select pg_sleep(0.2)), beat as ({SQL['heartbeat']}) select beat.* from slow, beat"
    )
    async with a_pulse(url, worker_id, slow) as pulse:
        await message(pulse)  # The first includes the connection.
        for _ in range(2):
            said = await message(pulse)
            assert said["safe_until"] <= time.monotonic() - 0.2 + LEASE.total_seconds() * 2 / 3


async def test_heartbeat_reports_a_lost_lease_and_ends(url, store, worker_id):
    async with a_pulse(url, worker_id) as pulse:
        await message(pulse)
        await store.execute("delete from duly.workers")
        said = await until(lambda: _first_other(pulse))
        assert said == {"lost": True}
        assert await asyncio.wait_for(pulse.wait(), PATIENCE_SECONDS) == 0


async def _first_other(pulse: Process):
    said = await message(pulse)
    return None if "safe_until" in said else said


async def test_heartbeat_continues_after_a_lost_connection(url, store, worker_id):
    async with a_pulse(url, worker_id) as pulse:
        await message(pulse)
        await store.execute(HANG_UP_ON_OTHERS)
        assert "error" in await until(lambda: _first_other(pulse))
        assert "safe_until" in await message(pulse)


async def test_heartbeat_retries_an_unreachable_database_at_irregular_intervals(worker_id, tmp_path):
    told = []
    async with a_pulse(f"postgresql:///duly?host={tmp_path}", worker_id) as pulse:
        for _ in range(7):
            assert "error" in await message(pulse)
            told.append(time.monotonic())

    assert not is_regular(told)


async def test_heartbeat_process_ends_when_the_worker_closes_its_input(url, worker_id):
    async with a_pulse(url, worker_id) as pulse:
        await message(pulse)
        pulse.stdin.close()
        assert await asyncio.wait_for(pulse.wait(), PATIENCE_SECONDS) == 0


async def test_heartbeat_process_ends_with_its_worker_despite_an_open_input(url, store, worker_id):
    async with a_pulse(url, worker_id, parent=True) as parent:
        await message(parent)
        [pulse] = family.family_of(parent.pid)
        parent.kill()
        await until(lambda: is_gone(pulse))


async def test_heartbeat_stops_while_its_worker_is_frozen_so_the_lease_expires(url, store, worker_id):
    async with a_pulse(url, worker_id, parent=True) as parent:
        await message(parent)
        parent.send_signal(signal.SIGSTOP)

        async def lapsed():
            return await store.fetchval("select until < clock_timestamp() from duly.workers")

        await until(lapsed)
        parent.send_signal(signal.SIGCONT)
        counted = await beats(store, worker_id)
        await until(lambda: _beats_past(store, worker_id, counted))


async def _beats_past(store, worker_id, counted):
    return await beats(store, worker_id) > counted


@asynccontextmanager
async def a_lifeline(url, store, worker_id):
    gone: list[bool] = []
    worker_lease = WorkerLease(
        url,
        worker_id,
        LEASE.total_seconds(),
        clock=store.clock,
        rng=Rng(1),
        log=Log("test"),
        on_lost=lambda: gone.append(True),
        on_returned=lambda kept: None,
    )
    await asyncio.wait_for(worker_lease.start(give_up=lambda: False), PATIENCE_SECONDS)
    try:
        yield worker_lease, gone
    finally:
        await worker_lease.stop()
        assert worker_lease._process
        await buried(worker_lease._process)


def the_pulse() -> Any:
    [pulse] = family.children("duly.worker.heartbeat.process")
    return pulse


async def test_killed_heartbeat_process_is_replaced_before_the_lease_is_unsafe(url, store, worker_id):
    async with a_lifeline(url, store, worker_id) as (worker_lease, gone):
        first = the_pulse()
        until_then = worker_lease.safe_until
        os.kill(first.pid, signal.SIGKILL)
        await until(lambda: worker_lease.safe_until > until_then)
        assert the_pulse().pid != first.pid
        assert gone == []


async def test_heartbeat_process_that_fails_to_start_is_retried(url, store, worker_id, monkeypatch):
    async with a_lifeline(url, store, worker_id) as (worker_lease, gone):
        real = asyncio.create_subprocess_exec
        failed: list[int] = []

        async def scarce(*words: Any, **options: Any) -> Process:
            if len(failed) < 2:
                failed.append(1)
                raise BlockingIOError(11, "Resource temporarily unavailable")
            return await real(*words, **options)

        monkeypatch.setattr(asyncio, "create_subprocess_exec", scarce)
        until_then = worker_lease.safe_until
        os.kill(the_pulse().pid, signal.SIGKILL)
        await until(lambda: worker_lease.safe_until > until_then)
        assert (len(failed), gone) == (2, [])


async def test_while_there_is_no_process_it_is_tried_less_and_less_often(url, store, worker_id, monkeypatch):
    tried: list[float] = []

    async def scarce(*_: Any, **__: Any) -> Process:
        tried.append(time.monotonic())
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", scarce)
    worker_lease = WorkerLease(
        url,
        worker_id,
        15.0,
        clock=store.clock,
        rng=Rng(1),
        log=Log("test"),
        on_lost=lambda: None,
        on_returned=lambda kept: None,
    )
    await asyncio.wait_for(worker_lease.start(give_up=lambda: len(tried) > 3), PATIENCE_SECONDS)
    await worker_lease.stop()

    first, *_, last = [later - sooner for sooner, later in pairwise(tried)]
    assert last > 2 * first > 0.4


async def test_a_clock_set_forwards_starts_nothing_that_the_store_would_take_for_unstarted(url, store, worker_id):
    async with a_lifeline(url, store, worker_id) as (worker_lease, _):
        store.clock.observe(await store.fetchval("select clock_timestamp() + interval '1 hour'"))

        assert worker_lease.now() <= worker_lease.due_until < store.clock.now()


async def test_lost_lease_is_unsafe_immediately(url, store, worker_id):
    async with a_lifeline(url, store, worker_id) as (worker_lease, gone):
        assert worker_lease.is_safe
        await store.execute("delete from duly.workers")
        await until(lambda: gone)
        assert not worker_lease.is_safe


async def test_worker_without_a_heartbeat_is_unsafe_before_its_lease_expires(url, store, worker_id):
    async with a_lifeline(url, store, worker_id) as (worker_lease, gone):
        os.kill(the_pulse().pid, signal.SIGSTOP)
        try:
            left = await store.fetchval("select until - clock_timestamp() from duly.workers")
            lapses_at = time.monotonic() + left.total_seconds()
            await until(lambda: not worker_lease.is_safe)
            assert worker_lease.safe_until + LEASE.total_seconds() / 3 <= lapses_at
        finally:
            os.kill(the_pulse().pid, signal.SIGCONT)
        assert gone == []
