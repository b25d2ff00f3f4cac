"""Authentication and authorization of a request: by an API key, or by the cookie of a browser session."""

from __future__ import annotations

from typing import Protocol

from duly.api.auth.browser import Logins
from duly.api.auth.local import local_caller
from duly.api.operations import SAFE, Operation
from duly.api.problems import LOCAL, AnyRequest, Refusal
from duly.domain.errors import DulyError, TenantMoving
from duly.domain.tenancy.api_key import ANYBODY, Identity, Scope
from duly.domain.tenancy.cells import LEAVING
from duly.store.connection.database import Database


class Keys(Protocol):
    """Finds the identity of a key."""

    async def identify(self, authorization: str | None) -> Identity:
        """Return the identity that a header names. Raises Refusal."""
        ...


class Authentication:
    """Identifies the caller of each request. Without `logins` there are no browser sessions."""

    def __init__(self, database: Database, keys: Keys, logins: Logins | None) -> None:
        self._database = database
        self._keys = keys
        self.logins = logins

    async def authorize(self, operation: Operation, request: AnyRequest) -> Identity:
        """Return the identity of a caller who may do this. Raises Refusal."""
        if operation.is_open:
            return ANYBODY
        identity = await self._identify(request)
        if identity.key.tenant_state == LEAVING and operation.scope != Scope.WORKER:
            # Its rows may go at any moment, and a list without them would look complete. Workers end what they run.
            raise TenantMoving(
                f"tenant {identity.key.tenant_name} is moving to another cell; try again in some seconds"
            )
        if operation.scope not in identity.scopes:
            scopes = ", ".join(sorted(identity.scopes)) or "none"
            raise Refusal("forbidden", f"This needs the scope {operation.scope}; the key has {scopes}.")
        if operation.is_operators:
            _check_operator(identity)
        return identity

    async def is_authorized(self, operation: Operation, request: AnyRequest) -> bool:
        """Return whether the caller of a long request may still do this; a database that does not answer changes nothing."""
        try:
            await self.authorize(operation, request)
        except Refusal:
            return False
        except DulyError:
            return True
        return True

    async def check_operator(self, request: AnyRequest) -> None:
        """Refuse a request that is not the operator's. Raises Refusal."""
        _check_operator(await self._identify(request))

    async def _identify(self, request: AnyRequest) -> Identity:
        """Identify the caller. A browser that changes something must ask from a page of ours."""
        if LOCAL in request.scope:  # put there by a local listener, and by no header
            return await local_caller(self._database, request)
        authorization = request.headers.get("authorization")
        token = None if self.logins is None else self.logins.token_in(request.headers)
        if self.logins is None or token is None or authorization is not None:
            return await self._keys.identify(authorization)
        identity = await self.logins.identify(token)
        if request.method not in SAFE:
            self.logins.check_page(request.headers, token)
        return identity


def _check_operator(identity: Identity) -> None:
    if not identity.is_operator and identity.is_local:
        raise Refusal(
            "forbidden",
            "This operation is for the operator, and the command acts in a tenant.",
            remedy="Leave --as-tenant out.",
        )
    if not identity.is_operator:
        raise Refusal("forbidden", "This operation is for the operator: use an admin key of the first tenant.")
