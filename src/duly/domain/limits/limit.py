"""Limits on runs at once: of everything, a queue, a tenant, or a tenant's share of a queue."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from duly.domain.errors import InvalidOption
from duly.domain.limits.pause import Pauses, Scope

SLOTS_MAX = 1_000_000
# The prefix of `set_by` for limits that the operator set. It is stored there because claims read whole rows of limits,
# and claims of an older version would not know another column.
OPERATOR = "the operator"


class Limit(msgspec.Struct, frozen=True):
    """At most `slots` runs of a scope run at once; `running` do, as far as was counted."""

    scope: Scope
    slots: int
    running: int
    set_by: str
    set_at: datetime

    @property
    def is_of_operator(self) -> bool:
        """Return whether the operator set it: then no other may change it."""
        return self.set_by.startswith(OPERATOR)


class StandingLimits:
    """All limits at one moment, as a worker needs them: the slots of each scope."""

    def __init__(self, slots: Mapping[Scope, int] | None = None) -> None:
        self._slots = dict(slots or {})

    def __bool__(self) -> bool:
        return bool(self._slots)

    def narrowed_since(self, before: StandingLimits) -> Pauses:
        """Return the scopes with fewer slots than before, or with a new limit."""
        known = before._slots
        return Pauses(scope for scope, slots in self._slots.items() if scope not in known or slots < known[scope])


def check_slots(slots: int) -> int:
    """Check a number of slots. Raises InvalidOption."""
    if not 1 <= slots <= SLOTS_MAX:
        raise InvalidOption(
            f"slots {slots} is outside 1 to {SLOTS_MAX:,}; to stop all starts, pause; for no limit, delete it"
        )
    return slots


def described_setter(by: str, *, is_operator: bool) -> str:
    """Describe who set a limit; a key cannot pass for the operator, because it is described as a key."""
    return f"{OPERATOR}, {by}" if is_operator and not by.startswith(OPERATOR) else by
