"""Requested jobs: a one-shot or a recurring job, checked before it reaches the store."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.duration import Duration, parse, parse_option
from duly.domain.errors import InvalidArguments, InvalidOption, InvalidSchedule
from duly.domain.number import is_whole
from duly.domain.runs.options import NO_OPTIONS, RunOptions
from duly.domain.runs.run import NAME_CHARACTERS_MAX
from duly.domain.triggers.errors import shown

REASON_CHARACTERS_MAX = 500
DELAY_MAX = timedelta(days=36_500)
# Moments beyond these may not exist in another zone, and drivers send the extreme ones as infinity.
YEAR_MIN, YEAR_MAX = 2, 9998
CONCURRENCY_SLOTS_MAX = 999_999
TAGS_MAX = 32
_PRINTABLE = f"1 to {NAME_CHARACTERS_MAX} printable characters"
_WAITING = ("queue", "buffer_one", "cancel_running")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-[0-9a-f-]{1,100})?")


class Submission(msgspec.Struct, frozen=True):
    """A one-shot: JSON as text, and at most one of `at` and `delay`."""

    handler: str
    payload: str
    queue: str
    priority: int
    at: datetime | None = None
    delay: timedelta | None = None
    options: RunOptions = NO_OPTIONS


class Recurring(msgspec.Struct, frozen=True):
    """A recurring job: its target, and its schedule as it was requested.

    `owner` is `code` when a program declares it; `source` then names the program.
    """

    handler: str
    payload: str
    queue: str
    priority: int
    schedule: Mapping[str, Any]
    name: str | None = None
    options: RunOptions = NO_OPTIONS
    owner: str = "api"
    source: str | None = None

    def digest(self) -> bytes:
        """Return a digest of the definition that does not depend on time or process."""
        return sha256(msgspec.json.encode(self, order="deterministic")).digest()


class StandingJob(msgspec.Struct, frozen=True):
    """The stored job of a name."""

    job_id: UUID
    name: str
    owner: str
    source: str | None
    state: str
    pause_reason: str | None
    version: int

    @property
    def is_over(self) -> bool:
        """Return whether it fires no more."""
        return self.state not in ("active", "paused")

    @property
    def is_paused(self) -> bool:
        return self.state == "paused"


def check_name(value: str, what: str) -> str:
    """Check a name: printable characters, not only spaces. Raises InvalidOption with the field `what`."""
    if not _is_printable(value, NAME_CHARACTERS_MAX):
        is_blank = str(value).isspace()
        why = "it is blank; write at least one visible character" if is_blank else _PRINTABLE
        raise InvalidOption(f"{what} {shown(value)} is not a name: {why}", what)
    if value in (".", ".."):
        raise InvalidOption(f"{what} {shown(value)} is not a name: a URL path would resolve it; choose another", what)
    return value


def check_key(value: str) -> str:
    """Check an idempotency key: printable characters. Raises InvalidOption."""
    if not _is_printable(value, NAME_CHARACTERS_MAX):
        raise InvalidOption(f"key {shown(value)} is not a key: {_PRINTABLE}; leave it out for none")
    return value


def check_job(value: UUID | str) -> UUID | str:
    """Check a reference to a job. Raises InvalidOption."""
    if not isinstance(value, UUID) and not _is_printable(value, NAME_CHARACTERS_MAX):
        raise InvalidOption(f"job {shown(value)} is neither an id nor a name: write a UUID, or {_PRINTABLE}")
    return value


def check_reason(value: str) -> str:
    """Check the reason of a pause. Raises InvalidOption."""
    if not _is_printable(value, REASON_CHARACTERS_MAX):
        raise InvalidOption(
            f"reason {shown(value)} is not one: 1 to {REASON_CHARACTERS_MAX} printable characters on one line;"
            " write a shorter one, or leave it out"
        )
    return value


def check_arguments(value: object, handler: str) -> Mapping[str, Any]:
    """Check a handler's arguments, by name. Raises InvalidArguments."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidArguments(
            f'arguments {shown(value)} of {handler} are not a mapping with names as keys, such as {{"customer": 7}}'
        )
    return value


