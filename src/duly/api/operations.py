"""Operations of the HTTP API. Each is a function and its declaration, from which routes and OpenAPI are made.

A module of `api/routes` collects its operations in `Routes`. The function receives a `Call` and returns a `Response`;
its docstring is the operation's description. The annotation of its parameter declares the input: `call: Call[Q, B]`
decodes the query into Q and the body into B, and `None` as B is no body. `refuses` lists its problems besides those of
every operation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from datetime import datetime
from types import NoneType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, get_args, get_type_hints
from uuid import UUID

import msgspec

from duly.api.admission import LoadShedding, OpenRequests
from duly.api.problems import Refusal
from duly.api.response import EVENT_STREAM, JSON, Response
from duly.api.streams.events import EventHub
from duly.clock import Clock, Rng, moment_of
from duly.domain.errors import InvalidOption, NotFound, Refused
from duly.domain.jobs.job import check_name, check_traceparent
from duly.domain.runs.callback_token import CallbackTokens
from duly.domain.targets.target import Allowed
from duly.domain.tenancy.api_key import Identity
from duly.domain.tenancy.audit import Action, Actor
from duly.domain.tenancy.sealing import NEW_KEY, Keyring
from duly.moves.archive.cold import ColdHistory
from duly.moves.group_commit import GroupCommit
from duly.settings import Shown
from duly.store.connection.database import Database
from duly.store.connection.replica import Replica
from duly.store.connection.together import in_session
from duly.store.reads.pressure import Gauge
from duly.wire.schema.shapes import Nothing

if TYPE_CHECKING:
    from duly.api.idempotency import KeyedRequest

B = TypeVar("B")
Q = TypeVar("Q")
T = TypeVar("T")
P = ParamSpec("P")

MERGE_PATCH = "application/merge-patch+json"
ACT_SECONDS = 10.0
OPEN = "open"  # the scope of operations without a key: the path itself is the right
BODY_BYTES_MAX = 1_048_576
SAFE = ("GET", "HEAD", "OPTIONS")


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of this process that operations use.

    `allowed` are the programs and images that jobs may run, `settings` those of this process, as they may be shown.
    """

    allowed: Allowed
    keyring: Keyring | None
    settings: Sequence[Shown]
    rng: Rng
    hub: EventHub
    shedding: LoadShedding
    open_requests: OpenRequests
    gauge: Gauge
    group_commit: GroupCommit
    replica: Replica | None
    cold: ColdHistory | None = None  # None: history is not archived


class Call(msgspec.Struct, Generic[Q, B], frozen=True, kw_only=True):
    """One request on its way through an operation.

    `database` is where it reads and writes: a tenant's session, or, for operations that say so, the engine's pool.
    `open` opens a session where an operation has none or wants another. `is_admitted` checks again whether the key may
    do this: long requests call it repeatedly. `address` is the other end of the connection, perhaps a proxy.
    """

    services: Services
    identity: Identity
    keyed: KeyedRequest | None
    request_id: str
    address: str
    path: Mapping[str, str]
    headers: Mapping[str, str]
    query: Q
    body: B
    database: Database
    open: Callable[[], AbstractAsyncContextManager[Database]]
    wake: Callable[[str], None]
    admit: Callable[[int], Awaitable[None]]
    is_admitted: Callable[[], Awaitable[bool]]

    @property
    def key(self) -> str | None:
        """The idempotency key, if the request has one."""
        return None if self.keyed is None else self.keyed.key

    @property
    def traceparent(self) -> str | None:
        """The caller's `traceparent`."""
        return self.headers.get("traceparent")

    @property
    def clock(self) -> Clock:
        """The clock of the database."""
        return self.database.clock

    async def in_transaction(self, do: Callable[[Database], Awaitable[T]]) -> T:
        """Do something in the transaction of this request, or if it has none in one of its tenant, as the caller."""
        if self.database.in_transaction:
            return await do(self.database)
        return await in_session(self.open, lambda session: do(session.acting_as(self.actor)))

    @property
    def wants_events(self) -> bool:
        """Return whether the caller asks for server-sent events by name."""
        ranges = (part.partition(";")[0].strip().lower() for part in self.headers.get("accept", "").split(","))
        return EVENT_STREAM in ranges

    @property
    def actor(self) -> Actor:
        """The actor of the request."""
        assert self.database.actor is not None
        return self.database.actor

    @property
    def unnamed(self) -> Database:
        """The same database without an actor, for the parts of a change that is recorded as a whole."""
        return self.database.acting_as(None)

    @property
    def now(self) -> datetime:
        """The time, as far as it is known without the database."""
        return moment_of(self.clock.now())

    @property
    def run_metadata(self) -> dict[str, Any]:
        """The metadata that runs carry of their request: the caller's id for it, and its trace."""
        found: dict[str, Any] = {}
        if (given := self.headers.get("x-request-id")) is not None and given == self.request_id:
            found["request_id"] = given
        if self.traceparent is not None:
            with suppress(InvalidOption):  # an unreadable trace is not passed on
                found["traceparent"] = check_traceparent(self.traceparent)
        return found

    @property
    def tenant(self) -> int:
        """The tenant of the data."""
        return self.identity.tenant

    def check_operator(self, detail: str) -> None:
        """Refuse a caller that is not the operator. Raises Refusal, with the sentence `detail`."""
        if not self.identity.is_operator:
            raise Refusal("forbidden", detail)

    def tenant_or(self, requested: int | None, detail: str) -> int:
        """Return the requested tenant, or else the caller's own. Raises Refusal: another's is only for the operator."""
        if requested not in (None, self.tenant):
            self.check_operator(detail)
        return self.tenant if requested is None else requested

    @property
    def callbacks(self) -> CallbackTokens | None:
        """The tokens of callbacks, if there is a keyring."""
        return None if self.services.keyring is None else CallbackTokens(self.services.keyring)

    @property
    def needed_keyring(self) -> Keyring:
        """The keyring. Raises Refused without one."""
        if self.services.keyring is None:
            raise Refused(f"this server has no key to seal secrets with; its operator creates one: {NEW_KEY}")
        return self.services.keyring

    @property
    def name(self) -> str:
        """The name in the path, which may contain slashes."""
        return self.path["name"]

    @property
    def known_name(self) -> str:
        """The name in the path of something that must exist. Raises NotFound, also for an invalid name."""
        try:
            return check_name(self.name, "name")
        except InvalidOption as error:
            raise NotFound(str(error)) from None

    def id(self, name: str) -> UUID:
        """Parse an id from the path. Raises NotFound, also for an invalid id."""
        try:
            return UUID(self.path[name])
        except ValueError:
            raise NotFound(f"no {name.removesuffix('_id')} {self.path[name]!r}; ids are UUIDs") from None


