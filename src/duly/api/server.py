"""Serving inside a loop that others share, on a socket that is bound already; signals are not ours."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn


class _Guest(uvicorn.Server):
    """A server that leaves signals to whoever owns the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class Server:
    """An HTTP server."""

    def __init__(self, app: Any, listener: socket.socket) -> None:
        self._listener = listener
        self._server = _Guest(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )

    async def run(self) -> None:
        """Serve until stopped."""
        await self._server.serve(sockets=[self._listener])

    @property
    def started(self) -> bool:
        """Whether requests are answered."""
        return self._server.started

    def stop(self) -> None:
        """Ask it to end."""
        self._server.should_exit = True
