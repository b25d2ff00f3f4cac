"""The screen of `duly up`: facts as they become true, each with the time it took."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from duly.cli.render.say import say

_LABEL_WIDTH, _LINE_WIDTH = 12, 76


class Screen:
    """Prints line by line."""

    @property
    def is_terminal(self) -> bool:
        """Return whether a person reads it now, and nothing stores it."""
        return sys.stdout.isatty()

    def title(self, version: str, reach: str) -> None:
        """Print what this is, and who can reach it."""
        say(f"duly {version}   development mode: {reach}")

    def fact(self, label: str, text: str, seconds: float | None = None) -> None:
        """Print one fact, and how long it took."""
        line = f"  {label:{_LABEL_WIDTH}}{text}"
        say(line if seconds is None else f"{line:{_LINE_WIDTH}}{seconds:.1f} s")

    def line(self, text: str) -> None:
        """Print a line as it is."""
        say(text)


def short_path(path: Path) -> str:
    """Write a path as people would: from here if it is below here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else f"./{relative}"
