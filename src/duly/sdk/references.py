"""References in a node's arguments to values that are not known yet: the result of another node, or an item of a list.

A reference is written into the payload as it is, `{"$result": "extract", "path": ["rows", 0]}`, and replaced when the
run is handed out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, Self

from duly.domain.errors import InvalidArguments
from duly.domain.triggers.errors import shown
from duly.domain.workflows.references import ERROR, ITEM, RESULT

On = Literal["success", "failure", "always"]


class Placeholder(ABC):
    """Stands for a value, or with steps for a part of it."""

    __slots__ = ("path",)

    def __init__(self, path: tuple[str | int, ...] = ()) -> None:
        self.path = path

    def __getitem__(self, step: str | int) -> Self:
        """Return a part: a key of an object, or an index of a list. Raises InvalidArguments."""
        given: object = step
        if isinstance(given, bool) or not isinstance(given, str | int) or (isinstance(given, int) and given < 0):
            raise InvalidArguments(f"{shown(step)} leads to no part of {self!r}; give a key, or a place counted from 0")
        return self.at((*self.path, step))

    def __iter__(self) -> Iterator[Any]:
        """Refuse iteration: its items are known when the node has ended."""
        raise InvalidArguments(f"{self!r} is not known yet; make one run for each of its items with map(over=…)")

    @abstractmethod
    def at(self, path: tuple[str | int, ...]) -> Self:
        """Return the same with another path."""

    @abstractmethod
    def head(self) -> dict[str, Any]:
        """Write the value that it stands for."""

    def written(self) -> dict[str, Any]:
        """Write it as in a payload."""
        return self.head() | ({"path": list(self.path)} if self.path else {})

    def _steps(self) -> str:
        return "".join(f"[{step!r}]" for step in self.path)


class OfNode(Placeholder):
    """A value of a node, or a part of it. `owner` is what the node belongs to."""

    __slots__ = ("node", "owner")
    sign: ClassVar[str]  # in a payload
    word: ClassVar[str]  # in Python

    def __init__(self, owner: object, node: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(path)
        self.owner = owner
        self.node = node

    def at(self, path: tuple[str | int, ...]) -> Self:
        """Return the same with another path."""
        return type(self)(self.owner, self.node, path)

    def head(self) -> dict[str, Any]:
        """Write its node."""
        return {self.sign: self.node}

    def __repr__(self) -> str:
        return f"{self.node}.{self.word}{self._steps()}"


class Reference(OfNode):
    """The result of a node, or a part of it: `extract.result["rows"][0]`."""

    __slots__ = ()
    sign, word = RESULT, "result"


class Fault(OfNode):
    """The error of a node, or a part of it: `extract.error["message"]`."""

    __slots__ = ()
    sign, word = ERROR, "error"


class Item(Placeholder):
    """The item of a mapped node's run, or a part of it: `wf.item["url"]`."""

    __slots__ = ()

    def at(self, path: tuple[str | int, ...]) -> Self:
        """Return the same with another path."""
        return type(self)(path)

    def head(self) -> dict[str, Any]:
        """Write that it is the item."""
        return {ITEM: True}

    def __repr__(self) -> str:
        return f"item{self._steps()}"


class Edge:
    """A node that another depends on, and its required outcome. `owner` is what the node belongs to."""

    __slots__ = ("node", "on", "owner")

    def __init__(self, owner: object, node: str, on: On = "success") -> None:
        self.owner = owner
        self.node = node
        self.on = on

    def __repr__(self) -> str:
        return f"{self.node} on {self.on}"


def written(value: Any) -> Any:
    """Write references as in a payload; a known value is returned as it is."""
    if isinstance(value, Placeholder):
        return value.written()
    if not any(True for _ in placeholders(value)):
        return value
    if isinstance(value, Mapping):
        return {key: written(part) for key, part in value.items()}
    return [written(part) for part in value]


def placeholders(value: Any) -> Iterator[Placeholder]:
    """Return the references in a value, at any depth."""
    if isinstance(value, Placeholder):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from placeholders(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from placeholders(part)
