"""The end of a role: by Ctrl-C or SIGTERM, or with its parent process; even if a thread does not end."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

from duly.cli.failures import INTERRUPTED
from duly.clock import SystemClock

# One Ctrl-C may arrive twice, from the terminal and from a parent that passes it on.
_TWICE_SECONDS = 1.0
_FLUSH_SECONDS = 1.0


def stop_on_signals(stop: Callable[[], object]) -> None:
    """Call `stop` at the first Ctrl-C, SIGTERM or hang-up of the terminal; a second one ends the process at once.

    A handler of Python's own, not of a loop: a loop that is blocked by a user's function could not hear it.
    """
    clock, first_signal_at = SystemClock(), float("inf")

    def heed(number: int, frame: FrameType | None) -> None:
        nonlocal first_signal_at
        if clock.monotonic() - first_signal_at > _TWICE_SECONDS:
            os._exit(INTERRUPTED)
        first_signal_at = min(first_signal_at, clock.monotonic())
        stop()

    signal.signal(signal.SIGINT, heed)
    signal.signal(signal.SIGTERM, heed)
    if (
        signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    ):  # ignored under nohup, which is meant to outlive the terminal
        signal.signal(signal.SIGHUP, heed)


def end_now() -> None:
    """End the process well, from any thread, whatever else runs in it; what was printed is flushed, if that can be done."""
    with contextlib.suppress(RuntimeError):  # Perhaps there are no threads to be had; it need not be one of the last.
        flushing = threading.Thread(target=_flush, daemon=True)  # a thread that does not end may hold the stream's lock
        flushing.start()
        flushing.join(_FLUSH_SECONDS)
    os._exit(0)


def end_within(seconds: float) -> None:
    """End the process well, in so many seconds at the latest: the interpreter would wait for threads that cannot be stopped."""
    timer = threading.Timer(seconds, end_now)
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # as above
        timer.start()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()


def stop_with_parent(stop: Callable[[], object]) -> None:
    """Call `stop`, on a thread, when standard input ends: our parent has ended."""

    descriptor = sys.stdin.fileno()  # Read below Python's buffer, whose lock would be held when the interpreter ends.

    def wait() -> None:
        while os.read(descriptor, 4096):
            pass
        stop()

    threading.Thread(target=wait, name="parent", daemon=True).start()
