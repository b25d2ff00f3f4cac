"""Limits on runs at once: of everything, a queue, a tenant, or a tenant's share of a queue."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from duly.domain.errors import InvalidOption
from duly.domain.limits.pause import Holds, Scope

PLACES_MAX = 1_000_000
# The prefix of `set_by` for limits that the operator set. It is stored there because claims read whole rows of limits,
# and claims of an older version would not know another column.
OPERATOR = "the operator"


class Limit(msgspec.Struct, frozen=True):
    """At most `places` runs of a scope run at once; `running` do, as far as was counted."""

    scope: Scope
    places: int
    running: int
    set_by: str
    set_at: datetime

    @property
    def is_of_operator(self) -> bool:
        """Return whether the operator set it: then nobody else may change it."""
        return self.set_by.startswith(OPERATOR)


class StandingLimits:
    """All limits at one moment, as a worker needs them: the slots of each scope."""

    def __init__(self, places: Mapping[Scope, int] | None = None) -> None:
        self._places = dict(places or {})

    def __bool__(self) -> bool:
        return bool(self._places)

    def narrowed_since(self, before: StandingLimits) -> Holds:
        """Return the scopes with fewer slots than before, or with a new limit."""
        known = before._places
        return Holds(scope for scope, places in self._places.items() if scope not in known or places < known[scope])


def check_places(places: int) -> int:
    """Check a number of slots. Raises InvalidOption."""
    if not 1 <= places <= PLACES_MAX:
        raise InvalidOption(
            f"places {places} is outside 1 to {PLACES_MAX:,}; to stop all starts, pause; for no limit, delete it"
        )
    return places


def told_setter(by: str, *, is_operator: bool) -> str:
    """Describe who set a limit; a key cannot pass for the operator, because it is described as a key."""
    return f"{OPERATOR}, {by}" if is_operator and not by.startswith(OPERATOR) else by
