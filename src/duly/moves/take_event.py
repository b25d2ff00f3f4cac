"""Take an event: one run of each job that waits for it, at once and together with the note that it has come."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from duly.domain.run import Options, encode_options
from duly.store import events
from duly.store.database import Database
from duly.store.events import Taken


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event as a run is given it, under `event` in its payload."""

    id: str
    source: str
    type: str
    time: datetime | None = None
    subject: str | None = None
    data: Any = None
    data_base64: str | None = None


async def take_event(database: Database, tenant: int, event: Event, marks: Mapping[str, Any]) -> Taken:
    """Take an event. Its source and id are its key for 7 days at least: asked again, the answer names the same runs."""
    text = msgspec.json.encode(event).decode()
    marked = encode_options(Options(**marks)) if marks else None
    return await events.take(database, tenant, event.source, event.id, event.type, text, marked)
