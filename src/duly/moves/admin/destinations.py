"""Destinations: accept workers' reports and return their shares, probe open circuits, and manage signing secrets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

import msgspec
from msgspec import UNSET, UnsetType

from duly.clock import Rng
from duly.domain.duration import to_iso
from duly.domain.errors import NotFound, Unsettled
from duly.domain.targets.circuit import Health, State, StateChange, closed_by_hand, judge, let_through, opened_by_hand
from duly.domain.targets.destination import (
    SECRET_KEPT,
    about_secret,
    check_open_duration,
    check_rate,
    check_retry_share,
    check_slots,
    new_secret,
)
from duly.domain.tenancy.api_key import Secret
from duly.domain.tenancy.audit import Action, Subject
from duly.domain.tenancy.sealing import Keyring
from duly.moves.admin.audit import audited, record
from duly.store.connection import hints
from duly.store.connection.database import Database
from duly.store.tables import destinations
from duly.store.tables.destinations import Allowed, Destination, DestinationReport, WatchedDestination

WATCHED_MAX = 1_000
_LOOKS_MAX = 5
_NOTHING_KNOWN = Health()
_NOTHING_ALLOWED = {"slots": 0, "tokens": 0}


async def report(
    database: Database, worker_id: UUID, number: int, reported: Sequence[DestinationReport], rng: Rng
) -> list[Allowed]:
    """Report what a worker saw of its destinations. Returns its share of each; raises WorkerExpired.

    A report that shows too many failures, or a recovery, changes the circuit; of two at once, one does.
    """
    allowed = await destinations.report(database, worker_id, number, reported)
    return [await _judged(database, one, rng) for one in allowed]


async def mind(database: Database, rng: Rng) -> int:
    """Half-open the circuits whose cool-down is over, and release waiting runs.

    Returns how many destinations need attention.
    """
    needing, watched = 0, await destinations.watched(database, None, WATCHED_MAX)
    while watched:
        needing += len(watched)
        await _see_to(database, watched, rng)
        waited_for = [one for one in watched if one.has_waiting_runs]
        # However many runs wait for failing destinations, those behind them are looked at.
        is_all = len(waited_for) < WATCHED_MAX
        watched = [] if is_all else await destinations.watched(database, waited_for[-1], WATCHED_MAX)
    return needing


async def _see_to(database: Database, watched: Sequence[WatchedDestination], rng: Rng) -> None:
    going = []
    for one in watched:
        if one.destination_id is None:
            await destinations.make(database, rng.uuid(), one.tenant, one.origin)
            continue
        change = judge(one.health, rng.uniform())
        if change is not None:
            await destinations.change_state(database, one.destination_id, one.health.state_version, change)
        elif one.has_waiting_runs:
            going.append((one, let_through(one.queue)))
    if going and await destinations.release(database, going):
        await hints.send_to_all(database)  # do not wait for the workers' next look


class SigningSecret(msgspec.Struct, frozen=True):
    """A secret of a destination, opened, and as it is stored."""

    number: int
    text: Secret
    kept: destinations.SealedSecret


async def secrets_of(database: Database, keyring: Keyring, tenant: int, destination_id: UUID) -> list[SigningSecret]:
    """Open the valid secrets of a destination, the newest first. Raises CannotOpen."""
    found = await destinations.find_secrets(database, destination_id)
    return [
        SigningSecret(one.number, keyring.open(one.sealed, about_secret(tenant, destination_id, one.number)), one)
        for one in found
    ]


async def secrets_for(database: Database, keyring: Keyring, tenant: int, origin: str, rng: Rng) -> list[SigningSecret]:
    """Open the secrets that sign for an origin; its first use creates one. Raises CannotOpen."""
    destination_id = await make(database, keyring, tenant, origin, rng)
    return await secrets_of(database, keyring, tenant, destination_id)


async def make(database: Database, keyring: Keyring, tenant: int, origin: str, rng: Rng) -> UUID:
    """Create a destination and its first secret, if they do not exist. Returns its id."""
    destination_id = await destinations.find_by_origin(database, tenant, origin)
    if destination_id is None:
        destination_id = await destinations.make(database, rng.uuid(), tenant, origin)
    if not await destinations.newest_number(database, destination_id):
        # another process may be first: then its secret counts
        await _keep_new(database, keyring, tenant, destination_id, 1, rng)
    return destination_id


@audited
async def rotate(database: Database, keyring: Keyring, tenant: int, destination_id: UUID, rng: Rng) -> SigningSecret:
    """Give a destination a new secret; the one before stays valid for a day. Raises NotFound, Unsettled."""
    found = await _found(database, tenant, destination_id)
    for _ in range(_LOOKS_MAX):
        number = await destinations.newest_number(database, destination_id) + 1
        if await _keep_new(database, keyring, tenant, destination_id, number, rng):
            newest, *_ = await secrets_of(database, keyring, tenant, destination_id)
            await record(database, tenant, Action.SECRET_ROTATED, _subject(found), number=number)
            return newest
    raise Unsettled(f"the secret of destination {destination_id}")


@audited
async def set_up(
    database: Database,
    keyring: Keyring,
    tenant: int,
    origin: str,
    rng: Rng,
    *,
    slots: int | UnsetType = UNSET,
    rate: float | UnsetType | None = UNSET,
    retry_share: float | UnsetType = UNSET,
) -> Destination:
    """Create a destination with limits before the first webhook goes there; of an existing one, set the limits.

    Raises InvalidOption.
    """
    is_new = await destinations.find_by_origin(database, tenant, origin) is None
    # The audit entry of a new one is its creation, which includes its limits.
    setting = database.acting_as(None) if is_new else database
    destination_id = await make(setting, keyring, tenant, origin, rng)
    created = await limit(setting, tenant, destination_id, slots=slots, rate=rate, retry_share=retry_share)
    await record(database, tenant, Action.DESTINATION_CREATED, _subject(created), int(is_new), **_limits(created))
    return created


@audited
async def limit(
    database: Database,
    tenant: int,
    destination_id: UUID,
    *,
    slots: int | UnsetType = UNSET,
    rate: float | UnsetType | None = UNSET,
    retry_share: float | UnsetType = UNSET,
) -> Destination:
    """Limit a destination's requests at once and a second, and its share of retries; unset values stay.

    Raises NotFound, InvalidOption.
    """
    before = await _found(database, tenant, destination_id)
    if slots is not UNSET:
        check_slots(slots)
    if rate is not UNSET:
        check_rate(rate)
    if retry_share is not UNSET:
        check_retry_share(retry_share)
    await destinations.limit_destination(database, destination_id, slots, rate, retry_share)
    after = await _found(database, tenant, destination_id)
    changed = int(_limits(before) != _limits(after))
    await record(database, tenant, Action.DESTINATION_LIMITED, _subject(after), changed, **_limits(after))
    return after


def _subject(destination: Destination) -> Subject:
    return Subject("destination", str(destination.destination_id), destination.origin)


def _limits(destination: Destination) -> dict[str, float | None]:
    return {name: getattr(destination, name) for name in ("slots", "rate_per_second", "retry_share")}


@audited
async def close(database: Database, tenant: int, destination_id: UUID) -> Destination:
    """Close the circuit of a destination by hand; waiting runs go on as after an outage. Raises NotFound, Unsettled."""
    for _ in range(_LOOKS_MAX):
        found = await _found(database, tenant, destination_id)
        is_left_alone = found.wait_until is not None and found.wait_until > found.read_at
        if found.state is State.CLOSED and not is_left_alone:
            return found
        change = closed_by_hand(msgspec.structs.replace(_NOTHING_KNOWN, steady_rate=found.steady_rate))
        if await destinations.change_state(database, destination_id, found.state_version, change):
            await record(database, tenant, Action.DESTINATION_CLOSED, _subject(found), was=found.state)
            return await _found(database, tenant, destination_id)
    raise Unsettled(f"destination {destination_id}")


@audited
async def leave_alone(database: Database, tenant: int, destination_id: UUID, span: timedelta) -> Destination:
    """Open the circuit of a destination by hand: its runs wait for so long, and then it is probed.

    Raises NotFound, InvalidOption, Unsettled.
    """
    check_open_duration(span)
    for _ in range(_LOOKS_MAX):
        found = await _found(database, tenant, destination_id)
        change = opened_by_hand(msgspec.structs.replace(_NOTHING_KNOWN, openings=found.openings), span.total_seconds())
        if await destinations.change_state(database, destination_id, found.state_version, change):
            await record(database, tenant, Action.DESTINATION_OPENED, _subject(found), duration=to_iso(span))
            return await _found(database, tenant, destination_id)
    raise Unsettled(f"destination {destination_id}")


async def _judged(database: Database, one: Allowed, rng: Rng) -> Allowed:
    change = judge(one.health, rng.uniform())
    if change is None:
        return one
    await destinations.change_state(database, one.destination_id, one.health.state_version, change)
    # Changed here or by another, this is its state; the next report brings the share.
    allowed = {} if change.state is State.CLOSED else _NOTHING_ALLOWED
    return msgspec.structs.replace(one, health=_after(change), has_turned=True, **allowed)


def _after(change: StateChange) -> Health:
    return Health(state=change.state, openings=change.openings, wait_seconds=change.wait_seconds)


async def _keep_new(
    database: Database, keyring: Keyring, tenant: int, destination_id: UUID, number: int, rng: Rng
) -> bool:
    sealed = keyring.seal(new_secret(rng.secret), about_secret(tenant, destination_id, number), rng.secret)
    return await destinations.keep_secret(database, destination_id, number, sealed, SECRET_KEPT)


async def _found(database: Database, tenant: int, destination_id: UUID) -> Destination:
    found = await destinations.find(database, tenant, destination_id)
    if found is None:
        raise NotFound(f"no destination {destination_id}; `duly destinations` lists them")
    return found
