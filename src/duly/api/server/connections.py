"""The connections of a server: at most so many in all, and of one address.

A connection *waits* while no request of it is being answered: it is idle, or its next request is still arriving. When there is no
room for a new connection, the one that has waited longest is closed for it: of the same address where that has reached its limit,
else of the address that has most. So a client that sends a whole request soon is served beside any number of clients that do not.
A connection on which a request is being answered is never closed for another: when all are, the new one is refused.
"""

from __future__ import annotations

import socket
from typing import Protocol

Address = bytes | str

_MAPPED = bytes(10) + b"\xff\xff"
_TICK_SECONDS_MAX = 1.0


class Peer:
    """An address, and its connections: how many are open, and which of them wait, the longest first."""

    __slots__ = ("address", "open", "waiting")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.open = 0
        self.waiting: dict[Connection, None] = {}


class Connection(Protocol):
    """A counted connection."""

    peer: Peer

    def give_way(self) -> None:
        """Close, to make room for another."""
        ...

    def check(self, now: float) -> None:
        """Close if the peer has taken too long."""
        ...


class Connections:
    """Counts the connections of a server and closes those that take too long.

    `now` is the time by which they are measured: it stops while this process does, because a peer is not late when its bytes
    have not been read.
    """

    def __init__(self, most: int, most_per_address: int) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._open: dict[Connection, None] = {}
        self._peers: dict[Address, Peer] = {}
        self.now = 0.0
        self._looked_at: float | None = None

    def make_room(self, address: Address) -> Peer | None:
        """Return the peer that may open another connection, after one that waits was closed if need be; None if it may not."""
        peer = self._peers.get(address) or Peer(address)
        if peer.open >= self._most_per_address:
            return peer if _close_longest_waiting(peer) else None
        if len(self._open) >= self._most:
            most = max(self._peers.values(), key=lambda one: one.open if one.waiting else 0)
            return peer if _close_longest_waiting(most) else None
        return peer

    def add(self, connection: Connection) -> None:
        """Add a waiting connection."""
        peer = self._peers.setdefault(connection.peer.address, connection.peer)
        connection.peer = peer
        self._open[connection] = None
        peer.open += 1
        peer.waiting[connection] = None

    def remove(self, connection: Connection) -> None:
        """Remove it."""
        if connection not in self._open:
            return
        peer = connection.peer
        del self._open[connection]
        peer.waiting.pop(connection, None)
        peer.open -= 1
        if not peer.open:
            del self._peers[peer.address]

    def check(self, monotonic: float) -> None:
        """Close connections that have taken too long."""
        if self._looked_at is not None:
            self.now += min(monotonic - self._looked_at, _TICK_SECONDS_MAX)
        self._looked_at = monotonic
        for connection in list(self._open):
            connection.check(self.now)


def _close_longest_waiting(peer: Peer) -> bool:
    connection = next(iter(peer.waiting), None)
    if connection is None:
        return False
    connection.give_way()
    return True


def group_of(host: str) -> Address:
    """Return what counts as one address: of IPv6 a network of 64 bits, because a client with one address has all of them."""
    if ":" not in host:
        return host
    packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    return socket.inet_ntop(socket.AF_INET, packed[12:]) if packed.startswith(_MAPPED) else packed[:8]
