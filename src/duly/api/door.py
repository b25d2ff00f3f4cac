"""The one way in: who asks, what may be asked, the answer given before, the shapes, the act, the answer.

See docs/decisions/0016-the-front-door.md. A 2xx is written only after the commit of what it speaks of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from hashlib import sha256
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote

import msgspec
from litestar import Request, Response
from litestar.response import Stream

from duly.api.hub import Hub
from duly.api.operations import JSON, Answer, Call, Identity, Operation
from duly.api.refusals import Refusal, found_in
from duly.api.traffic import Traffic
from duly.clock import Rng
from duly.domain.errors import DulyError, InvalidOption
from duly.domain.job import check_key
from duly.log import Log
from duly.moves.admit import Admission
from duly.store import answers
from duly.store.answers import KeptAnswer
from duly.store.database import Database
from duly.store.session import RolledBack, Sessions
from duly.wire import problems
from duly.wire.problems import KINDS
from duly.wire.reading import Misshapen, read_body, read_query

AnyRequest = Request[Any, Any, Any]
Act = Callable[[Database], Awaitable[Answer]]

HEADER_BYTES_MAX = 8_192
REQUEST_ID_CHARACTERS_MAX = 200
_TRIES_MAX = 3
# The first hint goes out at once; under load those of five milliseconds go together.
WAKE_PAUSE_SECONDS = 0.005
_ALWAYS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
# What a key is not held against: it says nothing of the request itself.
_NOT_KEPT = frozenset(
    {"unauthorized", "forbidden", "rate_limited", "quota_reached", "key_in_progress", "key_reused", "conflict"}
)


class Keys(Protocol):
    """Says who asks."""

    async def identify(self, authorization: str | None) -> Identity:
        """Give who a header names. Raises Refusal."""
        ...


class _Peek(msgspec.Struct):
    idempotency_key: str | None = None


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
    ) -> None:
        self._database = database
        self._sessions = sessions
        self._keys = keys
        self._admission = admission
        self._wake = wake
        self._hub = hub or Hub(database, log)
        self.traffic = Traffic()
        self._rng = Rng()
        self._log = log

    def request_id(self, request: AnyRequest) -> str:
        """Give the caller's own id for the request, or make one up."""
        given = request.headers.get("x-request-id")
        if given and given.isprintable() and len(given) <= REQUEST_ID_CHARACTERS_MAX:
            return given
        return str(self._rng.uuid())

    async def lead(self, operation: Operation, request: AnyRequest) -> Response[Any]:
        """Lead one request through, and give its answer."""
        began = self._database.clock.monotonic()
        request_id = self.request_id(request)
        headers: dict[str, str] = {**_ALWAYS, "X-Request-ID": request_id}
        try:
            async with asyncio.timeout(operation.seconds_max):
                answer = await self._answer(operation, request, request_id, headers)
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
        found = found_in(error, _base(operation))
        if found is None:
            self._log.error("request_failed", path=request.url.path, error=repr(error), request_id=request_id)
            body = problems.problem(
                "internal_error", "The request could not be answered.", instance=request.url.path, request_id=request_id
            )
            return Answer(500, body, media_type=problems.MEDIA_TYPE)
        body = problems.problem(
            found.code,
            found.detail,
            instance=request.url.path,
            request_id=request_id,
            errors=found.errors,
            remedy=found.remedy,
        )
        return Answer(body.status, body, found.headers, media_type=problems.MEDIA_TYPE)

    async def _answer(
        self, operation: Operation, request: AnyRequest, request_id: str, headers: dict[str, str]
    ) -> Answer:
        _check_headers(request)
        identity = await self._keys.identify(request.headers.get("authorization"))
        _check_scope(operation, identity)
        admit = partial(self._admit, identity, headers)
        if operation.is_submit:
            await admit(1)
        body = await _take_in(operation, request)
        key = _key(operation, request, body)
        woken: set[str] = set()
        act = self._acting(operation, request, request_id, identity, key, body, woken, admit)
        if key is None:
            answer = await self._act(operation, identity, act)
        else:
            digest = sha256(b"\0".join((request.url.path.encode(), request.url.query.encode(), body))).digest()
            refuse = partial(self._refusal, operation, request, request_id)
            answer = await self._act_once(operation, identity, key, digest, act, refuse)
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
    ) -> Act:
        async def act(database: Database) -> Answer:
            call: Call[Any, Any] = Call(
                identity=identity,
                path=_path(operation, request),
                headers=request.headers,
                query=_read_query(operation, request),
                body=_read_body(operation, body),
                raw=request.stream,
                key=key,
                request_id=request_id,
                database=database,
                open_session=lambda: self._sessions.open(identity.tenant),
                wake=woken.add,
                admit=admit,
                rng=self._rng,
                hub=self._hub,
                is_admitted=partial(self._is_admitted, operation, request),
            )
            return await operation.act(call)

        return act

    async def _is_admitted(self, operation: Operation, request: AnyRequest) -> bool:
        """Ask whether the key of a request that goes on may still do what it does; a silent database changes nothing."""
        try:
            _check_scope(operation, await self._keys.identify(request.headers.get("authorization")))
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
        headers |= verdict.headers
        if not verdict.is_allowed:
            raise Refusal("rate_limited", f"The limit is {verdict.limit.rate:g} submits a second.")

    async def _act(self, operation: Operation, identity: Identity, act: Act) -> Answer:
        if not operation.in_session:
            return await act(self._database)
        for tries_left in reversed(range(_TRIES_MAX)):
            try:
                async with self._sessions.open(identity.tenant) as session:
                    return await act(session)
            except RolledBack:
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    async def _act_once(
        self,
        operation: Operation,
        identity: Identity,
        key: str,
        digest: bytes,
        act: Act,
        refusal: Callable[[Exception], Answer],
    ) -> Answer:
        async with self._sessions.open(identity.tenant) as session:
            held = await answers.hold(session, identity.tenant, operation.name, key)
            if held.answer is not None:
                return _replayed(held.answer, digest, key)
            if not held.is_ours:
                raise _busy(key)
            try:
                async with session.savepoint():
                    answer = await act(session)
            except Exception as error:
                if not _is_kept(error):
                    raise
                answer = refusal(error)
            kept = KeptAnswer(
                digest, answer.status, {**answer.headers, "Content-Type": answer.media_type}, _encoded(answer)
            )
            if not await answers.keep(session, identity.tenant, operation.name, key, kept):
                raise _busy(key)
            return answer


