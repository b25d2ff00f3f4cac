"""A process's own `/metrics`, `/livez` and `/readyz`, for a worker or a scheduler: served by threads of its own.

The loops of the process may hang, and a handler may hold the interpreter for a while: this answers all the same, and says so.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from duly import __version__
from duly.api.health import Check

_REQUEST_SECONDS_MAX = 5.0
_POLL_SECONDS = 0.1  # whether to stop


class RoleServer:
    """Serves the figures of one process on a socket that is bound already."""

    def __init__(
        self, listener: socket.socket, collectors: Sequence[Collector], checks: Callable[[], list[Check]]
    ) -> None:
        registry = CollectorRegistry(auto_describe=False)
        for collector in collectors:
            registry.register(collector)

        class Answering(_Answering):
            def answer_of(self) -> tuple[int, str, bytes]:
                return _answer(self.path, self.headers.get("Accept", ""), registry, checks)

        self._server = ThreadingHTTPServer(listener.getsockname()[:2], Answering, bind_and_activate=False)
        self._server.daemon_threads = True
        self._server.socket.close()
        self._server.socket = listener
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="metrics", daemon=True
        )

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """End, and let the port go."""
        self._server.shutdown()
        self._server.server_close()


class _Answering(BaseHTTPRequestHandler):
    timeout = _REQUEST_SECONDS_MAX
    server_version, sys_version = "duly", ""

    def answer_of(self) -> tuple[int, str, bytes]:
        """Return the status, the content type and the body of the answer."""
        raise NotImplementedError

    def do_GET(self) -> None:
        """Answer, with a body unless only the head was asked for."""
        status, content_type, body = self.answer_of()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Log no request."""


def _answer(
    target: str, accept: str, registry: CollectorRegistry, checks: Callable[[], list[Check]]
) -> tuple[int, str, bytes]:
    path, _, query = target.partition("?")
    if path == "/metrics":
        encode, content_type = choose_encoder(accept)
        return 200, content_type, encode(registry)
    if path in ("/livez", "/healthz"):
        return 200, "application/json", msgspec.json.encode({"status": "alive", "version": __version__})
    if path == "/readyz":
        found = checks()
        failing = [check.name for check in found if not check.ok]
        told: dict[str, object] = {"status": "not ready" if failing else "ready", "failing": failing}
        if query.split("&")[0].split("=")[0] == "verbose":
            told["checks"] = found
        return 503 if failing else 200, "application/json", msgspec.json.encode(told)
    return (
        404,
        "application/json",
        msgspec.json.encode({"status": "not found", "paths": ["/metrics", "/livez", "/readyz"]}),
    )
