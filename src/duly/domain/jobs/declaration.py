"""Schedules declared in code: which of several declarations is in force, and what to change in the store.

Two versions of a program may run side by side and declare different things under one name. One rule keeps them from
fighting:

- A declaration that the job has never had takes effect at once: it is newer.
- A declaration it had before takes effect again only when no live worker declares the current one; of several, the most recent.
- A job is removed when no live worker declares it, and restored when one does again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from enum import Enum

import msgspec

from duly.domain.jobs.job import Recurring, StandingJob

OWNER = "code"
REMOVED = "removed from code"  # The reason of a pause that ends when the code returns; every other pause is a person's.


class Declarations(msgspec.Struct, frozen=True):
    """The declarations of a program. `source` names it as `module:app`."""

    tenant: int
    source: str
    jobs: Sequence[Recurring] = ()

    def entries(self) -> list[str]:
        """Encode the declarations as a worker publishes them."""
        return [entry(self.tenant, job.name or "", job.digest()) for job in self.jobs]


def entry(tenant: int, name: str, digest: bytes) -> str:
    """Encode one declaration; the name comes last, because it may contain any character."""
    return f"{tenant}/{digest.hex()}/{name}"


def digests_by_name(entries: Collection[str], tenant: int) -> dict[str, set[bytes]]:
    """Decode what workers publish: for each name that a tenant's programs declare, the declarations."""
    found: dict[str, set[bytes]] = {}
    for owner, digest, name in (text.split("/", 2) for text in entries):
        if owner == str(tenant):
            found.setdefault(name, set()).add(bytes.fromhex(digest))
    return found


class Standing(StandingJob, frozen=True):
    """A job that a program may declare. `definitions` are those it has had, the current one last."""

    definition: bytes
    definitions: Sequence[bytes] = ()
    removed_at: datetime | None = None

    @property
    def has_leased_run(self) -> bool:
        """Return whether it is paused only because it was removed."""
        return self.is_paused and self.pause_reason == REMOVED


class Step(Enum):
    """The action of a worker on the job of a name."""

    CREATE = "the job does not exist: create it"
    CHANGE = "our declaration comes into force"
    RESTORE = "it is declared again: take the mark away, and the pause that came with it"
    REMOVE = "it is declared no more: pause it, and mark it"
    CONFLICT = "a person has a job of that name: leave it to them, and say so"
    YIELD = "another version's declaration is in force"
    LEAVE = "there is nothing to do"


def decide(mine: bytes | None, standing: Standing | None, live: Collection[bytes]) -> Step:
    """Decide the action of a worker that declares `mine`, or nothing; `live` are the declarations of live workers of
    that name.
    """
    if standing is None:
        return Step.LEAVE if mine is None else Step.CREATE
    if standing.owner != OWNER:
        return Step.LEAVE if mine is None else Step.CONFLICT
    if mine is None:
        return Step.LEAVE if live or standing.removed_at or standing.is_over else Step.REMOVE
    if mine != standing.definition:
        return _decide_between(mine, standing, live)
    return Step.RESTORE if standing.removed_at or standing.has_leased_run else Step.LEAVE


def _decide_between(mine: bytes, standing: Standing, live: Collection[bytes]) -> Step:
    if mine in standing.definitions:
        had = [definition for definition in standing.definitions if definition in live]
        if standing.definition in live or had[-1:] != [mine]:
            return Step.YIELD
    return Step.CREATE if standing.is_over else Step.CHANGE
