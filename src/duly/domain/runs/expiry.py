"""Expiry: the moment after which a run is not started any more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from duly.domain.duration import Duration, parse_option
from duly.domain.errors import InvalidOption
from duly.domain.jobs.job import check_moment
from duly.domain.runs.options import RunPolicy
from duly.domain.triggers.errors import shown

_SECONDS_MAX = datetime(9999, 1, 1, tzinfo=UTC).timestamp()  # as the store has it


def expiry_moment(seconds: float) -> datetime:
    """Read seconds since 1970 as runs carry them; impossible values, such as milliseconds, become the last moment."""
    return datetime.fromtimestamp(min(max(seconds, 0.0), _SECONDS_MAX), UTC)


def expiry_of(scheduled_at: datetime, policy: RunPolicy) -> datetime | None:
    """Return the moment after which a run is not started; None: it never expires."""
    moments = []
    if policy.expires_at is not None:
        moments.append(expiry_moment(policy.expires_at))
    if policy.expires_seconds is not None:
        moments.append(scheduled_at + timedelta(seconds=policy.expires_seconds))
    return min(moments, default=None)


def check_expires_at(value: datetime, due_at: datetime | None = None) -> float:
    """Check the expiry of a one-shot; returned as runs carry it. Raises InvalidOption, InvalidSchedule."""
    moment = check_moment(value, "expires_at")
    if due_at is not None and moment <= due_at:
        raise InvalidOption(
            f"expires_at {moment.isoformat()} is not after {due_at.isoformat()}, its due time; choose a later one"
        )
    return moment.timestamp()


def check_expires_after(value: Duration) -> float:
    """Check the time after its moment within which a run may start, in seconds. Raises InvalidOption."""
    seconds = parse_option(value, "expires_after").total_seconds()
    if seconds <= 0:
        raise InvalidOption(f"expires_after {shown(value)} must be more than 0; leave it out for never")
    return seconds


def shown_moment(moment: datetime) -> str:
    """Write a moment for a reason."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
