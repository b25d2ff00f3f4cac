"""The one way in: who asks, what may be asked, the answer given before, the shapes, the act, the answer.

See docs/decisions/0016-the-front-door.md. A 2xx is written only after the commit of what it speaks of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from litestar import Response
from litestar.response import Stream

from duly.api import asked
from duly.api.asked import AnyRequest
from duly.api.hub import Hub
from duly.api.idempotency import Act, KeyedRequest, encoded, perform
from duly.api.logins import Logins
from duly.api.operations import ANYBODY, Answer, Call, Identity, Operation
from duly.api.paths import shown_path
from duly.api.places import WAITS, Places
from duly.api.refusals import Refusal, found_in
from duly.api.shedding import Shedding
from duly.api.traffic import Traffic
from duly.api.waiting import Waiter, seconds_asked, unless_ended
from duly.clock import Rng
from duly.domain.errors import DulyError
from duly.domain.limits.overload import AGE_LIMIT
from duly.domain.targets.target import Allowed
from duly.domain.tenancy.audit import Actor
from duly.log import Log
from duly.moves.admin.admit import Admission
from duly.moves.group_commit import GroupCommit
from duly.settings import Shown
from duly.store.connection.database import Database
from duly.store.connection.session import Opening, Sessions
from duly.store.reads.pressure import Gauge
from duly.wire import problems
from duly.wire.jobs.jobs import JobPatch

# The first hint goes out at once; under load those of five milliseconds go together.
WAKE_PAUSE_SECONDS = 0.005
_SAFE = ("GET", "HEAD", "OPTIONS")
_FIGURE_TIMEOUT = timedelta(seconds=2)
_ALWAYS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


class Keys(Protocol):
    """Says who asks."""

    async def identify(self, authorization: str | None) -> Identity:
        """Give who a header names. Raises Refusal."""
        ...


class Door:
    """Leads each request through."""

    def __init__(
        self,
        database: Database,
        sessions: Sessions,
        keys: Keys,
        admission: Admission,
        wake: Callable[[str], None],
        log: Log,
        hub: Hub | None = None,
        allowed: Allowed | None = None,
        age_limit: timedelta = AGE_LIMIT,
        logins: Logins | None = None,
        figures: Sessions | None = None,
        settings: Sequence[Shown] = (),
    ) -> None:
        self._settings = settings
        self.logins = logins
        self._figures = figures or sessions
        self._database = database
        self._sessions = sessions
        self._keys = keys
        self._admission = admission
        self._wake = wake
        self._hub = hub or Hub(database, log)
        self._allowed = allowed or Allowed()
        self._keyring = database.keyring()
        self.places = Places()
        self.traffic = Traffic()
        self.shedding = Shedding(database)
        self._gauge = Gauge(database, age_limit)
        self._rng = Rng()
        self._group_commit = GroupCommit(database, self._rng)
        self._log = log

    def request_id(self, request: AnyRequest) -> str:
        """Give the caller's own id for the request, or make one up."""
        given = request.headers.get("x-request-id")
        if given and given.isprintable() and len(given) <= asked.REQUEST_ID_CHARACTERS_MAX:
            return given
        return str(self._rng.uuid())

    async def lead(self, operation: Operation, request: AnyRequest) -> Response[Any]:
        """Lead one request through, and give its answer."""
        began = self._database.clock.monotonic()
        request_id = self.request_id(request)
        headers: dict[str, str] = {**_ALWAYS, "X-Request-ID": request_id}
        try:
            with ExitStack() as held:
                async with asyncio.timeout(operation.seconds_max):
                    answer = await self._answer(operation, request, request_id, headers, held)
                if answer.then is not None:
                    answer = await answer.then()
        except Exception as error:  # noqa: BLE001 - whatever happens, the caller gets an answer
            answer = self._refusal(operation, request, request_id, error)
        self.traffic.count(operation.name, answer.status, self._database.clock.monotonic() - began)
        return _response(answer, headers)

    def close(self) -> None:
        """End the streams that are open, so that a stop need not wait for them."""
        self._hub.close()

    def _refusal(self, operation: Operation, request: AnyRequest, request_id: str, error: Exception) -> Answer:
        """Turn what was raised into a problem document; what is a failure of ours goes to the log and not to the caller."""
        if isinstance(error, TimeoutError) and asked.is_arriving(request):
            error = Refusal("request_timeout", f"The body did not arrive within {operation.seconds_max:g} s.")
        found = found_in(error, _base(operation))
        if found is None:
            self._log.error(
                "request_failed", path=shown_path(request.url.path), error=repr(error), request_id=request_id
            )
            body = problems.problem(
                "internal_error",
                "The request could not be answered.",
                instance=shown_path(request.url.path),
                request_id=request_id,
            )
            return Answer(500, body, media_type=problems.MEDIA_TYPE)
        body = problems.problem(
            found.code,
            found.detail,
            instance=shown_path(request.url.path),
            request_id=request_id,
            errors=found.errors,
            remedy=found.remedy,
            title=found.title,
        )
        return Answer(body.status, body, found.headers, media_type=problems.MEDIA_TYPE)

    async def _answer(
        self, operation: Operation, request: AnyRequest, request_id: str, headers: dict[str, str], held: ExitStack
    ) -> Answer:
        asked.check_headers(request)
        identity = ANYBODY if operation.is_open else await self._identify(request)
        if not operation.is_open:
            _check_scope(operation, identity)
        prefer = request.headers.get("prefer") if operation.takes_prefer else None
        if seconds_asked(prefer):  # Before anything is made: a refusal says that nothing was.
            held.enter_context(self.places.take(WAITS, identity.key))
        admit = partial(self._admit, identity, headers)
        if operation.is_submit:
            await admit(1)
        body = await asked.take_in(operation, request)
        key = asked.key_of(operation, request, body)
        keyed = None
        if key is not None:
            digest = asked.digest(operation, request, body)
            keyed = KeyedRequest(identity.tenant, operation.name, key, digest)
        woken: set[str] = set()
        act = self._acting(operation, request, request_id, identity, key, body, woken, admit, keyed)
        answer = await perform(operation, keyed, act, self._database, partial(self._open, operation, identity))
        if operation.takes_prefer:
            waiter = Waiter(identity.tenant, self._database.clock, partial(self._sessions.open, identity.tenant))
            answer = unless_ended(waiter, prefer, answer)
        for queue in woken:  # After the commit: a worker that looked before it would find nothing.
            self._wake(queue)
        return answer

    def _acting(
        self,
        operation: Operation,
        request: AnyRequest,
        request_id: str,
        identity: Identity,
        key: str | None,
        body: bytes,
        woken: set[str],
        admit: Callable[[int], Awaitable[None]],
        keyed: KeyedRequest | None,
    ) -> Act:
        actor = self._actor(request, request_id, identity)

        async def act(database: Database) -> Answer:
            call: Call[Any, Any] = Call(
                identity=identity,
                address="" if request.client is None else request.client.host,
                path=asked.path_of(operation, request),
                headers=request.headers,
                query=asked.query_of(operation, request),
                body=asked.body_of(operation, request, body),
                raw=request.stream,
                key=key,
                request_id=request_id,
                database=database.acting_as(actor),
                open_session=partial(self._open, operation, identity),
                wake=woken.add,
                admit=admit,
                shedding=self.shedding,
                gauge=self._gauge,
                rng=self._rng,
                hub=self._hub,
                group_commit=self._group_commit,
                is_admitted=partial(self._is_admitted, operation, request),
                places=self.places,
                allowed=self._allowed,
                keyring=self._keyring,
                settings=self._settings,
                keyed=keyed,
            )
            return await operation.act(call)

        return act

    def _actor(self, request: AnyRequest, request_id: str, identity: Identity) -> Actor | None:
        """Say in whose name a request is done; what is open is nobody's."""
        if identity is ANYBODY:
            return None
        return Actor(
            "key" if identity.session_id is None else "session", identity.key.key_id, identity.key.name, request_id
        )

    async def check_operator(self, request: AnyRequest) -> None:
        """Let the operator read what is of all tenants. Raises Refusal."""
        _check_operator(await self._identify(request))

    async def _identify(self, request: AnyRequest) -> Identity:
        """Say who asks, by a key, or by the cookie of a session; one that changes something comes from a page of ours."""
        authorization = request.headers.get("authorization")
        token = None if self.logins is None else self.logins.token_in(request.headers)
        if self.logins is None or token is None or authorization is not None:
            return await self._keys.identify(authorization)
        identity = await self.logins.identify(token)
        if request.method not in _SAFE:
            self.logins.check_page(request.headers, token)
        return identity

    def _open(self, operation: Operation, identity: Identity) -> Opening:
        if operation.is_figure and operation.is_operators:
            return self._figures.look(timeout=_FIGURE_TIMEOUT)
        if operation.is_figure:
            return self._figures.open(identity.tenant, timeout=_FIGURE_TIMEOUT)
        return self._sessions.open(identity.tenant)

    async def _is_admitted(self, operation: Operation, request: AnyRequest) -> bool:
        """Ask whether the key of a request that goes on may still do what it does; a silent database changes nothing."""
        try:
            _check_scope(operation, await self._identify(request))
        except Refusal:
            return False
        except DulyError:
            return True
        return True

    async def _admit(self, identity: Identity, headers: dict[str, str], count: int) -> None:
        """Count what is submitted, and tell what is left. Raises Refusal."""
        verdict = await self._admission.admit(identity.key, count)
        if verdict is None:
            return
        if identity is not ANYBODY or not verdict.is_allowed:  # What all share is nobody's to plan with.
            headers |= verdict.headers
        if not verdict.is_allowed:
            whose = "all callbacks together" if identity is ANYBODY else f"the {verdict.limit.whose}"
            raise Refusal("rate_limited", f"The limit of {whose} is {verdict.limit.rate:g} submits a second.")


def _check_scope(operation: Operation, identity: Identity) -> None:
    if operation.scope not in identity.scopes:
        raise Refusal(
            "forbidden",
            f"This needs the scope {operation.scope}; the key has {', '.join(sorted(identity.scopes)) or 'none'}.",
        )
    if operation.is_operators:
        _check_operator(identity)


def _check_operator(identity: Identity) -> None:
    if not identity.is_operator:
        raise Refusal("forbidden", "This is for the operator: an admin key of the first tenant.")


def _base(operation: Operation) -> str:
    """Say where in the body a schedule stands; a body that is one has it at its root."""
    has_schedule = operation.body is JobPatch or "schedule" in getattr(operation.body, "__struct_fields__", ())
    return "/schedule" if has_schedule else ""


def _response(answer: Answer, headers: Mapping[str, str]) -> Response[Any]:
    every = {**headers, **answer.headers}
    if answer.stream is not None:
        return Stream(answer.stream, status_code=answer.status, headers=every, media_type=answer.media_type)
    return Response(encoded(answer), status_code=answer.status, headers=every, media_type=answer.media_type)
