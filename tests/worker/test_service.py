"""The whole worker, in this process, on a real database: what becomes of what handlers do."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from duly.clock import Rng
from duly.domain.errors import DatabaseUnusable, Refused
from duly.domain.runs.retry import Retry
from duly.domain.runs.run import Run
from duly.log import Log
from duly.moves.settle import hand_back
from duly.store.boxes import runs
from duly.store.connection.database import Database
from duly.worker import claim, engine
from duly.worker.context import NonRetryable, RunContext, Snooze
from duly.worker.handlers import Registry
from duly.worker.service import CONNECTIONS_MAX, Worker, WorkerOptions
from duly.worker.slots import Pool
from tests.worker import app, family
from tests.worker.stories import (
    PATIENCE_SECONDS,
    attempts_of,
    ended,
    engine_of,
    registry_of,
    state_of,
    submitted,
    until,
    working,
)


async def attempt_of(store, run_id, number: int = 1):
    found = await runs.find(store, run_id)
    assert found
    [attempt] = [attempt for attempt in found["attempts"] if attempt["attempt"] == number]
    return attempt


async def progress_of(store, run_id):
    shown = await runs.read_progress(store, run_id)
    assert shown
    return shown


async def test_an_async_handler_runs_on_the_callers_loop_and_its_result_is_kept(url, store):
    ours = asyncio.get_running_loop()

    async def add(a: int, b: int) -> int:
        assert asyncio.get_running_loop() is ours
        return a + b

    async with working(url, registry_of(add)) as worker:
        run_id = await submitted(store, "add", payload={"a": 2, "b": 3})
        assert await ended(store, run_id) == "succeeded"
        assert worker.health.settled == 1

    assert (await attempt_of(store, run_id))["result"] == "5"


async def test_plain_functions_run_in_threads_side_by_side(url, store):
    together = threading.Barrier(3, timeout=20)

    def meet() -> str:
        together.wait()
        return threading.current_thread().name

    async with working(url, registry_of(meet), threads=3):
        run_ids = [await submitted(store, "meet") for _ in range(3)]
        assert [await ended(store, run_id) for run_id in run_ids] == ["succeeded"] * 3

    names = {(await attempt_of(store, run_id))["result"] for run_id in run_ids}
    assert len(names) == 3
    assert all("handler" in name for name in names)


async def test_a_run_starts_at_its_due_moment_and_never_before(url, store):
    async def note() -> None: ...

    async with working(url, registry_of(note)):
        run_ids = [await submitted(store, "note", delay=delay) for delay in (0.1, 0.3, 0.5)]
        for run_id in run_ids:
            await ended(store, run_id)

    for run_id in run_ids:
        attempt = await attempt_of(store, run_id)
        assert attempt["due_at"] <= attempt["started_at"] <= attempt["due_at"] + timedelta(seconds=5)


async def test_a_failure_is_tried_again_after_its_backoff(url, store):
    async def stumble(run: RunContext) -> int:
        if run.attempt < 3:
            raise ValueError(f"attempt {run.attempt}")
        return run.attempt

    async with working(url, registry_of(stumble)):
        run_id = await submitted(store, "stumble", retry=Retry(3, base_seconds=0.2))
        assert await ended(store, run_id) == "succeeded"

    assert await attempts_of(store, run_id) == [(1, "failed"), (2, "failed"), (3, "succeeded")]
    first, second = [await attempt_of(store, run_id, number) for number in (1, 2)]
    assert first["reason"] == "ValueError: attempt 1"
    assert msgspec.json.decode(first["detail"])["type"] == "ValueError"
    assert timedelta() <= second["due_at"] - first["finished_at"] <= timedelta(seconds=0.2 + 1)


async def test_a_run_that_used_up_its_attempts_is_dead(url, store):
    async def fail() -> None:
        raise ValueError("again")

    async with working(url, registry_of(fail)):
        run_id = await submitted(store, "fail", retry=Retry(2, base_seconds=0.001))
        assert await ended(store, run_id) == "dead"

    assert await attempts_of(store, run_id) == [(1, "failed"), (2, "failed")]


async def test_a_failure_that_cannot_be_mended_is_dead_at_once(url, store):
    async def refuse() -> None:
        raise NonRetryable("the account is closed")

    async with working(url, registry_of(refuse)):
        run_id = await submitted(store, "refuse")
        assert await ended(store, run_id) == "dead"

    assert await attempts_of(store, run_id) == [(1, "failed")]


async def test_a_snoozed_run_is_called_again_and_has_not_failed(url, store):
    async def doze(run: RunContext) -> int:
        if run.attempt == 1:
            raise Snooze(0.2)
        return run.attempt

    async with working(url, registry_of(doze)):
        run_id = await submitted(store, "doze")
        assert await ended(store, run_id) == "succeeded"

    assert await attempts_of(store, run_id) == [(1, "snoozed"), (2, "succeeded")]
    first, second = [await attempt_of(store, run_id, number) for number in (1, 2)]
    assert second["due_at"] - first["finished_at"] >= timedelta(seconds=0.2)


async def test_an_async_handler_past_its_timeout_is_stopped_and_tried_again(url, store):
    async def hang(run: RunContext) -> str:
        if run.attempt == 1:
            await asyncio.Event().wait()
        return "done"

    async with working(url, registry_of(hang)):
        run_id = await submitted(store, "hang", timeout=0.2)
        assert await ended(store, run_id) == "succeeded"

    assert await attempts_of(store, run_id) == [(1, "timed_out"), (2, "succeeded")]


async def test_a_plain_function_past_its_timeout_is_killed_in_its_child_process(url, store, tmp_path):
    async with working(url, app.app.registry, app_path=app.PATH, threads=2):
        run_id = await submitted(
            store, "sleep_with_child", payload={"mark": str(tmp_path / "pids")}, timeout=0.5, retry=Retry(1)
        )
        assert await ended(store, run_id) == "dead"

    assert await attempts_of(store, run_id) == [(1, "timed_out")]


async def test_a_run_that_kills_its_process_twice_is_dead_and_the_worker_lives_on(url, store):
    async with working(url, app.app.registry, app_path=app.PATH, threads=2) as worker:
        run_id = await submitted(store, "crash", timeout=60, retry=Retry(10, base_seconds=0.001))
        assert await ended(store, run_id) == "dead"
        assert worker.health.lives == 1
        assert await ended(store, await submitted(store, "add", payload={"a": 1, "b": 1})) == "succeeded"

    assert [outcome for _, outcome in await attempts_of(store, run_id)] == ["lost"] * 2
    assert (await attempt_of(store, run_id, 2))["reason"] == "poison"


async def test_a_checkpoint_survives_a_crash_and_is_handed_to_the_next_attempt(url, store, tmp_path):
    async with working(url, app.app.registry, app_path=app.PATH, threads=2):
        arguments = {"mark": str(tmp_path / "crashed"), "crash_at": 4}
        run_id = await submitted(store, "count_steps", payload=arguments, timeout=60)
        assert await ended(store, run_id) == "succeeded"

    assert await attempts_of(store, run_id) == [(1, "lost"), (2, "succeeded")]
    assert (await attempt_of(store, run_id, 2))["result"] == "[1, 2, 3, 4, 5]"
    logged = [
        (line["attempt"], msgspec.json.decode(line["fields"])) for line in await runs.read_logs(store, run_id, (0, 0))
    ]
    assert logged == [(1, {"number": step}) for step in (1, 2, 3)] + [(2, {"number": step}) for step in (4, 5)]
    assert (await progress_of(store, run_id))["note"] == "step 5"
    assert await store.fetchval("select count(*) from duly.checkpoints") == 0


async def test_a_handler_on_the_loop_saves_shows_and_logs(url, store):
    async def work(run: RunContext) -> int:
        assert run.saved == (None if run.attempt == 1 else {"at": 1})
        await run.checkpoint({"at": run.attempt})
        await run.progress(5, 10, f"attempt {run.attempt}")
        for number in range(20):
            run.log.info(f"line {number}", attempt=run.attempt)
        if run.attempt == 1:
            raise ValueError("half-way")
        return run.attempt

    async with working(url, registry_of(work)):
        run_id = await submitted(store, "work")
        assert await ended(store, run_id) == "succeeded"
        lines = await runs.read_logs(store, run_id, (0, 0))

    assert [(line["attempt"], line["number"]) for line in lines] == [(a, n) for a in (1, 2) for n in range(1, 21)]
    assert [line["message"] for line in lines] == [f"line {number}" for number in range(20)] * 2
    assert (await progress_of(store, run_id))["note"] == "attempt 2"


COUNT_LINES_AT_THE_END = """
    create table duly.lines_at_the_end (run_id uuid, lines bigint);
    create function duly.count_lines() returns trigger language plpgsql as $$ begin
        insert into duly.lines_at_the_end select new.run_id, count(*) from duly.logs where run_id = new.run_id;
        return new;
    end $$;
    create trigger count_lines before insert on duly.attempts for each row execute function duly.count_lines();
