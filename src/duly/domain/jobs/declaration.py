"""Schedules declared in code: which of several declarations is in force, and what a look at the store leads to.

Two versions of a program may run side by side and declare different things under one name. One rule keeps them from fighting:

- A declaration that the job has never had comes into force at once: it is the newer one.
- One that it has had comes back only when no live worker declares the one in force; of several, the one that was in force last.
- A job is removed when no live worker declares it, and restored when one does again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from enum import Enum

import msgspec

from duly.domain.jobs.job import Recurring, StandingJob

OWNER = "code"
REMOVED = "removed from code"  # The reason of a pause that the code's return ends; every other pause is a person's.


class Declarations(msgspec.Struct, frozen=True):
    """What a program declares. `source` names it as `module:app`."""

    tenant: int
    source: str
    jobs: Sequence[Recurring] = ()

    def entries(self) -> list[str]:
        """Write what is declared as a worker shows it to the others."""
        return [entry(self.tenant, job.name or "", job.digest()) for job in self.jobs]


def entry(tenant: int, name: str, digest: bytes) -> str:
    """Write one declaration; the name comes last, because it may hold any character."""
    return f"{tenant}/{digest.hex()}/{name}"


def digests_by_name(entries: Collection[str], tenant: int) -> dict[str, set[bytes]]:
    """Read what workers show: for each name that a tenant's programs declare, the declarations there are."""
    found: dict[str, set[bytes]] = {}
    for owner, digest, name in (text.split("/", 2) for text in entries):
        if owner == str(tenant):
            found.setdefault(name, set()).add(bytes.fromhex(digest))
    return found


class Standing(StandingJob, frozen=True):
    """A job that a program may declare. `definitions` are those it has had, the one in force last."""

    definition: bytes
    definitions: Sequence[bytes] = ()
    removed_at: datetime | None = None

    @property
    def is_held(self) -> bool:
        """Whether it is paused for no other reason than that it was removed."""
        return self.is_paused and self.pause_reason == REMOVED


class Step(Enum):
    """What a worker is to do about the job of a name."""

    CREATE = "the job does not exist: create it"
    CHANGE = "our declaration comes into force"
    RESTORE = "it is declared again: take the mark away, and the pause that came with it"
    REMOVE = "nobody declares it any more: pause it, and mark it"
    CONFLICT = "a person has a job of that name: leave it to them, and say so"
    YIELD = "another version's declaration is in force"
    LEAVE = "there is nothing to do"


def decide(mine: bytes | None, standing: Standing | None, live: Collection[bytes]) -> Step:
    """Say what a worker that declares `mine`, or nothing, is to do; `live` is what live workers declare of that name."""
    if standing is None:
        return Step.LEAVE if mine is None else Step.CREATE
    if standing.owner != OWNER:
        return Step.LEAVE if mine is None else Step.CONFLICT
    if mine is None:
        return Step.LEAVE if live or standing.removed_at or standing.is_over else Step.REMOVE
    if mine != standing.definition:
        return _decide_between(mine, standing, live)
    return Step.RESTORE if standing.removed_at or standing.is_held else Step.LEAVE


def _decide_between(mine: bytes, standing: Standing, live: Collection[bytes]) -> Step:
    if mine in standing.definitions:
        had = [definition for definition in standing.definitions if definition in live]
        if standing.definition in live or had[-1:] != [mine]:
            return Step.YIELD
    return Step.CREATE if standing.is_over else Step.CHANGE
