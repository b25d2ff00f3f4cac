"""Accept an event: one run of each job that matches it, at once and together with the record of the event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from duly.domain.runs.options import options_of
from duly.domain.tenancy.audit import Action, Subject
from duly.moves.admin.audit import record
from duly.store.connection.database import Database
from duly.store.tables import events
from duly.store.tables.events import Taken


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event as a run receives it, under `event` in its payload."""

    id: str
    source: str
    type: str
    time: datetime | None = None
    subject: str | None = None
    data: Any = None
    data_base64: str | None = None


async def take_event(database: Database, tenant: int, event: Event, labels: Mapping[str, Any]) -> Taken:
    """Accept an event. Its source and id are its key for at least 7 days: repeated, the answer names the same runs."""
    text = msgspec.json.encode(event).decode()
    return await events.take(database, tenant, event.source, event.id, event.type, text, options_of(**labels))


async def record_events(database: Database, tenant: int, events: Sequence[Event], taken: Sequence[Taken]) -> None:
    """Record the events of one request that were accepted now, and how many runs they have created."""
    fresh = [(event, one) for event, one in zip(events, taken, strict=True) if not one.is_duplicate]
    created = sum(len(one.runs) for _, one in fresh)
    subject, source = Subject("event"), None
    if len(fresh) == 1:
        event = fresh[0][0]
        subject, source = Subject("event", event.id, event.type), event.source
    await record(database, tenant, Action.EVENT_ACCEPTED, subject, len(fresh), source=source, runs=created)
