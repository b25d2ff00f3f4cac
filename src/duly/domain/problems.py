"""Problems of a document with many parts: each with its path, and its position in the text if there is one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from duly.domain.errors import Refused

Path = tuple[str | int, ...]
Places = Mapping[Path, tuple[int, int]]

_SHOWN_MAX = 50
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One problem. Lines and columns count from 1."""

    path: Path
    message: str
    line: int | None = None
    column: int | None = None

    @property
    def pointer(self) -> str:
        """The path as a JSON pointer."""
        return pointer_of(self.path)

    def placed(self, places: Places) -> Problem:
        """Return the problem with its position in the text, or that of the nearest part around it."""
        for length in range(len(self.path), -1, -1):
            if place := places.get(self.path[:length]):
                return msgspec.structs.replace(self, line=place[0], column=place[1])
        return self

    def described(self, name: str) -> str:
        """Write the problem on one line, as compilers do, for a document of this name."""
        place = name if self.line is None else f"{name}:{self.line}:{self.column}"
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.path).removeprefix(".")
        return f"{place}: {path}: {self.message}" if path else f"{place}: {self.message}"


class InvalidManifest(Refused):
    """A file of schedules that cannot be read; it carries all of its problems."""

    def __init__(self, problems: Sequence[Problem], name: str = "manifest") -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0)))
        lines = [problem.described(name) for problem in self.problems[:_SHOWN_MAX]]
        if len(self.problems) > _SHOWN_MAX:
            lines.append(f"and {len(self.problems) - _SHOWN_MAX} more")
        super().__init__("\n".join(lines))


def pointer_of(path: Sequence[str | int]) -> str:
    """Write a path as a JSON pointer."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


def path_of(field: str) -> Path:
    """Parse the path of a field: `calendars[0].name` has three steps."""
    return tuple(int(step[1]) if step[1] else step[2] for step in _STEP.finditer(field))
