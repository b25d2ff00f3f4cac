"""API keys: `duly_<id>_<secret>`. The id finds the key; only a hash of the secret is stored, so it is shown once.

The secret has 192 random bits, so a plain SHA-256 suffices: there is nothing to guess, and nothing to slow down.
"""

from __future__ import annotations

import re
from base64 import b32encode
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from hmac import compare_digest
from uuid import UUID

import msgspec

from duly.domain.errors import InvalidOption
from duly.domain.runs.run import TENANT_DEFAULT

SECRET_BYTES = 24
_ID_CHARACTERS, _ID_BYTES = 10, 7
_TEXT = re.compile(r"duly_([a-z2-7]{10})_([a-z2-7]{39})")

_NAME_CHARACTERS_MAX = 180


class Scope(StrEnum):
    """The rights of a key."""

    JOBS_READ = "jobs:read"
    JOBS_WRITE = "jobs:write"
    JOBS_TRIGGER = "jobs:trigger"
    WORKER = "worker"
    ADMIN = "admin"


# The only place where scopes imply others: write implies read, and admin implies all. Triggering is a right of its own.
_IMPLIED = {Scope.JOBS_WRITE: {Scope.JOBS_READ}, Scope.ADMIN: set(Scope)}


class Secret:
    """Secret text: it prints as `***`, and compares in constant time."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text."""
        return self._text

    def digest(self) -> bytes:
        """Return the digest that is stored."""
        return sha256(self._text.encode()).digest()

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and compare_digest(self._text, other._text)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> str:
        raise TypeError("a secret is not written down")


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A stored key, with the limits of its tenant. Rates are submits a second; None: no limit.

    No field has a default: a key read without one would be unlimited, or never revoked.
    """

    key_id: str
    tenant: int
    tenant_name: str
    tenant_state: str
    tenant_rate: float | None
    name: str
    secret_hash: bytes
    scopes: frozenset[Scope]
    rate: float | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    def is_opened_by(self, secret: Secret) -> bool:
        """Return whether `secret` is this key's, in constant time."""
        return compare_digest(self.secret_hash, secret.digest())

    def is_usable(self, now: datetime) -> bool:
        """Return whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def allows(self, scope: Scope) -> bool:
        """Return whether it grants `scope`."""
        return scope in implied_by(self.scopes)


def built_in_key(
    key_id: str, name: str, *, tenant: int, tenant_name: str, scopes: frozenset[Scope], rate: float | None
) -> ApiKey:
    """Return a key that is not stored, for a caller that needs none: it has no secret, is usable, and never expires."""
    return ApiKey(
        key_id=key_id,
        tenant=tenant,
        tenant_name=tenant_name,
        tenant_state="active",
        tenant_rate=None,
        name=name,
        secret_hash=b"",  # no secret has this digest
        scopes=scopes,
        rate=rate,
        created_at=datetime.min.replace(tzinfo=UTC),
        expires_at=None,
        revoked_at=None,
        last_used_at=None,
    )


def new_key(draw: Callable[[int], bytes]) -> tuple[str, Secret]:
    """Draw a key, its id and its secret, from a secure source of bytes."""
    return _text(draw(_ID_BYTES))[:_ID_CHARACTERS], Secret(_text(draw(SECRET_BYTES)))


def written(key_id: str, secret: Secret) -> Secret:
    """Write a key as people store it."""
    return Secret(f"duly_{key_id}_{secret.reveal()}")


def parse(text: str) -> tuple[str, Secret] | None:
    """Parse a key; None when it is none."""
    found = _TEXT.fullmatch(text)
    return (found[1], Secret(found[2])) if found else None


def implied_by(scopes: Collection[Scope]) -> frozenset[Scope]:
    """Return all scopes that the scopes of a key imply."""
    return frozenset(scopes).union(*(_IMPLIED.get(scope, ()) for scope in scopes))


def read_scopes(words: Iterable[str]) -> frozenset[Scope]:
    """Parse requested scopes. Raises InvalidOption, listing the scopes that exist."""
    requested = list(words)
    if (unknown := next((word for word in requested if word not in tuple(Scope)), None)) is not None:
        raise InvalidOption(f"scope {unknown!r} is none of {', '.join(Scope)}")
    if not requested:
        raise InvalidOption(f"a key needs a scope: one or more of {', '.join(Scope)}")
    return frozenset(map(Scope, requested))


def _text(random: bytes) -> str:
    return b32encode(random).decode().rstrip("=").lower()


class Identity(msgspec.Struct, frozen=True):
    """The caller of a request: a key, the scopes that it implies, and its browser session, if there is one.

    With `is_local` it is an account of this machine, which needs no key: `api/auth/local.py` makes one up for it.
    """

    key: ApiKey
    scopes: frozenset[str]
    session_id: UUID | None = None
    is_local: bool = False

    @property
    def tenant(self) -> int:
        """The tenant of the key."""
        return self.key.tenant

    @property
    def is_anonymous(self) -> bool:
        """Return whether the caller is anonymous: the path itself was the right to call."""
        return self.key.tenant == 0

    @property
    def shown_name(self) -> str:
        """The caller's name, as it is recorded."""
        return (self.key.name if self.is_local else f"key {self.key.name}")[:_NAME_CHARACTERS_MAX]

    @property
    def is_operator(self) -> bool:
        """Return whether this is an admin of the first tenant, who operates the whole installation."""
        return self.key.tenant == TENANT_DEFAULT and Scope.ADMIN in self.scopes


# Receivers that call back. They share one limit, so that a flood of theirs does not reach the database.
OPEN_A_SECOND = 2_000.0
ANYBODY = Identity(
    built_in_key("open", "open", tenant=0, tenant_name="", scopes=frozenset(), rate=OPEN_A_SECOND), frozenset()
)
