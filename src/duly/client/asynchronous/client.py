"""The client: one object for a Duly server, with its resources as attributes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from duly.client.address import Address
from duly.client.asynchronous.archive import AsyncArchive
from duly.client.asynchronous.dead import AsyncDead
from duly.client.asynchronous.destinations import AsyncDestinations
from duly.client.asynchronous.figures import AsyncFigures
from duly.client.asynchronous.jobs import AsyncJobs
from duly.client.asynchronous.keys import AsyncAudit, AsyncKeys, AsyncSessions, AsyncTenants
from duly.client.asynchronous.limits import AsyncConcurrencyKeys, AsyncLimits
from duly.client.asynchronous.notifications import AsyncChannels, AsyncNotifications
from duly.client.asynchronous.queues import AsyncHosts, AsyncPauses, AsyncQueues, AsyncRecovery, AsyncWorkers
from duly.client.asynchronous.runs import AsyncCallbacks, AsyncRuns
from duly.client.asynchronous.schedules import AsyncBackfills, AsyncCalendars, AsyncFiles
from duly.client.asynchronous.transport import AsyncTransport
from duly.client.asynchronous.workflows import AsyncWorkflows
from duly.client.requests import Id, getting, given, path, posting, query_of
from duly.client.retry import Patience
from duly.client.streaming import Event, read_event
from duly.wire.events import BATCH_MEDIA_TYPE, MEDIA_TYPE, EventAccepted, EventsAccepted
from duly.wire.jobs.previews import Preview
from duly.wire.system import System

if TYPE_CHECKING:
    import httpx2


class AsyncClient:
    """A client of Duly's HTTP API, which keeps its connections until it is closed.

    `url` and `key` come from DULY_URL and DULY_API_KEY where they are not given. A request is retried, as far as that
    is safe, until `deadline` seconds have passed; one try takes at most `timeout`. A read gives up earlier, after
    `connect_deadline` seconds, if nothing accepts the connection.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 15.0,
        deadline: float = 60.0,
        connect_deadline: float = inf,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        patience = Patience(timeout=timeout, deadline=deadline, connect_deadline=connect_deadline)
        self._transport = AsyncTransport(Address(url, key), patience, transport)
        self.jobs = AsyncJobs(self._transport)
        self.runs = AsyncRuns(self._transport)
        self.workflows = AsyncWorkflows(self._transport)
        self.dead = AsyncDead(self._transport)
        self.files = AsyncFiles(self._transport)
        self.backfills = AsyncBackfills(self._transport)
        self.calendars = AsyncCalendars(self._transport)
        self.callbacks = AsyncCallbacks(self._transport)
        self.queues = AsyncQueues(self._transport)
        self.pauses = AsyncPauses(self._transport)
        self.limits = AsyncLimits(self._transport)
        self.workers = AsyncWorkers(self._transport)
        self.hosts = AsyncHosts(self._transport)
        self.recovery = AsyncRecovery(self._transport)
        self.destinations = AsyncDestinations(self._transport)
        self.channels = AsyncChannels(self._transport)
        self.notifications = AsyncNotifications(self._transport)
        self.figures = AsyncFigures(self._transport)
        self.concurrency_keys = AsyncConcurrencyKeys(self._transport)
        self.keys = AsyncKeys(self._transport)
        self.sessions = AsyncSessions(self._transport)
        self.tenants = AsyncTenants(self._transport)
        self.audit = AsyncAudit(self._transport)
        self.archive = AsyncArchive(self._transport)

    def __repr__(self) -> str:
        return f"<AsyncClient {self.url}>"

    @property
    def url(self) -> str:
        """The URL of the server."""
        return self._transport.address.url

    @property
    def unanswered_write(self) -> str | None:
        """The method and path of a write that was sent and not answered, which may have been carried out; None: there
        is none.
        """
        return self._transport.unanswered_write

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def system(self) -> System:
        """Read the installation, and the doctor's findings: for the operator. Raises Forbidden."""
        return await self._transport.send(getting(path("system"), System))

    async def preview(
        self, schedule: Mapping[str, Any], *, after: datetime | None = None, n: int = 10, job_id: Id | None = None
    ) -> Preview:
        """Describe a schedule, in words and by its next fires, also for a job; nothing is stored."""
        body = given(schedule=schedule, after=after, n=n, job_id=job_id)
        return await self._transport.send(posting(path("triggers", "preview"), Preview, body))

    async def send_event(
        self,
        type: str,
        source: str,
        *,
        data: Any = None,
        id: str | None = None,
        subject: str | None = None,
        time: datetime | None = None,
    ) -> EventAccepted:
        """Send an event: each active job with a matching `on_event` gets one run. An `id` of a source is accepted once."""
        name = self._transport.manners.rng.secret(16).hex() if id is None else id
        event = given(specversion="1.0", id=name, source=source, type=type, data=data, subject=subject, time=time)
        return await self._transport.send(posting(path("events"), EventAccepted, event, media_type=MEDIA_TYPE))

    async def send_events(self, events: Sequence[Mapping[str, Any]]) -> list[EventAccepted]:
        """Send CloudEvents as one batch, up to 1,000: all are accepted, or none. Returns the result of each, in order."""
        batch = [{"specversion": "1.0", **event} for event in events]
        return (
            await self._transport.send(posting(path("events"), EventsAccepted, batch, media_type=BATCH_MEDIA_TYPE))
        ).items

    def events(
        self, *, types: Sequence[str] = (), queue: str | None = None, since: str | None = None
    ) -> AsyncIterator[Event]:
        """Yield starts and ends of runs, without end; a lost connection is restored, and nothing is left out.

        `since` is the `cursor` of the last event that was received before. An event may come twice, with the same id.
        Where events were lost for good, one of type `duly.stream.gap.v1` says so.
        """
        query = query_of({"types": ",".join(types) or None, "queue": queue})
        return self._transport.listen(path("events"), query, since, read_event)
