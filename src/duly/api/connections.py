"""The connections of a server: at most so many in all, and of one address.

A connection *waits* while no request of it is being answered: it is idle, or its next request is still arriving. When there is no
room for a new connection, the one that has waited longest is closed for it: of the same address where that has reached its limit,
else of the address that has most. So whoever sends a whole request soon is served beside any number of those who do not. A
connection on which a request is being answered is never closed for another: when all are, the new one is refused.
"""

from __future__ import annotations

import socket
from typing import Protocol

Address = bytes | str

_MAPPED = bytes(10) + b"\xff\xff"
_TICK_SECONDS_MAX = 1.0


class Connection(Protocol):
    """What is counted."""

    address: Address

    def give_way(self) -> None:
        """Close, because another needs the place."""
        ...

    def check(self, now: float) -> None:
        """Close if the peer has taken too long."""
        ...


class Connections:
    """Counts the connections of a server and closes those that take too long.

    `now` is the time by which they are measured: it stands still while this process does, because a peer is not late when nobody
    has read what it sent.
    """

    def __init__(self, most: int, most_per_address: int) -> None:
        self._most = most
        self._most_per_address = most_per_address
        self._open: dict[Connection, None] = {}
        # Of each address: how many are open, and which of them wait, the longest first.
        self._count: dict[Address, int] = {}
        self._waiting: dict[Address, dict[Connection, None]] = {}
        self.now = 0.0
        self._looked_at: float | None = None

    def __len__(self) -> int:
        return len(self._open)

    def make_room(self, address: Address) -> bool:
        """Say whether another connection of this address may be opened, after one that waits was closed if that helps."""
        if self._count.get(address, 0) >= self._most_per_address:
            return self._close_longest_waiting(address)
        if len(self._open) >= self._most:
            most = max(self._waiting, key=lambda one: self._count[one], default=None)
            return most is not None and self._close_longest_waiting(most)
        return True

    def add(self, connection: Connection) -> None:
        """Count a connection; it waits."""
        self._open[connection] = None
        self._count[connection.address] = self._count.get(connection.address, 0) + 1
        self.wait(connection)

    def remove(self, connection: Connection) -> None:
        """Count it no longer."""
        if connection not in self._open:
            return
        del self._open[connection]
        self.serve(connection)
        self._count[connection.address] -= 1
        if not self._count[connection.address]:
            del self._count[connection.address]

    def wait(self, connection: Connection) -> None:
        """Note that no request of it is being answered."""
        if connection in self._open:
            self._waiting.setdefault(connection.address, {})[connection] = None

    def serve(self, connection: Connection) -> None:
        """Note that a request of it is being answered."""
        waiting = self._waiting.get(connection.address)
        if waiting is not None:
            waiting.pop(connection, None)
            if not waiting:
                del self._waiting[connection.address]

    def check(self, monotonic: float) -> None:
        """Close what has taken too long."""
        if self._looked_at is not None:
            self.now += min(monotonic - self._looked_at, _TICK_SECONDS_MAX)
        self._looked_at = monotonic
        for connection in list(self._open):
            connection.check(self.now)

    def _close_longest_waiting(self, address: Address) -> bool:
        waiting = self._waiting.get(address)
        if not waiting:
            return False
        connection = next(iter(waiting))
        connection.give_way()
        self.remove(connection)
        return True


def address_of_peer(peer: tuple[str, int] | tuple[str, int, int, int]) -> Address:
    """Give what counts as one address: of IPv6 a network of 64 bits, because whoever has one address has all of them."""
    host = peer[0]
    if ":" not in host:
        return host
    packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
    return socket.inet_ntop(socket.AF_INET, packed[12:]) if packed.startswith(_MAPPED) else packed[:8]
