"""Destinations of webhooks: their limits, their health, and their signing secrets."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from duly.api import paging
from duly.api.operations import Call, Routes
from duly.api.response import Response
from duly.domain.duration import parse_option
from duly.domain.errors import NotFound
from duly.domain.targets.webhook_url import origin_of
from duly.domain.tenancy.audit import Action
from duly.moves.admin import destinations as moves
from duly.store.tables import destinations
from duly.wire.destinations import (
    Destination,
    DestinationChange,
    DestinationList,
    DestinationOpening,
    DestinationRequest,
    FailedAttempt,
    FailedAttemptList,
    SigningSecret,
    SigningSecrets,
    WaitingRun,
    WaitingRunList,
)
from duly.wire.pages import PageQuery
from duly.wire.schema.shapes import Nothing

routes = Routes("destinations", reads="jobs:read", writes="jobs:write")


@routes.add("GET /v1/destinations", responses={200: DestinationList}, may_lag=True)
async def list_destinations(call: Call[PageQuery, None]) -> Response:
    """List the destinations of webhooks."""
    after = paging.position(call.query.page_token, "destinations", str)
    found = await destinations.page(call.database, call.tenant, after, call.query.page_size)
    last = found[-1].origin if len(found) == call.query.page_size else None
    return paging.page(DestinationList, [_shown(one) for one in found], last, "destinations")


@routes.add(
    "POST /v1/destinations",
    responses={201: Destination},
    refuses=("invalid_option", "conflict"),
    takes_key=False,
    audits=(Action.DESTINATION_CREATED, Action.DESTINATION_LIMITED),
)
async def create_destination(call: Call[Nothing, DestinationRequest]) -> Response:
    """Create a destination before the first webhook goes there, with limits and a secret. Repeated, its limits are set."""
    requested = call.body
    call.services.allowed.check_url(requested.url)
    created = await moves.set_up(
        call.database,
        call.needed_keyring,
        call.tenant,
        origin_of(requested.url),
        call.services.rng,
        slots=requested.slots,
        rate=requested.rate_per_second,
        retry_share=requested.retry_share,
    )
    return Response(201, _shown(created), {"Location": f"/v1/destinations/{created.destination_id}"})


@routes.add("GET /v1/destinations/{destination_id}", responses={200: Destination})
async def read_destination(call: Call[Nothing, None]) -> Response:
    """Read a destination."""
    return Response(200, _shown(await _found(call)))


@routes.add(
    "PATCH /v1/destinations/{destination_id}", responses={200: Destination}, audits=(Action.DESTINATION_LIMITED,)
)
async def limit_destination(call: Call[Nothing, DestinationChange]) -> Response:
    """Limit the requests to a destination. All workers together keep to it within about a second."""
    requested, destination_id = call.body, call.id("destination_id")
    limited = await moves.limit(
        call.database,
        call.tenant,
        destination_id,
        slots=requested.slots,
        rate=requested.rate_per_second,
        retry_share=requested.retry_share,
    )
    return Response(200, _shown(limited))


@routes.add(
    "POST /v1/destinations/{destination_id}/close",
    responses={200: Destination},
    refuses=("conflict",),
    takes_key=False,
    audits=(Action.DESTINATION_CLOSED,),
)
async def close_destination(call: Call[Nothing, None]) -> Response:
    """Close the circuit by hand: the destination is called again, and waiting runs go on as after an outage."""
    return Response(200, _shown(await moves.close(call.database, call.tenant, call.id("destination_id"))))


@routes.add(
    "POST /v1/destinations/{destination_id}/open",
    responses={200: Destination},
    refuses=("conflict", "invalid_option"),
    takes_key=False,
    audits=(Action.DESTINATION_OPENED,),
)
async def open_destination(call: Call[Nothing, DestinationOpening]) -> Response:
    """Open the circuit by hand: for a while nothing is sent to the destination, and its runs wait. Then it is probed."""
    span = parse_option(call.body.duration, "duration")
    opened = await moves.leave_alone(call.database, call.tenant, call.id("destination_id"), span)
    return Response(200, _shown(opened))


@routes.add("GET /v1/destinations/{destination_id}/runs", responses={200: WaitingRunList}, may_lag=True)
async def list_waiting_runs(call: Call[PageQuery, None]) -> Response:
    """List the runs that wait for a destination, in the order in which they go on."""
    found, requested = await _found(call), call.query
    of = f"waiting {found.destination_id}"
    after = paging.position(requested.page_token, of, tuple[datetime, UUID])
    runs = await destinations.waiting_page(call.database, call.tenant, found.origin, after, requested.page_size)
    last = (runs[-1].due_at, runs[-1].run_id) if len(runs) == requested.page_size else None
    items = [WaitingRun.of(run, waits_since=run.blocked_at) for run in runs]
    return paging.page(WaitingRunList, items, last, of)


@routes.add("GET /v1/destinations/{destination_id}/failures", responses={200: FailedAttemptList}, may_lag=True)
async def list_failures(call: Call[PageQuery, None]) -> Response:
    """List the attempts that failed at a destination, the last first, as long as history is kept."""
    found, requested = await _found(call), call.query
    of = f"failures {found.destination_id}"
    before = paging.position(requested.page_token, of, tuple[datetime, UUID, int])
    failed = await destinations.failures_page(call.database, call.tenant, found.origin, before, requested.page_size)
    last = failed[-1] if len(failed) == requested.page_size else None
    position = None if last is None else (last.finished_at, last.run_id, last.attempt)
    return paging.page(FailedAttemptList, [FailedAttempt.of(one) for one in failed], position, of)


@routes.add(
    "POST /v1/destinations/{destination_id}/rotate",
    scope="admin",
    responses={201: SigningSecret},
    refuses=("conflict",),
    takes_key=False,
    audits=(Action.SECRET_ROTATED,),
)
async def rotate_secret(call: Call[Nothing, None]) -> Response:
    """Give a destination a new secret. The one before stays valid for 24 hours: requests are signed with both.

    This takes no idempotency key, because a stored response would store the secret.
    """
    found = await _found(call)
    created = await moves.rotate(
        call.database, call.needed_keyring, call.tenant, found.destination_id, call.services.rng
    )
    return Response(201, _secret(created))


@routes.add(
    "GET /v1/destinations/{destination_id}/secrets",
    scope="admin",
    responses={200: SigningSecrets},
    refuses=("conflict",),
)
async def reveal_secrets(call: Call[Nothing, None]) -> Response:
    """Show the signing secrets of a destination, for its receiver."""
    found = await _found(call)
    opened = await moves.secrets_of(call.database, call.needed_keyring, call.tenant, found.destination_id)
    return Response(200, SigningSecrets(items=[_secret(one) for one in opened]))


async def _found(call: Call[Any, Any]) -> destinations.Destination:
    destination_id = call.id("destination_id")
    found = await destinations.find(call.database, call.tenant, destination_id)
    if found is None:
        raise NotFound(f"no destination {destination_id}; GET /v1/destinations lists them")
    return found


def _shown(one: destinations.Destination) -> Destination:
    is_ahead = one.wait_until is not None and one.wait_until > one.read_at
    return Destination.of(one, state=one.state.value, wait_until=one.wait_until if is_ahead else None)


def _secret(one: moves.SigningSecret) -> SigningSecret:
    return SigningSecret.of(one.kept, number=one.number, secret=one.text.reveal())
