"""Memory that a worker shares with its heartbeat process, so that it can be read while the interpreter is frozen.

The worker writes when its engine's loop last passed, which runs have started, and since when a handler blocks the
handlers' loop. The heartbeat process writes until when the lease is renewed, and whether it considers the engine stalled.

A run is entered before the worker checks whether it may start it, and stays until its outcome is written. So once the
last moment has passed at which the heartbeat process allowed any start, every run without an entry was not started and
will not be.
"""

from __future__ import annotations

import os
import tempfile
import threading
from mmap import mmap
from struct import Struct
from typing import NamedTuple
from uuid import UUID

CAPACITY = 16_384  # more than can run and wait for their outcome to be written: a full outbox closes the intake
_TICKED, _BLOCKED, _BLOCKER, _OVERFLOWED, _RENEWED, _STALLED = range(0, 48, 8)
_HEADER_BYTES = 64
_NUMBER = Struct("=d")
_ENTRY = Struct("=16sqii")  # run, fence (0: free), thread, whether a handler's own code runs in the worker's process
_AFTER_RUN = Struct("=qii")
_FREE = bytes(_ENTRY.size)


class _Own(threading.local):
    """The id of each thread, cached: the system call would cost more than the entry."""

    def __init__(self) -> None:
        self.thread = threading.get_native_id()


class Started(NamedTuple):
    """A run that has started, and whose outcome is not written yet."""

    run_id: UUID
    fence: int
    thread: int
    is_inside: bool  # user code runs in the worker's process, so it may block it


class SharedState:
    """The shared memory of one life of a worker. Any thread of the worker may write."""

    def __init__(self, shared: int | None = None) -> None:
        """Open the memory that another process shares under a file descriptor, or create it."""
        self._file = _SharedFile(_HEADER_BYTES + CAPACITY * _ENTRY.size, shared)
        self._memory = mmap(self._file.descriptor, _HEADER_BYTES + CAPACITY * _ENTRY.size)
        self._free = [_offset(slot) for slot in range(CAPACITY)] if shared is None else []
        self._offsets: dict[tuple[UUID, int], int] = {}
        self._own = _Own()

    @property
    def descriptor(self) -> int:
        """The descriptor by which another process opens it."""
        return self._file.descriptor

    # ---------------------------------------------------------------------------------------------------- by the worker

    def tick(self, monotonic: float) -> None:
        """Record that the engine's loop has passed."""
        self._write(_TICKED, monotonic)

    def start(self, run_id: UUID, fence: int, *, is_inside: bool) -> None:
        """Enter a run that is about to start, on the thread on which it will."""
        name = (run_id, fence)
        if name in self._offsets:
            return
        try:
            at = self._free.pop()
        except IndexError:
            self._write(_OVERFLOWED, 1.0)  # from here on, which runs have not started is unknown
            return
        self._offsets[name] = at
        self._memory[at : at + _ENTRY.size] = run_id.bytes + _AFTER_RUN.pack(fence, self._own.thread, is_inside)

    def end(self, run_id: UUID, fence: int) -> None:
        """Remove the entry: its outcome is written, or it was not started after all."""
        if (at := self._offsets.pop((run_id, fence), None)) is not None:
            self._memory[at : at + _ENTRY.size] = _FREE
            self._free.append(at)

    def has(self, run_id: UUID, fence: int) -> bool:
        """Return whether a run has an entry: its handler was called, or is about to be."""
        return (run_id, fence) in self._offsets

    def block(self, since: float, run_id: UUID | None, fence: int) -> None:
        """Record since when a handler blocks the handlers' loop, and its run, if known."""
        at = 0 if run_id is None else self._offsets.get((run_id, fence), 0)
        self._write(_BLOCKER, float(at))
        self._write(_BLOCKED, since)

    def unblock(self) -> None:
        """Record that the handlers' loop passes again."""
        self._write(_BLOCKED, 0.0)

    @property
    def is_stalled(self) -> bool:
        """Return whether the heartbeat process considers the engine stalled; it renews the lease all the same."""
        return self._read(_STALLED) > 0

    @property
    def renewed_until(self) -> float:
        """The moment until which the lease is certainly valid, on the monotonic clock that both share."""
        return self._read(_RENEWED)

    # ----------------------------------------------------------------------------------------- by the heartbeat process

    @property
    def ticked_at(self) -> float:
        """Return when the engine's loop last passed."""
        return self._read(_TICKED)

    @property
    def blocked_since(self) -> float | None:
        """The moment since which a handler blocks the handlers' loop; None: nothing blocks it."""
        return self._read(_BLOCKED) or None

    @property
    def blocker(self) -> Started | None:
        """The run whose handler blocks the loop, if known."""
        at = int(self._read(_BLOCKER))
        return self._entry(at) if at else None

    @property
    def is_whole(self) -> bool:
        """Return whether every started run has an entry; otherwise, which runs have not started is unknown."""
        return not self._read(_OVERFLOWED)

    @property
    def started(self) -> list[Started]:
        """The runs that have started."""
        return [entry for slot in range(CAPACITY) if (entry := self._entry(_offset(slot))) is not None]

    def renew(self, until: float) -> None:
        """Record until when the lease is certainly valid."""
        self._write(_RENEWED, until)

    def stall(self, *, is_stalled: bool) -> None:
        """Set whether the engine is considered stalled."""
        self._write(_STALLED, float(is_stalled))

    def _entry(self, at: int) -> Started | None:
        run, fence, thread, is_inside = _ENTRY.unpack_from(self._memory, at)
        return Started(UUID(bytes=run), fence, thread, bool(is_inside)) if fence else None

    def _read(self, at: int) -> float:
        number: float = _NUMBER.unpack_from(self._memory, at)[0]
        return number

    def _write(self, at: int, number: float) -> None:
        _NUMBER.pack_into(self._memory, at, number)


def _offset(slot: int) -> int:
    return _HEADER_BYTES + slot * _ENTRY.size


class _SharedFile:
    """An anonymous file, deleted with its last descriptor. In memory if possible: a disk may be full."""

    def __init__(self, size: int, shared: int | None) -> None:
        if shared is not None:
            self.descriptor = shared
            return
        if hasattr(os, "memfd_create"):
            self.descriptor = os.memfd_create("duly-worker-state")
        else:
            with tempfile.TemporaryFile() as file:
                file.write(bytes(size))
                file.flush()
                self.descriptor = os.dup(file.fileno())
        os.ftruncate(self.descriptor, size)

    def __del__(self) -> None:
        os.close(self.descriptor)
