"""People who have logged in: whom the cookie of a session stands for, and whether a change was asked for by a page of ours.

What is remembered of a session is its key, for a few seconds, as with keys themselves. A revoked key ends its sessions as it ends
everything else: it is looked up each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

import msgspec

from duly.api.attempts import WrongLogIns
from duly.api.identity import REMEMBERED_SECONDS, Keys
from duly.api.operations import Identity
from duly.api.refusals import Refusal
from duly.clock import Rng
from duly.domain.api_key import Secret
from duly.domain.audit import Actor
from duly.domain.errors import DulyError
from duly.moves.log_in import SESSION_KEPT, log_in, log_out
from duly.store import browser_sessions
from duly.store.database import Database

COOKIE = "duly_session"
CSRF_HEADER = "x-duly-csrf"
_REMEMBERED_MAX = 10_000
_TOKEN_CHARACTERS = 52
_PROLONGED_EVERY = timedelta(minutes=1)
_NOT_OUR_PAGE = "This was not asked for by a page of this Duly"
_OTHER_KEY = "Log in with another key: `duly up` shows one, and `duly keys create` makes one."
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


class _Memory(msgspec.Struct, frozen=True):
    """The key of a session, and until when that is good."""

    key_id: str
    until: float


class Logins:
    """The sessions that were asked for lately."""

    def __init__(self, database: Database, keys: Keys) -> None:
        self._database = database
        self._keys = keys
        self._rng = Rng()
        self._memories: dict[bytes, _Memory] = {}
        self._wrong = WrongLogIns(database.clock)

    async def identify(self, token: Secret) -> Identity:
        """Say whom a session stands for. Raises Refusal."""
        key_id = await self._key_of(token.digest())
        if key_id is None:
            raise _refusal()
        return await self._keys.of_id(key_id)

    async def open(self, key: str, request_id: str, address: str) -> tuple[Identity, Secret]:
        """Open a session for whoever has a key. Raises Refusal; after many wrong keys of an address, seconds later."""
        try:
            identity = await self._keys.identify(f"Bearer {key}")
        except Refusal as error:
            await self._wrong.slow_down(address)
            words = "This key opens nothing: it is unknown, expired or revoked."
            raise Refusal(error.code, words, headers=error.headers, remedy=_OTHER_KEY) from None
        if "jobs:read" not in identity.scopes:
            raise Refusal("forbidden", "The dashboard needs the scope jobs:read; the key has it not.")
        database = self._database.acting_as(Actor("session", identity.key.key_id, identity.key.name, request_id))
        return identity, await log_in(database, self._rng, identity.key)

    async def close(self, token: Secret, actor: Actor | None) -> None:
        """End a session: here at once, and elsewhere within the seconds for which it is remembered."""
        self._memories.pop(token.digest(), None)
        await log_out(self._database.acting_as(actor), token)

    async def _key_of(self, token_hash: bytes) -> str | None:
        monotonic = self._database.clock.monotonic()
        memory = self._memories.get(token_hash)
        if memory is not None and monotonic < memory.until:
            return memory.key_id
        found = await browser_sessions.find(self._database, token_hash)
        if found is None:
            self._memories.pop(token_hash, None)
            return None
        if len(self._memories) >= _REMEMBERED_MAX:
            self._memories.clear()
        self._memories[token_hash] = _Memory(found.key_id, monotonic + REMEMBERED_SECONDS)
        if found.left < SESSION_KEPT - _PROLONGED_EVERY:
            with suppress(DulyError):  # It is prolonged with the next look.
                await browser_sessions.prolong(self._database, token_hash, SESSION_KEPT)
        return found.key_id


def token_in(headers: Mapping[str, str]) -> Secret | None:
    """Read the cookie of a session; None when there is none, or it is not written like one of ours."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return Secret(found.value) if found is not None and len(found.value) == _TOKEN_CHARACTERS else None


def csrf_of(token: Secret) -> str:
    """Give what a page must send with each change: who cannot read our answers cannot know it."""
    return sha256(b"csrf of " + token.reveal().encode()).hexdigest()


def check_page(headers: Mapping[str, str], token: Secret) -> None:
    """Refuse a change that was not asked for by a page of ours. Raises Refusal."""
    check_origin(headers, is_required=True)
    if not compare_digest(headers.get(CSRF_HEADER, "").encode(), csrf_of(token).encode()):
        raise Refusal(
            "forbidden",
            "X-Duly-CSRF is not the one of this session; GET /v1/session tells it.",
            title=_NOT_OUR_PAGE,
            remedy="Load the page again.",
        )


def check_origin(headers: Mapping[str, str], *, is_required: bool) -> None:
    """Refuse what a page of somebody else asks for. Raises Refusal."""
    origin = headers.get("origin")
    if origin is None and not is_required:
        return
    if origin is None or urlsplit(origin).netloc != headers.get("host"):
        raise Refusal(
            "forbidden",
            f"The page that asks is of {origin or 'no origin'}, and this is {headers.get('host')}.",
            title=_NOT_OUR_PAGE,
            remedy="Ask from a page of this address; programs send a key in Authorization instead of a session's cookie.",
        )


def cookie_for(headers: Mapping[str, str], token: Secret | None) -> str:
    """Write the header that gives a browser its session, or takes it away."""
    kept = "Max-Age=0" if token is None else f"Max-Age={round(SESSION_KEPT.total_seconds())}"
    host = urlsplit(f"//{headers.get('host', '')}").hostname
    secure = "" if host in _THIS_MACHINE else "; Secure"
    value = "" if token is None else token.reveal()
    return f"{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict; {kept}{secure}"


def _refusal() -> Refusal:
    return Refusal("unauthorized", "The session has ended; log in again.", remedy="Log in again.")
