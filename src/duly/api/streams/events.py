"""The event hub: reads changes of runs and definitions while there are listeners, and sends them to all of them.

There is one in a process. New events go into a ring buffer, the newest last. A listener has only a cursor in the ring, so a
slow one costs no memory: once the ring has overwritten events after its cursor, it gets a gap event. A listener that
reconnects names the last event it got. If the ring still holds all later events, the stream resumes there; if not, later ends
are read from history, up to a bound, and beyond that there is a gap event. For that the id of an event carries a position in
history, after which any hub can read on. Runs that ended may then come twice, with the same id.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from datetime import datetime, timedelta
from itertools import islice
from typing import Protocol

import msgspec

from duly.api.admission import OpenRequest
from duly.api.streams.cloud_events import (
    GAP,
    CloudEvent,
    began,
    came_to,
    changed,
    gap,
    started_of,
    workflow_changed,
    workflow_ended,
)
from duly.api.streams.event_ids import EVENT_ID, moment_at, position_of, text_of
from duly.api.streams.logs import LogStreams
from duly.clock import Rng, moment_of
from duly.domain.errors import DulyError
from duly.log import Log
from duly.store.connection.database import Database
from duly.store.reads import workflow_ends
from duly.store.reads.changes import job_changes, workflow_changes
from duly.store.reads.stream import Beginnings, Ended, Endings
from duly.store.reads.tail import Position, positions
from duly.store.reads.workflow_ends import WorkflowEnds

LOOK_SECONDS = 0.25
HEARTBEAT_SECONDS = 15.0
RING_MAX = 10_000
LINGER_SECONDS = 30.0  # after the last sign of a tenant's listeners
REPLAY_MAX = 1_000
REPLAY_AGE_MAX = timedelta(hours=1)
_ADMISSION_SECONDS = 2.0  # between checks that a listener is still admitted
_SKEW = timedelta(seconds=2)  # rows become visible in another order than they were written
_HEARTBEAT = b": alive\n\n"
_ELSEWHERE = "0" * 8


class Reader(Protocol):
    """A reader of what is new, in bounded parts: it moves on, so what it leaves out is not returned again."""

    left_out: bool


class Wanted(msgspec.Struct, frozen=True):
    """The events that a listener wants."""

    tenant: int
    types: Collection[str] | None = None
    queue: str | None = None

    def fits(self, event: CloudEvent) -> bool:
        """Return whether it matches."""
        return (
            event.tenant == self.tenant
            and (self.types is None or event.type in self.types)
            and (self.queue is None or event.queue == self.queue)
        )


class Joined(msgspec.Struct, frozen=True):
    """A listener's cursor in the ring, and what it is sent before it goes on from there."""

    cursor: int
    first: list[bytes]


class Kept(msgspec.Struct, frozen=True):
    """An event in the ring. Everything that its position covers came before it."""

    event: CloudEvent
    position: Position


