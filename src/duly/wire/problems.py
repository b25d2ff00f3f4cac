"""Errors over HTTP: RFC 9457 problem documents with a stable code and a remedy."""

from __future__ import annotations

from typing import Any

import msgspec

from duly.wire.schema.shapes import ResponseModel

MEDIA_TYPE = "application/problem+json"


class Fault(ResponseModel, frozen=True, omit_defaults=True):
    """One problem: its place (a JSON pointer into the body, or a parameter's name), a sentence, and, for triggers, its code."""

    pointer: str
    message: str
    code: str | None = None
    hint: str | None = None


class Problem(ResponseModel, frozen=True):
    """The problem with a request. `code` is stable; `detail` and `remedy` are for people."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    instance: str
    request_id: str
    remedy: str
    errors: list[Fault] = msgspec.field(default_factory=list)


class Kind(msgspec.Struct, frozen=True):
    """A kind of problem: its status, its title, and its remedy."""

    status: int
    title: str
    remedy: str


# Stable: a code is never reused with another meaning.
KINDS: dict[str, Kind] = {
    "malformed_request": Kind(400, "The request is not HTTP", "Send a valid HTTP/1.1 request without NUL characters."),
    "malformed_json": Kind(400, "The body is not JSON", "Send one JSON value, in UTF-8."),
    "invalid_query": Kind(400, "The query is invalid", "See the operation's parameters in /openapi.json."),
    "invalid_header": Kind(400, "A header is invalid", "See the operation's parameters in /openapi.json."),
    "unauthorized": Kind(
        401, "No valid key", "Send Authorization: Bearer with a key that is neither expired nor revoked."
    ),
    "forbidden": Kind(403, "The key lacks the scope", "Use a key with the named scope."),
    "not_found": Kind(404, "Not found", "Check the id; the list operations show the existing ones."),
    "method_not_allowed": Kind(405, "Method not allowed", "Use one of the methods in the Allow header."),
    "request_timeout": Kind(408, "The request did not arrive in time", "Send the whole request again without delays."),
    "conflict": Kind(409, "Conflict with the current state", "Read it again, and decide again."),
    "name_taken": Kind(409, "The name is taken", "Choose another name, or change the job that has it."),
    "declared_in_code": Kind(
        409, "A program declares this job", "Change it in the program, or the file, that declares it."
    ),
    "not_the_files": Kind(
        409, "A job of that name does not belong to the file", "Take it over with adopt=true, or choose another name."
    ),
    "plan_changed": Kind(409, "The plan is out of date", "Request a new plan with dry_run=true, and apply that."),
    "key_in_progress": Kind(409, "The same request is in progress", "Retry after the seconds in Retry-After."),
    "lease_lost": Kind(409, "The lease is lost", "Stop the run: another worker has it, or it has ended."),
    "attempt_over": Kind(409, "The attempt has ended", "Do nothing: the recorded outcome is final."),
    "worker_expired": Kind(409, "The worker's lease has expired", "Register again, with another id."),
    "version_changed": Kind(412, "It was changed by another request", "Read it again, and send its ETag in If-Match."),
    "body_too_large": Kind(413, "The body is too large", "Send a smaller body."),
    "unsupported_media_type": Kind(415, "The media type is not supported", "Send the named Content-Type."),
    "tenant_moved": Kind(421, "The tenant is in another cell", "Send the request to the cell in the detail."),
    "invalid_body": Kind(422, "The body is invalid", "Fix the fields in `errors`."),
    "invalid_schedule": Kind(
        422, "The schedule is invalid", "Fix the fields in `errors`; /v1/triggers/preview checks a schedule."
    ),
    "invalid_workflow": Kind(422, "The workflow is invalid", "Fix the fields in `errors`."),
    "invalid_manifest": Kind(422, "The file of schedules is invalid", "Fix the fields in `errors`."),
    "invalid_payload": Kind(422, "The payload is invalid", "Send JSON within the limits."),
    "invalid_option": Kind(422, "An option is invalid", "Give another value, or leave the option out."),
    "invalid_filter": Kind(
        422, "The filter is invalid", 'Write conditions as field:value or field>"2026-11-01", joined by AND.'
    ),
    "key_reused": Kind(422, "The idempotency key was used for another body", "Use a new key for a new request."),
    "key_mismatch": Kind(
        422, "The header and the body have different idempotency keys", "Send one of them, or the same key in both."
    ),
    "precondition_required": Kind(428, "If-Match is missing", "Send the ETag of what you read in If-Match."),
    "rate_limited": Kind(429, "Too many requests", "Retry after the seconds in Retry-After."),
    "quota_reached": Kind(
        429, "A quota of the tenant is reached", "Retry later, or ask the operator for a larger quota."
    ),
    "shed": Kind(
        429,
        "The queue is overloaded",
        "Retry after the seconds in Retry-After, or submit with priority 6 or more urgent.",
    ),
    "headers_too_large": Kind(
        431, "The headers are too large", "Send at most 8 KiB of headers, and 16 KiB with the path and the query."
    ),
    "internal_error": Kind(500, "Internal error", "See the server's log at this request's id."),
    "too_many_connections": Kind(503, "Too many connections", "Close idle connections, and retry."),
    "tenant_moving": Kind(
        503, "The tenant is moving to another cell", "Retry after the seconds in Retry-After, with the same key."
    ),
    "archive_unavailable": Kind(
        503,
        "The archive cannot be read",
        "Retry later, ask for a time range that the database has, or see `duly doctor`.",
    ),
    "unavailable": Kind(
        503, "The database does not respond", "Retry after the seconds in Retry-After, with the same key."
    ),
}


def problem(
    code: str,
    detail: str,
    *,
    instance: str,
    request_id: str,
    errors: list[Fault] | None = None,
    remedy: str | None = None,
    title: str | None = None,
) -> Problem:
    """Build the document of a kind of problem, with its usual title and remedy unless others are given."""
    kind = KINDS[code]
    return Problem(
        type=f"urn:duly:problem:{code}",
        title=kind.title if title is None else title,
        status=kind.status,
        code=code,
        detail=detail,
        instance=instance,
        request_id=request_id,
        remedy=kind.remedy if remedy is None else remedy,
        errors=errors or [],
    )


def encode(value: Any) -> bytes:
    """Encode a shape as JSON."""
    return _encoder.encode(value)


_encoder = msgspec.json.Encoder()
