"""A database that goes away while somebody waits for a run."""

import asyncio

import pytest

from duly import App
from duly.sdk import waiting
from duly.store.connection.database import Unavailable
from tests.outage import a_server, away
from tests.worker.stories import registry_of, working


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with a_server(tmp_path_factory.mktemp("restart")) as running:
        yield running


@pytest.fixture
async def greet(server):
    async with App(server.url) as app:

        @app.handler
        async def greet(name: str) -> str:
            return name

        yield greet
        app.close_sync()


async def test_waiting_for_a_result_outlasts_a_restart(server, greet):
    finish = asyncio.Event()

    async def work(name: str) -> str:
        await finish.wait()
        return f"hello {name}"

    work.__name__ = "greet"
    async with working(server.url, registry_of(work)):
        handle = await greet.submit("world")
        waited = [
            asyncio.create_task(handle.result()),
            asyncio.create_task(handle.result(timeout=60)),
            asyncio.create_task(asyncio.to_thread(handle.result_sync)),
        ]
        await asyncio.sleep(0.2)
        async with away(server):
            finish.set()
            await asyncio.sleep(0.5)
            assert not any(one.done() for one in waited)
        assert await asyncio.gather(*waited) == ["hello world"] * 3


async def test_waiting_ends_at_its_deadline_or_after_a_long_silence(server, greet, monkeypatch):
    handle = await greet.submit("world")
    monkeypatch.setattr(waiting, "_SILENCE_SECONDS_MAX", 0.3)
    async with away(server):
        with pytest.raises(
            TimeoutError, match=r"is in a state that we cannot know \(the database did not respond: .* after"
        ):
            await handle.result(timeout=0.5)
        with pytest.raises(Unavailable, match=r"did not respond: .*for 0 s\. run .* of greet goes on without us"):
            await handle.result()
    assert await handle.status() == "ready"
