"""Operations: what can be asked for over HTTP. Each is a function and its declaration; all else is made from these.

A module of `api/routes` collects its operations in `Routes`. The function is given a `Call` and gives an `Answer`; its
docstring is the operation's description. What it may refuse with, besides what every operation may, is named by its codes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

import msgspec

from duly.api.hub import Hub
from duly.api.places import Places
from duly.api.shedding import Shedding
from duly.clock import Clock, Rng
from duly.domain.errors import InvalidOption, NotFound, Refused
from duly.domain.jobs.job import check_name
from duly.domain.runs.callback_token import CallbackTokens
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.targets.target import Allowed
from duly.domain.tenancy.api_key import ApiKey, Scope
from duly.domain.tenancy.audit import Actor
from duly.domain.tenancy.sealing import NEW_KEY, Keyring
from duly.moves.group_commit import GroupCommit
from duly.settings import Shown
from duly.store.connection.database import Database
from duly.store.connection.together import in_session
from duly.store.reads.pressure import Gauge
from duly.wire.schema.shapes import Nothing

if TYPE_CHECKING:
    from duly.api.idempotency import KeyedRequest

B = TypeVar("B")
Q = TypeVar("Q")
T = TypeVar("T")

JSON = "application/json"
NDJSON = "application/x-ndjson"
MERGE_PATCH = "application/merge-patch+json"
EVENT_STREAM = "text/event-stream"
ACT_SECONDS = 10.0
OPEN = "open"  # the scope of what needs no key: the path itself is the right to it
BODY_BYTES_MAX = 1_048_576


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


class Answer(msgspec.Struct, frozen=True):
    """What is answered: a shape, or a stream of bytes that is written as it comes.

    `then` is done after the commit, and gives the answer instead: what waits for others must hold nothing.
    """

    status: int
    body: Any = None
    headers: Mapping[str, str] = {}
    stream: AsyncIterator[bytes] | None = None
    media_type: str = JSON
    then: Callable[[], Awaitable[Answer]] | None = None


class Call(Generic[Q, B]):
    """One request on its way through an operation.

    `database` is where it reads and writes: a session under the tenant's own rules, or, for operations that say so, the
    engine's pool. `open` opens a session where an operation has none or wants another. `is_admitted` asks anew whether the
    key may do this: what goes on for long asks again and again. `address` is who is at the other end of the connection, a proxy
    perhaps. `allowed` are the programs and images that jobs may run,
    `settings` those of this process, as they may be shown.
    """

    __slots__ = (
        "address",
        "admit",
        "allowed",
        "body",
        "clock",
        "database",
        "gauge",
        "group_commit",
        "headers",
        "hub",
        "identity",
        "is_admitted",
        "key",
        "keyed",
        "keyring",
        "open",
        "path",
        "places",
        "query",
        "raw",
        "request_id",
        "rng",
        "settings",
        "shedding",
        "traceparent",
        "wake",
    )

    def __init__(
        self,
        *,
        identity: Identity,
        address: str,
        path: Mapping[str, str],
        headers: Mapping[str, str],
        query: Q,
        body: B,
        raw: Callable[[], AsyncIterator[bytes]],
        key: str | None,
        request_id: str,
        database: Database,
        open_session: Callable[[], AbstractAsyncContextManager[Database]],
        wake: Callable[[str], None],
        admit: Callable[[int], Awaitable[None]],
        shedding: Shedding,
        gauge: Gauge,
        rng: Rng,
        hub: Hub,
        group_commit: GroupCommit,
        is_admitted: Callable[[], Awaitable[bool]],
        places: Places,
        allowed: Allowed,
        keyring: Keyring | None = None,
        settings: Sequence[Shown] = (),
        keyed: KeyedRequest | None = None,
    ) -> None:
        self.keyed = keyed
        self.identity = identity
        self.path = path
        self.headers = headers
        self.query = query
        self.body = body
        self.raw = raw
        self.key = key
        self.request_id = request_id
        self.traceparent = headers.get("traceparent")
        self.database = database
        self.open = open_session
        self.wake = wake
        self.admit = admit
        self.shedding = shedding
        self.gauge = gauge
        self.rng = rng
        self.hub = hub
        self.group_commit = group_commit
        self.is_admitted = is_admitted
        self.places = places
        self.address = address
        self.allowed = allowed
        self.keyring = keyring
        self.settings = settings
        self.clock: Clock = database.clock

    async def in_transaction(self, do: Callable[[Database], Awaitable[T]]) -> T:
        """Do something in the transaction of this request, or where it has none in one of its tenant, in the caller's name."""
        if self.database.in_transaction:
            return await do(self.database)
        return await in_session(self.open, lambda session: do(session.acting_as(self.actor)))

    @property
    def wants_events(self) -> bool:
        """Whether the caller asks for server-sent events by name."""
        ranges = (part.partition(";")[0].strip().lower() for part in self.headers.get("accept", "").split(","))
        return EVENT_STREAM in ranges

    @property
    def actor(self) -> Actor:
        """In whose name this is done."""
        assert self.database.actor is not None
        return self.database.actor

    @property
    def unnamed(self) -> Database:
        """The same database, for the parts of what is noted as a whole."""
        return self.database.acting_as(None)

    @property
    def tenant(self) -> int:
        """Whose data this is about."""
        return self.identity.tenant

    @property
    def callbacks(self) -> CallbackTokens | None:
        """What knows the tokens of receivers, where there is a keyring."""
        return None if self.keyring is None else CallbackTokens(self.keyring)

    @property
    def needed_keyring(self) -> Keyring:
        """The keys that secrets are sealed with. Raises Refused where there are none."""
        if self.keyring is None:
            raise Refused(f"this server has no key to seal and open secrets with; its operator makes one: {NEW_KEY}")
        return self.keyring

    @property
    def name(self) -> str:
        """The name in the path, which may contain what divides a path."""
        return self.path["name"]

    @property
    def known_name(self) -> str:
        """The name in the path of something that is there. Raises NotFound: what is no name is nothing's."""
        try:
            return check_name(self.name, "name")
        except InvalidOption as error:
            raise NotFound(str(error)) from None

    def id(self, name: str) -> UUID:
        """Read an id from the path. Raises NotFound: what is no id is the id of nothing."""
        try:
            return UUID(self.path[name])
        except ValueError:
            raise NotFound(f"no {name.removesuffix('_id')} {self.path[name]!r}; ids are UUIDs") from None


