"""Redact: what handlers, workers and receivers report of a run is redacted before it is written.

A run as it is held carries its rules, its tenant's and the installation's among its metadata. A run without rules pays
nothing. The payload in the record of its end is redacted by `duly.redact_attempt`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from uuid import UUID

import msgspec

from duly.domain.redaction import Redactor
from duly.domain.runs.run import Run
from duly.store.boxes import runs
from duly.store.boxes.leased import Finished, Moved
from duly.store.connection.database import Database

_Item = TypeVar("_Item", Finished, Moved)


def redactor_of(run: Run) -> Redactor:
    """Return the redaction of a run with its payload."""
    return Redactor(run.metadata.redact, None if run.payload is None else msgspec.json.decode(run.payload))


async def redactor_for(database: Database, run_id: UUID) -> Redactor | None:
    """Return the redaction of a run that a worker holds; None where it has no rules."""
    rules, payload = await runs.redacted_by(database, run_id)
    if rules is None:
        return None
    return Redactor(msgspec.json.decode(rules), None if payload is None else msgspec.json.decode(payload))


async def redacted_ends(database: Database, ended: list[_Item]) -> list[_Item]:
    """Return the ends of attempts with their results, reasons and details redacted."""
    if not any(item.run.metadata.redact for item in ended):
        return ended
    return [_redacted(item, redactor_of(run)) for item, run in zip(ended, await _whole(database, ended), strict=True)]


async def _whole(database: Database, ended: Sequence[_Item]) -> list[Run]:
    """Return the runs with the payloads that are stored outside their rows, where rules may name something in them."""
    held = [item.run for item in ended]
    wanted = [
        (run.job_id, run.generation)
        for run in held
        if run.metadata.redact and run.payload_stored and run.payload is None
    ]
    bodies = await runs.payloads(database, wanted) if wanted else {}
    return [msgspec.structs.replace(run, payload=bodies.get((run.job_id, run.generation), run.payload)) for run in held]


def _redacted(item: _Item, redactor: Redactor) -> _Item:
    if not item.run.metadata.redact:
        return item
    result = item.result and redactor.json(item.result)
    if isinstance(item, Finished):
        return msgspec.structs.replace(item, result=result)
    return msgspec.structs.replace(
        item,
        result=result,
        reason=item.reason and redactor.text(item.reason),
        detail=item.detail and redactor.quotes(item.detail),
    )
