"""Named SQL statements, read from the files in `sql/`: a line `-- name: x` opens each."""

from __future__ import annotations

from importlib.resources import files


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
