"""How a role is asked to end: Ctrl-C or SIGTERM, or the end of the process that started it."""

from __future__ import annotations

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


def stop_on_signals(stop: Callable[[], object]) -> None:
    """Call `stop` at the first Ctrl-C or SIGTERM; a second one ends the process where it stands.

    A handler of Python's own, not of a loop: a loop that is blocked by a user's function could not hear it.
    """
    clock, asked_at = SystemClock(), float("inf")

    def heed(number: int, frame: FrameType | None) -> None:
        nonlocal asked_at
        if clock.monotonic() - asked_at > _TWICE_SECONDS:
            os._exit(INTERRUPTED)
        asked_at = min(asked_at, clock.monotonic())
        stop()

    signal.signal(signal.SIGINT, heed)
    signal.signal(signal.SIGTERM, heed)


def stop_with_parent(stop: Callable[[], object]) -> None:
    """Call `stop`, on a thread, when standard input ends: whoever started us is gone."""

    descriptor = sys.stdin.fileno()  # Read below Python's buffer, whose lock would be held when the interpreter ends.

    def wait() -> None:
        while os.read(descriptor, 4096):
            pass
        stop()

    threading.Thread(target=wait, name="parent", daemon=True).start()
