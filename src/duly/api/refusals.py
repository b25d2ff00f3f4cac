"""Which problem each of the domain's refusals is. One table; what is not in it is an internal error."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from duly.domain import errors
from duly.domain.errors import DulyError
from duly.domain.jobs.filter import InvalidFilter
from duly.domain.jobs.manifest_plan import NotTheFiles, PlanChanged
from duly.domain.problems import InvalidManifest, Problem
from duly.domain.triggers.errors import TriggerError
from duly.store.connection.database import Unavailable
from duly.wire.problems import Fault
from duly.wire.schema.reading import Malformed, Misshapen

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
    errors.Refused: "conflict",  # whatever has no kind of its own
    errors.DatabaseUnusable: "unavailable",
    Unavailable: "unavailable",
    TimeoutError: "unavailable",
}


class Refusal(DulyError):
    """A refusal of the door itself: the kind of problem, in words, and headers that belong to it."""

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
    """What an exception means to a caller."""

    code: str
    detail: str
    headers: Mapping[str, str] = {}
    errors: list[Fault] = []
    remedy: str | None = None
    title: str | None = None


def found_in(error: Exception, base: str = "") -> Found | None:
    """Say what an exception means to the caller; None when it is a failure of ours. `base` is where a schedule stands."""
    if isinstance(error, Refusal):
        return Found(error.code, str(error), error.headers, [], error.remedy, error.title)
    code = next((CODES[kind] for kind in type(error).__mro__ if kind in CODES), None)
    if code is None:
        return None
    return Found(code, _detail(error, code), _retry(error, code), _faults_in(error, base))


def _retry(error: Exception, code: str) -> dict[str, str]:
    """Say when it may be asked again, where that helps: what uses a quota up is counted anew by then."""
    known = {"unavailable": RETRY_SECONDS, "key_in_progress": RETRY_SECONDS, "quota_reached": QUOTA_SECONDS}
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


def _detail(error: Exception, code: str) -> str:
    if code == "unavailable":
        return "The database does not answer in time; a write may or may not have been done."
    if isinstance(error, InvalidManifest):
        return f"The file has {len(error.problems)} faults; the first: {error.problems[0].told('file')}"
    return str(error)
