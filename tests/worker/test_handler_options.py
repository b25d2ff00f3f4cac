"""A handler's own retry and timeout hold for runs that were submitted without a word about them."""

from uuid import UUID

from duly.clock import Rng
from duly.domain.runs.options import options_of
from duly.domain.runs.retry import Retry
from duly.log import Log
from duly.maintenance.reaper import Reaper
from duly.moves.claim import claim
from duly.moves.dead import replay
from duly.store.connection.database import Database
from duly.store.tables import workers
from duly.worker.context import RunContext, Snooze
from duly.worker.handlers import Handler, Registry
from tests.worker.stories import a_registered_worker, attempts_of, ended, state_of, working


def failing_once() -> Registry:
    registry = Registry()

    async def fail() -> None:
        raise ValueError("broken")

    registry.add(Handler(fail, options=options_of(retry=Retry(max_attempts=1))))
    return registry


async def test_a_plain_sql_submit_gets_the_handlers_own_retry(url, store):
    async with working(url, failing_once()):
        run_id = await store.fetchval("select duly.submit('fail')")
        assert await ended(store, run_id) == "dead"
        assert len(await attempts_of(store, run_id)) == 1


async def test_submitted_options_override_the_handler_options(url, store):
    options = '{"retry": {"max_attempts": 2, "base_seconds": 0, "cap_seconds": 0}}'
    async with working(url, failing_once()):
        run_id = await store.fetchval("select duly.submit('fail', options => $1::text::jsonb)", options)
        assert await ended(store, run_id) == "dead"
        assert len(await attempts_of(store, run_id)) == 2


async def test_a_key_that_the_engine_adds_leaves_retries_to_the_handler(url, store):
    run_id = await store.fetchval("select duly.submit('fail')")
    await store.execute("""update duly.ready set options = '{"missed": 2, "rearm": true}'""")

    async with working(url, failing_once()):
        assert await ended(store, run_id) == "dead"

    assert len(await attempts_of(store, run_id)) == 1


async def test_run_with_metadata_only_keeps_the_handler_options_and_gets_its_metadata(url, store):
    seen = []

    def fail(run: RunContext) -> None:
        seen.append((run.attempt, run.tags, run.request_id, run.traceparent))
        raise ValueError("broken")

    registry = Registry()
    registry.add(Handler(fail, options=options_of(retry=Retry(max_attempts=2, base_seconds=0, cap_seconds=0))))
    async with working(url, registry):
        marks = '{"tags": ["new"], "request_id": "r-7"}'
        run_id = await store.fetchval("select duly.submit('fail', options => $1::text::jsonb)", marks)
        assert await ended(store, run_id) == "dead"

    assert seen == [(1, ("new",), "r-7", None), (2, ("new",), "r-7", None)]


def allowing(max_attempts: int, called: list[int]) -> Registry:
    """Give a handler that allows so many attempts and notes their numbers; where it is told to, it snoozes first."""

    async def work(run: RunContext, snooze: bool = False) -> None:
        called.append(run.attempt)
        if snooze and len(called) == 1:
            raise Snooze(0.1)

    registry = Registry()
    registry.add(Handler(work, options=options_of(retry=Retry(max_attempts=max_attempts))))
    return registry


async def lost_beside_a_worker(store: Database, run_id: UUID) -> None:
    """Let a worker that had started a run be lost, and the run be moved on for it."""
    worker_id = await a_registered_worker(store)
    [run] = await claim(store, worker_id, ["default"], ["work"], 1)
    assert run.run_id == run_id
    await store.execute("delete from duly.workers where worker_id = $1", worker_id)
    await workers.depart(store, worker_id)
    await Reaper(store, rng=Rng(1), log=Log("reaper")).step()
    await store.execute(
        "update duly.ready set due_at = greatest(scheduled_at, duly.clock_now())"
    )  # Now, not in a second.


class TestLosses:
    """Whoever settles for a worker that is gone knows no handlers; the next worker does, before it calls one."""

    async def test_a_handler_that_allows_one_attempt_is_not_called_again_after_a_loss(self, url, store):
        called: list[int] = []
        run_id = await store.fetchval("select duly.submit('work')")
        await lost_beside_a_worker(store, run_id)

        async with working(url, allowing(1, called)):
            assert await ended(store, run_id) == "dead"

        assert called == []
        assert await attempts_of(store, run_id) == [(1, "lost"), (1, "skipped")]
        [dead] = await store.fetch("select attempt, reason, suspect from duly.dead")
        assert tuple(dead) == (1, "worker lost; its handler allows 1 attempt", True)

    async def test_handler_that_allows_two_attempts_is_called_again_after_a_loss(self, url, store):
        called: list[int] = []
        run_id = await store.fetchval("select duly.submit('work')")
        await lost_beside_a_worker(store, run_id)

        async with working(url, allowing(2, called)):
            assert await ended(store, run_id) == "succeeded"

        assert called == [2]

    async def test_submitted_attempts_override_those_of_the_handler_after_a_loss(self, url, store):
        called: list[int] = []
        options = '{"retry": {"max_attempts": 2}}'
        run_id = await store.fetchval("select duly.submit('work', options => $1::text::jsonb)", options)
        await lost_beside_a_worker(store, run_id)

        async with working(url, allowing(1, called)):
            assert await ended(store, run_id) == "succeeded"

        assert called == [2]

    async def test_a_replay_gives_it_its_attempts_anew_and_numbers_go_on(self, url, store):
        called: list[int] = []
        run_id = await store.fetchval("select duly.submit('work')")
        await lost_beside_a_worker(store, run_id)

        async with working(url, allowing(1, called)):
            assert await ended(store, run_id) == "dead"
            assert await replay(store, [run_id]) == [run_id]
            assert await ended(store, run_id) == "succeeded"

        assert called == [2]

    async def test_a_snooze_is_no_attempt_that_counts(self, url, store):
        called: list[int] = []
        run_id = await store.fetchval("""select duly.submit('work', '{"snooze": true}')""")

        async with working(url, allowing(1, called)):
            assert await ended(store, run_id) == "succeeded"

        assert called == [1, 2]

    async def test_returned_run_has_used_no_attempt(self, url, store):
        called: list[int] = []
        worker_id = await a_registered_worker(store)
        run_id = await store.fetchval("select duly.submit('work')")
        assert await claim(store, worker_id, ["default"], ["work"], 1)
        await workers.leave(store, worker_id, [])
        assert await state_of(store, run_id) == "ready"

        async with working(url, allowing(1, called)):
            assert await ended(store, run_id) == "succeeded"

        assert called == [1]
