"""The line to the caller: a long poll asks whether anybody still waits at its other end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

Receive = Callable[[], Awaitable[Any]]

# Set for each request; nothing but a long poll asks for it.
receive: ContextVar[Receive] = ContextVar("receive")


@asynccontextmanager
async def watched() -> AsyncIterator[asyncio.Task[None]]:
    """Give a task that is done when the caller has hung up. The request's body must have been read."""
    watch = asyncio.create_task(_hang_up(receive.get()), name="duly-line")
    try:
        yield watch
    finally:
        watch.cancel()


async def _hang_up(ask: Receive) -> None:
    while (await ask())["type"] != "http.disconnect":
        pass
