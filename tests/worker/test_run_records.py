"""The desk: what a handler says while it runs is written for its lease, in order, and never fails it."""

import asyncio
import threading
from typing import Any

import asyncpg
import msgspec
import pytest

from duly.clock import Rng, moment_of
from duly.domain.runs.outcome import Succeeded
from duly.domain.runs.progress import Progress
from duly.domain.runs.run import Run
from duly.moves.settle import Settled, hand_back, settle
from duly.store.boxes import runs
from duly.store.connection.database import Unavailable
from duly.worker import run_records as module
from duly.worker.run_records import WorkerServices
from tests.worker.stories import a_registered_worker, leased_runs


@pytest.fixture
async def worker_id(store):
    return await a_registered_worker(store)


@pytest.fixture
async def run(store, worker_id):
    [run] = await leased_runs(store, worker_id, 1)
    return run


@pytest.fixture
async def services(store, worker_id):
    return WorkerServices(store, worker_id, lambda: True)


async def lines_of(store, run) -> list[tuple[Any, ...]]:
    rows = await runs.read_logs(store, run.run_id, (0, 0))
    return [(row["attempt"], row["number"], row["level"], row["message"], row["fields"]) for row in rows]


async def test_log_lines_are_stored_in_their_order(store, services, run):
    for number in range(2_500):
        services.log(run, "info", f"line {number}", {})
        if number % 700 == 0:
            await services.flush()
    await services.flush()

    messages: list[str] = []
    while page := await runs.read_logs(store, run.run_id, (1, len(messages))):
        messages += [row["message"] for row in page]
    assert messages == [f"line {number}" for number in range(2_500)]


async def test_a_line_is_kept_with_its_level_its_fields_and_its_moment(store, services, run):
    services.log(run, "warning", "look", {"count": 1, "names": ["a", "b"]})
    await services.flush()

    assert await lines_of(store, run) == [(1, 1, "warning", "look", '{"count": 1, "names": ["a", "b"]}')]
    [row] = await runs.read_logs(store, run.run_id, (0, 0))
    now = await store.read_clock()
    assert (now - row["logged_at"]).total_seconds() < 10


class Unspeakable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("a\0b", {}),
        ("a\ud800b", {}),
        (ValueError("no text"), {}),
        (Unspeakable(), {}),
        ("odd", {"nul": "\0", "lone": "\udfff", "k\0ey": 1}),
        ("odd", {"object": object(), "unspeakable": Unspeakable(), "set": {1, 2}, "bytes": b"\xff"}),
        ("odd", {"nan": float("nan"), "huge": 10**400, "deep": [[[{"\0": "\0"}]]]}),
        ("long" * 10_000, {}),
    ],
    ids=["nul", "surrogate", "not text", "no text", "odd text", "no JSON", "odd numbers", "long"],
)
async def test_log_record_of_any_content_is_stored(store, services, run, message, fields):
    services.log(run, "info", message, fields)
    await services.flush()
    [(_, _, _, kept, _)] = await lines_of(store, run)
    assert 0 < len(kept) <= 8_192


async def test_an_attempt_that_talks_without_end_is_cut_off_and_others_are_not(
    store, services, worker_id, run, monkeypatch
):
    monkeypatch.setattr(module, "LOG_BYTES_MAX", 1_000)
    [other] = await leased_runs(store, worker_id, 1)
    for _ in range(100):
        services.log(run, "info", "x" * 99, {})
    services.log(other, "info", "heard", {})
    await services.flush()

    assert len(await lines_of(store, run)) == 10
    assert len(await lines_of(store, other)) == 1

    services.end([run, other])
    await services.flush()
    *_, (_, number, level, message, fields) = await lines_of(store, run)
    assert (number, level, fields) == (11, "warning", '{"lines": 90}')
    assert "dropped" in message
    assert len(await lines_of(store, other)) == 1


async def test_lines_wait_for_a_database_that_is_away(faulty, store, worker_id, run):
    services = WorkerServices(faulty, worker_id, lambda: True)
    for number in range(3):
        services.log(run, "info", f"line {number}", {})
    faulty.fail_before = 1
    with pytest.raises(Unavailable):
        await services.flush()
    services.log(run, "info", "line 3", {})
    await services.flush()

    assert [line[3] for line in await lines_of(store, run)] == [f"line {number}" for number in range(4)]


async def test_log_lines_with_a_lost_reply_are_stored_exactly_once(faulty, store, worker_id, run):
    services = WorkerServices(faulty, worker_id, lambda: True)
    services.log(run, "info", "line 0", {})
    faulty.lose_answers = 1
    with pytest.raises(Unavailable):
        await services.flush()
    services.log(run, "info", "line 1", {})
    await services.flush()

    assert [line[3] for line in await lines_of(store, run)] == ["line 0", "line 1"]


