"""The identity of a caller: an API key, the scopes that it implies, and the browser session that stands for it."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import msgspec

from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.tenancy.api_key import ApiKey, Scope


class Identity(msgspec.Struct, frozen=True):
    """Who asks: a key, and all that it may do; and the session that stands for it, if one does."""

    key: ApiKey
    scopes: frozenset[str]
    session_id: UUID | None = None

    @property
    def tenant(self) -> int:
        """Whose key it is."""
        return self.key.tenant

    @property
    def is_anonymous(self) -> bool:
        """Whether nobody is named: the path itself was the right to ask."""
        return self.key.tenant == 0

    @property
    def is_operator(self) -> bool:
        """Whether this is an admin of the first tenant, who looks after the whole installation."""
        return self.key.tenant == TENANT_DEFAULT and Scope.ADMIN in self.scopes


# Receivers who call back. All of them together have one limit, so that no flood of theirs reaches the database.
OPEN_A_SECOND = 2_000.0
ANYBODY = Identity(
    ApiKey(
        key_id="open",
        tenant=0,
        tenant_name="",
        tenant_state="active",
        tenant_rate=None,
        name="open",
        secret_hash=b"",
        scopes=frozenset(),
        rate=OPEN_A_SECOND,
        created_at=datetime.min.replace(tzinfo=UTC),
        expires_at=None,
        revoked_at=None,
        last_used_at=None,
    ),
    frozenset(),
)
