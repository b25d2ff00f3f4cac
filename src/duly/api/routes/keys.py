"""Keys: create, list and revoke them. An admin manages the keys of a tenant, the operator all."""

from __future__ import annotations

from datetime import datetime

from duly.api import paging
from duly.api.operations import Call, Routes
from duly.api.response import Response
from duly.domain.duration import parse_option
from duly.domain.errors import InvalidOption, NotFound
from duly.domain.tenancy.api_key import ApiKey, read_scopes
from duly.domain.tenancy.audit import Action
from duly.moves.admin import api_keys as moves
from duly.store.connection.database import Database
from duly.store.tenancy import api_keys
from duly.wire.keys import CreatedKey, Key, KeyList, KeyQuery, KeyRequest
from duly.wire.schema.shapes import Nothing

routes = Routes("keys", scope="admin", in_session=False, takes_key=False)
_OF_ANOTHER = "Keys of another tenant are for the operator: use an admin key of the first tenant."


@routes.add("GET /v1/keys", responses={200: KeyList})
async def list_keys(call: Call[KeyQuery, None]) -> Response:
    """List keys, without their secrets."""
    requested = call.query
    tenant = call.tenant_or(requested.tenant, _OF_ANOTHER)
    of = f"keys {tenant}"
    after = paging.position(requested.page_token, of, str)
    found = await api_keys.page(call.database, tenant, after, requested.page_size)
    last = found[-1].key_id if len(found) == requested.page_size else None
    items = [_shown(key, call.now) for key in found]
    return paging.page(KeyList, items, last, of)


@routes.add(
    "POST /v1/keys", responses={201: CreatedKey}, refuses=("invalid_option", "not_found"), audits=(Action.KEY_CREATED,)
)
async def create_key(call: Call[Nothing, KeyRequest]) -> Response:
    """Create a key. Its text is in this response and nowhere else.

    This takes no idempotency key, because a stored response would store the secret.
    """
    requested = call.body
    tenant, scopes = call.tenant_or(requested.tenant, _OF_ANOTHER), read_scopes(requested.scopes)
    expires_at = await _expiry(call.database, requested)
    created = await moves.create_key(
        call.database,
        call.services.rng,
        tenant=tenant,
        name=requested.name,
        scopes=scopes,
        expires_at=expires_at,
        rate=requested.rate,
    )
    scopes_shown = sorted(set(requested.scopes))
    reported = CreatedKey.of(
        requested,
        key_id=created.key_id,
        tenant=tenant,
        scopes=scopes_shown,
        expires_at=expires_at,
        key=created.text.reveal(),
    )
    return Response(201, reported, {"Location": f"/v1/keys/{created.key_id}"})


async def _expiry(database: Database, requested: KeyRequest) -> datetime | None:
    """Return the moment at which a key expires. A span counts from the database's time: the caller's clock may be wrong."""
    if requested.expires_after is None:
        return requested.expires_at
    if requested.expires_at is not None:
        raise InvalidOption("give expires_at or expires_after, not both")
    return await database.read_clock() + parse_option(requested.expires_after, "expires_after")


@routes.add("DELETE /v1/keys/{key_id}", responses={204: None}, audits=(Action.KEY_REVOKED,))
async def revoke_key(call: Call[Nothing, None]) -> Response:
    """Revoke a key. Within five seconds it grants nothing any more."""
    key_id = call.path["key_id"]
    if not (key_id.isascii() and key_id.isalnum()):
        raise NotFound(f"no key {key_id!r}; GET /v1/keys lists them")
    await moves.revoke_key(call.database, key_id, tenant=None if call.identity.is_operator else call.tenant)
    return Response(204)


def _shown(key: ApiKey, now: datetime) -> Key:
    return Key.of(key, scopes=sorted(key.scopes), state=_state(key, now))


def _state(key: ApiKey, now: datetime) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "expired" if key.expires_at is not None and key.expires_at <= now else key.tenant_state
