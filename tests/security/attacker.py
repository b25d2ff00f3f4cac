"""Somebody without a key who writes bytes to a port, and what that costs the process behind it."""

import json
import re
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any

import msgspec
import psutil

BLOCK = 65_536
GOOD_SECONDS_MAX = 2.0
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


class Answer(msgspec.Struct, frozen=True):
    """What came back before the connection was closed."""

    raw: bytes
    is_closed: bool
    seconds: float
    sent: int

    @property
    def status(self) -> int:
        """The status of the last answer, or 0 if there was none."""
        found = STATUS.findall(self.raw)
        return int(found[-1]) if found else 0

    @property
    def problem(self) -> Any:
        """The problem document of the last answer."""
        last = self.raw[[found.start() for found in STATUS.finditer(self.raw)][-1] :]
        head, _, body = last.partition(b"\r\n\r\n")
        assert b"content-type: application/problem+json" in head, self.raw
        return json.loads(body)


class Cost(msgspec.Struct):
    """What a process has used up meanwhile."""

    cpu_seconds: float = 0.0
    mebibytes: float = 0.0


class Target:
    """A server, where it is and which process it is."""

    def __init__(self, port: int, process: psutil.Process, key: str | None = None) -> None:
        self.port = port
        self.process = process
        self.key = key

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        """Open a connection from an address of this machine."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=5, source_address=(source, 0))

    def send(self, begin: bytes, piece: bytes = b"", seconds: float = 8.0, bytes_max: int = 16 << 20) -> Answer:
        """Write something, and a piece of it again and again, as fast as it is taken, until the other end closes."""
        with self.connect() as connection:
            return flood(connection, begin, piece, seconds, bytes_max)

    def ask(self, request: bytes) -> Answer:
        """Write one request, which closes the connection, and read its answer."""
        return self.send(request, seconds=20.0)

    def good(self, path: str = "/livez", source: str = "127.0.0.1") -> float:
        """Ask as a well-behaved client does; gives how long the answer took."""
        began = time.monotonic()
        with self.connect(source) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: duly\r\nConnection: close\r\n\r\n".encode())
            answer = b"".join(iter(lambda: connection.recv(BLOCK), b""))
        assert answer.startswith(b"HTTP/1.1 200 "), answer[:300]
        return time.monotonic() - began

    def descriptors(self) -> int:
        """Count the descriptors that the process has open."""
        return int(self.process.num_fds())

    @contextmanager
    def measured(self) -> Iterator[Cost]:
        """Measure what an attack costs."""
        cost, cpu, memory = Cost(), self._cpu(), self.process.memory_info().rss
        yield cost
        cost.cpu_seconds = self._cpu() - cpu
        cost.mebibytes = (self.process.memory_info().rss - memory) / 2**20

    def _cpu(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


def flood(connection: socket.socket, begin: bytes, piece: bytes, seconds: float, bytes_max: int = 1 << 40) -> Answer:
    """Write `begin`, and `piece` again and again, until the other end closes."""
    connection.setblocking(False)
    began, deadline = time.monotonic(), time.monotonic() + seconds
    pieces = repeat(piece * max(1, BLOCK // len(piece))) if piece else iter(())
    waiting, sent, raw, is_closed = begin, 0, b"", False
    while not is_closed and time.monotonic() < deadline and sent < bytes_max:
        waiting = waiting or next(pieces, b"")
        readable, writable, _ = select.select([connection], [connection] if waiting else [], [], 0.2)
        try:
            if writable:
                size = connection.send(waiting)
                waiting, sent = waiting[size:], sent + size
            if readable:
                came = connection.recv(BLOCK)
                raw, is_closed = raw + came, not came
        except OSError:
            is_closed = True
            raw += rest(connection)
    return Answer(raw, is_closed, time.monotonic() - began, sent)


def rest(connection: socket.socket) -> bytes:
    """Read what had come before the other end closed."""
    try:
        return connection.recv(BLOCK)
    except OSError:
        return b""


def http_process(parent: int) -> psutil.Process:
    """Find the process that serves HTTP for a `duly up`."""
    [found] = [one for one in psutil.Process(parent).children() if "duly.cli.up.http_process" in one.cmdline()]
    return found
