"""Dispatch: the one path of a request, in this order: request, auth, admission, idempotency, route, response.

See docs/decisions/0036-one-write-path.md. A 2xx is sent only after the commit of what it reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import litestar
import msgspec

from duly import log
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
from duly.api.replica_reads import ReplicaReads
from duly.api.response import Response, request_id_of, sent
from duly.api.streams.events import EventHub
from duly.clock import Rng
from duly.domain.limits.overload import AGE_LIMIT
from duly.domain.targets.target import Allowed
from duly.domain.tenancy.api_key import Identity
from duly.domain.tenancy.audit import Actor, ActorKind
from duly.log import Log
from duly.moves.admin.admit import Admission
from duly.moves.archive.cold import ColdHistory
from duly.moves.group_commit import GroupCommit
from duly.settings import Shown
from duly.store.connection.database import Database
from duly.store.connection.replica import Replica, ReplicaPools
from duly.store.connection.session import Opening, Sessions
from duly.store.connection.together import OpenSession
from duly.store.reads.pressure import Gauge
from duly.wire.jobs.jobs import JobPatch

# The first hint is sent at once; under load those of five milliseconds are sent together.
WAKE_PAUSE_SECONDS = 0.005
_FIGURE_TIMEOUT = timedelta(seconds=2)
_log = log.Log("api")


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
        replica: Replica | None = None,
        cold: ColdHistory | None = None,
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
        self.replica_reads = None if replica is None else ReplicaReads(replica)
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
            replica=replica,
            cold=cold,
        )
        any_program = AnyProgram(check_call=self.services.allowed.check_call)
        self._services_of_local = msgspec.structs.replace(self.services, allowed=any_program)

    async def dispatch(self, operation: Operation, request: AnyRequest) -> litestar.Response[Any]:
        """Carry out a request's operation, and return its response, whatever happens."""
        began = self._database.clock.monotonic()
        request_id = request_id_of(request.headers, self.services.rng)
        headers, before = {"X-Request-ID": request_id}, log.request_id.set(request_id)
        try:
            with ExitStack() as held:
                async with asyncio.timeout(operation.seconds_max):
                    response = await self._respond(operation, request, request_id, headers, held)
                if response.then is not None:
                    response = await response.then()
        except Exception as error:  # noqa: BLE001 - whatever happens, the caller gets a response
            response = self._problem(operation, request, request_id, error)
        seconds = self._database.clock.monotonic() - began
        self.metrics.count(operation.name, response.status, seconds)
        if _log.is_talkative:
            _log.info("request_served", operation=operation.name, status=response.status, ms=round(seconds * 1_000, 1))
        log.request_id.reset(before)
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
        woken = set[str]()

        async def act(database: Database, open_session: OpenSession) -> Response:
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

        response = await self._perform(operation, identity, keyed, request, headers, act)
        if prefer is not None:
            waiter = Waiter(identity.tenant, self._database.clock, partial(self._sessions.open, identity.tenant))
            response = unless_ended(waiter, prefer, response)
        for queue in woken:  # after the commit: an earlier look would find nothing
            self._wake(queue)
        return response

    async def _perform(
        self,
        operation: Operation,
        identity: Identity,
        keyed: KeyedRequest | None,
        request: AnyRequest,
        headers: dict[str, str],
        act: Callable[[Database, OpenSession], Awaitable[Response]],
    ) -> Response:
        """Act on the replica where that may be, and else on the primary."""

        async def at(database: Database, sessions: Sessions, figures: Sessions) -> Response:
            open_session = partial(_open, operation, identity, sessions, figures)
            return await perform(operation, keyed, lambda one: act(one, open_session), database, open_session)

        async def at_replica(pools: ReplicaPools) -> Response:
            return await at(pools.database, pools.sessions, pools.figures)

        reads = self.replica_reads
        if reads is not None and (
            found := await reads.answer(operation, identity, request.headers, at_replica, headers)
        ):
            return found
        response = await at(self._database, self._sessions, self._figures)
        if reads is not None:
            reads.wrote(operation, identity)
        return response

    def _problem(self, operation: Operation, request: AnyRequest, request_id: str, error: Exception) -> Response:
        if isinstance(error, TimeoutError) and requests.is_arriving(request):
            error = Refusal("request_timeout", f"The body did not arrive within {operation.seconds_max:g} s.")
        # If the body is a schedule, it is the root.
        has_schedule = operation.body is JobPatch or "schedule" in getattr(operation.body, "__struct_fields__", ())
        return self._problems.of_error(request, error, request_id, "/schedule" if has_schedule else "")


def _open(operation: Operation, identity: Identity, sessions: Sessions, figures: Sessions) -> Opening:
    if operation.is_figure and operation.is_operators:
        return figures.look(timeout=_FIGURE_TIMEOUT)
    if operation.is_figure:
        return figures.open(identity.tenant, timeout=_FIGURE_TIMEOUT)
    return sessions.open(identity.tenant)


def _actor(identity: Identity, request_id: str) -> Actor | None:
    """Return the actor of a request; None for open operations."""
    if identity.is_anonymous:
        return None
    key = identity.key
    kind: ActorKind = "key" if identity.session_id is None else "session"
    return Actor("local" if identity.is_local else kind, key.key_id, key.name, request_id)
