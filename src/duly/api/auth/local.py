"""Local callers: the account of this machine that owns the data folder or the database, which needs no key.

A listener that only this account can reach, or a command that serves itself, puts the caller into the scope of each
request. No header can: the server makes the scope. The header `Duly-Tenant` lets a local caller act in another tenant
than the first.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from msgspec.structs import replace

from duly.api.problems import LOCAL, AnyRequest
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.targets.target import Allowed, Command, Container, Target
from duly.domain.tenancy.api_key import Identity, Scope, built_in_key, implied_by
from duly.domain.tenancy.audit import Actor
from duly.store.connection.database import Database
from duly.store.tenancy import tenants
from duly.wire.keys import TENANT_HEADER


def for_local(app: Any, actor: Actor) -> Any:
    """Serve an application to a local account, as the operator."""
    identity = _operator(actor)

    async def call(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, LOCAL: identity}, receive, send)

    return call


async def local_caller(database: Database, request: AnyRequest) -> Identity:
    """Return the local account that a request comes from, in the tenant it names. Raises NotFound."""
    scope: Any = request.scope
    identity: Identity = scope[LOCAL]
    named = request.headers.get(TENANT_HEADER)
    if named is None:
        return identity
    tenant = unquote(named)
    key = replace(identity.key, tenant=await tenants.number_of(database, tenant), tenant_name=tenant)
    return replace(identity, key=key)


class AnyProgram(Allowed, frozen=True):
    """All programs and images: the owner of the database decides. A worker still runs only what its own settings allow."""

    def check(self, target: Target | None) -> None:
        """Accept any program, and check every other target as usual. Raises InvalidOption."""
        match target:
            case Command() | Container():
                pass
            case _:
                super().check(target)


def _operator(actor: Actor) -> Identity:
    key = built_in_key(
        actor.id,
        actor.name,
        tenant=TENANT_DEFAULT,
        tenant_name="default",
        scopes=frozenset({Scope.ADMIN}),
        rate=None,
    )
    return Identity(key, frozenset(map(str, implied_by(key.scopes))), is_local=True)
