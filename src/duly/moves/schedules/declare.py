"""Declare: bring the jobs of a program to its code's declarations.

Any number of workers do it at once, and repeatedly. Each step is one move that is guarded by what was read, so a second
worker finds it done, and the next look finishes what was interrupted.
"""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

import msgspec

from duly.clock import Rng
from duly.domain.errors import KeyBusy, NameTaken, NotFound, Refused, Unsettled, VersionChanged
from duly.domain.jobs.declaration import REMOVED, Declarations, Standing, Step, decide
from duly.domain.jobs.job import Recurring
from duly.moves.admin.seal import sealed_declarations
from duly.moves.schedules.edit import edit_version
from duly.moves.schedules.pause import pause, resume
from duly.moves.submit import submit_recurring
from duly.store.connection.database import Database
from duly.store.tables import declared as store

_LOOKS_MAX = 10
_MOVED_ON = (NameTaken, VersionChanged, NotFound, KeyBusy, Unsettled)


class Became(StrEnum):
    """The result of a look for one job."""

    CREATED = "created"
    CHANGED = "changed"
    RESTORED = "restored"
    REMOVED = "removed"
    MOVED_ON = "moved_on"  # it has changed since it was read
    OUTDATED = "outdated"  # another version of the program declares it, and that one is in force
    NAME_TAKEN = "name_taken"  # a person has a job of that name
    REFUSED = "refused"  # its schedule cannot be stored

    @property
    def is_settled(self) -> bool:
        """Return whether looking again would give the same."""
        return self in (Became.OUTDATED, Became.NAME_TAKEN, Became.REFUSED)


class Declared(msgspec.Struct, frozen=True):
    """The result for one job, and the reason where it needs one."""

    name: str
    became: Became
    job_id: UUID | None = None
    reason: str | None = None


class _Todo(msgspec.Struct, frozen=True):
    name: str
    job: Recurring | None
    standing: Standing | None
    step: Step


async def declare(database: Database, declarations: Declarations, rng: Rng) -> list[Declared]:
    """Look, and act, until nothing more follows. Returns the results for jobs that are not simply as declared."""
    declarations = sealed_declarations(database.keyring, declarations)
    done: dict[tuple[str, Became], Declared] = {}
    settled: set[str] = set()
    for _ in range(_LOOKS_MAX):
        todo = [one for one in await _look(database, declarations) if one.name not in settled]
        became = [await _take(database, declarations.tenant, one, rng) for one in todo]
        done |= {(one.name, one.became): one for one in became if one.became is not Became.MOVED_ON}
        settled |= {one.name for one in became if one.became.is_settled}
        if all(one.became.is_settled for one in became):
            break
    return list(done.values())


async def _look(database: Database, declarations: Declarations) -> list[_Todo]:
    jobs = {job.name or "": job for job in declarations.jobs}
    live = await store.live(database, declarations.tenant)
    standing = await store.standing(database, declarations.tenant, declarations.source, list(jobs))
    todo = []
    for name in jobs | standing:
        job, found = jobs.get(name), standing.get(name)
        mine = None if job is None else job.digest()
        step = decide(mine, found, live.get(name, set()) | ({mine} if mine else set()))
        if step is not Step.LEAVE:
            todo.append(_Todo(name, job, found, step))
    return todo


async def _take(database: Database, tenant: int, todo: _Todo, rng: Rng) -> Declared:
    try:
        job_id, became = await _step(database, tenant, todo, rng)
    except _MOVED_ON:
        return Declared(todo.name, Became.MOVED_ON)
    except Refused as error:
        return Declared(todo.name, Became.REFUSED, reason=str(error))
    return Declared(todo.name, became, job_id)


async def _step(database: Database, tenant: int, todo: _Todo, rng: Rng) -> tuple[UUID, Became]:
    job, standing = todo.job, todo.standing
    if todo.step is Step.CREATE:
        assert job is not None
        submitted = await submit_recurring(database, job, key=str(rng.uuid()), tenant=tenant)
        return submitted.job_id, Became.CREATED
    assert standing is not None
    match todo.step:
        case Step.CHANGE:
            assert job is not None
            await edit_version(database, standing.job_id, standing.version, job)
            return standing.job_id, Became.CHANGED
        case Step.RESTORE:
            await _restore(database, standing)
            return standing.job_id, Became.RESTORED
        case Step.REMOVE:
            await pause(database, standing.job_id, REMOVED)
            await store.mark_removed(database, standing.job_id)
            return standing.job_id, Became.REMOVED
        case Step.CONFLICT:
            return standing.job_id, Became.NAME_TAKEN
        case Step.YIELD | Step.LEAVE:
            return standing.job_id, Became.OUTDATED


async def _restore(database: Database, standing: Standing) -> None:
    """Resume a job that was paused only because of its removal, and remove the marker last, so that a crash in between
    is noticed.
    """
    if standing.has_leased_run:
        await resume(database, standing.job_id)
    await store.mark_declared(database, standing.job_id)
