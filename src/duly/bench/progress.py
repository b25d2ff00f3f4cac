"""A progress bar on standard error: one line for each step of a scenario."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

Advance = Callable[[float], None]


class Steps:
    """The steps of one scenario, shown while they run."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        self._bars = Progress(*columns, console=Console(stderr=True))

    @contextmanager
    def shown(self) -> Iterator[Steps]:
        """Show the bars until the end."""
        with self._bars:
            yield self

    @contextmanager
    def step(self, what: str, total: float = 1) -> Iterator[Advance]:
        """Show one step; what is yielded tells how far it has come, from 0 to `total`."""
        bar = self._bars.add_task(what, total=total)
        yield lambda done: self._bars.update(bar, completed=done)
        self._bars.update(bar, completed=total)

    def say(self, sentence: str) -> None:
        """Write a sentence above the bars."""
        self._bars.console.print(sentence, highlight=False)
