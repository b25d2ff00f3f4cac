"""Every refusal and failure Duly names; each class says what it stands for.

DulyError
├── Refused                    what was asked cannot be done; the message names the thing, the value and the remedy
│   ├── InvalidPayload, InvalidArguments, InvalidOption, InvalidWorkflow, UnknownHandler, UnknownQueue
│   ├── InvalidSchedule        and under it AtPast
│   ├── NotFound               and under it JobEnded
│   ├── KeyConflict, KeyBusy, NameTaken, DeclaredInCode, VersionChanged, WorkflowChanged
│   ├── TenantSuspended, QuotaReached, Shed
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
    """What was asked cannot be done; nothing has been written."""


class InvalidPayload(Refused):
    """A payload or result that is not JSON within the limits."""


class InvalidArguments(Refused):
    """Arguments that do not fit the handler's annotations."""


class InvalidSchedule(Refused):
    """A moment, a delay or an interval that cannot be kept."""


class AtPast(InvalidSchedule):
    """A one-shot whose moment is past by more than the grace; the code and the field are those of a trigger that is."""

    code = "AT_PAST"
    field = "at"


class InvalidOption(Refused):
    """An option outside its range. `field` names it, where one value alone is at fault and has a name."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class InvalidWorkflow(Refused):
    """A workflow that cannot be kept. `where` leads to what is wrong: names and numbers, as of a JSON pointer."""

    def __init__(self, message: str, where: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.where = where


class WorkflowChanged(Refused):
    """What was asked of a workflow does not fit where it stands by now."""


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
    """A program declares that schedule, so it is changed there and nowhere else."""


class VersionChanged(Refused):
    """The job is no longer of the version that was to be changed."""


class TenantSuspended(Refused):
    """The tenant may add nothing until somebody lets it go on."""


class QuotaReached(Refused):
    """The tenant has as many schedules, or as much that waits, as it may have."""


class Shed(Refused):
    """The queue is overloaded, and takes no work of that priority before `retry_seconds` have passed."""

    retry_seconds = 1


class ClaimOver(Refused):
    """The claim of a worker over HTTP was answered before, or a later one was."""


class LeaseOver(Refused):
    """The run is not, or no longer, in that worker's hands."""


class ParentEnded(Refused):
    """The run whose subtask this was to be is not there, or has ended."""


class AttemptOver(Refused):
    """An attempt that has ended otherwise than its receiver says."""


class NotFound(Refused):
    """No run or job has that id."""


class JobEnded(NotFound):
    """The job fires no more: it can be read, and neither changed nor run."""


class Unsettled(DulyError):
    """The change could not be made just now, and nothing was changed; try again."""

    def __init__(self, what: str, why: str = "it kept changing") -> None:
        super().__init__(f"{what}: {why}; try again")


class DatabaseUnusable(DulyError):
    """The database is down, too old, read-only or of a newer Duly."""


class WorkerExpired(DulyError):
    """The worker's lease has ended, so it may neither claim nor start anything."""
