"""The description of the API as it is kept in `docs/openapi.json`: what changes for callers shows as a change of that file.

Run as `python -m tests.api.openapi` to write it anew.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec

from duly.api.description import describe
from duly.api.routes import OPERATIONS

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "openapi.json"


def text() -> str:
    """Write the description as the code gives it."""
    plain = msgspec.json.decode(msgspec.json.encode(describe(OPERATIONS)))
    return json.dumps(plain, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def promised() -> dict[str, Any]:
    """Give the description that callers rely on: that of the last tag, or, as long as there is none, the one that is kept."""
    tag = _git("describe", "--tags", "--abbrev=0")
    tagged = _git("show", f"{tag.strip()}:docs/openapi.json") if tag else ""
    return dict(json.loads(tagged or FILE.read_text()))


def _git(*arguments: str) -> str:
    found = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout if found.returncode == 0 else ""


if __name__ == "__main__":
    FILE.write_text(text())
