"""Named SQL statements, read from the files in `sql/`: a line `-- name: x` opens each."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from operator import attrgetter
from typing import Any

import msgspec


def load(box: str) -> dict[str, str]:
    """Read the statements of one box."""
    statements: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in files("duly.store").joinpath("sql", f"{box}.sql").read_text(encoding="utf-8").splitlines():
        if line.startswith("-- name: "):
            lines = statements.setdefault(line.removeprefix("-- name: ").strip(), [])
        elif not line.startswith("--"):
            lines.append(line)
    return {name: "\n".join(body).strip().rstrip(";") for name, body in statements.items()}


def json_of(items: Sequence[Any]) -> str | None:
    """Encode items as the JSON text that a statement takes; None where there are none."""
    return msgspec.json.encode(items).decode() if items else None


def columns(items: Sequence[Any], *names: str) -> list[list[Any]]:
    """Return attributes of items as the arrays that a statement takes."""
    return [list(map(attrgetter(name), items)) for name in names]
