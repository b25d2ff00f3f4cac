"""What an attempt came to. One type a case; an Outcome says what happened, a Transition what the run becomes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec


class Succeeded(msgspec.Struct, frozen=True, tag=True):
    """The handler returned; `result` is JSON text, or nothing, and so is `detail`: what is known of the attempt besides.

    `reason` says why the result is not kept, or not whole; none: it is.
    """

    result: str | None = None
    detail: str | None = None
    reason: str | None = None


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The handler raised, or its target refused.

    `kinds`, `status` and `exit` are what rules know it by. `probe`: it was sent to find out how an ailing destination is.
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
    """The lease ended before an outcome came. `named`: the run was alone and announced, so it is to blame."""

    named: bool = False

    @property
    def reason(self) -> str:
        return "worker lost while it ran this run alone" if self.named else "worker lost"


class Cancelled(msgspec.Struct, frozen=True, tag=True):
    """Someone asked it to stop, and it did."""

    reason: str = "cancelled"


class Snoozed(msgspec.Struct, frozen=True, tag=True):
    """The handler asked to be called again later; this is no failure."""

    delay: timedelta
    reason: str = "snoozed"


class Expired(msgspec.Struct, frozen=True, tag=True):
    """It was found too late to be worth starting, and no attempt was made."""

    at: datetime

    @property
    def reason(self) -> str:
        return f"expired at {self.at.astimezone(UTC).isoformat(timespec='milliseconds').replace('+00:00', 'Z')}"


class Spent(msgspec.Struct, frozen=True, tag=True):
    """It was claimed though its handler allows no more attempts, and none was made. `after`: what took the last one."""

    after: str
    allowed: int

    @property
    def reason(self) -> str:
        return f"{self.after}; its handler allows {self.allowed} attempt{'s' * (self.allowed != 1)}"


class Parked(msgspec.Struct, frozen=True, tag=True):
    """Its destination is not to be called now: the run waits for it, and no attempt was made."""

    origin: str


class Awaited(msgspec.Struct, frozen=True, tag=True):
    """The receiver has taken it on, and will say what it came to; when it says nothing for so long, the attempt timed out."""

    seconds: float


Outcome = Succeeded | Failed | TimedOut | Lost | Cancelled | Snoozed | Expired | Spent
Deferral = Parked | Awaited  # no outcome yet: the run leaves its worker's hands and waits for something
