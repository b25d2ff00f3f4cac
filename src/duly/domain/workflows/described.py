"""Nodes of a workflow as responses show them, from their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from duly.domain.runs.options import NO_OPTIONS
from duly.domain.targets.spec import described_in_short

_COPIED = (
    "name",
    "run_id",
    "queue",
    "attempt",
    "released_at",
    "ended_at",
    "reason",
    "result_bytes",
    "items",
    "item_of",
    "added_by",
    "replays",
)
RUNNING = "running"
_LEASED = "leased"  # the box of runs that workers hold


def described_nodes(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Describe nodes: one whose run is leased is running, and a map waits for its parents, not for its items."""
    items = {row["name"]: row["item_of"] for row in rows if row["item_of"] is not None}
    return [_described(row, items) for row in rows]


def _described(row: Mapping[str, Any], items: Mapping[str, str]) -> dict[str, Any]:
    return {
        **{name: row[name] for name in _COPIED},
        "state": RUNNING if row["box"] == _LEASED else row["state"],
        "target": described_in_short(row["handler"], NO_OPTIONS),
        "depends_on": [edge for edge in row["parents"] if items.get(edge["node"]) != row["name"]],
    }
