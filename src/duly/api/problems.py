"""What is refused before it reaches an operation: unknown paths, other methods, and whatever breaks in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.status_codes import HTTP_404_NOT_FOUND, HTTP_405_METHOD_NOT_ALLOWED

from duly.api.paths import shown_path
from duly.api.refusals import found_in
from duly.clock import Rng
from duly.domain.errors import DulyError
from duly.log import Log
from duly.wire import problems

AnyRequest = Request[Any, Any, Any]

_CODES = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large", 500: "internal_error"}
_REMEDIES = {"not_found": "/openapi.json lists every path."}


class Problems:
    """Turns exceptions into answers."""

    def __init__(self, rng: Rng, log: Log) -> None:
        self._rng = rng
        self._log = log

    def refused(self, request: AnyRequest, error: HTTPException) -> Response[bytes]:
        """Answer a request that cannot be served."""
        code = _CODES.get(error.status_code, "invalid_query" if error.status_code < 500 else "internal_error")
        headers = _allowed(error.headers or {})
        return _problem(request, code, _detail(request, error, headers), headers, self._id_of(request))

    def turned_away(self, request: AnyRequest, error: DulyError) -> Response[bytes]:
        """Answer a request that somebody may not make, or that the database does not answer."""
        found = found_in(error)
        if found is None:
            return self.failed(request, error)
        return _problem(request, found.code, found.detail, found.headers, self._id_of(request), found.remedy)

    def ambiguous(self, request: AnyRequest, code: str, detail: str) -> Response[bytes]:
        """Answer a request that is refused before it is routed."""
        return _problem(request, code, detail, {}, self._id_of(request))

    def failed(self, request: AnyRequest, error: Exception) -> Response[bytes]:
        """Answer when something broke: the reason goes to the log, not to the caller."""
        request_id = self._id_of(request)
        self._log.error("request_failed", path=shown_path(request.url.path), error=repr(error), request_id=request_id)
        return _problem(request, "internal_error", "The request could not be answered.", {}, request_id)

    def _id_of(self, request: AnyRequest) -> str:
        """Give the caller's own id for the request, or make one up."""
        given = request.headers.get("x-request-id")
        return given if given and given.isprintable() and len(given) <= 200 else str(self._rng.uuid())


def _allowed(headers: Mapping[str, str]) -> dict[str, str]:
    """Name HEAD wherever GET is served: the framework does not know that it is."""
    return {
        name: f"{value}, HEAD" if name.lower() == "allow" and "GET" in value.split(", ") else value
        for name, value in headers.items()
    }


def _detail(request: AnyRequest, error: HTTPException, headers: Mapping[str, str]) -> str:
    """Name what was asked for, where the framework only names the status."""
    path = shown_path(request.url.path)
    if error.status_code == HTTP_404_NOT_FOUND:
        return f"Nothing is served at {path!r}."
    if error.status_code == HTTP_405_METHOD_NOT_ALLOWED:
        allowed = ", ".join(sorted({name.lower(): value for name, value in headers.items()}["allow"].split(", ")))
        return f"{request.method} is not served at {path!r}; {allowed} are."
    return error.detail


def _problem(
    request: AnyRequest, code: str, detail: str, headers: Mapping[str, str], request_id: str, remedy: str | None = None
) -> Response[bytes]:
    instance = shown_path(request.url.path)
    remedy = remedy or _REMEDIES.get(code)
    body = problems.problem(code, detail, instance=instance, request_id=request_id, remedy=remedy)
    return Response(
        problems.encode(body),
        status_code=body.status,
        headers={
            **headers,
            "X-Request-ID": request_id,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
        },
        media_type=problems.MEDIA_TYPE,
    )
