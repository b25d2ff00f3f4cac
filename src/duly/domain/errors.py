"""Every refusal and failure Duly names; each class says what it means.

DulyError
├── Refused                    the request cannot be done; the message names the thing, the value and the remedy
│   ├── InvalidPayload, InvalidArguments, InvalidOption, InvalidWorkflow, UnknownHandler, UnknownQueue
│   ├── InvalidSchedule        and under it AtPast
│   ├── NotFound               and under it JobEnded
│   ├── KeyConflict, KeyBusy, NameTaken, DeclaredInCode, VersionChanged, WorkflowChanged
│   ├── TenantSuspended, QuotaReached, Shed
│   ├── AbsentTenant           and under it TenantMoving, TenantMoved
│   ├── ClaimOver, LeaseOver, ParentEnded, AttemptOver
│   ├── TriggerError           domain/triggers/errors.py
│   ├── InvalidFilter          domain/jobs/filter.py
│   ├── InvalidManifest        domain/problems.py
│   ├── NotTheFiles, PlanChanged   domain/jobs/manifest_plan.py
│   └── CannotOpen             domain/tenancy/sealing.py
└── Unsettled, DatabaseUnusable, WorkerExpired
"""

from __future__ import annotations


class DulyError(Exception):
    """The root of all errors that Duly raises on purpose."""


class Refused(DulyError):
    """The request cannot be carried out; nothing has been written."""


class InvalidPayload(Refused):
    """A payload or result that is not JSON within the limits."""


class InvalidArguments(Refused):
    """Arguments that do not fit the handler's annotations."""


class InvalidSchedule(Refused):
    """A moment, a delay or an interval that cannot be kept."""


class AtPast(InvalidSchedule):
    """A one-shot whose moment is past by more than the grace period; it has the code and field of the trigger error."""

    code = "AT_PAST"
    field = "at"


class InvalidOption(Refused):
    """An option outside its range. `field` names it, if a single named value is at fault."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class InvalidWorkflow(Refused):
    """A workflow that cannot be stored. `where` is the path to the fault: names and indexes, as in a JSON pointer."""

    def __init__(self, message: str, where: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.where = where


class WorkflowChanged(Refused):
    """The request does not fit the state that the workflow has by now."""


class UnknownHandler(Refused):
    """No handler of that name is registered here."""


class UnknownQueue(Refused):
    """A strict app does not declare that queue."""


class KeyConflict(Refused):
    """The idempotency key was used for another job."""


class KeyBusy(Refused):
    """Another transaction is submitting under the same idempotency key."""


class NameTaken(Refused):
    """A schedule of that name exists already."""


class DeclaredInCode(Refused):
    """A program declares that schedule, so it can only be changed there."""


class VersionChanged(Refused):
    """The job is no longer of the version that was to be changed."""


class TenantSuspended(Refused):
    """The tenant is suspended and may add nothing."""


class AbsentTenant(Refused):
    """The tenant is not in this cell; `cell` is the other one."""

    cell: str | None = None


class TenantMoving(AbsentTenant):
    """The tenant is on its way between two cells; nothing was done, and it may be tried again in `retry_seconds`."""

    retry_seconds = 5


class TenantMoved(AbsentTenant):
    """The tenant is in another cell; send the request there."""


class QuotaReached(Refused):
    """The tenant has reached its quota of schedules or of waiting work."""


class Shed(Refused):
    """The queue is overloaded, and refuses work of that priority for `retry_seconds`."""

    retry_seconds = 1


class ClaimOver(Refused):
    """This claim of an HTTP worker, or a later one, was answered before."""


class LeaseOver(Refused):
    """The worker does not hold a lease on the run, or no longer."""


class ParentEnded(Refused):
    """The parent run of this subtask does not exist, or has ended."""


class AttemptOver(Refused):
    """The attempt has already ended with another outcome than its receiver reports."""


class NotFound(Refused):
    """No run or job has that id."""


class JobEnded(NotFound):
    """The job has ended: it can be read, but neither changed nor run."""


class Unsettled(DulyError):
    """The change failed for a moment, and nothing was changed; try again."""

    def __init__(self, what: str, why: str = "it kept changing") -> None:
        super().__init__(f"{what}: {why}; try again")


class DatabaseUnusable(DulyError):
    """The database is down, too old, read-only or of a newer Duly."""


class WorkerExpired(DulyError):
    """The worker's lease has expired, so it may neither claim nor start anything."""
