"""Hand out: insert the results of other nodes where a node's payload refers to them, and add its parents' results.

Done where runs are claimed, beside stored payloads: the rows have only names. A payload that cannot be built fails that
run, and no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn
from uuid import UUID

import msgspec

from duly.domain.runs.run import Run
from duly.domain.workflows.references import (
    HANDED_BYTES_MAX,
    Fault,
    Reference,
    Unresolved,
    Use,
    has_references,
    part_of,
    resolved,
    uses_in,
)
from duly.domain.workflows.workflow import is_item
from duly.store.connection.database import Database
from duly.store.tables import workflows
from duly.store.tables.workflows import Handed


async def hand_out(database: Database, runs: Sequence[Run]) -> dict[UUID, Run]:
    """Return the runs that are nodes with their inputs, by id."""
    nodes = [(run, node) for run in runs if (node := run.metadata.node) is not None]
    if not nodes:
        return {}
    mapped = [node for _, node in nodes if is_item(node[1])]
    items = await workflows.items(database, mapped) if mapped else {}
    uses = {node: _uses(run) for run, node in nodes}
    named = [(*node, name) for _, node in nodes for name in _named(uses[node], items.get(node))]
    handed = await workflows.handed(database, [node for _, node in nodes], named)
    blamed = [(node[0], use.node) for _, node in nodes for use in uses[node] if isinstance(use, Fault)]
    faults = await workflows.faults(database, blamed) if blamed else {}
    return {
        run.run_id: _given(run, handed.get(node) or Handed(), items.get(node), faults.get(node[0], {}))
        for run, node in nodes
    }


def _uses(run: Run) -> list[Use]:
    """Return the references of a payload; an unreadable payload is refused where they are inserted."""
    if run.payload is None or not has_references(run.payload):
        return []
    try:
        return uses_in(run.payload, _unreadable)
    except Unresolved:
        return []


def _named(uses: Sequence[Use], item: Reference | None) -> list[str]:
    """Return the nodes whose results a payload refers to; for an item of a map, also the node of its list."""
    if not uses:
        return []
    named = {use.node for use in uses if isinstance(use, Reference)}
    return sorted(named if item is None else named | {item.node})


def _given(run: Run, handed: Handed, item: Reference | None, faults: Mapping[str, Any]) -> Run:
    try:
        if handed.bytes > HANDED_BYTES_MAX:
            raise Unresolved(
                f"the results passed to it have {handed.bytes} bytes; the limit is {HANDED_BYTES_MAX}."
                " Store them elsewhere and pass references"
            )
        results = {name: msgspec.json.decode(text or "null") for name, text in handed.results.items()}
        payload = run.payload
        if payload is not None and has_references(payload):
            payload = resolved(payload, results, _value_of(item, results), faults, handed.missing)
    except Unresolved as error:
        return msgspec.structs.replace(run, refused=f"the arguments of the node cannot be built: {error}")
    parents = {name: results[name] for name in handed.parents}
    return msgspec.structs.replace(
        run, payload=payload, parents=msgspec.json.encode(parents).decode() if parents else None
    )


def _value_of(item: Reference | None, results: dict[str, Any]) -> Any:
    return None if item is None else part_of(results.get(item.node), item.path, f"the result of node {item.node!r}")


def _unreadable(message: str) -> NoReturn:
    raise Unresolved(message)
