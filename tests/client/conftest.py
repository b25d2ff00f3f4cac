"""The application behind a real server on loopback, and clients that speak to it."""

import asyncio
import socket

import httpx2
import pytest

from duly.api.server.server import Server
from duly.client import AsyncClient, Client
from tests.api.conftest import application, archive_files, front, kept_sessions, parts, sessions
from tests.client.faults import Proxy

__all__ = ["application", "archive_files", "front", "kept_sessions", "parts", "sessions"]


@pytest.fixture
async def caller(front):
    """Somebody whose key opens everything."""
    return await front.caller()


@pytest.fixture
def transport(front):
    """The application without a network."""
    return httpx2.ASGITransport(front.client._transport.app, raise_app_exceptions=False)


@pytest.fixture
async def client(transport, caller):
    """A client of the application, without a network between."""
    async with AsyncClient("http://duly", caller.key, deadline=5.0, transport=transport) as opened:
        yield opened


@pytest.fixture
async def url(front):
    """Where the application is served."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(front.client._transport.app, listener)
    serving = asyncio.create_task(server.run())
    while not server.started:
        await asyncio.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.stop()
    await serving


@pytest.fixture
async def proxy(url):
    """A way to the server on which answers can be lost."""
    async with Proxy(url) as opened:
        yield opened


@pytest.fixture
async def blocking(url, caller):
    """A client without a loop; its calls are made from another thread, for the server is on this one's loop."""
    opened = Client(url, caller.key, deadline=5.0)
    yield opened
    opened.close()
