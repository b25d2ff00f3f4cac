# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""The client: one object for a Duly server, with its resources as attributes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from duly.client.address import Address
from duly.client.requests import Id, getting, given, path, posting, query_of
from duly.client.retry import Patience
from duly.client.streaming import Event, read_event
from duly.client.synchronous.archive import Archive
from duly.client.synchronous.dead import Dead
from duly.client.synchronous.destinations import Destinations
from duly.client.synchronous.figures import Figures
from duly.client.synchronous.jobs import Jobs
from duly.client.synchronous.keys import Audit, Keys, Sessions, Tenants
from duly.client.synchronous.limits import ConcurrencyKeys, Limits
from duly.client.synchronous.notifications import Channels, Notifications
from duly.client.synchronous.queues import Hosts, Pauses, Queues, Recovery, Workers
from duly.client.synchronous.runs import Callbacks, Runs
from duly.client.synchronous.schedules import Backfills, Calendars, Files
from duly.client.synchronous.transport import Transport
from duly.client.synchronous.workflows import Workflows
from duly.wire.events import BATCH_MEDIA_TYPE, MEDIA_TYPE, EventAccepted, EventsAccepted
from duly.wire.jobs.previews import Preview
from duly.wire.system import System

if TYPE_CHECKING:
    import httpx2


class Client:
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
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        patience = Patience(timeout=timeout, deadline=deadline, connect_deadline=connect_deadline)
        self._transport = Transport(Address(url, key), patience, transport)
        self.jobs = Jobs(self._transport)
        self.runs = Runs(self._transport)
        self.workflows = Workflows(self._transport)
        self.dead = Dead(self._transport)
        self.files = Files(self._transport)
        self.backfills = Backfills(self._transport)
        self.calendars = Calendars(self._transport)
        self.callbacks = Callbacks(self._transport)
        self.queues = Queues(self._transport)
        self.pauses = Pauses(self._transport)
        self.limits = Limits(self._transport)
        self.workers = Workers(self._transport)
        self.hosts = Hosts(self._transport)
        self.recovery = Recovery(self._transport)
        self.destinations = Destinations(self._transport)
        self.channels = Channels(self._transport)
        self.notifications = Notifications(self._transport)
        self.figures = Figures(self._transport)
        self.concurrency_keys = ConcurrencyKeys(self._transport)
        self.keys = Keys(self._transport)
        self.sessions = Sessions(self._transport)
        self.tenants = Tenants(self._transport)
        self.audit = Audit(self._transport)
        self.archive = Archive(self._transport)

    def __repr__(self) -> str:
        return f"<Client {self.url}>"

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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def system(self) -> System:
        """Read the installation, and the doctor's findings: for the operator. Raises Forbidden."""
        return self._transport.send(getting(path("system"), System))

    def preview(
        self, schedule: Mapping[str, Any], *, after: datetime | None = None, n: int = 10, job_id: Id | None = None
    ) -> Preview:
        """Describe a schedule, in words and by its next fires, also for a job; nothing is stored."""
        body = given(schedule=schedule, after=after, n=n, job_id=job_id)
        return self._transport.send(posting(path("triggers", "preview"), Preview, body))

    def send_event(
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
        return self._transport.send(posting(path("events"), EventAccepted, event, media_type=MEDIA_TYPE))

    def send_events(self, events: Sequence[Mapping[str, Any]]) -> list[EventAccepted]:
        """Send CloudEvents as one batch, up to 1,000: all are accepted, or none. Returns the result of each, in order."""
        batch = [{"specversion": "1.0", **event} for event in events]
        return (self._transport.send(posting(path("events"), EventsAccepted, batch, media_type=BATCH_MEDIA_TYPE))).items

    def events(
        self, *, types: Sequence[str] = (), queue: str | None = None, since: str | None = None
    ) -> Iterator[Event]:
        """Yield starts and ends of runs, without end; a lost connection is restored, and nothing is left out.

        `since` is the `cursor` of the last event that was received before. An event may come twice, with the same id.
        Where events were lost for good, one of type `duly.stream.gap.v1` says so.
        """
        query = query_of({"types": ",".join(types) or None, "queue": queue})
        return self._transport.listen(path("events"), query, since, read_event)