async def test_lines_outlive_a_flush_that_was_given_up(store, services, run):
    """A worker that stops gives up whatever it does, and flushes once more: each line is kept, and once."""
    for number in range(2_500):
        services.log(run, "info", f"line {number}", {})
    for turns in range(1, 40, 3):
        flushing = asyncio.create_task(services.flush())
        for _ in range(turns):
            await asyncio.sleep(0)
        flushing.cancel()
        await asyncio.gather(flushing, return_exceptions=True)
    await services.flush()

    assert await store.fetchval("select array_agg(number order by number) from duly.logs") == [*range(1, 2_501)]


async def test_log_lines_of_ended_runs_are_written_without_waiting_for_others(store, services, worker_id, run):
    [other] = await leased_runs(store, worker_id, 1)
    for number in range(1, 1_501):
        services.log(run, "info", f"line {number}", {})
        services.log(other, "info", "not yet", {})
    await services.flush_ended([run])

    assert await store.fetch("select run_id, count(*) from duly.logs group by run_id") == [(run.run_id, 1_500)]
    await services.flush()
    written = "select run_id, array_agg(number order by number) from duly.logs group by run_id"
    assert dict(await store.fetch(written)) == {one.run_id: [*range(1, 1_501)] for one in (run, other)}


async def test_log_lines_in_flight_are_stored_before_their_run_may_be_settled(store, services, run):
    services.log(run, "info", "said", {})
    async with store.transaction() as other:
        await other.execute("lock table duly.logs in exclusive mode")
        flushing = asyncio.create_task(services.flush())
        ending = asyncio.create_task(services.flush_ended([run]))
        await asyncio.sleep(0.05)
        assert not ending.done(), "its line is on its way"
    await asyncio.wait_for(asyncio.gather(flushing, ending), 20)
    assert len(await lines_of(store, run)) == 1


async def test_log_lines_resent_by_another_flush_are_stored_exactly_once(faulty, store, worker_id, run):
    services = WorkerServices(faulty, worker_id, lambda: True)
    [other] = await leased_runs(store, worker_id, 1)
    for number in range(3):
        services.log(run, "info", f"line {number}", {})
        services.log(other, "info", f"line {number}", {})
    faulty.lose_answers = 1
    with pytest.raises(Unavailable):
        await services.flush()
    await services.flush_ended([run])
    await services.flush()

    assert [line[1] for one in (run, other) for line in await lines_of(store, one)] == [1, 2, 3, 1, 2, 3]


async def test_log_line_after_the_outcome_is_not_stored(store, services, worker_id, run):
    """A thread that nobody could stop talks on: whoever read that the run had ended had its whole log."""
    now = moment_of(store.clock.now())
    assert await settle(store, worker_id, [Settled(run, now, now, Succeeded())], Rng(1)) == []
    services.log(run, "info", "late", {})
    await services.flush()
    assert await lines_of(store, run) == []


@pytest.mark.parametrize("bad", [{"fields": "{not JSON"}, {"message": "half of a character: \ud800"}], ids=str)
async def test_refused_log_line_costs_no_other(store, services, run, bad):
    for number in range(1, 21):
        services.log(run, "info", f"line {number}", {})
    services._lines[13] = msgspec.structs.replace(services._lines[13], **bad)
    await services.flush()

    told = [(number, level, message) for _, number, level, message, _ in await lines_of(store, run)]
    expected = [(number, "info", f"line {number}") for number in range(1, 21)]
    expected[13] = (14, "warning", "(a line that could not be stored)")
    assert told == expected


async def test_lines_wait_where_it_is_no_fault_of_theirs(store, services, run, monkeypatch):
    async def fail(*_, **__) -> None:
        raise asyncpg.UndefinedTableError("as the server said")

    services.log(run, "info", "said", {})
    with monkeypatch.context() as patched:
        patched.setattr(runs, "append_logs", fail)
        with pytest.raises(asyncpg.UndefinedTableError):
            await services.flush()
    await services.flush()

    assert [line[3] for line in await lines_of(store, run)] == ["said"]


async def test_a_checkpoint_is_saved_for_the_holder_of_the_lease(store, services, run):
    assert await services.checkpoint(run, '{"step": 1}')
    assert await asyncio.to_thread(services.checkpoint_sync, run, '{"step": 2}')
    assert await runs.checkpoints(store, [run.run_id]) == {run.run_id: '{"step": 2}'}


