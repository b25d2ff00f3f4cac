"""The application: the operations of the front door, health for machines that watch us, metrics for those that count."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from litestar import HttpMethod, Litestar, Request, Response, get
from litestar.exceptions import HTTPException, NotFoundException
from litestar.handlers import HTTPRouteHandler

from duly.api import handbook, line
from duly.api.asked import sent_path
from duly.api.description import describe
from duly.api.door import Door
from duly.api.heads import App
from duly.api.health import Readiness, Vitals, readiness
from duly.api.metrics import Metrics
from duly.api.operations import Operation
from duly.api.problems import Problems
from duly.api.routes import OPERATIONS, session
from duly.clock import Rng
from duly.domain.errors import DulyError
from duly.log import Log

AnyRequest = Request[Any, Any, Any]
_NO_STORE = {"Cache-Control": "no-store"}


def create(
    vitals: Vitals, metrics: Metrics, log: Log, door: Door | None = None, pages: Sequence[HTTPRouteHandler] = ()
) -> Litestar:
    """Build the application over the vitals of this process; without a door it only tells how it is, and asks for no key.

    With a door, metrics and the details of readiness are for the operator: they name queues, tenants and hosts of everybody.
    `pages` are the dashboard, where there is one: it has the front page, and those who log in.
    """
    operations = OPERATIONS if door is not None else []
    problems = Problems(Rng(), log)
    if door is not None:
        metrics.add(door.traffic)
        metrics.add(door.shedding)
    return App(
        [
            *_watching(vitals, metrics, door),
            *(served(door) if door else []),
            *_described(operations),
            *(pages or ([_front_page] if door else [])),
        ],
        problems=problems,
        exception_handlers={
            HTTPException: problems.refused,
            DulyError: problems.turned_away,
            Exception: problems.failed,
        },
        openapi_config=None,
        logging_config=None,
        request_max_body_size=None,  # Each operation has its own limit.
        debug=False,
    )


def served(door: Door) -> list[HTTPRouteHandler]:
    """Give a route for each operation; those with a verb behind a name share one, for a name may contain slashes."""
    together: dict[tuple[str, str], list[Operation]] = {}
    for operation in [*OPERATIONS, *(session.operations(door.logins) if door.logins else [])]:
        together.setdefault((operation.method, _route(operation)), []).append(operation)
    return [_served(door, path, sharing) for (_, path), sharing in together.items()]


def _route(operation: Operation) -> str:
    """Give the path under which an operation is found; from a name on, all of it is the name's."""
    path = re.sub(r"{name}.*$", "{name:path}", operation.path)
    return re.sub(r"{(\w+)}", r"{\1:str}", path)


def _served(door: Door, path: str, sharing: Sequence[Operation]) -> HTTPRouteHandler:
    async def lead(request: AnyRequest) -> Response[Any]:
        line.receive.set(request.receive)
        return await door.lead(_meant(sharing, request), request)

    first = sharing[0]
    return HTTPRouteHandler(path, http_method=HttpMethod(first.method), name=first.name, status_code=200)(lead)


def _meant(sharing: Sequence[Operation], request: AnyRequest) -> Operation:
    """Say which of the operations of one route is meant: what stands behind the name says it. Raises NotFoundException."""
    sent = sent_path(request)
    for operation in sharing:
        if sent.endswith(operation.path.partition("{name}")[2]):
            return operation
    raise NotFoundException


def _described(operations: Sequence[Operation]) -> list[HTTPRouteHandler]:
    if not operations:
        return []
    found = describe(operations)
    description, page = msgspec.json.encode(found), handbook.page(found)

    @get("/openapi.json")
    async def openapi() -> Response[bytes]:
        """Describe the API to machines."""
        return Response(description, headers=_NO_STORE, media_type="application/json")

    @get("/docs")
    async def docs() -> Response[bytes]:
        """Describe the API to people."""
        return Response(page, headers=handbook.HEADERS, media_type="text/html")

    @get(handbook.STYLE_PATH)
    async def style() -> Response[str]:
        """Give the page its looks."""
        return Response(handbook.STYLE, headers=handbook.HEADERS, media_type="text/css")

    return [openapi, docs, style]


@get("/")
async def _front_page() -> Response[None]:
    """Lead people who typed the address alone to what there is to see."""
    return Response(None, status_code=303, headers={**_NO_STORE, "Location": "/docs"})


def _watching(vitals: Vitals, metrics: Metrics, door: Door | None) -> list[HTTPRouteHandler]:
    async def check_operator(request: AnyRequest) -> None:
        if door is not None:
            await door.check_operator(request)

    @get(["/livez", "/healthz"])
    async def livez() -> Response[dict[str, str]]:
        """Say that this process answers; nothing more."""
        return _answer({"status": "alive"}, ok=True)

    @get("/startupz")
    async def startupz() -> Response[dict[str, str]]:
        """Say whether the start is over."""
        return _answer({"status": "started" if vitals.started else "starting"}, ok=vitals.started)

    @get("/readyz")
    async def readyz(request: AnyRequest) -> Response[dict[str, Any]]:
        """Say whether everything is in order; with ?verbose, what was looked at."""
        verbose = _is_asked(request, "verbose")
        if verbose:
            await check_operator(request)
        seen = await readiness(vitals)
        return _answer(_summary(seen, verbose=verbose, brief=door is not None), ok=seen.ready)

    @get("/metrics")
    async def scrape(request: AnyRequest) -> Response[bytes]:
        """Give the metrics in the format the scraper asks for."""
        await check_operator(request)
        body, content_type = await metrics.scrape(request.headers.get("accept", ""))
        return Response(body, headers={**_NO_STORE, "Content-Type": content_type})

    return [livez, startupz, readyz, scrape]


def _answer(body: dict[str, Any], *, ok: bool) -> Response[dict[str, Any]]:
    return Response(body, status_code=200 if ok else 503, headers=_NO_STORE)


def _is_asked(request: AnyRequest, name: str) -> bool:
    """A bare `?verbose` counts, and so does any value but a plain no."""
    query = request.url.query.split("&")
    return any(
        part == name or (part.startswith(f"{name}=") and part not in (f"{name}=0", f"{name}=false")) for part in query
    )


def _summary(seen: Readiness, *, verbose: bool, brief: bool) -> dict[str, Any]:
    """Say how it is: all that was looked at, which checks fail, or, where anybody may ask, neither."""
    failing = [check.name for check in seen.checks if not check.ok]
    summary: dict[str, Any] = {"status": "not ready" if failing else "ready"}
    if verbose or not brief:
        summary["failing"] = failing
    return summary | msgspec.to_builtins(seen) if verbose else summary
