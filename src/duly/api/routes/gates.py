"""Gates: the keys that hold runs back, by places, in a line or at a rate; and limits that are set while runs wait."""

from __future__ import annotations

from typing import Any

from duly.api import paging
from duly.api.operations import Answer, Call, Routes
from duly.domain.errors import NotFound
from duly.domain.limits.concurrency import Rate, in_words, kind_of
from duly.moves.admin import concurrency_keys as moves
from duly.store.tables import concurrency_keys
from duly.wire.gates import Gate, GateLimits, GateList, GateRate, SetLimits
from duly.wire.pages import PageQuery
from duly.wire.schema.shapes import Nothing

routes = Routes("gates")


@routes.add("GET", "/v1/gates", scope="jobs:read", query=PageQuery, answers={200: GateList})
async def list_gates(call: Call[PageQuery, None]) -> Answer:
    """List the keys that hold runs back, or are limited."""
    after = paging.position(call.query.page_token, "gates", str)
    found = await concurrency_keys.page(call.database, call.tenant, after, call.query.page_size)
    more = paging.token(found[-1].key, "gates") if len(found) == call.query.page_size else None
    return Answer(200, GateList(items=[_shown(one) for one in found], next_page_token=more))


@routes.add("GET", "/v1/gates/{name}", scope="jobs:read", answers={200: Gate})
async def read_gate(call: Call[Nothing, None]) -> Answer:
    """Read a key: how many of its runs are inside, how many wait, and what is set for it."""
    key = call.known_name
    found = await concurrency_keys.find(call.database, call.tenant, key)
    if found is None:
        raise NotFound(f"no run is held back by the key {key!r}, and no limit is set for it")
    return Answer(200, _shown(found))


@routes.add(
    "PUT",
    "/v1/gates/{name}",
    scope="jobs:write",
    body=GateLimits,
    answers={200: Gate},
    refuses=("invalid_option",),
)
async def limit_gate(call: Call[Nothing, GateLimits]) -> Answer:
    """Set what a key allows, whatever its runs carry. It holds within two seconds, across the whole fleet."""
    asked = call.body
    rate = None if asked.rate is None else Rate(call.name, asked.rate.limit, asked.rate.per, asked.rate.burst)
    return Answer(200, _shown(await moves.limit(call.database, call.tenant, call.name, places=asked.limit, rate=rate)))


@routes.add("DELETE", "/v1/gates/{name}", scope="jobs:write", answers={204: None})
async def lift_gate(call: Call[Nothing, None]) -> Answer:
    """Take the limits of a key away: what its runs carry counts again."""
    await moves.lift(call.database, call.tenant, call.known_name)
    return Answer(204)


def _shown(one: concurrency_keys.Gate) -> Gate:
    limits = None
    if one.changed_at is not None:
        rate = _rate(one.limit_per_second, one.limit_burst)
        limits = SetLimits(limit=one.limit_places, rate=rate, changed_at=one.changed_at)
    has_places = one.places is not None or one.waiting > 0 or one.limit_places is not None
    kind: Any = kind_of(one.key, is_line=one.is_line, has_places=has_places)
    counts = {name: getattr(one, name) for name in ("key", "places", "inside", "waiting", "waiting_turn")}
    return Gate(**counts, kind=kind, rate=_rate(one.per_second, one.burst), limits=limits)


def _rate(per_second: float | None, burst: int | None) -> GateRate | None:
    return None if per_second is None or burst is None else GateRate(**in_words(per_second), burst=burst)
