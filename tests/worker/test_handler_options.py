"""A handler's own retry and timeout hold for runs that were submitted without a word about them."""

from duly.domain.retry import Retry
from duly.domain.run import Options
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
