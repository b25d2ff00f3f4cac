"""The whole worker, in this process, on a real database."""

from tests.worker.stories import attempts_of, ended, registry_of, submitted, working


async def test_an_async_handler_runs_and_its_result_is_kept(url, store):
    async def add(a: int, b: int) -> int:
        return a + b

    async with working(url, registry_of(add)):
        run_id = await submitted(store, "add", payload={"a": 2, "b": 3})
        assert await ended(store, run_id) == "succeeded"

    assert await attempts_of(store, run_id) == [(1, "succeeded")]
