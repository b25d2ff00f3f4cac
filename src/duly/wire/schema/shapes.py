"""What all shapes share: names, numbers, moments and durations as they stand in JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from duly.domain.runs.run import NAME_CHARACTERS_MAX, NOT_BLANK

TAGS_MAX = 32

# What schemas say and the domain checks, which has better words for it than a pattern.
TEXT_PATTERN = r"^[\p{L}\p{M}\p{N}\p{P}\p{S} ]+$"
NAME_PATTERN = r"^ *[\p{L}\p{M}\p{N}\p{P}\p{S}][\p{L}\p{M}\p{N}\p{P}\p{S} ]*$"
DURATION_PATTERN = r"^P(\d+W)?(\d+D)?(T(\d+H)?(\d+M)?(\d+(\.\d{1,6})?S)?)?$"

PRINTABLE = {"pattern": TEXT_PATTERN}
Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=NAME_CHARACTERS_MAX,
        pattern=NOT_BLANK,
        description="1 to 200 printable characters, not all of them spaces.",
    ),
]
IdempotencyKey = Annotated[str, Meta(min_length=1, max_length=200, pattern=NOT_BLANK)]
Priority = Annotated[int, Meta(ge=0, le=9, description="0 goes first, 9 last; 5 is the default.")]
Moment = Annotated[datetime, Meta(tz=True, description="RFC 3339; any offset in, UTC out.")]
Duration = Annotated[
    Annotated[str, Meta(extra_json_schema={"pattern": DURATION_PATTERN, "minLength": 3})] | float,
    Meta(description="ISO 8601 in clock units, such as PT30S or P1D, or a number of seconds.", examples=["PT30S", 30]),
]


_EARLIEST, _LATEST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)


def check_reach(**moments: datetime | None) -> None:
    """Refuse moments at the very ends of time, with which nothing can be computed. Raises ValueError."""
    for field, moment in moments.items():
        if moment is not None and not _EARLIEST <= moment <= _LATEST:
            raise ValueError(f"{field} is out of reach; give a moment between 0001-01-02 and 9999-12-30 in UTC")


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A shape that callers write. A field that nobody knows is refused."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A shape that we write. Every field is always there; clients ignore those they do not know."""


class Nothing(Asked, frozen=True):
    """No fields: of an operation that takes no query, or no body."""
