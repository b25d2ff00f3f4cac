"""Look, move, and look again when somebody was faster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from duly.domain.errors import Unsettled

LOOKS_MAX = 100
_Answer = TypeVar("_Answer")


async def until_settled(what: str, attempt: Callable[[], Awaitable[_Answer | None]]) -> _Answer:
    """Look and move until a move is not overtaken; an attempt that was gives None. Raises Unsettled, naming `what`."""
    for _ in range(LOOKS_MAX):
        answer = await attempt()
        if answer is not None:
            return answer
    raise Unsettled(what)