def check_priority(value: int) -> int:
    """Check a priority, from 0 (first) to 9 (last). Raises InvalidOption."""
    if not is_whole(value) or not 0 <= value <= 9:
        raise InvalidOption(f"priority {shown(value)} is outside 0 (first) to 9 (last), in whole numbers")
    return value


def check_moment(value: datetime, what: str) -> datetime:
    """Check that a moment has a zone. Raises InvalidSchedule."""
    if not isinstance(value, datetime):
        raise InvalidSchedule(f"{what} {shown(value)} is not a timestamp; use a datetime with a time zone")
    if value.tzinfo is None:
        raise InvalidSchedule(
            f"{what} {value} has no time zone; write it with an offset, such as 2026-11-01T09:00:00+01:00"
        )
    if not YEAR_MIN <= value.year <= YEAR_MAX:
        raise InvalidSchedule(f"{what} {value} is outside the years {YEAR_MIN} to {YEAR_MAX}; use a year within them")
    return value


def check_delay(value: Duration) -> timedelta:
    """Check a delay. Raises InvalidSchedule."""
    delay = parse(value, "delay", DELAY_MAX)
    if delay < timedelta():
        raise InvalidSchedule(f"delay {value!r} is negative; a delay counts from now and is 0 or more")
    return delay


def check_concurrency_key(name: str, slots: int) -> tuple[str, int]:
    """Check a concurrency key and its number of slots. Raises InvalidOption."""
    if not is_whole(slots) or not 1 <= slots <= CONCURRENCY_SLOTS_MAX:
        raise InvalidOption(f"concurrency {shown(slots)} is outside 1 to {CONCURRENCY_SLOTS_MAX} runs at once")
    return check_name(name, "concurrency key"), slots


def check_tags(values: object) -> tuple[str, ...]:
    """Check a list of distinct tags. Raises InvalidOption."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InvalidOption(f"tags {shown(values)} are not a list; give one: [{shown(values)}]")
    tags = tuple(dict.fromkeys(check_name(value, "tag") for value in values))
    if len(tags) > TAGS_MAX:
        raise InvalidOption(f"{len(tags)} tags are too many; the limit is {TAGS_MAX}. Put the rest into the payload")
    return tags


def check_request_id(value: str) -> str:
    """Check the id of the request that created a job. Raises InvalidOption."""
    if not _is_printable(value, NAME_CHARACTERS_MAX):
        raise InvalidOption(f"request id {shown(value)} is not one: {_PRINTABLE}")
    return value


def check_traceparent(value: object) -> str:
    """Check the W3C Trace Context `traceparent` of the request that created a job. Raises InvalidOption."""
    if not isinstance(value, str) or not _TRACEPARENT.fullmatch(value):
        raise InvalidOption(
            f"traceparent {shown(value)} is not a W3C traceparent; write 00-<32 hex digits>-<16 hex digits>-<2 hex digits>"
        )
    return value


def check_overlap(job: Recurring) -> None:
    """Refuse a waiting overlap policy beside a concurrency key, which makes runs wait too. Raises InvalidOption."""
    overlap = job.schedule.get("overlap")
    if not isinstance(overlap, Mapping) or job.options.policy.concurrency is None:
        return
    policy, limit = overlap.get("policy"), overlap.get("limit")
    if policy in _WAITING or (policy == "allow" and limit is not None):
        raise InvalidOption(f"overlap {policy} beside a concurrency key is not possible; use skip or allow")


def check_timeout(value: Duration | None) -> float | None:
    """Check a timeout in seconds, or None. Raises InvalidOption."""
    if value is None:
        return None
    seconds = parse_option(value, "timeout").total_seconds()
    if seconds <= 0:
        raise InvalidOption(f"timeout {value!r} must be more than 0; leave it out for none")
    return seconds


def _is_printable(value: object, characters_max: int) -> bool:
    if not isinstance(value, str) or not 1 <= len(value) <= characters_max:
        return False
    return value.isprintable() and not value.isspace()