"""


FORGET_IT = (
    "drop trigger count_lines on duly.attempts; drop function duly.count_lines; drop table duly.lines_at_the_end"
)


@pytest.fixture
async def lines_at_the_end(store):
    """Give how many lines stood in the log of each run when it was settled."""
    await store.execute(COUNT_LINES_AT_THE_END)
    yield lambda: store.fetch("select lines, count(*) from duly.lines_at_the_end group by lines")
    await store.execute(FORGET_IT)


@pytest.mark.parametrize("kind", ["on the loop", "in a thread", "that fails"])
async def test_a_run_is_settled_after_all_its_lines(url, store, lines_at_the_end, kind):
    """Whoever reads that a run has ended, and then its log, has the whole log."""

    async def work(run: RunContext) -> None:
        for number in range(3):
            run.log.info(f"line {number}")
        if kind == "that fails":
            raise NonRetryable("as it was told")

    def work_in_thread(run: RunContext) -> None:
        for number in range(3):
            run.log.info(f"line {number}")

    async with working(url, registry_of(work, work_in_thread)):
        submissions = [submitted(store, "work_in_thread" if kind == "in a thread" else "work") for _ in range(20)]
        for run_id in await asyncio.gather(*submissions):
            await ended(store, run_id)

    assert await lines_at_the_end() == [(3, 20)]


async def test_a_plain_function_saves_shows_and_logs_from_its_thread(url, store):
    def work(run: RunContext) -> str:
        run.checkpoint_sync({"step": 1})
        run.progress_sync(1, 2, "half")
        run.log.warning("look")
        return str(run.saved)

    async with working(url, registry_of(work)):
        run_id = await submitted(store, "work")
        assert await ended(store, run_id) == "succeeded"
        assert (await runs.read_logs(store, run_id, (0, 0)))[0]["message"] == "look"

    assert (await progress_of(store, run_id))["fraction"] == 0.5


async def test_a_handler_knows_its_run(url, store):
    seen: dict[str, object] = {}

    async def work(run: RunContext) -> None:
        seen.update(id=run.id, attempt=run.attempt, fence=run.fence, deadline=run.deadline, due_at=run.due_at)

    async with working(url, registry_of(work)):
        run_id = await submitted(store, "work", timeout=60)
        await ended(store, run_id)

    attempt = await attempt_of(store, run_id)
    deadline = seen.pop("deadline")
    assert isinstance(deadline, datetime)
    # Both are made of one number of seconds, which Python and PostgreSQL round by themselves.
    assert abs(deadline - attempt["started_at"] - timedelta(seconds=60)) <= timedelta(microseconds=1)
    assert seen == {"id": run_id, "attempt": 1, "fence": attempt["fence"], "due_at": attempt["due_at"]}


@pytest.mark.parametrize("words", ["a\0b", "a\ud800b"], ids=ascii)
async def test_no_text_can_break_the_write(url, store, words: str):
    async def fail(run: RunContext) -> str:
        run.log.error(words, field=words)
        await run.progress(0, None, words)
        if run.attempt == 1:
            raise ValueError(words)
        return words

    async with working(url, registry_of(fail)):
        run_id = await submitted(store, "fail")
        assert await ended(store, run_id) == "succeeded"

    assert await attempts_of(store, run_id) == [(1, "failed"), (2, "succeeded")]


async def test_large_payload_is_read_from_its_own_table(url, store):
    async def measure(text: str) -> int:
        return len(text)

    async with working(url, registry_of(measure)):
        run_id = await submitted(store, "measure", payload={"text": "x" * 200_000})
        assert await ended(store, run_id) == "succeeded"

    assert (await attempt_of(store, run_id))["result"] == "200000"


async def test_two_workers_share_the_work_and_run_nothing_twice(url, store):
    calls: list[str] = []

    async def note(run: RunContext) -> None:
        calls.append(f"{run.id} {run.attempt}")

    registry = registry_of(note)
    async with working(url, registry, slots=5) as one, working(url, registry, slots=5) as other:
        run_ids = [await submitted(store, "note") for _ in range(200)]
        await until(lambda: one.health.settled + other.health.settled == 200)

    assert sorted(calls) == sorted(f"{run_id} 1" for run_id in run_ids)


async def test_stopping_worker_finishes_running_runs_and_returns_the_rest_unused(url, store):
    started, finish = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        started.set()
        await finish.wait()

    async with working(url, registry_of(slow), slots=1) as worker:
        running = await submitted(store, "slow")
        await asyncio.wait_for(started.wait(), 20)
        later = await submitted(store, "slow", delay=4)
        await until(lambda: worker.health.held == 2)
        worker.stop()
        await until(lambda: _is_in(store, later, "ready"))
        finish.set()

    assert await attempts_of(store, running) == [(1, "succeeded")]
    assert await attempts_of(store, later) == []
    assert await store.fetchval("select attempt from duly.ready") == 0
    assert await store.fetchval("select count(*) from duly.workers") == 0


async def _is_in(store, run_id, state):
    return await state_of(store, run_id) == state


async def test_run_that_outlasts_the_grace_period_is_interrupted_and_retried(url, store, tmp_path):
    async with working(url, app.app.registry, app_path=app.PATH, threads=2, grace_seconds=0.1) as worker:
        retry = Retry(5, base_seconds=0)
        marks = {name: tmp_path / name for name in ("sleep_until_stopped", "wait_until_stopped")}
        on_loop = await submitted(
            store, "wait_until_stopped", payload={"mark": str(marks["wait_until_stopped"])}, retry=retry
        )
        in_child = await submitted(
            store, "sleep_until_stopped", payload={"mark": str(marks["sleep_until_stopped"])}, timeout=60, retry=retry
        )
        await until(lambda: all(mark.exists() for mark in marks.values()))
        worker.stop()

    for run_id in (on_loop, in_child):
        assert await attempts_of(store, run_id) == [(1, "failed")]
        assert (await attempt_of(store, run_id))["reason"].startswith("interrupted")
        assert await state_of(store, run_id) == "retrying"
    assert {mark.read_text() for mark in marks.values()} == {"tidied"}


async def test_logs_and_progress_are_written_immediately_while_the_worker_stops(url, store):
    started, say, finish = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(run: RunContext) -> None:
        started.set()
        await say.wait()
        run.log.info("almost")
        await run.progress(9, 10, "almost")
        await finish.wait()

    async with working(url, registry_of(slow), grace_seconds=3 * PATIENCE_SECONDS) as worker:
        run_id = await submitted(store, "slow")
        await asyncio.wait_for(started.wait(), PATIENCE_SECONDS)
        worker.stop()
        await until(lambda: engine_of(worker)._ended.is_set())
        say.set()
        [line] = await until(lambda: runs.read_logs(store, run_id, (0, 0)))
        await until(lambda: runs.read_progress(store, run_id))
        finish.set()

    assert line["message"] == "almost"
    assert await attempts_of(store, run_id) == [(1, "succeeded")]


class Silent(threading.Event):
    """As long as it is set, the store does not answer whoever hands runs back."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Sequence[Run]] = []

    async def hand_back(self, database: Database, worker_id: UUID, given: Sequence[Run]) -> object:
        self.asked.append(given)
        while self.is_set():
            await asyncio.sleep(0.01)
        return await hand_back(database, worker_id, given)


