"""The keywords with which a handler declares its schedule; `handler.options(…)` takes the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from duly.domain.duration import Duration
from duly.domain.errors import InvalidOption
from duly.domain.triggers.schedule import options
from duly.sdk.choices import spelled


class When(TypedDict, total=False):
    """The keywords of a schedule."""

    cron: str | None
    every: Duration | None
    when: str | None
    schedule: Mapping[str, Any] | None
    tz: str | None
    mode: str | None
    start: str | datetime | None
    end: str | datetime | None
    max_runs: int | None
    jitter: Duration | Mapping[str, Any] | None
    misfire: str | Mapping[str, Any] | None
    overlap: str | Mapping[str, Any] | None
    calendars: Sequence[str | Mapping[str, Any]] | None
    pause_on_failure: int | None


def shape_of(when: When) -> dict[str, Any] | None:
    """Give the shape that keywords ask for; None without any. Raises InvalidOption, InvalidSchedule."""
    if unknown := sorted(when.keys() - When.__annotations__.keys()):
        raise InvalidOption(f"{unknown[0]}= is no option; a schedule has {', '.join(When.__annotations__)}")
    return options.compose(when, spelled)
