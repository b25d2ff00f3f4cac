"""The bases of requests and responses, and the types of fields that only HTTP has."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Self

import msgspec
from msgspec import Meta

from duly.domain.fields import PRINTABLE, Duration
from duly.domain.jobs.job import REASON_CHARACTERS_MAX
from duly.domain.runs.run import NAME_CHARACTERS_MAX, NOT_BLANK

IdempotencyKey = Annotated[str, Meta(min_length=1, max_length=NAME_CHARACTERS_MAX, pattern=NOT_BLANK)]
Reason = Annotated[str, Meta(min_length=1, max_length=REASON_CHARACTERS_MAX, extra_json_schema=PRINTABLE)]
ReplayRate = Annotated[
    float, Meta(gt=0, le=100_000, description="Runs per second; further pages continue after these.")
]
RetryAfter = Annotated[Duration, Meta(description="Minimum delay from now; at most a day.")]

_EARLIEST, _LATEST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)


def check_reach(**moments: datetime | None) -> None:
    """Refuse moments at the very ends of time, which cannot be computed with. Raises ValueError."""
    for field, moment in moments.items():
        if moment is not None and not _EARLIEST <= moment <= _LATEST:
            raise ValueError(f"{field} is out of range; give a time between 0001-01-02 and 9999-12-30 in UTC")


class RequestModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request. An unknown field is refused."""


class ResponseModel(msgspec.Struct, frozen=True, kw_only=True):
    """A response. Every field is always present; clients ignore fields they do not know."""

    @classmethod
    def of(cls, source: Any, **given: Any) -> Self:
        """Copy the fields that are not given from a row or an object, by name.

        A missing field is an error of ours, even if it has a default: that stands for older servers.
        """
        read = source.__getitem__ if hasattr(source, "keys") else partial(getattr, source)
        copied = {}
        for name in cls.__struct_fields__:
            if name in given:
                continue
            try:
                copied[name] = read(name)
            except (KeyError, AttributeError) as error:
                raise AssertionError(f"{cls.__name__}.{name} is neither given nor in the source") from error
        return cls(**copied, **given)


class Nothing(RequestModel, frozen=True):
    """A shape without fields: of an operation without a query, or without a body."""
