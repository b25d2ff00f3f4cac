"""The executor: whatever happens on the way to a handler, its run ends and its slot comes free."""

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from duly.clock import SystemClock
from duly.domain.runs.outcome import Failed, Succeeded
from duly.domain.runs.retry import Retry
from duly.domain.runs.run import Run
from duly.moves.settle import Settled
from duly.store.boxes import runs
from duly.store.boxes.leased import Finished
from duly.worker.execute.executor import Ended, Executor
from duly.worker.handlers import Registry
from duly.worker.slots import Kind
from duly.worker.targets import TargetHandler, Targets
from tests.clock import START
from tests.worker.stories import PATIENCE_SECONDS, a_run, attempts_of, ended, registry_of, submitted, until, working

DESK: Any = None  # Nothing here says anything.


class Executing:
    """An executor as an engine holds it, and what it has given back."""

    def __init__(self, registry: Registry, targets: Targets | None = None, threads: int = 2) -> None:
        clock = SystemClock()
        clock.observe(START)
        self.ended: list[Ended] = []
        self.executor = Executor(
            registry,
            targets or Targets(),
            loop=asyncio.get_running_loop(),
            threads=threads,
            clock=clock,
            is_safe=lambda: True,
            on_ended=self.ended.extend,
        )

    def start(self, *batch: tuple[Kind, Run]) -> list[tuple[Kind, Run]]:
        return self.executor.start(DESK, [(kind, run, None) for kind, run in batch])

    async def outcomes(self, number: int) -> dict[Run, Any]:
        await until(lambda: len(self.ended) >= number)
        return {
            item.run: item.settled.outcome if isinstance(item.settled, Settled | Finished) else None
            for item in self.ended
        }


@pytest.fixture
async def executing() -> AsyncIterator[Any]:
    """Makes executors, and closes them."""
    made: list[Executing] = []

    def make(registry: Registry, **options: Any) -> Executing:
        made.append(Executing(registry, **options))
        return made[-1]

    yield make
    for one in made:
        one.executor.close()


def plain() -> None: ...


async def on_loop() -> None: ...


async def _post(context: Any, run: Run) -> Succeeded:
    return Succeeded()


@pytest.mark.parametrize(("kind", "handler"), [(Kind.LOOP, "on_loop"), (Kind.THREAD, "plain")])
async def test_due_run_is_not_recorded_as_started_before_its_due_moment(executing, kind, handler):
    """Our clock is the best bound of ten seconds, and goes back when that one is too old: here since the wheel looked."""
    due = START + timedelta(seconds=5)
    one = executing(registry_of(plain, on_loop))

    one.start((kind, a_run(handler, due_at=due)))

    await one.outcomes(1)
    [item] = one.ended
    assert isinstance(item.settled, Finished)
    assert (item.settled.started, item.settled.finished) == (due.timestamp(), due.timestamp())


@pytest.mark.parametrize(
    ("kind", "handler"), [(Kind.LOOP, "on_loop"), (Kind.THREAD, "plain"), (Kind.WEBHOOK, "@webhook")]
)
async def test_a_run_that_cannot_even_be_prepared_has_failed_with_that_error(executing, monkeypatch, kind, handler):
    def broken(self: Executor, run: Run) -> Settled | None:
        raise OverflowError("too late for words")

    monkeypatch.setattr(Executor, "expired", broken)
    one = executing(registry_of(plain, on_loop), targets=Targets([TargetHandler("@webhook", Kind.WEBHOOK, _post)]))
    run = a_run(handler)
    assert one.start((kind, run)) == []

    [outcome] = (await one.outcomes(1)).values()
    assert isinstance(outcome, Failed)
    assert outcome.reason == "OverflowError: too late for words"
    assert outcome.retryable
    assert not one.executor.is_busy


@pytest.fixture
def no_threads(monkeypatch):
    """As long as it is set, no thread for handlers can be started."""
    real, scarce = threading.Thread.start, threading.Event()
    scarce.set()

    def start(self: threading.Thread) -> None:
        if scarce.is_set() and self.name.startswith("handler"):
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    return scarce


async def test_a_thread_that_cannot_be_started_costs_no_other_run(executing, no_threads):
    one = executing(registry_of(plain, on_loop))
    in_thread, beside, behind = a_run("plain"), a_run("on_loop"), a_run("plain")

    assert one.start((Kind.THREAD, in_thread), (Kind.LOOP, beside), (Kind.THREAD, behind)) == [
        (Kind.THREAD, in_thread),
        (Kind.THREAD, behind),
    ]

    assert await one.outcomes(1) == {beside: Succeeded()}
    assert not one.executor.is_busy


async def test_run_returned_for_lack_of_a_thread_is_not_run_by_the_next_thread(executing, no_threads):
    called = []

    def note(number: int) -> None:
        called.append(number)

    one = executing(registry_of(note))
    given_back, later = a_run("note", payload='{"number": 1}'), a_run("note", payload='{"number": 2}')
    assert one.start((Kind.THREAD, given_back)) == [(Kind.THREAD, given_back)]

    no_threads.clear()
    assert one.start((Kind.THREAD, later)) == []

    assert await one.outcomes(1) == {later: Succeeded()}
    assert called == [2]


async def test_run_that_another_thread_has_already_started_is_not_returned(executing, no_threads):
    """The pool has it in line before it looks for a thread, and those that are there look all the time."""
    taken = threading.Event()

    def note() -> None:
        taken.set()

    def busy() -> None: ...

    no_threads.clear()
    one = executing(registry_of(busy, note))
    one.start((Kind.THREAD, a_run("busy")))
    await one.outcomes(1)
    run = a_run("note")

    pool = one.executor._pool
    real = pool.submit

    def submit(*work: Any) -> Any:
        real(*work)
        assert taken.wait(PATIENCE_SECONDS)
        raise RuntimeError("can't start new thread")

    pool.submit = submit
    assert one.start((Kind.THREAD, run)) == []
    assert (await one.outcomes(2))[run] == Succeeded()


async def test_worker_short_of_threads_returns_runs_unused_and_runs_them_when_it_can(url, store, no_threads):
    async with working(url, registry_of(plain, on_loop), threads=4) as worker:
        run_id, beside = await submitted(store, "plain"), await submitted(store, "on_loop")
        assert await ended(store, beside) == "succeeded"
        await until(lambda: worker.health.running == 1, PATIENCE_SECONDS)  # Its slot is kept for a while.
        no_threads.clear()
        assert await ended(store, run_id) == "succeeded"
        await until(lambda: worker.health.running == 0)

    assert await attempts_of(store, run_id) == [(1, "succeeded")]


@pytest.mark.parametrize("handler", ["on_loop", "plain"])
async def test_an_error_of_ours_before_the_handler_is_called_is_on_record(url, store, monkeypatch, handler):
    def broken(self: Executor, run: Run) -> Settled | None:
        raise OverflowError("too late for words")

    monkeypatch.setattr(Executor, "expired", broken)
    async with working(url, registry_of(plain, on_loop), slots=1, threads=1) as worker:
        run_id = await submitted(store, handler, retry=Retry(1))
        assert await ended(store, run_id) == "dead"
        await until(lambda: worker.health.running == 0)

    found = await runs.find(store, run_id)
    assert found is not None
    assert [attempt["reason"] for attempt in found["attempts"]] == ["OverflowError: too late for words"]
