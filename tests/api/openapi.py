"""The description of the API as it is kept in `docs/openapi.json`: what changes for callers shows as a change of that file.

Run as `python -m tests.api.openapi` to write it anew.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from duly.api.openapi.document import describe
from duly.api.routes import OPERATIONS

ROOT = Path(__file__).parents[2]
WIDTH = 160
FILE = ROOT / "docs" / "openapi.json"


def text() -> str:
    """Write the description as the code gives it."""
    return _lines(msgspec.json.decode(msgspec.json.encode(describe(OPERATIONS))), 0) + "\n"


def _lines(value: Any, depth: int) -> str:
    """Write a value on one line where it fits, and otherwise each of its parts on lines of its own."""
    flat = json.dumps(value, ensure_ascii=False, sort_keys=True)
    if len(flat) + depth <= WIDTH or not isinstance(value, dict | list) or not value:
        return flat
    is_object = isinstance(value, dict)
    parts = (
        [f"{json.dumps(key)}: {_lines(value[key], depth + 1)}" for key in sorted(value)]
        if is_object
        else [_lines(one, depth + 1) for one in value]
    )
    start, end = "{}" if is_object else "[]"
    return (
        f",\n{' ' * (depth + 1)}".join([f"{start}\n{' ' * (depth + 1)}{parts[0]}", *parts[1:]])
        + f"\n{' ' * depth}{end}"
    )


def promised(root: Path = ROOT) -> dict[str, Any]:
    """Give the description that callers rely on: that of the last tag, or, as long as there is none, of the last commit.

    Where there is no history at all, as in an archive, it is the one that is kept.
    """
    tag = _git(root, "describe", "--tags", "--abbrev=0").strip()
    kept = _git(root, "show", f"{tag or 'HEAD'}:docs/openapi.json")
    return dict(json.loads(kept or (root / "docs" / "openapi.json").read_text()))


def _git(root: Path, *arguments: str) -> str:
    found = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return found.stdout if found.returncode == 0 else ""


if __name__ == "__main__":
    FILE.write_text(text())