async def test_nothing_is_saved_for_a_lease_that_was_lost(store, services, worker_id, run):
    await hand_back(store, worker_id, [run])
    assert not await services.checkpoint(run, '{"step": 1}')
    services.progress(run, Progress(5, 10, "half"))
    await services.flush_progress()
    assert await runs.checkpoints(store, [run.run_id]) == {}
    assert await runs.read_progress(store, run.run_id) is None


async def test_checkpoint_with_a_lost_reply_is_saved_exactly_once(store, faulty, worker_id, run):
    services = WorkerServices(faulty, worker_id, lambda: True)
    faulty.fail_before, faulty.lose_answers = 1, 1
    assert await services.checkpoint(run, '{"step": 1}')
    assert await runs.checkpoints(store, [run.run_id]) == {run.run_id: '{"step": 1}'}


async def test_a_checkpoint_is_given_up_when_the_lease_is_in_doubt(faulty, worker_id, run):
    safe = True
    services = WorkerServices(faulty, worker_id, lambda: safe)
    faulty.fail_before = 1_000
    saving = asyncio.create_task(services.checkpoint(run, "1"))
    await asyncio.sleep(0.3)
    assert not saving.done()
    safe = False
    assert not await asyncio.wait_for(saving, 20)


async def test_progress_that_cannot_be_shown_is_not_worth_a_failure(store, faulty, worker_id, run):
    services = WorkerServices(faulty, worker_id, lambda: True)
    faulty.fail_before = 1
    services.progress(run, Progress(1, 4, "a quarter"))
    await services.flush_progress()
    assert await runs.read_progress(store, run.run_id) is None
    await asyncio.to_thread(services.progress, run, Progress(2, 4, "half"))
    await services.flush_progress()
    shown = await runs.read_progress(store, run.run_id)
    assert shown
    assert (shown["done"], shown["total"], shown["fraction"], shown["note"]) == (2, 4, 0.5, "half")


@pytest.mark.parametrize("bad", [Progress(1, 4, "half of a character: \ud800"), Progress(1, 4, "a\0b")], ids=repr)
async def test_progress_that_is_refused_costs_no_other(store, services, worker_id, bad):
    told = await leased_runs(store, worker_id, 5)
    for run in told:
        services.progress(run, Progress(1, 2) if run is not told[3] else bad)
    await services.flush_progress()

    shown = [await runs.read_progress(store, run.run_id) for run in told]
    assert [one and one["fraction"] for one in shown] == [0.5, 0.5, 0.5, None, 0.5]
    assert not services.owes_any


async def test_progress_in_a_tight_loop_writes_only_the_latest_value(store, services, worker_id, run, monkeypatch):
    [other] = await leased_runs(store, worker_id, 1)
    writes = []
    real = runs.save_progresses

    async def counted(*args):
        writes.append(args)
        await real(*args)

    monkeypatch.setattr(runs, "save_progresses", counted)
    for number in range(10_000):
        services.progress(run, Progress(number))
        services.progress(other, Progress(number, 10_000))
    assert services.owes_progress(run)
    await services.flush_progress()
    await services.flush_progress()

    assert len(writes) == 1
    assert not services.owes_progress(run)
    shown = [await runs.read_progress(store, one.run_id) for one in (run, other)]
    assert [one and (one["done"], one["fraction"]) for one in shown] == [(9_999, None), (9_999, 0.9999)]


async def test_progress_that_is_being_written_is_still_owed(store, services, run):
    services.progress(run, Progress(1))
    async with store.transaction() as other:
        await other.execute("lock table duly.progress in exclusive mode")
        flushing = asyncio.create_task(services.flush_progress())
        await asyncio.sleep(0.05)
        assert services.owes_progress(run), "its outcome must wait"
    await flushing
    assert not services.owes_progress(run)


class Midway:
    """A run whose handler's thread is held up in the middle of saying how far it has come."""

    def __init__(self, run: Run) -> None:
        self.run_id = run.run_id
        self.is_midway, self.go_on = threading.Event(), threading.Event()
        self._fence = run.fence

    @property
    def fence(self) -> int:
        self.is_midway.set()
        assert self.go_on.wait(20)
        return self._fence


async def test_progress_reported_by_a_thread_during_a_flush_is_stored(store, services, run):
    midway = Midway(run)
    services.progress(run, Progress(1))
    saying = asyncio.create_task(asyncio.to_thread(services.progress, midway, Progress(2)))
    await asyncio.to_thread(midway.is_midway.wait, 20)
    await services.flush_progress()
    midway.go_on.set()
    await saying
    await services.flush_progress()

    shown = await runs.read_progress(store, run.run_id)
    assert shown
    assert shown["done"] == 2
