"""Captured output: a child process's standard output and error, line by line, into the run's log.

The two descriptors themselves are redirected to pipes while a handler runs, so that the output of C code and of
processes that it starts is captured too. Output after the handler has ended belongs to no run, and is dropped.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STREAMS = {"stdout": 1, "stderr": 2}
LINE_BYTES_MAX = 8_192  # a longer line is split
_READ_BYTES = 65_536
_LAST_WORDS_SECONDS = 0.25

Say = Callable[[str, str], None]


@contextmanager
def captured(say: Say) -> Iterator[None]:
    """Pass each line that is written in the block to `say`, with the name of its stream."""
    listeners = [_Listener(name, descriptor, say) for name, descriptor in STREAMS.items()]
    try:
        yield
    finally:
        for listener in listeners:
            listener.close()


class _Listener:
    """One stream, redirected to a pipe and read by a thread."""

    def __init__(self, name: str, descriptor: int, say: Say) -> None:
        self._name = name
        self._descriptor = descriptor
        self._say = say
        self._is_open = True
        self._lock = threading.Lock()
        _flush(name)
        self._before = os.dup(descriptor)
        self._pipe, into = os.pipe()
        os.dup2(into, descriptor)
        os.close(into)
        self._thread = threading.Thread(target=self._listen, name=f"captured-{name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Restore the stream, and read the rest. A process left behind is not waited for."""
        _flush(self._name)
        os.dup2(self._before, self._descriptor)
        os.close(self._before)
        self._thread.join(_LAST_WORDS_SECONDS)
        with self._lock:
            self._is_open = False

    def _listen(self) -> None:
        rest = b""
        while data := os.read(self._pipe, _READ_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._emit(line)
            while len(rest) > LINE_BYTES_MAX:
                self._emit(rest[:LINE_BYTES_MAX])
                rest = rest[LINE_BYTES_MAX:]
        if rest:
            self._emit(rest)
        os.close(self._pipe)

    def _emit(self, line: bytes) -> None:
        with self._lock:
            if self._is_open:
                for start in range(0, max(1, len(line)), LINE_BYTES_MAX):
                    self._say(self._name, line[start : start + LINE_BYTES_MAX].decode(errors="replace").rstrip("\r"))


def write_lines_at_once() -> None:
    """Make Python flush each line, so that it is seen while the handler runs."""
    for name in STREAMS:
        with contextlib.suppress(AttributeError, ValueError):
            getattr(sys, name).reconfigure(line_buffering=True)


def _flush(name: str) -> None:
    with contextlib.suppress(Exception):
        getattr(sys, name).flush()
