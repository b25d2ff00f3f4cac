"""Hand out: put results of other nodes in where the payload of a node names them, and give it what its parents came to.

Done where runs are claimed, beside stored payloads: the rows carry names. What cannot be given is a failure of that run, and of
no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from duly.domain.references import (
    HANDED_BYTES_MAX,
    Reference,
    Unresolved,
    has_references,
    part_of,
    resolved,
    uses_in,
)
from duly.domain.run import Run
from duly.store import workflows
from duly.store.database import Database
from duly.store.workflows import Handed


async def hand_out(database: Database, runs: Sequence[Run]) -> dict[UUID, Run]:
    """Give the runs that are nodes with all that they are given, by id."""
    nodes = [(run, node) for run in runs if run.is_node and (node := run.node) is not None]
    if not nodes:
        return {}
    named = [(*node, use) for run, node in nodes for use in _named(run)]
    handed = await workflows.handed(database, [node for _, node in nodes], named)
    return {run.run_id: _given(run, handed.get(node)) for run, node in nodes}


def _named(run: Run) -> list[str]:
    if run.payload is None or not has_references(run.payload):
        return []
    try:
        uses = uses_in(run.payload, _unreadable)
    except Unresolved:
        return []
    return sorted({use.node for use in uses if isinstance(use, Reference)})


def _given(run: Run, handed: Handed | None) -> Run:
    if handed is None:
        handed = Handed()
    try:
        if handed.bytes > HANDED_BYTES_MAX:
            raise Unresolved(
                f"the results that it is given have {handed.bytes} bytes; the limit is {HANDED_BYTES_MAX}."
                " Store them elsewhere and hand on references"
            )
        results = {name: msgspec.json.decode(text or "null") for name, text in handed.results.items()}
        payload = run.payload
        if payload is not None and has_references(payload):
            payload = resolved(payload, results, _item(handed, results))
    except Unresolved as error:
        return msgspec.structs.replace(run, refused=f"the node cannot be given what it is to work on: {error}")
    parents = {name: results[name] for name in handed.parents}
    return msgspec.structs.replace(
        run, payload=payload, parents=msgspec.json.encode(parents).decode() if parents else None
    )


def _item(handed: Handed, results: dict[str, Any]) -> Any:
    if handed.item is None:
        return None
    return part_of(results.get(handed.item.node), handed.item.path, f"the result of node {handed.item.node!r}")


def _unreadable(message: str) -> NoReturn:
    raise Unresolved(message)
