"""Errors of the HTTP client.

ApiError
├── Invalid            the request itself is wrong; `errors` names each place (400, 413, 415, 422, 428, 431)
│   └── KeyReused      the idempotency key was used for another request
├── Unauthorized       no valid key (401)
├── Forbidden          the key has not the scope (403)
├── NotFound           no such thing, or it belongs to another tenant (404)
├── Conflict           it cannot be done in the current state (409)
│   ├── NameTaken      a job of that name exists
│   ├── DeclaredInCode a program or a file declares that job
│   └── VersionChanged it was changed meanwhile (412)
├── RateLimited        too many requests; `retry_after` says when to retry (429)
│   ├── QuotaReached   a quota of the tenant is used up
│   └── Shed           the queue is overloaded, and takes no work of that priority for now
├── ServerFailed       a fault of the server's (500)
├── Unavailable        no answer, or one that says to retry later (502, 503, 504); a write may or may not have been done
└── UnexpectedResponse   an answer that no Duly gives: something else listens there, or it is of another version

Where the engine has the same refusal, the exception is also a subclass of it: `except duly.NotFound` holds for both.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from duly.domain import errors
from duly.wire.problems import Fault, Problem


class ApiError(errors.DulyError):
    """The error of a request; `code` is stable, `detail` and `remedy` are for people."""

    def __init__(
        self,
        detail: str,
        status: int | None = None,
        code: str = "",
        remedy: str = "",
        request_id: str | None = None,
        errors: Sequence[Fault] = (),
        retry_after: float | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        # All of them go to the base class, so that the exception can be sent to another process.
        super().__init__(detail, status, code, remedy, request_id, errors, retry_after, idempotency_key)
        self.detail = detail
        self.status = status
        self.code = code
        self.remedy = remedy
        self.request_id = request_id
        self.errors = list(errors)
        self.retry_after = retry_after
        self.idempotency_key = idempotency_key

    def __str__(self) -> str:
        if not self.remedy:
            return self.detail
        end = "" if self.detail.endswith(("?", ".")) else "."
        return f"{self.detail}{end} {self.remedy}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code or self.status!r}: {self.detail!r})"


class Invalid(ApiError, errors.Refused):
    """The request itself is wrong; `errors` names each place."""


class KeyReused(Invalid, errors.KeyConflict):
    """The idempotency key was used for another request."""


class Unauthorized(ApiError):
    """The request carried no valid key."""


class Forbidden(ApiError):
    """The key may not do this."""


class NotFound(ApiError, errors.NotFound):
    """There is no such thing, or it belongs to another tenant."""


class Conflict(ApiError, errors.Refused):
    """The request conflicts with the current state."""


class NameTaken(Conflict, errors.NameTaken):
    """A job of that name exists."""


class DeclaredInCode(Conflict, errors.DeclaredInCode):
    """A program or a file declares that job: it is changed there."""


class VersionChanged(Conflict, errors.VersionChanged):
    """It was changed meanwhile: read it again."""


class RateLimited(ApiError):
    """Too many requests, for longer than the deadline."""


class QuotaReached(RateLimited, errors.QuotaReached):
    """A quota of the tenant is used up."""


class Shed(RateLimited, errors.Shed):
    """The queue is overloaded, and takes no work of that priority for now."""


class ServerFailed(ApiError):
    """A fault of the server's own; its log says more, under the request's id."""


class Unavailable(ApiError):
    """No response within the deadline; with `idempotency_key` the same request can be repeated, and is done once."""


class UnexpectedResponse(ApiError):
    """A response that is not of the shape that this client knows."""


_BY_CODE: dict[str, type[ApiError]] = {
    "key_reused": KeyReused,
    "name_taken": NameTaken,
    "declared_in_code": DeclaredInCode,
    "version_changed": VersionChanged,
    "quota_reached": QuotaReached,
    "shed": Shed,
}
_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: VersionChanged,
    413: Invalid,
    415: Invalid,
    422: Invalid,
    428: Invalid,
    429: RateLimited,
    431: Invalid,
    500: ServerFailed,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def error_of(status: int, body: bytes, retry_after: float | None) -> ApiError:
    """Turn an error response into its exception; a proxy may have sent it."""
    try:
        problem = msgspec.json.decode(body, type=Problem)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        kind = _BY_STATUS.get(status, UnexpectedResponse)
        return kind(f"The answer was {status}, and not in the words of a Duly.", status, retry_after=retry_after)
    kind = _BY_CODE.get(problem.code) or _BY_STATUS.get(status, UnexpectedResponse)
    return kind(problem.detail, status, problem.code, problem.remedy, problem.request_id, problem.errors, retry_after)
