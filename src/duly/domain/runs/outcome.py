"""Outcomes of an attempt, one type each. An Outcome is what happened; a Transition is what the run becomes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec


class Succeeded(msgspec.Struct, frozen=True, tag=True):
    """The handler returned. `result` is JSON text or None, and so is `detail`: further facts of the attempt.

    `reason` says why the result is not stored, or not whole; None: it is.
    """

    result: str | None = None
    detail: str | None = None
    reason: str | None = None


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The handler raised, or its target refused.

    Rules match `kinds`, `status` and `exit`. `probe`: it was sent to test a failing destination.
    """

    reason: str
    retryable: bool = True
    detail: str | None = None
    retry_after: timedelta | None = None
    kinds: tuple[str, ...] = ()
    status: int | None = None
    exit: int | None = None
    probe: bool = False


class TimedOut(msgspec.Struct, frozen=True, tag=True):
    """The attempt ran past its timeout and was stopped."""

    seconds: float
    detail: str | None = None
    probe: bool = False

    @property
    def reason(self) -> str:
        return f"timed out after {round(self.seconds, 2):g} s"


class Lost(msgspec.Struct, frozen=True, tag=True):
    """The lease expired before an outcome came, or the process or node that had the run was lost.

    `named`: the run was alone and marked as started, so it is to blame. `cause`: what was lost, if not the worker.
    """

    named: bool = False
    cause: str | None = None

    @property
    def reason(self) -> str:
        if self.cause is not None:
            return self.cause
        return "worker lost while it ran this run alone" if self.named else "worker lost"


class Cancelled(msgspec.Struct, frozen=True, tag=True):
    """The run was asked to stop, and did."""

    reason: str = "cancelled"


class Snoozed(msgspec.Struct, frozen=True, tag=True):
    """The handler asked to be called again later, which is no failure."""

    delay: timedelta
    reason: str = "snoozed"


class Expired(msgspec.Struct, frozen=True, tag=True):
    """The run had expired before it started, and no attempt was made."""

    at: datetime

    @property
    def reason(self) -> str:
        return f"expired at {self.at.astimezone(UTC).isoformat(timespec='milliseconds').replace('+00:00', 'Z')}"


class Spent(msgspec.Struct, frozen=True, tag=True):
    """The run was claimed though its handler allows no more attempts, and none was made. `after`: the last attempt's reason."""

    after: str
    allowed: int

    @property
    def reason(self) -> str:
        return f"{self.after}; its handler allows {self.allowed} attempt{'s' * (self.allowed != 1)}"


class WaitForDestination(msgspec.Struct, frozen=True, tag=True):
    """Its destination must not be called now: the run waits for it, and no attempt was made."""

    origin: str


class Awaited(msgspec.Struct, frozen=True, tag=True):
    """The receiver accepted it and will report its outcome; without a report within this time, the attempt timed out."""

    seconds: float


Outcome = Succeeded | Failed | TimedOut | Lost | Cancelled | Snoozed | Expired | Spent
Deferral = WaitForDestination | Awaited  # no outcome yet: the run leaves its worker and waits for something
