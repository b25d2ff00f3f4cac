"""A handler's own retry and timeout hold for runs that were submitted without a word about them."""

from duly.domain.retry import Retry
from duly.domain.run import Options
from duly.worker.context import RunContext
from duly.worker.handlers import Handler, Registry
from tests.worker.stories import attempts_of, ended, working


def failing_once() -> Registry:
    registry = Registry()

    async def fail() -> None:
        raise ValueError("broken")

    registry.add(Handler(fail, options=Options(retry=Retry(max_attempts=1))))
    return registry


async def test_a_plain_sql_submit_gets_the_handlers_own_retry(url, store):
    async with working(url, failing_once()):
        run_id = await store.fetchval("select duly.submit('fail')")
        assert await ended(store, run_id) == "dead"
        assert len(await attempts_of(store, run_id)) == 1


async def test_what_was_said_at_submit_wins(url, store):
    options = '{"retry": {"max_attempts": 2, "base_seconds": 0, "cap_seconds": 0}}'
    async with working(url, failing_once()):
        run_id = await store.fetchval("select duly.submit('fail', options => $1::text::jsonb)", options)
        assert await ended(store, run_id) == "dead"
        assert len(await attempts_of(store, run_id)) == 2


async def test_a_run_that_is_only_marked_keeps_its_handlers_own_options_and_is_handed_its_marks(url, store):
    seen = []

    def fail(run: RunContext) -> None:
        seen.append((run.attempt, run.tags, run.request_id, run.traceparent))
        raise ValueError("broken")

    registry = Registry()
    registry.add(Handler(fail, options=Options(retry=Retry(max_attempts=2, base_seconds=0, cap_seconds=0))))
    async with working(url, registry):
        marks = '{"tags": ["new"], "request_id": "r-7"}'
        run_id = await store.fetchval("select duly.submit('fail', options => $1::text::jsonb)", marks)
        assert await ended(store, run_id) == "dead"

    assert seen == [(1, ("new",), "r-7", None), (2, ("new",), "r-7", None)]