@pytest.fixture
def silent(monkeypatch):
    silent = Silent()
    monkeypatch.setattr(engine, "hand_back", silent.hand_back)
    return silent


async def test_a_hand_back_that_is_not_answered_delays_no_fire(url, store, silent):
    free = threading.Event()

    def plain() -> None:
        free.wait(PATIENCE_SECONDS)

    async def on_loop() -> None: ...

    silent.set()
    try:
        async with working(url, registry_of(plain, on_loop), threads=1) as worker:
            await submitted(store, "plain")
            await until(lambda: worker.health.running == 1)
            stuck = [await submitted(store, "plain", delay=0.3) for _ in range(2)]
            await until(lambda: silent.asked)
            for _ in range(3):
                assert await ended(store, await submitted(store, "on_loop", delay=0.5)) == "succeeded"
            silent.clear()
            free.set()
            for run_id in stuck:
                assert await ended(store, run_id) == "succeeded"
                assert await attempts_of(store, run_id) == [(1, "succeeded")]
    finally:
        free.set()


async def test_while_a_hand_back_is_not_answered_others_that_are_stuck_stay_in_line(url, store, silent):
    """Each would take one of the few connections that settle, claim and hear of cancels."""
    free = threading.Event()

    def plain() -> None:
        free.wait(PATIENCE_SECONDS)

    async def on_loop() -> None:
        while not free.is_set():
            await asyncio.sleep(0.01)

    silent.set()
    try:
        async with working(url, registry_of(plain, on_loop), threads=1, slots=1) as worker:
            for handler in ("plain", "on_loop"):
                await submitted(store, handler)
            await until(lambda: worker.health.running == 2)
            first = await submitted(store, "plain", delay=0.3)
            await until(lambda: silent.asked)
            second = await submitted(store, "on_loop", delay=0.5)
            await until(lambda: worker.health.waiting == 1)
            await asyncio.sleep(4 * engine.STUCK_SECONDS[Pool.LOOP])
            assert [[run.run_id for run in given] for given in silent.asked] == [[first]]
            silent.clear()
            await until(lambda: [run.run_id for run in silent.asked[-1]] == [second])
            free.set()
    finally:
        free.set()


