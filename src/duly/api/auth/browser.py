"""Browser sessions: the key behind a cookie, and the check that a change was requested by a page of ours.

The key of a session is cached for a few seconds, as keys themselves are. A revoked key ends its sessions too: it is
looked up each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie
from uuid import UUID

import msgspec

from duly.api.auth.api_keys import REMEMBERED_SECONDS, Keys
from duly.api.auth.failed_logins import FailedLogins
from duly.api.problems import Refusal
from duly.clock import Rng
from duly.domain.errors import DulyError
from duly.domain.tenancy.api_key import Identity, Secret
from duly.domain.tenancy.audit import Actor
from duly.moves.admin.log_in import SESSION_KEPT, log_in, log_out
from duly.store.connection.database import Database
from duly.store.tenancy import browser_sessions

COOKIE = "duly_session"
HOST_COOKIE = "__Host-duly_session"  # a browser accepts it from this very host alone, over TLS
CSRF_HEADER = "x-duly-csrf"
_REMEMBERED_MAX = 10_000
_TOKEN_CHARACTERS = 52
_PROLONGED_EVERY = timedelta(minutes=1)
_NOT_OUR_PAGE = "The request does not come from this server's pages"
_OTHER_KEY = "Log in with another key: `duly up` shows the file of one, `duly keys create` creates one."
_OUR_PAGE = "Send the request from a page of this address; programs send a key in Authorization instead of a cookie."
_REMEDIES = {  # by the scheme of the page and ours
    "https http": "Set plain_http = true where a proxy in front speaks TLS; the cookie is for TLS alone then.",
    "http https": "Open the dashboard with https://; plain_http = true says that a proxy in front speaks TLS.",
}
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class _Memory(msgspec.Struct, frozen=True):
    """The cached key of a session, and until when it is valid."""

    session_id: UUID
    key_id: str
    until: float


class Logins:
    """The recently used sessions.

    `is_secure`: browsers reach us over TLS, ours or a proxy's. Settings say so, never a header, which any client can send.
    """

    def __init__(self, database: Database, keys: Keys, *, is_secure: bool) -> None:
        self._scheme, self._cookie = ("https", HOST_COOKIE) if is_secure else ("http", COOKIE)
        self._database = database
        self._keys = keys
        self._rng = Rng()
        self._memories: dict[bytes, _Memory] = {}
        self._wrong = FailedLogins(database.clock)

    async def identify(self, token: Secret) -> Identity:
        """Return the identity of a session. Raises Refusal."""
        memory = await self._memory_of(token.digest())
        if memory is None:
            raise _refusal()
        return msgspec.structs.replace(await self._keys.of_id(memory.key_id), session_id=memory.session_id)

    async def open(
        self, key: str, request_id: str, address: str, user_agent: str, before: Secret | None
    ) -> tuple[Identity, Secret]:
        """Open a session for a key, and end the browser's previous one.

        Raises Refusal; after many wrong keys of an address, seconds later.
        """
        try:
            identity = await self._keys.identify(f"Bearer {key}")
        except Refusal as error:
            await self._wrong.slow_down(address)
            words = "The key is unknown, expired or revoked."
            raise Refusal(error.code, words, headers=error.headers, remedy=_OTHER_KEY) from None
        if "jobs:read" not in identity.scopes:
            raise Refusal("forbidden", "The dashboard needs the scope jobs:read, which the key lacks.")
        database = self._database.acting_as(Actor("session", identity.key.key_id, identity.key.name, request_id))
        if before is not None:
            await self._end(before, request_id)
        return identity, await log_in(database, self._rng, identity.key, address, user_agent)

    async def _end(self, token: Secret, request_id: str) -> None:
        """End a session on its own behalf; an ended one is ignored."""
        try:
            key = (await self.identify(token)).key
        except Refusal:
            return
        await self.close(token, Actor("session", key.key_id, key.name, request_id))

    async def close(self, token: Secret, actor: Actor | None) -> None:
        """End a session: here at once, and elsewhere within the seconds for which it is cached."""
        self._memories.pop(token.digest(), None)
        await log_out(self._database.acting_as(actor), token)

    async def _memory_of(self, token_hash: bytes) -> _Memory | None:
        monotonic = self._database.clock.monotonic()
        memory = self._memories.get(token_hash)
        if memory is not None and monotonic < memory.until:
            return memory
        found = await browser_sessions.find(self._database, token_hash)
        if found is None:
            self._memories.pop(token_hash, None)
            return None
        if len(self._memories) >= _REMEMBERED_MAX:
            self._memories.clear()
        memory = _Memory(found.session_id, found.key_id, monotonic + REMEMBERED_SECONDS)
        self._memories[token_hash] = memory
        if found.left < SESSION_KEPT - _PROLONGED_EVERY:
            with suppress(DulyError):  # it is extended with the next look
                await browser_sessions.prolong(self._database, token_hash, SESSION_KEPT)
        return memory

    def token_in(self, headers: Mapping[str, str]) -> Secret | None:
        """Read the cookie of a session; None without one, or if it is not ours."""
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self._cookie)
        except CookieError:
            return None
        return Secret(found.value) if found is not None and len(found.value) == _TOKEN_CHARACTERS else None

    def cookie_for(self, token: Secret | None) -> str:
        """Write the header that sets or deletes a session's cookie."""
        kept = "Max-Age=0" if token is None else f"Max-Age={round(SESSION_KEPT.total_seconds())}"
        secure = "; Secure" if self._scheme == "https" else ""
        value = "" if token is None else token.reveal()
        return f"{self._cookie}={value}; Path=/; HttpOnly; SameSite=Strict; {kept}{secure}"

    def check_page(self, headers: Mapping[str, str], token: Secret) -> None:
        """Refuse a change that was not requested by a page of ours. Raises Refusal."""
        self.check_origin(headers, is_required=True)
        if not compare_digest(headers.get(CSRF_HEADER, "").encode(), csrf_of(token).encode()):
            raise Refusal(
                "forbidden",
                "X-Duly-CSRF is not the token of this session; GET /v1/session returns it.",
                title=_NOT_OUR_PAGE,
                remedy="Reload the page.",
            )

    def check_origin(self, headers: Mapping[str, str], *, is_required: bool) -> None:
        """Refuse a request of another origin's page, by scheme and host. Raises Refusal."""
        origin = headers.get("origin")
        if origin is None and not is_required:
            return
        ours = f"{self._scheme}://{headers.get('host', '').lower()}".removesuffix(_DEFAULT_PORTS[self._scheme])
        if origin != ours:
            raise Refusal(
                "forbidden",
                f"The request's origin is {origin or 'missing'}, and this server is {ours}.",
                title=_NOT_OUR_PAGE,
                remedy=_REMEDIES.get((origin or "").partition(":")[0] + f" {self._scheme}", _OUR_PAGE),
            )


def csrf_of(token: Secret) -> str:
    """Return the token that a page must send with each change: another origin cannot read it."""
    return sha256(b"csrf of " + token.reveal().encode()).hexdigest()


def _refusal() -> Refusal:
    return Refusal("unauthorized", "The session has ended.", remedy="Log in again.")
