"""Schedules: a trigger with its bounds, calendars, jitter and policies, in the order in which they act."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from duly.domain.triggers import calendars
from duly.domain.triggers.calendars import BLOCKED_DAYS_MAX, Use
from duly.domain.triggers.compiled import Compiled, TriggerWarning
from duly.domain.triggers.jitter import Jitter
from duly.domain.triggers.moments import DAY, FIRST_SECOND, moment_of, second_of

GRACE_SECONDS = 60
# As many as one backfill may have without a confirmation.
MISFIRE_LIMIT_MAX = 10_000
_FINEST = timedelta(microseconds=1)
_EARLIEST = moment_of(FIRST_SECOND)
_RARE_DAYS, _CLOCK_CHANGE_DAYS = 366, 400
# The number of spans to search for an occurrence that one calendar defers, behind those that another skips.
_STRETCHES_MAX = 5_000


class Fire(msgspec.Struct, frozen=True):
    """One occurrence: its moment, and the calendar that deferred it, if any."""

    scheduled_at: datetime
    deferred_by: str | None = None


class Misfire(msgspec.Struct, frozen=True):
    """The policy for an occurrence that is noticed too late."""

    policy: str = "fire_once"
    grace_seconds: int = GRACE_SECONDS
    window_seconds: int | None = None
    rate: float = 1
    limit: int = 1000


class Overlap(msgspec.Struct, frozen=True):
    """The policy for an occurrence that is due while the last run is active."""

    policy: str = "skip"
    limit: int | None = None


class Schedule(msgspec.Struct, frozen=True):
    """A compiled schedule. It gives its fires as a trigger does."""

    trigger: Compiled
    start: datetime | None = None
    end: datetime | None = None
    max_runs: int | None = None
    jitter: Jitter | None = None
    misfire: Misfire = Misfire()
    overlap: Overlap = Overlap()
    uses: tuple[Use, ...] = ()
    pause_on_failure: int | None = None

    def next_after(self, moment: datetime) -> Fire | None:
        """Return the first fire after a moment, with calendars applied."""
        return self._deferred_past(moment) or self._from_trigger(moment)

    def first_from(self, moment: datetime) -> Fire | None:
        """Return the first fire that stands for an occurrence from a moment on; occurrences deferred from before do not
        count.
        """
        fire = self.next_after(moment - _FINEST)
        if fire is None or fire.deferred_by is None:
            return fire
        represented = self._latest_unskipped(fire.scheduled_at)
        return fire if represented is not None and represented >= moment else self.next_after(fire.scheduled_at)

    def latest_at_or_before(self, moment: datetime) -> Fire | None:
        """Return the last fire at or before a moment, with calendars applied; None when there is none."""
        last = self._latest_within(moment)
        if not self.uses:
            return None if last is None else Fire(last)
        if last is not None and not calendars.blockers(self.uses, second_of(last)):
            # Searched from just before it, so that a fire into which others are folded carries their calendar's name.
            return self.next_after(last - _FINEST)
        return self._searched_back(moment)

    def within(self, start: datetime, end: datetime) -> tuple[datetime, datetime]:
        """Cut a span to the bounds; it may come out empty."""
        return start if self.start is None else max(start, self.start), end if self.end is None else min(end, self.end)

    def jitter_window(self, scheduled_at: datetime) -> int:
        """Return the maximum jitter in seconds of the fire at a moment, limited by the next fire; 0 without jitter."""
        if self.jitter is None:
            return 0
        scheduled = second_of(scheduled_at)
        limit = scheduled + self.jitter.max_seconds
        following = self.next_after(scheduled_at)
        if following is not None:
            limit = min(limit, second_of(following.scheduled_at))
        return calendars.next_blocked(self.uses, scheduled, limit) - scheduled

    def due_at(self, fire: Fire, job_id: str) -> datetime:
        """Return the moment at which a fire should start: scheduled, plus the jitter there is room for."""
        if self.jitter is None:
            return fire.scheduled_at
        window = self.jitter_window(fire.scheduled_at)
        return fire.scheduled_at + timedelta(seconds=self.jitter.delay(job_id, second_of(fire.scheduled_at), window))

    def warnings_after(self, moment: datetime) -> list[TriggerWarning]:
        """Return the warnings as seen from a moment."""
        found = [*self.trigger.warnings]
        fire = self.next_after(moment)
        if fire is not None and fire.scheduled_at - moment > timedelta(days=_RARE_DAYS):
            found.append(
                TriggerWarning("RARE", f"the next fire is on {fire.scheduled_at:%Y-%m-%d}, over a year away", "trigger")
            )
        second = second_of(moment)
        change = self.trigger.clock_change(second, second + _CLOCK_CHANGE_DAYS * DAY)
        if change is not None:
            found.append(TriggerWarning("CLOCK_CHANGE", change, "trigger"))
        return found

    def _deferred_past(self, moment: datetime) -> Fire | None:
        """Return the fire after `moment` that stands for an occurrence blocked before it."""
        if not any(use.on_hit == "defer" for use in self.uses):
            return None
        last = self._latest_unskipped(moment)
        if last is None or not calendars.blockers(self.uses, second_of(last)):
            return None
        fire = self._deferred(last)
        return fire if fire is not None and fire.scheduled_at > moment else None

    def _latest_unskipped(self, moment: datetime) -> datetime | None:
        """Return the last occurrence at or before a moment that no calendar skips, as far back as one may be deferred
        from.

        Skipped occurrences say nothing of earlier ones, and may be many: they are crossed in ever longer spans.
        """
        last = self._latest_within(moment)
        skipping = [use for use in self.uses if use.on_hit == "skip"]
        if last is None or not calendars.blockers(skipping, second_of(last)):
            return last
        end, reach = second_of(last), DAY
        while True:
            for begin, until in reversed(list(calendars.permitted(skipping, end - reach, end, _STRETCHES_MAX))):
                found = self._latest_within(moment_of(until) - _FINEST)
                if found is not None and found >= moment_of(begin):
                    return found
            if reach >= BLOCKED_DAYS_MAX * DAY:
                return None
            reach = min(4 * reach, BLOCKED_DAYS_MAX * DAY)

    def _searched_back(self, moment: datetime) -> Fire | None:
        """Return the last fire at or before `moment` by searching forward from ever earlier moments, and then ever
        closer ones.

        The time between two fires may be blocked for long, and calendars only answer forwards.
        """
        before, step = moment, timedelta(seconds=1)
        while (found := self._next_until(before, moment)) is None:
            if before <= _EARLIEST:
                return None
            before, step = max(_EARLIEST, before - min(step, before - _EARLIEST)), 2 * step
        after = moment
        while found.scheduled_at < after:
            middle = found.scheduled_at + (after - found.scheduled_at) / 2
            closer = self._next_until(middle, moment)
            if closer is None:
                after = middle
            else:
                found = closer
        return found

    def _next_until(self, after: datetime, until: datetime) -> Fire | None:
        found = self.next_after(after)
        return found if found is not None and found.scheduled_at <= until else None

    def _latest_within(self, moment: datetime) -> datetime | None:
        """Return the last occurrence of the trigger at or before a moment, if it lies within the bounds."""
        last = self.trigger.latest_at_or_before(moment if self.end is None else min(moment, self.end - _FINEST))
        return None if last is None or (self.start is not None and last < self.start) else last

    def _deferred(self, moment: datetime) -> Fire | None:
        """Return the fire that a blocked occurrence is deferred to; None when nothing is permitted for too long."""
        permitted = calendars.first_permitted(self.uses, second_of(moment))
        if permitted is None:
            return None
        # The last calendar to block gives its name, so that all occurrences folded into this fire agree on it.
        return Fire(moment_of(permitted), calendars.blockers(self.uses, permitted - 1)[0].calendar.name)

    def _from_trigger(self, moment: datetime) -> Fire | None:
        if self.start is not None and moment < self.start:
            moment = self.start - _FINEST
        limit: datetime | None = None
        while (found := self.trigger.next_after(moment)) is not None and (self.end is None or found < self.end):
            blocking = calendars.blockers(self.uses, second_of(found))
            if not blocking:
                return Fire(found)
            if all(use.on_hit == "defer" for use in blocking):
                return self._deferred(found)
            limit = limit or found + timedelta(days=BLOCKED_DAYS_MAX)
            # While a skipping calendar blocks, nothing else matters; after it, another may still defer.
            over = calendars.first_permitted([use for use in self.uses if use.on_hit == "skip"], second_of(found))
            if over is None or found > limit:
                return None
            moment = max(found, moment_of(over) - _FINEST)
        return None