Act = Callable[[Any], Awaitable[Response]]


async def _undeclared(call: Call[Any, Any]) -> Response:
    raise AssertionError("an operation without a function")


class Operation(msgspec.Struct, frozen=True):
    """One operation.

    A POST takes an idempotency key unless it says otherwise. `also_takes` are bodies of other types, by their type; one
    whose headers `is_binary` accepts may be of any type, and is passed as it came. An operation that `is_resumable` is
    done in parts, and goes on where it was when it is repeated with the same key. A figure is read over a small pool of
    its own, in two seconds or not at all; one of the operator's covers all tenants. One that `may_stream` answers
    with server-sent events to callers that accept them. One that `may_lag` may be read from a replica. A change
    lists the actions that it `audits`, or why it is `unaudited`.
    """

    method: str
    path: str
    scope: str = ""
    responses: Mapping[int, Any] = {}
    query: type = Nothing
    body: Any = None
    refuses: tuple[str, ...] = ()
    audits: tuple[Action, ...] = ()
    unaudited: str = ""
    media_type: str = JSON
    also_takes: Mapping[str, Any] = {}
    is_binary: Callable[[Mapping[str, str]], bool] | None = None
    response_type: str = JSON
    body_bytes_max: int = BODY_BYTES_MAX
    seconds_max: float = ACT_SECONDS
    in_session: bool = True
    takes_key: bool = True
    is_resumable: bool = False
    is_matched: bool = False
    is_operators: bool = False
    takes_prefer: bool = False
    is_submit: bool = False
    may_stream: bool = False
    may_lag: bool = False
    is_figure: bool = False
    group: str = ""
    name: str = ""
    about: str = ""
    act: Act = _undeclared

    @property
    def is_keyed(self) -> bool:
        """Return whether it takes an idempotency key."""
        return self.takes_key and self.method == "POST"

    @property
    def has_key_inside(self) -> bool:
        """Return whether its body may name the idempotency key, too."""
        return self.is_keyed and "idempotency_key" in getattr(self.body, "__struct_fields__", ())

    @property
    def is_open(self) -> bool:
        """Return whether it needs no key."""
        return self.scope == OPEN


Declare = Callable[[Act], Act]


def _declared_as(
    make: Callable[Concatenate[str, str, P], Operation],
) -> Callable[[Callable[..., Declare]], Callable[Concatenate[Routes, str, P], Declare]]:
    """Give a method the parameters of an operation, so that each is named and typed once."""
    return lambda method: method


class Routes:
    """The operations of one module: the scopes of reads and writes, and the fields that all share."""

    def __init__(self, group: str, *, reads: str = "", writes: str = "", **shared: Any) -> None:
        self._reads, self._writes = reads, writes
        self._shared = {"group": group, **shared}
        self.operations: list[Operation] = []

    @_declared_as(Operation)
    def add(self, served: str, **fields: Any) -> Declare:
        """Declare an operation by its method and path, such as "GET /v1/jobs", and its own fields.

        Its query and its body are those of the `Call` that its function takes, unless they are named.
        """
        method, _, path = served.partition(" ")
        scope = self._reads if method in SAFE else self._writes

        def declare(act: Act) -> Act:
            own = {"scope": scope, **_shapes_of(act), **self._shared, **fields}
            operation = Operation(method, path, **own, name=act.__name__, about=act.__doc__ or "", act=act)
            check_declared(operation)
            self.operations.append(operation)
            return act

        return declare


def _shapes_of(act: Act) -> dict[str, Any]:
    query, body = get_args(get_type_hints(act, include_extras=True)["call"])
    return {"query": query, "body": None if body is NoneType else body}


def check_declared(operation: Operation) -> None:
    """Refuse an operation without a scope, or a change that is neither audited nor says why not.

    Raises ValueError, so that a module with such an operation cannot be imported.
    """
    if not operation.scope:
        raise ValueError(f"{operation.name} names no scope: give it one, or its Routes reads and writes")
    changes, says = operation.method not in SAFE, bool(operation.audits) + bool(operation.unaudited)
    if changes and says != 1:
        raise ValueError(
            f"{operation.method} {operation.path} ({operation.name}) changes something: give it audits or unaudited"
        )
    if operation.may_lag and operation.method != "GET":
        raise ValueError(f"{operation.method} {operation.path} ({operation.name}) may not lag: it changes something")
    if not changes and says:
        raise ValueError(f"{operation.name} only reads, and is not audited")
