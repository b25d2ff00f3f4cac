"""A process's own `/metrics`, `/livez` and `/readyz`, for a worker or a scheduler: served by a thread of its own.

The loops of the process may hang, and a handler may hold the interpreter for a while: this answers all the same, and says so.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from duly import __version__
from duly.api.health import Check
from duly.api.metrics.collector import LOOK_SECONDS, Collector, Metrics
from duly.api.server.server import Server
from duly.domain.errors import DulyError
from duly.log import Log
from duly.store.connection.database import Database

# Scrapers come alone; the limit keeps strangers from using up the process's descriptors.
_CONNECTIONS_MAX, _CONNECTIONS_PER_ADDRESS_MAX = 64, 32
_STOP_SECONDS = 2.0


def metrics_server(app: Any, listener: socket.socket) -> Server:
    """Build a metrics server for one process."""
    return Server(
        app,
        listener,
        connections_max=_CONNECTIONS_MAX,
        connections_per_address_max=_CONNECTIONS_PER_ADDRESS_MAX,
    )


class RoleServer:
    """Serves the figures of one process, and of the installation, on a bound socket and a connection of its own."""

    def __init__(
        self,
        listener: socket.socket,
        database: Database,
        collector: Collector,
        checks: Callable[[], list[Check]],
        age_limit: timedelta,
    ) -> None:
        self._database = database
        self._log = Log("metrics")
        self._metrics = metrics = Metrics(database, self._log, age_limit)
        metrics.add(collector)

        async def answer(scope: Any, receive: Any, send: Any) -> None:
            status, content_type, body = await _answer(scope, metrics, checks)
            headers = [
                (b"content-type", content_type.encode()),
                (b"content-length", b"%d" % len(body)),
                (b"cache-control", b"no-store"),
            ]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

        self._server = metrics_server(answer, listener)
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and close the port."""
        self._server.stop()
        self._thread.join(_STOP_SECONDS)

    def _serve(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        looking = asyncio.create_task(self._keep_looking())
        try:
            await self._server.run()
        finally:
            looking.cancel()
            await asyncio.wait({looking})

    async def _keep_looking(self) -> None:
        """Look at the installation for ever; a database that cannot be used is tried again."""
        while True:
            try:
                async with self._database:
                    await self._metrics.run()
            except DulyError as error:
                self._log.warning("metrics_stale", error=str(error))
            await self._database.clock.sleep(LOOK_SECONDS)


async def _answer(scope: Any, metrics: Metrics, checks: Callable[[], list[Check]]) -> tuple[int, str, bytes]:
    """Return the status, the content type and the body of an answer."""
    path, query = scope["path"], scope["query_string"].decode("latin-1")
    if scope["method"] not in ("GET", "HEAD"):
        return (
            405,
            "application/json",
            msgspec.json.encode({"status": "method not allowed", "methods": ["GET", "HEAD"]}),
        )
    if path == "/metrics":
        accept = next((value for name, value in scope["headers"] if name == b"accept"), b"")
        body, content_type = await metrics.scrape(accept.decode("latin-1"))
        return 200, content_type, body
    if path in ("/livez", "/healthz"):
        return 200, "application/json", msgspec.json.encode({"status": "alive", "version": __version__})
    if path == "/readyz":
        found = checks()
        failing = [check.name for check in found if not check.ok]
        reported: dict[str, object] = {"status": "not ready" if failing else "ready", "failing": failing}
        if query.split("&")[0].split("=")[0] == "verbose":
            reported["checks"] = found
        return 503 if failing else 200, "application/json", msgspec.json.encode(reported)
    return (
        404,
        "application/json",
        msgspec.json.encode({"status": "not found", "paths": ["/metrics", "/livez", "/readyz"]}),
    )
