"""Shared text of SQL files: the columns of a run, and the settings of the planner, each written once.

| in a file | stands for |
|---|---|
| `{run}` | the columns that every box begins with, as `duly.run` in baseline.sql lists them |
| `{taken.run}` | the same, of `taken` |
| `{run: attempt = attempt + 1}` | the same, with other values for those that are named |
| `{run types}` | their names and types |
| `{planned by index, in order}` | settings of the planner for a function, from `PLANNED` |
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

PLANNED = {
    # Boxes fill and empty within seconds, so their statistics are outdated: a plan made for an empty box would scan a
    # full one. And JIT would compile an expensive-looking plan for longer than it runs.
    "by index": ("enable_seqscan = off", "jit = off"),
    # For the same reason: a batch is joined by looking up each of its rows, and never by scanning the other side.
    "by loop": ("enable_hashjoin = off", "enable_mergejoin = off"),
    # The first rows of an index are wanted, in its order; a bitmap would gather all matches.
    "in order": ("enable_bitmapscan = off",),
    # Nor may all matches be sorted.
    "unsorted": ("enable_sort = off",),
    # Planning takes longer than running: one plan serves all arguments.
    "once": ("plan_cache_mode = force_generic_plan",),
}
_MARK = re.compile(
    r"\{(?:planned (?P<planned>[a-z ,]+)|run (?P<types>types)"
    r"|(?:(?P<of>\w+)\.)?run(?:: (?P<changed>(?:[^{}']|'[^']*')+))?)\}"
)
_RUN = re.compile(r"create table duly\.run \(\n(.*?)\n    constraint", re.DOTALL)
_COLUMN = re.compile(r"^ +(\w+) +(\w+)", re.MULTILINE)
_NEXT = re.compile(r",(?=\s+\w+ = )")


@cache
def run_columns() -> dict[str, str]:
    """Return the columns that every box begins with, and their types."""
    baseline = files("duly.store.schema").joinpath("baseline.sql").read_text(encoding="utf-8")
    found = _RUN.search(baseline)
    assert found is not None
    return dict(_COLUMN.findall(found[1]))


def expanded(sql: str) -> str:
    """Replace the placeholders of a text."""
    return _MARK.sub(_replaced, sql)


def _replaced(mark: re.Match[str]) -> str:
    if mark["planned"]:
        return " ".join(f"set {setting}" for word in mark["planned"].split(", ") for setting in PLANNED[word])
    if mark["types"]:
        return ", ".join(f"{name} {kind}" for name, kind in run_columns().items())
    prefix = f"{mark['of']}." if mark["of"] else ""
    changed = _changes(mark["changed"] or "")
    assert changed.keys() <= run_columns().keys(), mark[0]
    return ", ".join(changed.get(name, prefix + name) for name in run_columns())


def _changes(text: str) -> dict[str, str]:
    pairs = [one.split(" = ", 1) for one in _NEXT.split(text) if one]
    return {name.strip(): f"{value} as {name.strip()}" for name, value in pairs}
