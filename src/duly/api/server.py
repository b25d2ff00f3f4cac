"""Serving inside a loop that others share, on a socket that is bound already; signals are not ours."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from duly.api.listening import Tls


class _Guest(uvicorn.Server):
    """A server that leaves signals to whoever owns the process."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class Server:
    """An HTTP server, with TLS if it is given a certificate."""

    def __init__(self, app: Any, listener: socket.socket, tls: Tls | None = None) -> None:
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
                ssl_certfile=None if tls is None else tls.certificate,
                ssl_keyfile=None if tls is None else tls.key,
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