def _check_headers(request: AnyRequest) -> None:
    size = sum(len(name) + len(value) + 4 for name, value in request.scope["headers"])
    if size > HEADER_BYTES_MAX:
        raise Refusal("headers_too_large", f"The headers have {size} bytes; the limit is {HEADER_BYTES_MAX}.")


def _check_scope(operation: Operation, identity: Identity) -> None:
    if operation.scope not in identity.scopes:
        raise Refusal(
            "forbidden",
            f"This needs the scope {operation.scope}; the key has {', '.join(sorted(identity.scopes)) or 'none'}.",
        )
    if operation.is_operators and not identity.is_operator:
        raise Refusal("forbidden", "This is for the operator: an admin key of the first tenant.")


async def _take_in(operation: Operation, request: AnyRequest) -> bytes:
    """Take the body in, up to the operation's limit."""
    if operation.body is None:
        return b""
    given = (request.headers.get("content-type") or "").partition(";")[0].strip().lower()
    taken = bytearray()
    async for chunk in request.stream():
        taken += chunk
        if len(taken) > operation.body_bytes_max:
            raise Refusal("body_too_large", f"The body has more than {operation.body_bytes_max} bytes.")
    if taken and given not in (operation.media_type, *((JSON,) if operation.media_type.endswith("+json") else ())):
        raise Refusal("unsupported_media_type", f"The body is {given or 'of no type'}; send {operation.media_type}.")
    return bytes(taken)


def _key(operation: Operation, request: AnyRequest, body: bytes) -> str | None:
    """Give the idempotency key, from the header or the body; both must say the same."""
    if not operation.is_keyed:
        return None
    header, inside = request.headers.get("idempotency-key"), _key_inside(operation, body)
    if header is not None and inside is not None and header != inside:
        raise Refusal(
            "key_reused", f"The header says Idempotency-Key {header!r} and the body {inside!r}; give one of them."
        )
    key = inside if header is None else header
    try:
        return None if key is None else check_key(key)
    except InvalidOption as error:
        raise Refusal("invalid_header", str(error)) from None


def _key_inside(operation: Operation, body: bytes) -> str | None:
    if operation.media_type != JSON or b'"idempotency_key"' not in body:
        return None
    try:
        return msgspec.json.decode(body, type=_Peek).idempotency_key
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # It is refused when the body is read.


def _path(operation: Operation, request: AnyRequest) -> Mapping[str, str]:
    """Give what stands in the path. A name at its end is read as it was sent, because slashes may be part of it."""
    head, name, rest = operation.path.partition("{name}")
    if not name or rest:
        return request.path_params
    sent = request.scope["raw_path"].decode("latin-1").partition("?")[0]
    return {**request.path_params, "name": unquote(sent.removeprefix(head), errors="surrogateescape")}


def _read_query(operation: Operation, request: AnyRequest) -> Any:
    try:
        pairs = parse_qsl(request.url.query, keep_blank_values=True, errors="strict", max_num_fields=50)
        return read_query(pairs, operation.query)
    except Misshapen as error:
        raise Refusal("invalid_query", str(error)) from None
    except ValueError:
        raise Refusal("invalid_query", "The query is not UTF-8, or has more than 50 parameters.") from None


def _read_body(operation: Operation, body: bytes) -> Any:
    if operation.body is None or operation.body is bytes:
        return body
    return read_body(body or b"{}", operation.body)


def _base(operation: Operation) -> str:
    """Say where in the body a schedule stands; a body that is one has it at its root."""
    return "/schedule" if "schedule" in getattr(operation.body, "__struct_fields__", ()) else ""


def _is_kept(error: Exception) -> bool:
    found = found_in(error)
    return found is not None and found.code not in _NOT_KEPT and KINDS[found.code].status < 500


def _busy(key: str) -> Refusal:
    return Refusal("key_in_progress", f"A request with the key {key!r} is under way.", headers={"Retry-After": "1"})


def _replayed(kept: KeptAnswer, digest: bytes, key: str) -> Answer:
    if kept.body_hash != digest:
        raise Refusal("key_reused", f"The key {key!r} was used for another request in the last 24 hours.")
    headers = {name: value for name, value in kept.headers.items() if name != "Content-Type"}
    return Answer(
        kept.status, kept.body, {**headers, "Idempotency-Replayed": "true"}, media_type=kept.headers["Content-Type"]
    )


def _encoded(answer: Answer) -> bytes:
    if answer.body is None:
        return b""
    return answer.body if isinstance(answer.body, bytes) else problems.encode(answer.body)


def _response(answer: Answer, headers: Mapping[str, str]) -> Response[Any]:
    every = {**headers, **answer.headers}
    if answer.stream is not None:
        return Stream(answer.stream, status_code=answer.status, headers=every, media_type=answer.media_type)
    return Response(_encoded(answer), status_code=answer.status, headers=every, media_type=answer.media_type)