class EventHub:
    """Finds new events, for the listeners."""

    def __init__(self, database: Database, log: Log) -> None:
        self._database = database
        self._clock = database.clock
        self._log = log
        self._name = Rng().uuid().hex[:8]
        self._ring: deque[Kept] = deque(maxlen=RING_MAX)
        self._count = 0  # of all that ever went into the ring
        self._position = Position("", 0)  # all before it is in the ring, or was
        self._stepping = asyncio.Lock()
        self._until: dict[int, float] = {}  # how long to look for a tenant
        self._since: dict[int, int] = {}  # from where on the ring holds all of a tenant
        self._listeners: set[asyncio.Event] = set()
        self._looking: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._closed = False
        self.logs = LogStreams(database.clock, log)
        self._start_over()

    # ------------------------------------------------------------------------------------------------------- listeners

    async def join(self, wanted: Wanted, last_id: str | None) -> Joined:
        """Return the cursor from which the listener gets events; `last_id` names the last event that it got."""
        await self._look_for(wanted.tenant)
        cursor = self._count
        if last_id is None:
            return Joined(cursor, [])
        resumed = self._cursor_of(last_id, wanted.tenant)
        return Joined(cursor, await self._replayed(wanted, last_id)) if resumed is None else Joined(resumed, [])

    async def listen(
        self,
        wanted: Wanted,
        joined: Joined,
        is_admitted: Callable[[], Awaitable[bool]],
        request: OpenRequest | None = None,
    ) -> AsyncIterator[bytes]:
        """Return what happens, in the lines of a stream, until the hub closes or the listener is admitted no longer.

        `request` counts among the open streams, and is given back at the end.
        """
        news, cursor = asyncio.Event(), joined.cursor
        self._listeners.add(news)
        heartbeat_at = self._clock.monotonic()
        try:
            yield b"".join([b"retry: 1000\n\n", *joined.first])
            while not self._closed and await is_admitted():
                await self._look_for(wanted.tenant)
                text, cursor = self._text_after(wanted, cursor)
                if text or self._clock.monotonic() - heartbeat_at >= HEARTBEAT_SECONDS:
                    heartbeat_at = self._clock.monotonic()
                    yield text or _HEARTBEAT
                if cursor == self._count:
                    await self._clock.wait(news, _ADMISSION_SECONDS)
        except DulyError as error:  # the database does not answer: the listener reconnects, with its position
            self._log.warning("stream_ended", error=str(error))
        finally:
            self._listeners.discard(news)
            if request is not None:
                request.give_back()

    def close(self) -> None:
        """End every stream, and look no more."""
        self._closed = True
        self.logs.close()
        if self._looking is not None:
            self._looking.cancel()
        self._wake()

    # ----------------------------------------------------------------------------------------------------------- looks

    async def step(self) -> None:
        """Look once, and publish what is new."""
        async with self._stepping:
            tenants = list(self._until)
            # Read first and published last: by then the ends of its nodes are seen.
            ends = await self._workflow_ends.look(tenants)
            begun = await self._beginnings.look(tenants)
            ended = await self._endings.look(tenants)
            changes, of_workflows = await self._changes.look(tenants), await self._workflow_changes.look(tenants)
            of_runs = [*map(began, begun), *(one for row in ended for one in self._of(row))]
            self._publish(
                [*map(changed, changes), *map(workflow_changed, of_workflows), *of_runs, *map(workflow_ended, ends)]
            )
            self._position = self._endings.position or self._position
            if any(reader.left_out for reader in self._readers):
                self._skip("more events happened at once than the stream can send, or the database failed over")

    async def _look_forever(self) -> None:
        has_failed = False
        while self._expire():
            try:
                await self.step()
                if has_failed:  # Events that a failed look had read are lost.
                    self._skip("events could not be read for a moment")
                has_failed = False
            except DulyError as error:
                has_failed = True
                self._log.warning("events_late", error=str(error))
            except Exception as error:  # noqa: BLE001 - a loop that must not end says what it was doing and goes on
                has_failed = True
                self._log.error("events_failed", error=repr(error))
            await self._clock.sleep(LOOK_SECONDS)
        self._looking = None

    async def _look_for(self, tenant: int) -> None:
        """Look for a tenant from now on, and for a while."""
        self._until[tenant] = self._clock.monotonic() + LINGER_SECONDS
        async with self._starting:
            if self._looking is None and not self._closed:
                self._start_over()
                await self.step()  # Sets the position in history, so that nothing from here on is missed.
                self._looking = asyncio.create_task(self._look_forever(), name="hub")
        if tenant not in self._since:
            async with self._stepping:  # A look under way does not include this tenant, and misses ends meanwhile.
                self._since.setdefault(tenant, self._count)

    def _start_over(self) -> None:
        self._beginnings, self._endings = Beginnings(self._database), Endings(self._database)
        self._changes, self._workflow_ends = job_changes(self._database), WorkflowEnds(self._database)
        self._workflow_changes = workflow_changes(self._database)
        self._readers: list[Reader] = [
            self._beginnings,
            self._endings,
            self._changes,
            self._workflow_changes,
            self._workflow_ends,
        ]
        self._since = dict.fromkeys(self._since, self._count)

    def _expire(self) -> bool:
        """Forget tenants without listeners for a while, and return whether there are others."""
        now = self._clock.monotonic()
        for tenant in [tenant for tenant, until in self._until.items() if until < now]:
            del self._until[tenant]
            self._since.pop(tenant, None)
        return bool(self._until) and not self._closed

    def _of(self, ended: Ended) -> Iterable[CloudEvent]:
        """Yield an end, and before it the start, if both came between two looks."""
        recently = self._moment() - timedelta(seconds=LINGER_SECONDS)
        if ended.fence is not None and ended.started_at is not None and ended.outcome != "fenced":
            if ended.started_at > recently and not self._beginnings.was_returned(ended.run_id, ended.fence):
                yield began(started_of(ended))
            self._beginnings.mark_returned(ended.run_id, ended.fence)
        yield from came_to(ended)

    def _publish(self, events: Collection[CloudEvent]) -> None:
        self._ring.extend(Kept(one, self._position) for one in events)
        self._count += len(events)
        if events:
            self._wake()

    def _skip(self, reason: str) -> None:
        """Publish a gap to every listener."""
        for tenant in self._until:
            reported = gap(self._moment(), reason)
            self._publish([msgspec.structs.replace(reported, tenant=tenant)])

    def _wake(self) -> None:
        for news in self._listeners:
            news.set()

    # --------------------------------------------------------------------------------------------------------- cursors

    def _text_after(self, wanted: Wanted, cursor: int) -> tuple[bytes, int]:
        """Return the lines after a cursor, and the next cursor."""
        if cursor < self._since[wanted.tenant] or self._count - cursor > len(self._ring):
            reported = gap(self._moment(), "the client reads too slowly, and some events were dropped")
            return reported.lines(self._id(self._count, reported.at, self._position)), self._count
        fresh = islice(self._ring, len(self._ring) - (self._count - cursor), None)
        found = [(number, kept) for number, kept in enumerate(fresh, cursor + 1) if self._fits(wanted, kept.event)]
        if found:  # the last of them is the newest
            number, last = found[-1]
            found[-1] = number, Kept(last.event, self._position)
        lines = [kept.event.lines(self._id(number, kept.event.at, kept.position)) for number, kept in found]
        return b"".join(lines), self._count

    @staticmethod
    def _fits(wanted: Wanted, event: CloudEvent) -> bool:
        is_gap = event.type == GAP and event.tenant == wanted.tenant
        return is_gap or wanted.fits(event)

    def _id(self, number: int, at: datetime, seen: Position, name: str | None = None) -> str:
        return f"{name or self._name}-{number}-{int(at.timestamp() * 1000)}-{text_of(seen)}"

    def _cursor_of(self, last_id: str, tenant: int) -> int | None:
        """Return the cursor behind an event of this ring; None when it is another's, or overwritten."""
        found = EVENT_ID.fullmatch(last_id)
        if found is None or found[1] != self._name:
            return None
        cursor = int(found[2])
        is_held = self._count - len(self._ring) <= cursor <= self._count and cursor >= self._since[tenant]
        return cursor if is_held else None

    async def _replayed(self, wanted: Wanted, last_id: str) -> list[bytes]:
        """Read from history the events since an event; one gap event where they cannot be read in full."""
        now, found = self._moment(), EVENT_ID.fullmatch(last_id)
        since = None if found is None else moment_at(int(found[3]))
        if found is None or since is None or now - since > REPLAY_AGE_MAX:
            return [self._gap(now, "the Last-Event-ID is unknown, or more than an hour old")]
        here, _ = await positions(self._database)
        seen = position_of(found, here)
        if seen is None:
            return [self._gap(now, "the Last-Event-ID belongs to another database, or to one before a failover")]
        endings = Endings(self._database, seen)
        rows = await endings.look([wanted.tenant])
        changes = await job_changes(self._database).recent(wanted.tenant, since - _SKEW, REPLAY_MAX)
        of_workflows = await workflow_changes(self._database).recent(wanted.tenant, since - _SKEW, REPLAY_MAX)
        ends = await workflow_ends.recent(self._database, wanted.tenant, since - _SKEW, REPLAY_MAX)
        if endings.left_out or len(rows) > REPLAY_MAX or max(len(changes), len(of_workflows), len(ends)) >= REPLAY_MAX:
            return [self._gap(now, "more events happened since the Last-Event-ID than can be replayed")]
        of_runs = [one for row in rows for one in came_to(row)]
        events = [*of_runs, *map(changed, changes), *map(workflow_changed, of_workflows), *map(workflow_ended, ends)]
        return [
            one.lines(self._id(0, one.at, seen, _ELSEWHERE))
            for one in sorted(events, key=lambda one: one.at)
            if wanted.fits(one)
        ]

    def _gap(self, now: datetime, reason: str) -> bytes:
        return gap(now, reason).lines(self._id(self._count, now, self._position))

    def _moment(self) -> datetime:
        return moment_of(self._clock.now())
