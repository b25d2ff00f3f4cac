"""Events: incoming ones, which create runs, and the stream of runs' starts and ends."""

from __future__ import annotations

from typing import Any

import msgspec

from duly.api.admission import EVENTS
from duly.api.operations import Call, Routes
from duly.api.problems import Refusal
from duly.api.response import EVENT_STREAM, Response
from duly.api.streams.events import Wanted
from duly.domain.errors import InvalidOption, InvalidPayload
from duly.domain.jobs.job import check_name
from duly.domain.runs.payload import PAYLOAD_BYTES_MAX, encode
from duly.domain.tenancy.audit import Action
from duly.domain.wanted import suggest_name
from duly.moves.take_event import Event, record_events, take_event
from duly.store.tables.events import Taken
from duly.wire.binary_events import is_binary, read_binary
from duly.wire.events import (
    BATCH_MEDIA_TYPE,
    MEDIA_TYPE,
    TYPES,
    CloudEvent,
    CloudEvents,
    EventAccepted,
    EventsAccepted,
    StreamQuery,
)
from duly.wire.schema.shapes import Nothing

routes = Routes("events", reads="jobs:read", writes="jobs:write")


@routes.add(
    "POST /v1/events",
    scope="jobs:trigger",
    body=CloudEvent,
    media_type=MEDIA_TYPE,
    also_takes={BATCH_MEDIA_TYPE: CloudEvents},
    is_binary=is_binary,
    responses={200: EventsAccepted, 202: EventAccepted},
    refuses=("invalid_payload", "invalid_option", "rate_limited", "quota_reached"),
    body_bytes_max=2 * PAYLOAD_BYTES_MAX,
    is_submit=True,
    audits=(Action.EVENT_ACCEPTED,),
)
async def accept_event(call: Call[Nothing, CloudEvent | list[CloudEvent] | bytes]) -> Response:
    """Accept an event (CloudEvents 1.0): each active job with a matching `on_event` gets one run.

    A run finds the event under `event` in its payload. The event is identified by its source and id for at least 7
    days: repeated, it creates nothing, and the response names the runs of the first time. In binary mode its attributes
    are headers, from `ce-specversion` on, and the body is its data, of any type. A batch is accepted as a whole or not
    at all, each event as if it came alone, and is answered with 200 and the result of each, in order; each counts
    against the rate limit.
    """
    if isinstance(call.body, list):
        return await _take_batch(call, [_event(requested) for requested in call.body])
    requested = read_binary(call.headers, call.body) if isinstance(call.body, bytes) else call.body
    event = _event(requested)
    taken = await _take(call, event)
    await record_events(call.database, call.tenant, [event], [taken])
    return Response(202, _reported(event, taken))


async def _take_batch(call: Call[Any, Any], events: list[Event]) -> Response:
    if len(events) > 1:
        await call.admit(len(events) - 1)
    # In one order, so that concurrent senders of the same events wait for us and do not deadlock.
    order = sorted(range(len(events)), key=lambda number: (events[number].source, events[number].id))
    taken = {number: await _take(call, events[number]) for number in order}
    answers = [taken[number] for number in range(len(events))]
    await record_events(call.database, call.tenant, events, answers)
    return Response(200, EventsAccepted(items=[_reported(*each) for each in zip(events, answers, strict=True)]))


async def _take(call: Call[Any, Any], event: Event) -> Taken:
    taken = await take_event(call.database, call.tenant, event, call.run_metadata)
    for queue in taken.queues:
        call.wake(queue)
    return taken


def _reported(event: Event, taken: Taken) -> EventAccepted:
    return EventAccepted(event_id=event.id, duplicate=taken.is_duplicate, runs=taken.runs)


def _event(requested: CloudEvent) -> Event:
    """Parse the request. Raises InvalidOption, InvalidPayload."""
    if requested.data is not None and requested.data_base64 is not None:
        raise InvalidPayload("the event has both data and data_base64; send one of them")
    check_name(requested.id, "id")
    check_name(requested.type, "type")
    if not requested.source.isprintable():
        raise InvalidOption(f"source {requested.source!r} is not printable; send a URI reference")
    event = Event(*(getattr(requested, name) for name in Event.__struct_fields__))
    encode({"event": msgspec.to_builtins(event)}, f"the event {requested.id}")
    return event


@routes.add(
    "GET /v1/events", responses={200: bytes}, refuses=("quota_reached",), response_type=EVENT_STREAM, in_session=False
)
async def stream_events(call: Call[StreamQuery, None]) -> Response:
    """Stream starts and ends of runs: server-sent events, each a CloudEvent in JSON.

    A comment comes every 15 seconds. After a lost connection, `Last-Event-ID` names the last event received, and later
    ones follow; some may come twice, with the same id. Where that is impossible, one event `duly.stream.gap.v1` says
    so.
    """
    wanted = Wanted(call.tenant, _types(call.query.types), call.query.queue)
    open_request = call.services.open_requests.take(EVENTS, call.identity.key)
    joined = await call.services.hub.join(wanted, call.headers.get("last-event-id"))
    stream = call.services.hub.listen(wanted, joined, call.is_admitted, open_request)
    return Response(200, headers={"X-Accel-Buffering": "no"}, stream=stream, media_type=EVENT_STREAM)


def _types(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    types = frozenset(part.strip() for part in text.split(","))
    for unknown in sorted(types - set(TYPES)):
        raise Refusal("invalid_query", f"Unknown event type {unknown!r}; {suggest_name(unknown, TYPES)}")
    return types
