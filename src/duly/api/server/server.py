"""The HTTP server, inside a loop that others share and on a bound socket; it handles no signals.

Connections are accepted here and not by the loop, so that they are counted before TLS is spoken.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import uvicorn

from duly.api.server.connections import Connections, Peer, group_of
from duly.api.server.file_descriptors import left_for_connections
from duly.api.server.listen import Tls
from duly.api.server.protocol import (
    HEAD_SECONDS_MAX,
    KEEP_ALIVE_SECONDS,
    WRITE_SECONDS,
    BoundedProtocol,
    refusal,
)
from duly.clock import Rng

CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX = 1_000, 250
_ACCEPTED_MAX = 64
_PAUSE_SECONDS = 0.1


class _EmbeddedServer(uvicorn.Server):
    """A server that leaves signals to the owner of the process."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, connections: Connections) -> None:
        super().__init__(config)
        self._listener = listener
        self._connections = connections
        self._connecting: set[asyncio.Task[Any]] = set()
        self._rng = Rng()
        self.on_start: Callable[[], None] | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept."""
        await self.lifespan.startup()
        self.servers = []
        self._loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener.fileno(), self._accept)
        self.started = True
        if self.on_start is not None:
            self.on_start()

    async def on_tick(self, counter: int) -> bool:
        """Look after the connections, ten times a second."""
        self._connections.check(self._loop.time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and let what is being answered end."""
        self._loop.remove_reader(self._listener.fileno())
        for task in list(self._connecting):
            task.cancel()
        await super().shutdown(sockets=[self._listener])

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_MAX):
            try:
                accepted, name = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # The system has no room for more; waiting connections are accepted when it has.
                self._loop.remove_reader(self._listener.fileno())
                self._loop.call_later(_PAUSE_SECONDS, self._resume_accepting)
                return
            peer = self._connections.make_room(group_of(name[0]) if name else "")  # A local socket has no address.
            if peer is not None:
                self._connect(accepted, peer)
            else:
                self._refuse(accepted)

    def _resume_accepting(self) -> None:
        if not self.should_exit:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _connect(self, accepted: socket.socket, peer: Peer) -> None:
        accepted.setblocking(False)
        if accepted.family != socket.AF_UNIX:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        protocol = BoundedProtocol(
            self._connections,
            peer,
            self._rng,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=self._loop,
        )
        self._connections.add(protocol)
        task = protocol.connecting = self._loop.create_task(self._attach(accepted, protocol))
        self._connecting.add(task)
        task.add_done_callback(partial(self._attached, accepted, protocol))

    async def _attach(self, accepted: socket.socket, protocol: BoundedProtocol) -> None:
        """Pass a connection to the loop, over TLS if configured. Raises OSError."""
        tls = self.config.ssl
        limits = {"ssl_handshake_timeout": HEAD_SECONDS_MAX, "ssl_shutdown_timeout": WRITE_SECONDS} if tls else {}
        await self._loop.connect_accepted_socket(lambda: protocol, accepted, ssl=tls, **limits)

    def _attached(self, accepted: socket.socket, protocol: BoundedProtocol, task: asyncio.Task[None]) -> None:
        self._connecting.discard(task)
        if task.cancelled() or task.exception() is not None:  # It has hung up, speaks no TLS, or had to give way.
            self._connections.remove(protocol)
            with suppress(OSError):
                accepted.shutdown(socket.SHUT_RDWR)
            accepted.close()

    def _refuse(self, accepted: socket.socket) -> None:
        """Refuse a connection because all others are in use."""
        with accepted, suppress(OSError):
            if self.config.ssl is None:
                accepted.setblocking(False)
                accepted.send(refusal("too_many_connections", "Every connection is in use.", self._rng))


class Server:
    """An HTTP server, with TLS if it is given a certificate."""

    def __init__(
        self,
        app: Any,
        listener: socket.socket,
        tls: Tls | None = None,
        *,
        connections_max: int = CONNECTIONS_MAX,
        connections_per_address_max: int = CONNECTIONS_PER_ADDRESS_MAX,
    ) -> None:
        config = uvicorn.Config(
            app,
            http=BoundedProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # Nothing here reads where a request was before.
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=1,
            ssl_certfile=None if tls is None else tls.certificate,
            ssl_keyfile=None if tls is None else tls.key,
        )
        most = min(connections_max, left_for_connections())
        self._server = _EmbeddedServer(config, listener, Connections(most, min(most, connections_per_address_max)))

    async def run(self, on_start: Callable[[], None] | None = None) -> None:
        """Serve until stopped; `on_start` is called as soon as requests are answered."""
        self._server.on_start = on_start
        await self._server.serve()

    @property
    def started(self) -> bool:
        """Return whether requests are answered."""
        return self._server.started

    def stop(self) -> None:
        """Ask it to end."""
        self._server.should_exit = True
