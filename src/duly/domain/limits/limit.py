"""How much may be under way at once: of everything, a queue, a tenant, or a tenant's share of a queue."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from duly.domain.errors import InvalidOption
from duly.domain.limits.pause import Holds, Scope

PLACES_MAX = 1_000_000
# How `set_by` begins where the operator has set a limit. It is told there because claims hold rows of limits as they are, and a
# column more would be one that the claims of a version before do not know.
OPERATOR = "the operator"


class Limit(msgspec.Struct, frozen=True):
    """At most `places` runs of a scope are under way at once; `running` are, as far as was counted."""

    scope: Scope
    places: int
    running: int
    set_by: str
    set_at: datetime

    @property
    def is_of_operator(self) -> bool:
        """Whether the operator has set it: then nobody else changes it."""
        return self.set_by.startswith(OPERATOR)


class StandingLimits:
    """All limits at one moment, as far as a worker must know them: how many places each scope has."""

    def __init__(self, places: Mapping[Scope, int] | None = None) -> None:
        self._places = dict(places or {})

    def __bool__(self) -> bool:
        return bool(self._places)

    def narrowed_since(self, before: StandingLimits) -> Holds:
        """Name the scopes that have fewer places than before, or a limit that they had not."""
        known = before._places
        return Holds(scope for scope, places in self._places.items() if scope not in known or places < known[scope])


def check_places(places: int) -> int:
    """Take a number of places. Raises InvalidOption."""
    if not 1 <= places <= PLACES_MAX:
        raise InvalidOption(
            f"places {places} is outside 1 to {PLACES_MAX:,}; to stop all starts, pause; for no limit, delete it"
        )
    return places


def told_setter(by: str, *, is_operator: bool) -> str:
    """Say who sets a limit; nobody else can be taken for the operator, because a key is told as one."""
    return f"{OPERATOR}, {by}" if is_operator and not by.startswith(OPERATOR) else by
