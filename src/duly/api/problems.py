"""Problems: the document (RFC 9457) for an exception, inside an operation and before one is reached.

One table maps each of the domain's errors to a problem. Any other exception is a failure of ours: its reason goes to
the log, and the caller gets `internal_error`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import litestar
import msgspec
from litestar import Request
from litestar.exceptions import HTTPException
from litestar.status_codes import HTTP_404_NOT_FOUND, HTTP_405_METHOD_NOT_ALLOWED

from duly.api.response import Response, request_id_of, sent
from duly.clock import Rng
from duly.domain import errors
from duly.domain.archive import ArchiveError
from duly.domain.errors import DulyError
from duly.domain.jobs.filter import InvalidFilter
from duly.domain.jobs.manifest_plan import NotTheFiles, PlanChanged
from duly.domain.problems import InvalidManifest, Problem
from duly.domain.triggers.errors import TriggerError
from duly.log import Log
from duly.store.connection.database import Unavailable
from duly.wire import problems
from duly.wire.problems import Fault
from duly.wire.schema.reading import Malformed, Misshapen

AnyRequest = Request[Any, Any, Any]
AnyResponse = litestar.Response[Any]
RETRY_SECONDS = 1
QUOTA_SECONDS = 10
_FAULTS_MAX = 100
_FIELD = re.compile(r"[a-z_.]+")

CODES: Mapping[type[Exception], str] = {
    Malformed: "malformed_json",
    Misshapen: "invalid_body",
    TriggerError: "invalid_schedule",
    InvalidFilter: "invalid_filter",
    InvalidManifest: "invalid_manifest",
    NotTheFiles: "not_the_files",
    PlanChanged: "plan_changed",
    errors.InvalidSchedule: "invalid_schedule",
    errors.InvalidPayload: "invalid_payload",
    errors.InvalidArguments: "invalid_payload",
    errors.InvalidOption: "invalid_option",
    errors.InvalidWorkflow: "invalid_workflow",
    errors.UnknownHandler: "invalid_option",
    errors.UnknownQueue: "invalid_option",
    errors.KeyConflict: "key_reused",
    errors.KeyBusy: "key_in_progress",
    errors.NameTaken: "name_taken",
    errors.DeclaredInCode: "declared_in_code",
    errors.TenantSuspended: "forbidden",
    errors.TenantMoving: "tenant_moving",
    errors.TenantMoved: "tenant_moved",
    errors.QuotaReached: "quota_reached",
    errors.Shed: "shed",
    errors.VersionChanged: "version_changed",
    errors.NotFound: "not_found",
    errors.JobEnded: "conflict",
    errors.ParentEnded: "conflict",
    errors.Unsettled: "conflict",
    errors.WorkerExpired: "worker_expired",
    errors.ClaimOver: "conflict",
    errors.LeaseOver: "lease_lost",
    errors.AttemptOver: "attempt_over",
    errors.Refused: "conflict",  # errors without a kind of their own
    errors.DatabaseUnusable: "unavailable",
    ArchiveError: "archive_unavailable",
    Unavailable: "unavailable",
    TimeoutError: "unavailable",
}


# In the scope of a local account's request; see `api/auth/local.py`.
LOCAL = "duly.local"


class Refusal(DulyError):
    """A refusal of the API itself: the code of its problem, its detail, and its headers."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        remedy: str | None = None,
        title: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.title = title
        self.code = code
        self.headers = headers or {}
        self.remedy = remedy


class Found(msgspec.Struct, frozen=True):
    """A problem, before it has a request."""

    code: str
    detail: str
    headers: Mapping[str, str] = {}
    errors: list[Fault] = []
    remedy: str | None = None
    title: str | None = None


def found_in(error: Exception, base: str = "", *, is_local: bool = False) -> Found | None:
    """Return the problem of an exception; None when it is a failure of ours.

    `base` is the path of a schedule in the body.

    A local caller sees the database's error: the database is theirs.
    """
    if isinstance(error, Refusal):
        return Found(error.code, str(error), error.headers, [], error.remedy, error.title)
    code = next((CODES[kind] for kind in type(error).__mro__ if kind in CODES), None)
    if code is None:
        return None
    is_shown = is_local and isinstance(error, DulyError)
    detail = str(error) if is_shown and code in ("unavailable", "archive_unavailable") else _detail_of(error, code)
    return Found(code, detail, _retry(error, code), _faults_in(error, base))


def _retry(error: Exception, code: str) -> dict[str, str]:
    """Return the Retry-After header, where a retry helps: usage of a quota is counted again by then."""
    known = {
        "unavailable": RETRY_SECONDS,
        "archive_unavailable": QUOTA_SECONDS,
        "key_in_progress": RETRY_SECONDS,
        "quota_reached": QUOTA_SECONDS,
        "tenant_moving": errors.TenantMoving.retry_seconds,
    }
    seconds = error.retry_seconds if isinstance(error, errors.Shed) else known.get(code)
    return {} if seconds is None else {"Retry-After": str(seconds)}


