"""Errors over HTTP: RFC 9457 problem documents with a stable code and a remedy."""

from __future__ import annotations

from typing import Any

import msgspec

from duly.wire.schema.shapes import Told

MEDIA_TYPE = "application/problem+json"


class Fault(Told, frozen=True, omit_defaults=True):
    """One problem: its place (a JSON pointer into the body, or a parameter's name), a sentence, and, for triggers, its code."""

    pointer: str
    message: str
    code: str | None = None
    hint: str | None = None


class Problem(Told, frozen=True):
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
    "malformed_request": Kind(
        400, "The request is not HTTP", "Send one request as HTTP/1.1 has it, with no NUL in it."
    ),
    "malformed_json": Kind(400, "The body is not JSON", "Send one JSON value, in UTF-8."),
    "invalid_query": Kind(400, "The query is not understood", "See the operation's parameters in /openapi.json."),
    "invalid_header": Kind(400, "A header is not understood", "See the operation's parameters in /openapi.json."),
    "unauthorized": Kind(
        401, "No valid key", "Send Authorization: Bearer with a key that is neither expired nor revoked."
    ),
    "forbidden": Kind(403, "The key has not the scope for this", "Use a key with the scope that is named."),
    "not_found": Kind(404, "Not found", "Check the id; lists show those there are."),
    "method_not_allowed": Kind(405, "Method not allowed", "Use one of the methods in the Allow header."),
    "request_timeout": Kind(408, "The request did not arrive in time", "Send it again, whole and without a pause."),
    "conflict": Kind(409, "It cannot be done as things stand", "Read it again, and decide anew."),
    "name_taken": Kind(409, "The name is taken", "Choose another name, or change the job that has it."),
    "declared_in_code": Kind(
        409, "A program declares this job", "Change it in the program, or the file, that declares it."
    ),
    "not_the_files": Kind(
        409, "A job of that name is not the file's", "Take it over with adopt=true, or choose another name."
    ),
    "plan_changed": Kind(
        409, "The plan is no longer the same", "Ask for a new plan with dry_run=true, and apply that."
    ),
    "key_in_progress": Kind(409, "The same request is under way", "Ask again after the seconds in Retry-After."),
    "lease_lost": Kind(409, "The lease is lost", "Stop the run: another worker has it, or it is over."),
    "attempt_over": Kind(
        409, "The attempt is over", "Nothing is to be done: what stands there counts, and the detail says it."
    ),
    "worker_expired": Kind(409, "The worker's lease has ended", "Register anew, under another id."),
    "version_changed": Kind(412, "It was changed meanwhile", "Read it again, and send its ETag in If-Match."),
    "body_too_large": Kind(413, "The body is too large", "Send less at once."),
    "unsupported_media_type": Kind(415, "The body's type is not taken", "Send the Content-Type that is named."),
    "invalid_body": Kind(422, "The body has not the shape that is asked for", "Mend what `errors` names."),
    "invalid_schedule": Kind(
        422, "The schedule cannot be kept", "Mend what `errors` names; /v1/triggers/preview tries it out."
    ),
    "invalid_workflow": Kind(422, "The workflow cannot be kept", "Mend what `errors` names."),
    "invalid_manifest": Kind(422, "The file of schedules is not right", "Mend what `errors` names."),
    "invalid_payload": Kind(422, "The payload is not taken", "Send JSON within the limits."),
    "invalid_option": Kind(422, "An option is outside its range", "Mend what the detail names."),
    "invalid_filter": Kind(
        422, "The filter is not understood", 'Write conditions as field:value or field>"2026-11-01", joined by AND.'
    ),
    "key_reused": Kind(422, "The idempotency key was used for another body", "Use a new key for a new request."),
    "key_mismatch": Kind(
        422, "The header and the body name different idempotency keys", "Send one of them, or the same key in both."
    ),
    "precondition_required": Kind(428, "If-Match is missing", "Send the ETag of what you read in If-Match."),
    "rate_limited": Kind(429, "Too many requests", "Ask again after the seconds in Retry-After."),
    "quota_reached": Kind(
        429, "A quota of the tenant is used up", "Wait until there is room, or ask for a larger quota."
    ),
    "shed": Kind(
        429,
        "The queue is overloaded",
        "Ask again after the seconds in Retry-After, or submit with priority 6 or more urgent.",
    ),
    "headers_too_large": Kind(
        431, "The headers are too large", "Send at most 8 KiB of headers, and 16 KiB with the path and the query."
    ),
    "internal_error": Kind(500, "Internal error", "The server's log says more; it was written with this request's id."),
    "too_many_connections": Kind(503, "Too many connections", "Close connections that are idle, and ask again."),
    "unavailable": Kind(
        503, "The database does not answer", "Ask again after the seconds in Retry-After, with the same key."
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
