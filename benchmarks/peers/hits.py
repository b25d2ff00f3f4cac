"""The moments at which handlers start, recorded by worker processes in mapped files that the measuring process reads.

A file holds a counter and then one number for each start: the moment minus the reference that travelled as the job's argument.
Recording takes a microsecond or two, and observing costs the measured system nothing. `graphile_worker.cjs` writes the same
files.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from threading import Lock
from time import monotonic, time

FOLDER = "PEERS_HITS"
_SLOT = 8
_STARTS_MAX = 200_000  # of one process
_BYTES = _SLOT * (_STARTS_MAX + 1)
_LOOK_SECONDS = 0.02


class _Recorder:
    """The file of this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        path = Path(os.environ[FOLDER], f"{self.pid}.hits")
        with path.open("wb") as file:
            file.truncate(_BYTES)
        self._map = _mapped(path)
        self._count = 0

    def add(self, seconds: float) -> None:
        self._count += 1
        struct.pack_into("d", self._map, _SLOT * self._count, seconds)
        struct.pack_into("q", self._map, 0, self._count)


_recorder: _Recorder | None = None
_lock = Lock()


def hit(reference: float) -> None:
    """Record that a handler starts: the whole work of each handler. Safe in threads and after a fork."""
    global _recorder
    now = time()
    with _lock:
        if _recorder is None or _recorder.pid != os.getpid():
            _recorder = _Recorder()
        _recorder.add(now - reference)


class Hits:
    """All starts of one generation of workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._maps: dict[Path, mmap.mmap] = {}
        self._looked_at = 0.0

    def count(self) -> int:
        """Return how many handlers have started. Cheap: new processes are looked for only now and then."""
        if monotonic() > self._looked_at + _LOOK_SECONDS:
            self._looked_at = monotonic()
            for path in self.folder.glob("*.hits"):
                if path not in self._maps and path.stat().st_size == _BYTES:
                    self._maps[path] = _mapped(path)
        return sum(map(_count_of, self._maps.values()))

    def seen(self) -> dict[Path, int]:
        """Return how many handlers have started in each process, for `since`."""
        return {path: _count_of(found) for path, found in self._maps.items()}

    def since(self, seen: dict[Path, int]) -> list[float]:
        """Return what was recorded after `seen`: for each start the seconds since its reference."""
        recorded: list[float] = []
        for path, found in self._maps.items():
            skipped = seen.get(path, 0)
            number = _count_of(found) - skipped
            recorded += struct.unpack_from(f"{number}d", found, _SLOT * (skipped + 1))
        return recorded


def _mapped(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), _BYTES)


def _count_of(found: mmap.mmap) -> int:
    count: int = struct.unpack_from("q", found, 0)[0]
    return count
