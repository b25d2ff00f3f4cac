"""The application: a route for each operation, health and metrics, and the description of the API.

HEAD is served wherever GET is. A request with duplicate headers could be read in two ways, by a proxy in front and by
us, and PostgreSQL stores no text with NUL in it: both are refused before routing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import HttpMethod, Litestar, Request, Response, get
from litestar.exceptions import HTTPException, NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.types import Message, Send

from duly.api.dispatch import Dispatcher
from duly.api.health import Readiness, Vitals, readiness
from duly.api.metrics.collector import Metrics
from duly.api.openapi.document import describe
from duly.api.operations import Operation
from duly.api.problems import AnyRequest, Problems
from duly.api.request import receive, sent_path
from duly.api.routes import OPERATIONS, sessions
from duly.clock import Rng
from duly.log import Log

_SINGLE_HEADERS = (b"host", b"authorization", b"content-length")
_NO_STORE = {"Cache-Control": "no-store"}


def create(
    vitals: Vitals,
    metrics: Metrics,
    log: Log,
    dispatcher: Dispatcher | None = None,
    pages: Sequence[HTTPRouteHandler] = (),
) -> Litestar:
    """Build the application over the vitals of this process; without a dispatcher it serves health and metrics, without
    a key.

    With one, metrics and the details of readiness are for the operator: they name queues, tenants and hosts of everybody.
    `pages` are those for people: the interactive page of the API, and the dashboard.
    """
    operations = OPERATIONS if dispatcher is not None else []
    if dispatcher is not None:
        metrics.add(dispatcher.metrics)
        metrics.add(dispatcher.services.shedding)
        if dispatcher.replica_reads is not None:
            metrics.add(dispatcher.replica_reads)
    return _app(
        [
            *_watching(vitals, metrics, dispatcher),
            *(served(dispatcher) if dispatcher else []),
            *_described(operations),
            *pages,
        ],
        log,
    )


def create_for_one(dispatcher: Dispatcher, log: Log) -> Litestar:
    """Build the application of a process that calls itself: only the operations."""
    return _app(served(dispatcher), log)


def _app(handlers: Sequence[HTTPRouteHandler], log: Log) -> Litestar:
    problems = Problems(Rng(), log)
    return App(
        handlers,
        problems=problems,
        exception_handlers={
            HTTPException: problems.on_http_exception,
            Exception: problems.on_exception,
        },
        openapi_config=None,
        logging_config=None,
        request_max_body_size=None,  # each operation has its own limit
        debug=False,
    )


def served(dispatcher: Dispatcher) -> list[HTTPRouteHandler]:
    """Return a route for each operation; those with a verb after a name share one, because a name may contain slashes."""
    together: dict[tuple[str, str], list[Operation]] = {}
    for operation in [*OPERATIONS, *(sessions.operations(dispatcher.auth.logins) if dispatcher.auth.logins else [])]:
        together.setdefault((operation.method, _route(operation)), []).append(operation)
    return [_served(dispatcher, path, sharing) for (_, path), sharing in together.items()]


def _route(operation: Operation) -> str:
    """Return the path of an operation; from a name on, all of it belongs to the name."""
    path = re.sub(r"{name}.*$", "{name:path}", operation.path)
    return re.sub(r"{(\w+)}", r"{\1:str}", path)


def _served(dispatcher: Dispatcher, path: str, sharing: Sequence[Operation]) -> HTTPRouteHandler:
    async def dispatch(request: AnyRequest) -> Response[Any]:
        receive.set(request.receive)
        return await dispatcher.dispatch(_meant(sharing, request), request)

    first = sharing[0]
    return HTTPRouteHandler(path, http_method=HttpMethod(first.method), name=first.name, status_code=200)(dispatch)


def _meant(sharing: Sequence[Operation], request: AnyRequest) -> Operation:
    """Return the operation of a shared route that the path after the name means. Raises NotFoundException."""
    sent = sent_path(request)
    for operation in sharing:
        if sent.endswith(operation.path.partition("{name}")[2]):
            return operation
    raise NotFoundException


def _described(operations: Sequence[Operation]) -> list[HTTPRouteHandler]:
    if not operations:
        return []
    description = msgspec.json.encode(describe(operations))

    @get("/openapi.json")
    async def openapi() -> Response[bytes]:
        """Describe the API to machines."""
        return Response(description, headers=_NO_STORE, media_type="application/json")

    return [openapi]


def _watching(vitals: Vitals, metrics: Metrics, dispatcher: Dispatcher | None) -> list[HTTPRouteHandler]:
    async def check_operator(request: AnyRequest) -> None:
        if dispatcher is not None:
            await dispatcher.auth.check_operator(request)

    @get(["/livez", "/healthz"])
    async def livez() -> Response[dict[str, str]]:
        """Report that this process answers."""
        return _answer({"status": "alive"}, ok=True)

    @get("/startupz")
    async def startupz() -> Response[dict[str, str]]:
        """Report whether the start is over."""
        return _answer({"status": "started" if vitals.started else "starting"}, ok=vitals.started)

    @get("/readyz")
    async def readyz(request: AnyRequest) -> Response[dict[str, Any]]:
        """Report whether everything is in order; with ?verbose, all checks."""
        verbose = _is_requested(request, "verbose")
        if verbose:
            await check_operator(request)
        seen = await readiness(vitals)
        return _answer(_summary(seen, verbose=verbose, brief=dispatcher is not None), ok=seen.ready)

    @get("/metrics")
    async def scrape(request: AnyRequest) -> Response[bytes]:
        """Return the metrics in the format the scraper asks for."""
        await check_operator(request)
        body, content_type = await metrics.scrape(request.headers.get("accept", ""))
        return Response(body, headers={**_NO_STORE, "Content-Type": content_type})

    return [livez, startupz, readyz, scrape]


def _answer(body: dict[str, Any], *, ok: bool) -> Response[dict[str, Any]]:
    return Response(body, status_code=200 if ok else 503, headers=_NO_STORE)


def _is_requested(request: AnyRequest, name: str) -> bool:
    """Return whether a flag is set: bare, or with any value but a plain no."""
    query = request.url.query.split("&")
    return any(
        part == name or (part.startswith(f"{name}=") and part not in (f"{name}=0", f"{name}=false")) for part in query
    )


def _summary(seen: Readiness, *, verbose: bool, brief: bool) -> dict[str, Any]:
    """Summarize readiness: all checks, the failing ones, or neither, for anonymous callers."""
    failing = [check.name for check in seen.checks if not check.ok]
    summary: dict[str, Any] = {"status": "not ready" if failing else "ready"}
    if verbose or not brief:
        summary["failing"] = failing
    return summary | msgspec.to_builtins(seen) if verbose else summary


class App(Litestar):
    """An application that answers HEAD as GET, without the body."""

    def __init__(self, *arguments: Any, problems: Problems, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._problems = problems

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle a request."""
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope, send = {**scope, "method": "GET"}, _without_body(send)
        if scope["type"] == "http" and (fault := _fault_of(scope)) is not None:
            request: Request[Any, Any, Any] = Request(scope, receive, send)
            answer = self._problems.of_request(request, *fault).to_asgi_response(self, request)
            await answer(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def _fault_of(scope: Any) -> tuple[str, str] | None:
    """Return the problem with which a request is refused, and its detail; None if it may go on."""
    names = [name for name, _ in scope["headers"]]
    for name in _SINGLE_HEADERS:
        if names.count(name) > 1:
            return "invalid_header", f"The header {name.decode()} is given {names.count(name)} times; send it once."
    if b"content-length" in names and b"transfer-encoding" in names:
        return "invalid_header", "Content-Length and Transfer-Encoding are both given; send one of them."
    if b"%00" in scope["query_string"]:
        return "invalid_query", "The query contains a NUL character; remove it."
    if "\0" in scope["path"]:
        return "malformed_request", "The path contains a NUL character; remove it."
    return None


def _without_body(send: Send) -> Send:
    """Send only the head of a response, and end it: an endless stream sees a disconnect."""

    async def passed_on(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return passed_on