async def test_stopping_worker_does_not_forget_a_run_that_it_is_returning(url, store, silent):
    free = threading.Event()

    def plain() -> None:
        free.wait(PATIENCE_SECONDS)

    silent.set()
    try:
        async with working(url, registry_of(plain), threads=1, grace_seconds=PATIENCE_SECONDS) as worker:
            running = await submitted(store, "plain")
            await until(lambda: worker.health.running == 1)
            stuck = await submitted(store, "plain", delay=0.3)
            await until(lambda: silent.asked)
            worker.stop()
            free.set()
            assert await ended(store, running) == "succeeded"
            assert await state_of(store, stuck) == "running", "it is nobody else's yet"
            silent.clear()
            await until(lambda: _is_in(store, stuck, "ready"))
    finally:
        free.set()

    assert await attempts_of(store, stuck) == []


async def test_unstarted_run_whose_return_fails_unexpectedly_is_recovered(url, store, monkeypatch):
    monkeypatch.setattr(claim, "UNKNOWN_LEASES_IN_DOUBT_SECONDS", 0.2)
    failed: list[int] = []
    free = threading.Event()

    async def fail_once(database: Database, worker_id: UUID, given: Sequence[Run]) -> object:
        if not failed:
            failed.append(1)
            raise RuntimeError("out of the blue")
        return await hand_back(database, worker_id, given)

    monkeypatch.setattr(engine, "hand_back", fail_once)

    def plain() -> None:
        free.wait(PATIENCE_SECONDS)

    try:
        async with working(url, registry_of(plain), threads=1) as worker:
            await submitted(store, "plain")
            await until(lambda: worker.health.running == 1)
            stuck = await submitted(store, "plain", delay=0.3)
            await until(lambda: failed)
            free.set()
            assert await ended(store, stuck) == "succeeded"
    finally:
        free.set()


