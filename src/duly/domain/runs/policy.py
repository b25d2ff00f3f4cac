"""The policy of a run: retries, limits, expiry and target. `store/` decodes it once; nobody else sees it as text."""

from __future__ import annotations

import msgspec

from duly.domain.runs.retry import Retry
from duly.domain.targets.target import Target


class RunPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a run is run. `own`: its job says so, and nothing is left to its handler."""

    retry: Retry = Retry()
    timeout_seconds: float | None = None
    target: Target | None = None  # None: a function
    own: bool = False
    gate: tuple[str, int] | None = None  # a concurrency key, and how many of its runs may be ready or running at once
    fifo: bool | int = False  # the runs of its key go one after another, in order; the store numbers them
    rate: tuple[str, float, int] | None = None  # a key, its starts a second, and how many at once after a rest
    expires_at: float | None = None  # seconds since 1970: after this it is not worth starting
    expires_seconds: float | None = None  # the same, counted from its scheduled moment
    rearm: bool = False  # the schedule's next fire counts from the end of this run
    watch: int | None = None  # after so many runs in a row that failed for good, the schedule pauses

    @property
    def has_consequence(self) -> bool:
        """Whether more follows from the end of a run than its record: a slot, the next fire, or a count of failures."""
        return self.gate is not None or self.rearm or self.watch is not None

    def or_handlers(self, handler: RunPolicy) -> RunPolicy:
        """Return this policy, where it is not its job's own with the handler's retries, timeout and expiry."""
        if self.own or handler is PLAIN:
            return self
        if self is PLAIN:
            return handler
        expires_seconds = handler.expires_seconds if self.expires_seconds is None else self.expires_seconds
        return msgspec.structs.replace(
            self, retry=handler.retry, timeout_seconds=handler.timeout_seconds, expires_seconds=expires_seconds
        )


PLAIN = RunPolicy()  # shared by all runs that carry no options
