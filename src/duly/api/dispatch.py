"""Dispatch: the one path of a request, in this order: request, auth, admission, idempotency, route, response.

See docs/decisions/0036-one-write-path.md. A 2xx is sent only after the commit of what it reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import litestar
import msgspec

from duly.api import request as requests
from duly.api.admission import WAITS, LoadShedding, OpenRequests, admit
from duly.api.auth.authenticate import Authentication, Keys
from duly.api.auth.browser import Logins
from duly.api.auth.local import AnyProgram
from duly.api.idempotency import KeyedRequest, perform
from duly.api.metrics.requests import RequestMetrics
from duly.api.operations import Call, Operation, Services
from duly.api.prefer_wait import Waiter, requested_seconds, unless_ended
from duly.api.problems import AnyRequest, Problems, Refusal
from duly.api.response import Response, request_id_of, sent
from duly.api.streams.events import EventHub
from duly.clock import Rng
from duly.domain.limits.overload import AGE_LIMIT
from duly.domain.targets.target import Allowed
from duly.domain.tenancy.api_key import Identity
from duly.domain.tenancy.audit import Actor, ActorKind
from duly.log import Log
from duly.moves.admin.admit import Admission
from duly.moves.group_commit import GroupCommit
from duly.settings import Shown
from duly.store.connection.database import Database
from duly.store.connection.session import Opening, Sessions
from duly.store.reads.pressure import Gauge
from duly.wire.jobs.jobs import JobPatch

# The first hint is sent at once; under load those of five milliseconds are sent together.
WAKE_PAUSE_SECONDS = 0.005
_FIGURE_TIMEOUT = timedelta(seconds=2)


class Dispatcher:
    """Routes each request to its operation, and returns its response."""

    def __init__(
        self,
        database: Database,
        sessions: Sessions,
        keys: Keys,
        admission: Admission,
        wake: Callable[[str], None],
        log: Log,
        hub: EventHub | None = None,
        allowed: Allowed | None = None,
        age_limit: timedelta = AGE_LIMIT,
        logins: Logins | None = None,
        figures: Sessions | None = None,
        settings: Sequence[Shown] = (),
    ) -> None:
        rng = Rng()
        self._database = database
        self._sessions = sessions
        self._figures = figures or sessions
        self._admission = admission
        self._wake = wake
        self._problems = Problems(rng, log)
        self.auth = Authentication(database, keys, logins)
        self.metrics = RequestMetrics()
        self.services = Services(
            allowed=allowed or Allowed(),
            keyring=database.keyring(),
            settings=settings,
            rng=rng,
            hub=hub or EventHub(database, log),
            shedding=LoadShedding(database),
            open_requests=OpenRequests(),
            gauge=Gauge(database, age_limit),
            group_commit=GroupCommit(database, rng),
        )
        any_program = AnyProgram(check_call=self.services.allowed.check_call)
        self._services_of_local = msgspec.structs.replace(self.services, allowed=any_program)

    async def dispatch(self, operation: Operation, request: AnyRequest) -> litestar.Response[Any]:
        """Carry out a request's operation, and return its response, whatever happens."""
        began = self._database.clock.monotonic()
        request_id = request_id_of(request.headers, self.services.rng)
        headers = {"X-Request-ID": request_id}
        try:
            with ExitStack() as held:
                async with asyncio.timeout(operation.seconds_max):
                    response = await self._respond(operation, request, request_id, headers, held)
                if response.then is not None:
                    response = await response.then()
        except Exception as error:  # noqa: BLE001 - whatever happens, the caller gets a response
            response = self._problem(operation, request, request_id, error)
        self.metrics.count(operation.name, response.status, self._database.clock.monotonic() - began)
        return sent(response, headers)

    def close(self) -> None:
        """End the open streams, so that a stop need not wait for them."""
        self.services.hub.close()

    async def _respond(
        self, operation: Operation, request: AnyRequest, request_id: str, headers: dict[str, str], held: ExitStack
    ) -> Response:
        requests.check_headers(request)
        identity = await self.auth.authorize(operation, request)
        prefer = request.headers.get("prefer") if operation.takes_prefer else None
        if prefer is not None and requested_seconds(
            prefer
        ):  # before anything is created: a refusal means that nothing was
            held.enter_context(self.services.open_requests.take(WAITS, identity.key))
        admit_more = partial(admit, self._admission, identity, headers)
        if operation.is_submit:
            await admit_more(1)
        body = await requests.take_in(operation, request)
        key = requests.key_of(operation, request, body)
        digest = b"" if key is None else requests.digest(operation, request, body)
        keyed = None if key is None else KeyedRequest(identity.tenant, operation.name, key, digest)
        open_session, woken = partial(self._open, operation, identity), set[str]()

        async def act(database: Database) -> Response:
            call: Call[Any, Any] = Call(
                services=self._services_of_local if identity.is_local else self.services,
                identity=identity,
                keyed=keyed,
                request_id=request_id,
                address="" if request.client is None else request.client.host,
                path=requests.path_of(operation, request),
                headers=request.headers,
                query=requests.query_of(operation, request),
                body=requests.body_of(operation, request, body),
                database=database.acting_as(_actor(identity, request_id)),
                open=open_session,
                wake=woken.add,
                admit=admit_more,
                is_admitted=partial(self.auth.is_authorized, operation, request),
            )
            return await operation.act(call)

        response = await perform(operation, keyed, act, self._database, open_session)
        if prefer is not None:
            waiter = Waiter(identity.tenant, self._database.clock, partial(self._sessions.open, identity.tenant))
            response = unless_ended(waiter, prefer, response)
        for queue in woken:  # after the commit: an earlier look would find nothing
            self._wake(queue)
        return response

    def _open(self, operation: Operation, identity: Identity) -> Opening:
        if operation.is_figure and operation.is_operators:
            return self._figures.look(timeout=_FIGURE_TIMEOUT)
        if operation.is_figure:
            return self._figures.open(identity.tenant, timeout=_FIGURE_TIMEOUT)
        return self._sessions.open(identity.tenant)

    def _problem(self, operation: Operation, request: AnyRequest, request_id: str, error: Exception) -> Response:
        if isinstance(error, TimeoutError) and requests.is_arriving(request):
            error = Refusal("request_timeout", f"The body did not arrive within {operation.seconds_max:g} s.")
        # If the body is a schedule, it is the root.
        has_schedule = operation.body is JobPatch or "schedule" in getattr(operation.body, "__struct_fields__", ())
        return self._problems.of_error(request, error, request_id, "/schedule" if has_schedule else "")


def _actor(identity: Identity, request_id: str) -> Actor | None:
    """Return the actor of a request; None for open operations."""
    if identity.is_anonymous:
        return None
    key = identity.key
    kind: ActorKind = "key" if identity.session_id is None else "session"
    return Actor("local" if identity.is_local else kind, key.key_id, key.name, request_id)