@pytest.mark.parametrize("handler", ["in_thread", "stubborn"])
async def test_left_running_callback_fires_for_a_handler_that_cannot_be_stopped(url, store, handler):
    started, free, told = threading.Event(), threading.Event(), []

    def in_thread() -> None:
        started.set()
        free.wait(PATIENCE_SECONDS)

    async def stubborn() -> None:
        started.set()
        while not free.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    def left_running() -> None:
        told.append(family.children("duly.worker.heartbeat.process"))

    options = WorkerOptions("worker", grace_seconds=0.1)
    worker = Worker(
        url,
        registry_of(in_thread, stubborn),
        options,
        rng=Rng(),
        log=Log("worker"),
        on_left_running=left_running,
    )
    living = asyncio.create_task(worker.run())
    try:
        run_id = await submitted(store, handler)
        await until(started.is_set)
        worker.stop()
        await asyncio.wait_for(living, PATIENCE_SECONDS)
        assert told[0], "while the lease stands: nobody else runs it yet"
        assert await state_of(store, run_id) == "running"
    finally:
        free.set()


async def test_left_running_callback_does_not_fire_when_all_handlers_have_ended(url, store):
    def quick() -> None: ...

    told: list[int] = []
    worker = Worker(
        url,
        registry_of(quick),
        WorkerOptions("worker"),
        rng=Rng(),
        log=Log("worker"),
        on_left_running=lambda: told.append(1),
    )
    living = asyncio.create_task(worker.run())
    assert await ended(store, await submitted(store, "quick")) == "succeeded"
    worker.stop()
    await asyncio.wait_for(living, PATIENCE_SECONDS)
    assert told == []


