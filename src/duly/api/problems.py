"""Errors over HTTP: RFC 9457 problem documents with a stable code and a remedy, never a trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException

from duly.clock import Rng
from duly.log import Log

_CODES = {404: "not_found", 405: "method_not_allowed", 400: "bad_request", 500: "internal_error"}
_REMEDIES = {
    404: "This server answers /livez, /healthz, /readyz, /startupz and /metrics.",
    405: "Use GET.",
    500: "The server's log says more; it was written with this request's id.",
}
_TITLES = {404: "Not found", 405: "Method not allowed", 400: "Bad request", 500: "Internal error"}

_MEDIA_TYPE = "application/problem+json"

AnyRequest = Request[Any, Any, Any]


class Problems:
    """Turns exceptions into answers."""

    def __init__(self, rng: Rng, log: Log) -> None:
        self._rng = rng
        self._log = log

    def refused(self, request: AnyRequest, error: HTTPException) -> Response[dict[str, object]]:
        """Answer a request that cannot be served."""
        return _problem(request, error.status_code, error.detail, error.headers or {}, self._id_of(request))

    def failed(self, request: AnyRequest, error: Exception) -> Response[dict[str, object]]:
        """Answer when something broke: the reason goes to the log, not to the caller."""
        request_id = self._id_of(request)
        self._log.error("request_failed", path=request.url.path, error=repr(error), request_id=request_id)
        return _problem(request, 500, "The request could not be answered.", {}, request_id)

    def _id_of(self, request: AnyRequest) -> str:
        """Give the caller's own id for the request, or make one up."""
        return request.headers.get("x-request-id") or str(self._rng.uuid())


def _problem(
    request: AnyRequest, status: int, detail: str, headers: Mapping[str, str], request_id: str
) -> Response[dict[str, object]]:
    code = _CODES.get(status, f"http_{status}")
    body: dict[str, object] = {
        "type": f"urn:duly:problem:{code}",
        "title": _TITLES.get(status, "Error"),
        "status": status,
        "code": code,
        "detail": detail,
        "instance": request.url.path,
        "request_id": request_id,
        "remedy": _REMEDIES.get(status, ""),
    }
    return Response(body, status_code=status, headers={**headers, "X-Request-ID": request_id}, media_type=_MEDIA_TYPE)
