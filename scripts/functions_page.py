"""Write docs/reference/functions.md, the page of SQL functions: `python scripts/functions_page.py`."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCHEMA = ROOT / "src/duly/store/schema"
STATEMENTS = ROOT / "src/duly/store/sql"
PAGE = ROOT / "docs/reference/functions.md"
BOXES = ("timers", "blocked", "ready", "leased", "dead", "attempts")

_FUNCTION = re.compile(
    r"(?P<said>(?:^--(?!-)[^\n]*\n)*)^create (?:or replace )?function duly\.(?P<name>\w+)\((?P<body>.*?\$\$.*?)\$\$;",
    re.MULTILINE | re.DOTALL,
)
_STATEMENT = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)
_VIEW = re.compile(r"^create (?:or replace )?view duly\.(\w+)(.*?);", re.MULTILINE | re.DOTALL)
_TRIGGER = re.compile(
    r"^create (?:or replace |constraint )*trigger (\w+)(.*?execute function duly\.\w+)", re.MULTILINE | re.DOTALL
)
_HEAD = """# Functions

Every SQL function of the schema, by file. `scripts/functions_page.py` writes this page; a test fails when it is stale.
*Moves* names the boxes that a function deletes from and inserts into. *Called by* names functions, triggers, views and
statements (`module.name`, below `store/sql`); a function that nothing calls is for users' own SQL, an index or a policy.
"""


class Function:
    """One function, as its file has it."""

    def __init__(self, found: re.Match[str]) -> None:
        self.name = found["name"]
        self.body = found["body"]
        self.purpose = _first_sentence(found["said"])

    @property
    def moves(self) -> str:
        """The boxes that rows leave, and those that they enter."""
        left, entered = (
            [box for box in BOXES if re.search(rf"{verb} duly\.{box}\b", self.body)]
            for verb in ("delete from", "insert into")
        )
        return f"{', '.join(left)} → {', '.join(entered)}" if left or entered else ""


def functions() -> dict[str, list[Function]]:
    """Read the functions of each file."""
    files = [SCHEMA / "baseline.sql", *sorted((SCHEMA / "functions").rglob("*.sql"))]
    found = {str(path.relative_to(SCHEMA)): [*map(Function, _FUNCTION.finditer(path.read_text()))] for path in files}
    return {name: inside for name, inside in found.items() if inside}


def callers() -> dict[str, list[str]]:
    """Say for each function what calls it."""
    texts = {one.name: one.body for inside in functions().values() for one in inside}
    for path in sorted(STATEMENTS.rglob("*.sql")):
        texts |= {f"{path.stem}.{name}": text for name, text in _STATEMENT.findall(path.read_text())}
    for path in sorted((SCHEMA / "functions").rglob("*.sql")):
        texts |= {f"trigger {name}": f"{text}(" for name, text in _TRIGGER.findall(path.read_text())}
        texts |= {f"view {name}": text for name, text in _VIEW.findall(path.read_text())}
    found: dict[str, list[str]] = {}
    for caller, text in texts.items():
        for called in set(re.findall(r"\bduly\.(\w+)\(", text)) - {caller}:
            found.setdefault(called, []).append(caller)
    return found


def page() -> str:
    """Write the page."""
    called_by, parts = callers(), [_HEAD]
    for name, inside in functions().items():
        rows = [_row(one, called_by.get(one.name, [])) for one in inside]
        parts.append(
            "\n".join([f"## {name}", "", "| function | purpose | moves | called by |", "|---|---|---|---|", *rows])
        )
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _row(one: Function, called_by: list[str]) -> str:
    shown = sorted(called_by)[:6] + (["…"] if len(called_by) > 6 else [])
    return f"| `{one.name}` | {one.purpose} | {one.moves} | {', '.join(shown)} |"


def _first_sentence(comment: str) -> str:
    text = " ".join(line.removeprefix("--").strip() for line in comment.splitlines())
    return re.split(r"(?<=\.)\s", text, maxsplit=1)[0].replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