Act = Callable[[Any], Awaitable[Answer]]


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be asked for."""

    method: str
    path: str
    name: str
    group: str
    about: str
    scope: str
    act: Act
    query: type
    body: Any
    answers: Mapping[int, Any]
    refuses: tuple[str, ...]
    media_type: str
    also_takes: Mapping[str, Any]
    is_binary: Callable[[Mapping[str, str]], bool] | None
    answer_type: str
    body_bytes_max: int
    seconds_max: float
    in_session: bool
    is_keyed: bool
    is_resumable: bool
    is_matched: bool
    is_operators: bool
    takes_prefer: bool
    is_submit: bool
    may_stream: bool
    is_figure: bool

    @property
    def has_key_inside(self) -> bool:
        """Whether its body may name the idempotency key, too."""
        return self.is_keyed and "idempotency_key" in getattr(self.body, "__struct_fields__", ())

    @property
    def is_open(self) -> bool:
        """Whether it needs no key."""
        return self.scope == OPEN


class Routes:
    """The operations of one module."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.operations: list[Operation] = []

    def add(
        self,
        method: str,
        path: str,
        *,
        scope: str,
        answers: Mapping[int, Any],
        query: type = Nothing,
        body: Any = None,
        refuses: tuple[str, ...] = (),
        media_type: str = JSON,
        also_takes: Mapping[str, Any] | None = None,
        is_binary: Callable[[Mapping[str, str]], bool] | None = None,
        answer_type: str = JSON,
        body_bytes_max: int = BODY_BYTES_MAX,
        seconds_max: float = ACT_SECONDS,
        in_session: bool = True,
        is_keyed: bool | None = None,
        is_resumable: bool = False,
        is_matched: bool = False,
        is_operators: bool = False,
        takes_prefer: bool = False,
        is_submit: bool = False,
        may_stream: bool = False,
        is_figure: bool = False,
    ) -> Callable[[Act], Act]:
        """Declare an operation. A POST takes an idempotency key unless it says otherwise.

        A figure is read over a small pool of its own, in two seconds or not at all; one of the operator's is of all tenants.
        `also_takes` are bodies of other types, by their type. One whose headers are told by `is_binary` may be of any: it is
        given as it came. What `may_stream` answers with server-sent events to whoever accepts these. What `is_resumable` is done
        in parts, and asked again with the same key goes on where it was.
        """

        def declare(act: Act) -> Act:
            self.operations.append(
                Operation(
                    method=method,
                    path=path,
                    name=act.__name__,
                    group=self.group,
                    about=act.__doc__ or "",
                    scope=scope,
                    act=act,
                    query=query,
                    body=body,
                    answers=answers,
                    refuses=refuses,
                    media_type=media_type,
                    also_takes=also_takes or {},
                    is_binary=is_binary,
                    answer_type=answer_type,
                    body_bytes_max=body_bytes_max,
                    seconds_max=seconds_max,
                    in_session=in_session,
                    is_keyed=method == "POST" if is_keyed is None else is_keyed,
                    is_resumable=is_resumable,
                    is_matched=is_matched,
                    is_operators=is_operators,
                    takes_prefer=takes_prefer,
                    is_submit=is_submit,
                    may_stream=may_stream,
                    is_figure=is_figure,
                )
            )
            return act

        return declare
