"""Refusals of the moves in the database, as the domain's errors: one SQLSTATE of class DU each."""

from __future__ import annotations

import re

import asyncpg

from duly.domain.errors import (
    AbsentTenant,
    AtPast,
    ClaimOver,
    DatabaseUnusable,
    DulyError,
    InvalidOption,
    InvalidPayload,
    InvalidSchedule,
    KeyBusy,
    KeyConflict,
    NameTaken,
    NotFound,
    ParentEnded,
    QuotaReached,
    Refused,
    TenantMoved,
    TenantMoving,
    TenantSuspended,
    WorkerExpired,
)
from duly.domain.runs.payload import PAYLOAD_BYTES_MAX

# Errors of one row of a batch: its data, a rule that it breaks, or its size.
BAD_ROW = (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError)

_REFUSALS: dict[str, tuple[type[DulyError], str]] = {
    "DU001": (KeyConflict, "{message} (job {detail}). Use another key, or send the same job again"),
    "DU002": (
        AtPast,
        "{message}: the database's clock says {detail}. Give a later time, or leave it out to run now",
    ),
    "DU003": (InvalidSchedule, "{message}; a delay counts from now and is 0 or more"),
    "DU004": (
        InvalidPayload,
        f"{{message}}; the limit is {PAYLOAD_BYTES_MAX}. Store it elsewhere and pass a reference",
    ),
    "DU005": (InvalidOption, "{message}"),
    "DU006": (InvalidSchedule, "{message}"),
    "DU007": (InvalidPayload, "{message}"),
    "DU010": (WorkerExpired, "{message}"),
    "DU011": (NotFound, "{message}; register, and use the id in the response"),
    "DU012": (QuotaReached, "{message}; stop some, or wait until the leases of lost ones expire"),
    "DU013": (ClaimOver, "{message}; number claims upwards, and retry with the next number"),
    "DU020": (DatabaseUnusable, "{message}. A database administrator must run: {detail} Then migrate again"),
    "DU021": (NotFound, "{message}; `duly tenants` lists them"),
    "DU022": (TenantSuspended, "{message}; `duly tenants resume` reactivates it"),
    "DU023": (QuotaReached, "{message}; end some, or raise {detail}: `duly tenants limits`"),
    "DU024": (TenantMoving, "{message}; try again in some seconds"),
    "DU025": (TenantMoved, "{message}; send the request there"),
    "DU026": (Refused, "{message}; `duly cells` shows where it is"),
    "DU030": (ParentEnded, "{message}; leave parent out, or name a run that has not ended"),
    "DU031": (Refused, "{message}; its history stays until the operator releases it"),
    "55P03": (KeyBusy, "another transaction is submitting with this key; try again when it has ended"),
}
_NAME = re.compile(r"\(tenant, name\)=\(\d+, (.+)\)")


def refusal(sqlstate: str, message: str, detail: str | None) -> DulyError | None:
    """Return the error for an SQLSTATE, or None when it is not ours."""
    if sqlstate == "23505" and "jobs_by_name" in message:
        found = _NAME.search(detail or "")  # the words around it are in the server's language
        which = f"named {found[1]!r}" if found else "of that name"
        return NameTaken(f"a schedule {which} exists; choose another name, or cancel that one first")
    if sqlstate not in _REFUSALS:
        return None
    kind, text = _REFUSALS[sqlstate]
    error = kind(text.format(message=message, detail=detail))
    if isinstance(error, AbsentTenant):
        error.cell = detail
    return error