async def test_an_outcome_is_settled_while_every_other_connection_of_the_worker_is_taken(url, store):
    go_on = asyncio.Event()

    async def work() -> None:
        await go_on.wait()

    async with working(url, registry_of(work)) as worker:
        run_id = await submitted(store, "work")
        await until(lambda: worker.health.running == 1)
        async with all_connections_taken(worker):
            go_on.set()
            assert await ended(store, run_id) == "succeeded"


@asynccontextmanager
async def all_connections_taken(worker: Worker) -> AsyncIterator[None]:
    """Use up the connections over which a worker claims, looks and saves."""
    loop, pool = worker._engine_loop, engine_of(worker)._database.pool
    assert loop is not None

    async def on_its_loop(work: Coroutine[Any, Any, Any]) -> Any:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    taken = [await on_its_loop(pool.lend()) for _ in range(CONNECTIONS_MAX)]
    try:
        yield
    finally:
        for connection in taken:
            await on_its_loop(pool.take_back(connection, None))


async def test_a_worker_without_handlers_is_refused(url):
    with pytest.raises(Refused, match="has no handler"):
        async with working(url, Registry()):
            pass


async def test_worker_without_a_database_reports_the_missing_database(tmp_path):
    async def work() -> None: ...

    with pytest.raises(DatabaseUnusable, match=f"no database responds at postgresql:///duly.host={tmp_path}: "):
        async with working(f"postgresql:///duly?host={tmp_path}", registry_of(work)):
            pass


async def test_worker_reports_at_startup_the_handlers_shared_with_another_app(url, store, caplog):
    async def shared() -> None: ...

    async def mine() -> None: ...

    def told() -> list[str]:
        return [
            record.__dict__["fields"]["says"] for record in caplog.records if record.getMessage() == "handler_clash"
        ]

    async with working(url, registry_of(shared), name="shop.1", app_name="shop"):
        async with working(url, registry_of(shared), name="shop.2", app_name="shop"):
            assert told() == []
        async with working(url, registry_of(shared, mine), name="bank.1", app_path="bank:app"):
            [says] = told()
    assert all(word in says for word in ("shop", "bank:app", "shared", "default", "shop.1", "bank.1"))
    assert "mine" not in says
