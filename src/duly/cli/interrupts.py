"""Interrupts: SIGTERM ends a command as Ctrl-C does, so that its processes and folders are removed."""

from __future__ import annotations

import signal


def heed() -> None:
    """Let SIGINT and SIGTERM interrupt this process, also where a shell started it in the background with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(*_: object) -> None:
    # As SIGINT, which a running loop takes as the end of its main task. Once, so that a second one does not end the cleaning up.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.raise_signal(signal.SIGINT)
