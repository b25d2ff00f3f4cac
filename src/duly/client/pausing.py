"""Waiting, in both colours."""

from __future__ import annotations

from duly.clock import SystemClock, host_sleep


async def async_pause(seconds: float) -> None:
    """Wait, and let others on the loop go on."""
    await SystemClock().sleep(seconds)


def pause(seconds: float) -> None:
    """Wait."""
    host_sleep(seconds)
