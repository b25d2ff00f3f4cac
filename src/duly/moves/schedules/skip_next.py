"""Skip next: leave one occurrence out, and nothing else."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from duly.domain.errors import InvalidOption, JobEnded
from duly.domain.tenancy.audit import Action, Subject
from duly.domain.triggers.on_event import OnEvent
from duly.domain.triggers.schedule.planning import arm, left_out_before
from duly.moves.admin.audit import audited, note
from duly.moves.recall import taking_back, unless_held, unless_unstarted
from duly.moves.schedules.schedule import see, until_settled
from duly.store.connection.database import Database
from duly.store.tables import schedules


async def skip_next(database: Database, job_id: UUID) -> datetime:
    """Leave the next occurrence out that has not started. Returns its moment. Raises NotFound, InvalidOption, Unsettled."""
    return await taking_back(database, job_id, lambda silent: _skip_next(database, job_id, silent))


@audited
async def _skip_next(database: Database, job_id: UUID, silent: list[UUID] | None) -> datetime:

    async def attempt() -> datetime | None:  # It may be staged between the look and the move.
        seen = await see(database, job_id)
        if seen.compiled.trigger.is_estimate:
            raise InvalidOption(f"job {job_id} counts from the end of its last run; pause it instead")
        if isinstance(seen.compiled.trigger, OnEvent):
            raise InvalidOption(f"job {job_id} waits for events and has no next occurrence; pause it instead")
        next_at, window = arm(seen.compiled, seen.pending_at) or (None, 0)
        skips = left_out_before(seen.compiled, seen.pending_at, seen.accountable_from, is_last=next_at is None)
        await unless_unstarted(database, silent, is_held=seen.is_held)
        answer, moment = await schedules.skip_next(
            database, job_id, seen.generation, seen.pending_at, next_at, window, seen.staged(), skips
        )
        if unless_held(answer) == "over":
            raise JobEnded(f"job {job_id} has ended; it fires no more")
        if moment is not None:
            subject = Subject("job", str(job_id), seen.name)
            await note(database, seen.tenant, Action.JOB_SKIPPED_NEXT, subject, scheduled_at=moment)
        return moment

    return await until_settled(f"job {job_id}", attempt)
