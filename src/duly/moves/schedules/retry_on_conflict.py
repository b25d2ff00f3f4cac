"""Retry on conflict: a move of a schedule names the state it has read, and is repeated when that has changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from duly.domain.errors import Unsettled

ATTEMPTS_MAX = 100
T = TypeVar("T")


async def retry_on_conflict(subject: str, attempt: Callable[[], Awaitable[T | None]]) -> T:
    """Repeat an attempt until it meets no conflict; one that does returns None. Raises Unsettled, naming the subject."""
    for _ in range(ATTEMPTS_MAX):
        answer = await attempt()
        if answer is not None:
            return answer
    raise Unsettled(subject)
