"""Trigger: run a schedule's job now, beside its schedule."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

import msgspec

from duly.domain.errors import JobEnded, NotFound
from duly.domain.jobs.unmasked import unmasked_payload
from duly.domain.redaction import has_mark
from duly.domain.tenancy.audit import Action, Subject
from duly.moves.admin.audit import actor_of, audited, record
from duly.moves.recall import taking_back, unless_held
from duly.store.connection.database import Database
from duly.store.tables import jobs, schedules


class TriggerState(StrEnum):
    """The result of a trigger."""

    READY = "ready"  # it starts as soon as a worker has room
    BLOCKED = "blocked"  # it waits for the run that is active, as its overlap policy says
    SKIPPED = "skipped_overlap"  # a run is active, and its overlap policy skips
    REPLAYED = "replayed"  # the same request was made before; this is its run


class Triggered(msgspec.Struct, frozen=True):
    """The run that was created, and its state."""

    run_id: UUID
    state: TriggerState


async def trigger(
    database: Database, job_id: UUID, *, key: str, payload: str | None = None, allow_overlap: bool = False
) -> Triggered:
    """Run a job now; with `allow_overlap`, whatever its overlap policy. One key is one run. Raises NotFound.

    Under `skip`, a fire that has not started is taken back, and judged by this run when it is due.
    """
    return await taking_back(
        database, job_id, lambda _silent: _trigger(database, job_id, key, payload, allow_overlap=allow_overlap)
    )


@audited
async def _trigger(
    database: Database, job_id: UUID, key: str, payload: str | None, *, allow_overlap: bool
) -> Triggered:
    if payload is not None and has_mark(payload) and (found := await jobs.find(database, job_id)) is not None:
        payload = unmasked_payload(payload, found["payload"], found["options"].rules(found["redact_above"]))
    run_id, answer = await schedules.trigger(database, job_id, key, payload, allow_overlap=allow_overlap)
    if unless_held(answer) == "over":
        if await jobs.find(database, job_id) is None:
            raise NotFound(f"no schedule {job_id}; `duly jobs` lists them")
        raise JobEnded(f"job {job_id} has ended and will not fire again")
    state = TriggerState(answer)
    if actor_of(database) is not None and state is not TriggerState.REPLAYED:
        await _record(database, job_id, run_id, state, has_payload=payload is not None)
    return Triggered(run_id, state)


async def _record(database: Database, job_id: UUID, run_id: UUID, state: TriggerState, *, has_payload: bool) -> None:
    found = await jobs.find(database, job_id)
    assert found is not None
    subject, given = Subject("job", str(job_id), found["name"]), has_payload or None
    await record(
        database, found["tenant"], Action.JOB_TRIGGERED, subject, run_id=run_id, state=state.value, has_payload=given
    )
