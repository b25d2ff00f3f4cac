"""The fastest event loop there is: uvloop where it is installed. It is imported when a loop is made, not before."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.new_event_loop()
    return new_event_loop()


def run(main: Coroutine[object, object, T]) -> T:
    """Run `main` to its end."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)