def _faults_in(error: Exception, base: str) -> list[Fault]:
    match error:
        case Misshapen():
            return [Fault(pointer=wrong.pointer, message=wrong.message) for wrong in error.errors]
        case InvalidFilter():
            return [Fault(pointer="filter", message=error.message, code=error.code, hint=error.hint)]
        case errors.InvalidOption() if error.field is not None and _FIELD.fullmatch(error.field):
            return [Fault(pointer=error.field, message=str(error))]
        case errors.AtPast():
            return [Fault(pointer=_pointer(base, f"trigger.{error.field}"), message=str(error), code=error.code)]
        case errors.InvalidWorkflow():
            return [Fault(pointer=Problem(error.where, "").pointer, message=str(error))]
        case InvalidManifest():
            return [Fault(pointer=one.pointer, message=one.message) for one in error.problems[:_FAULTS_MAX]]
        case TriggerError():
            return [
                Fault(pointer=_pointer(base, one.field), message=one.message, code=one.code, hint=one.hint)
                for one in error.errors
            ]
    return []


def _pointer(base: str, field: str) -> str:
    return base + "".join(f"/{step}" for step in re.split(r"[.\[\]]+", field) if step)


def _detail_of(error: Exception, code: str) -> str:
    if code == "archive_unavailable":
        return "The archive of history did not answer in time, or its file is not whole."
    if code == "unavailable":
        return "The database did not respond in time; a write may or may not have been done."
    if isinstance(error, InvalidManifest):
        return f"The file has {len(error.problems)} errors; the first: {error.problems[0].described('file')}"
    return str(error)


_CODES_OF_STATUS = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large", 500: "internal_error"}
_REMEDIES = {"not_found": "/openapi.json lists every path."}
_FAILED = Found("internal_error", "The server failed to process the request.")
_TOKEN = re.compile(r"^(/+v1/+callbacks/+)[^/]+", re.IGNORECASE)


class Problems:
    """Turns exceptions into responses. Failures of ours go to the log and not to the caller."""

    def __init__(self, rng: Rng, log: Log) -> None:
        self._rng = rng
        self._log = log

    def of_error(self, request: AnyRequest, error: Exception, request_id: str, base: str = "") -> Response:
        """Return the problem of an exception. `base` is the path of a schedule in the body."""
        found = found_in(error, base, is_local=LOCAL in request.scope)
        if found is None:
            path = shown_path(request.url.path)
            self._log.error("request_failed", path=path, error=repr(error), request_id=request_id)
        return _response(request, found or _FAILED, request_id)

    def of_request(self, request: AnyRequest, code: str, detail: str) -> AnyResponse:
        """Answer a request that is refused before it is routed."""
        return self._sent(request, Found(code, detail))

    def on_http_exception(self, request: AnyRequest, error: HTTPException) -> AnyResponse:
        """Answer a request for which there is no route."""
        default = "invalid_query" if error.status_code < 500 else "internal_error"
        code, headers = _CODES_OF_STATUS.get(error.status_code, default), _allowed(error.headers or {})
        remedy = _REMEDIES.get(code)
        return self._sent(request, Found(code, _detail(request, error, headers), headers, remedy=remedy))

    def on_exception(self, request: AnyRequest, error: Exception) -> AnyResponse:
        """Answer a request that failed outside of an operation."""
        request_id = request_id_of(request.headers, self._rng)
        return sent(self.of_error(request, error, request_id), {"X-Request-ID": request_id})

    def _sent(self, request: AnyRequest, found: Found) -> AnyResponse:
        request_id = request_id_of(request.headers, self._rng)
        return sent(_response(request, found, request_id), {"X-Request-ID": request_id})


def shown_path(path: str) -> str:
    """Write a path for a response or a log, without the token of a callback, which is a secret."""
    return _TOKEN.sub(r"\1***", path)


def _response(request: AnyRequest, found: Found, request_id: str) -> Response:
    body = problems.problem(
        found.code,
        found.detail,
        instance=shown_path(request.url.path),
        request_id=request_id,
        errors=found.errors,
        remedy=found.remedy,
        title=found.title,
    )
    return Response(body.status, body, found.headers, media_type=problems.MEDIA_TYPE)


def _allowed(headers: Mapping[str, str]) -> dict[str, str]:
    """Add HEAD wherever GET is served: the framework does not know that it is."""
    return {
        name: f"{value}, HEAD" if name.lower() == "allow" and "GET" in value.split(", ") else value
        for name, value in headers.items()
    }


def _detail(request: AnyRequest, error: HTTPException, headers: Mapping[str, str]) -> str:
    """Name the requested thing, where the framework only names the status."""
    path = shown_path(request.url.path)
    if error.status_code == HTTP_404_NOT_FOUND:
        return f"Nothing is served at {path!r}."
    if error.status_code == HTTP_405_METHOD_NOT_ALLOWED:
        allowed = ", ".join(sorted({name.lower(): value for name, value in headers.items()}["allow"].split(", ")))
        return f"{request.method} is not served at {path!r}; {allowed} are."
    return error.detail
