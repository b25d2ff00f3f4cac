"""Pauses: of everything, a queue, a tenant, or a tenant's share of a queue.

Runs that a pause covers are kept and not started.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from duly.domain.runs.run import NOTIFICATIONS, Run

SCOPES_MAX = 1_000  # Every worker reads all pauses and limits several times a second.
TENANT_SCOPES_MAX = 100
SCOPE_KINDS = ("everything", "queue", "tenant", "queue_of_tenant")


class Scope(msgspec.Struct, frozen=True):
    """The scope of a pause; `None` covers every tenant, or every queue."""

    tenant: int | None = None
    queue: str | None = None

    def __str__(self) -> str:
        tenant = "" if self.tenant is None else f"tenant {self.tenant}"
        queue = "" if self.queue is None else f"queue {self.queue}"
        return " of ".join(part for part in (queue, tenant) if part) or "everything"

    @property
    def kind(self) -> str:
        """The kind of scope, in one word without names."""
        if self.tenant is None:
            return "everything" if self.queue is None else "queue"
        return "tenant" if self.queue is None else "queue_of_tenant"

    @property
    def rows_max(self) -> int:
        """The maximum number of pauses, or limits: of everyone together, or of one tenant."""
        return SCOPES_MAX if self.tenant is None else TENANT_SCOPES_MAX

    def touches(self, other: Scope) -> bool:
        """Return whether some run belongs to both scopes."""
        return self._meet(self.tenant, other.tenant) and self._meet(self.queue, other.queue)

    @staticmethod
    def _meet(one: object, other: object) -> bool:
        return one is None or other is None or one == other


EVERYTHING = Scope()


class Pause(msgspec.Struct, frozen=True):
    """A paused scope: by whom, since when and why."""

    scope: Scope
    reason: str
    paused_by: str
    paused_at: datetime


class Pauses:
    """All pauses at one moment, as those who start runs need them."""

    def __init__(self, scopes: Iterable[Scope] = ()) -> None:
        self._scopes = frozenset((scope.tenant, scope.queue) for scope in scopes)

    def __bool__(self) -> bool:
        return bool(self._scopes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pauses) and self._scopes == other._scopes

    def __hash__(self) -> int:
        return hash(self._scopes)

    def cover(self, run: Run) -> bool:
        """Return whether a run must not be started."""
        if not self._scopes:
            return False
        tenant, queue = run.tenant, run.queue
        if queue == NOTIFICATIONS:  # they are sent also of what is paused
            return not self._scopes.isdisjoint(((None, queue), (tenant, queue)))
        return not self._scopes.isdisjoint(((None, None), (None, queue), (tenant, None), (tenant, queue)))
