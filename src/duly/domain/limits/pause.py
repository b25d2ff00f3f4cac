"""What is held: everything, a queue, a tenant, or a tenant's share of a queue. What a hold covers is kept and not started."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from duly.domain.runs.run import Run

SCOPES_MAX = 1_000  # Every worker reads all holds and limits several times a second.
TENANT_SCOPES_MAX = 100
SCOPE_KINDS = ("everything", "queue", "tenant", "queue_of_tenant")


class Scope(msgspec.Struct, frozen=True):
    """What a hold covers; `None` covers every tenant, or every queue."""

    tenant: int | None = None
    queue: str | None = None

    def __str__(self) -> str:
        tenant = "" if self.tenant is None else f"tenant {self.tenant}"
        queue = "" if self.queue is None else f"queue {self.queue}"
        return " of ".join(part for part in (queue, tenant) if part) or "everything"

    @property
    def kind(self) -> str:
        """Which sort of hold this is, in one word that names nobody."""
        if self.tenant is None:
            return "everything" if self.queue is None else "queue"
        return "tenant" if self.queue is None else "queue_of_tenant"

    @property
    def rows_max(self) -> int:
        """Return how many holds, or limits, may stand beside each other: of what is everyone's, or of one tenant."""
        return SCOPES_MAX if self.tenant is None else TENANT_SCOPES_MAX

    def touches(self, other: Scope) -> bool:
        """Return whether some run belongs to both."""
        return self._meet(self.tenant, other.tenant) and self._meet(self.queue, other.queue)

    @staticmethod
    def _meet(one: object, other: object) -> bool:
        return one is None or other is None or one == other


EVERYTHING = Scope()


class Hold(msgspec.Struct, frozen=True):
    """A scope that is held: by whom, since when and why."""

    scope: Scope
    reason: str
    held_by: str
    held_at: datetime


class Holds:
    """All that is held at one moment, as far as whoever starts runs must know it."""

    def __init__(self, scopes: Iterable[Scope] = ()) -> None:
        self._scopes = frozenset((scope.tenant, scope.queue) for scope in scopes)

    def __bool__(self) -> bool:
        return bool(self._scopes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Holds) and self._scopes == other._scopes

    def __hash__(self) -> int:
        return hash(self._scopes)

    def cover(self, run: Run) -> bool:
        """Return whether a run must not be started."""
        if not self._scopes:
            return False
        tenant, queue = run.tenant, run.queue
        return not self._scopes.isdisjoint(((None, None), (None, queue), (tenant, None), (tenant, queue)))
