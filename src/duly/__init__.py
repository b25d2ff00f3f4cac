"""Duly, a distributed job scheduler on PostgreSQL.

The public names are here; each is loaded on first use, so that `import duly` costs nothing.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # True to type checkers; `typing` alone would double what an import costs.

if TYPE_CHECKING:
    from duly.client.asynchronous.client import AsyncClient
    from duly.client.errors import ApiError
    from duly.client.synchronous.client import Client
    from duly.domain.errors import (
        DatabaseUnusable,
        DeclaredInCode,
        DulyError,
        InvalidArguments,
        InvalidOption,
        InvalidPayload,
        InvalidSchedule,
        InvalidWorkflow,
        KeyBusy,
        KeyConflict,
        NameTaken,
        NotFound,
        ParentEnded,
        Refused,
        TenantMoved,
        TenantMoving,
        UnknownHandler,
        UnknownQueue,
        Unsettled,
        VersionChanged,
        WorkflowChanged,
    )
    from duly.domain.limits.concurrency import Rate
    from duly.domain.triggers.errors import TriggerError
    from duly.sdk.app import App
    from duly.sdk.handle import Handle
    from duly.sdk.handler import Handler
    from duly.sdk.job import Job, JobDetails
    from duly.sdk.retry import Retry
    from duly.sdk.run_handle import Progress, ResultNotKept, RunFailed, RunHandle
    from duly.sdk.workflow import Workflow
    from duly.sdk.workflow_handle import WorkflowFailed, WorkflowHandle
    from duly.store.connection.database import Unavailable
    from duly.worker.context import Cancelled, LeaseLost, NonRetryable, Snooze
    from duly.worker.context import RunContext as Run
    from duly.worker.execute.run_logging import RunLogHandler

__all__ = [
    "ApiError",
    "App",
    "AsyncClient",
    "Cancelled",
    "Client",
    "DatabaseUnusable",
    "DeclaredInCode",
    "DulyError",
    "Handle",
    "Handler",
    "InvalidArguments",
    "InvalidOption",
    "InvalidPayload",
    "InvalidSchedule",
    "InvalidWorkflow",
    "Job",
    "JobDetails",
    "KeyBusy",
    "KeyConflict",
    "LeaseLost",
    "NameTaken",
    "NonRetryable",
    "NotFound",
    "ParentEnded",
    "Progress",
    "Rate",
    "Refused",
    "ResultNotKept",
    "Retry",
    "Run",
    "RunFailed",
    "RunHandle",
    "RunLogHandler",
    "Snooze",
    "TenantMoved",
    "TenantMoving",
    "TriggerError",
    "Unavailable",
    "UnknownHandler",
    "UnknownQueue",
    "Unsettled",
    "VersionChanged",
    "Workflow",
    "WorkflowChanged",
    "WorkflowFailed",
    "WorkflowHandle",
    "__version__",
]

_HOMES = {
    "ApiError": "client.errors",
    "App": "sdk.app",
    "AsyncClient": "client.asynchronous.client",
    "Client": "client.synchronous.client",
    "Handle": "sdk.handle",
    "ResultNotKept": "sdk.run_handle",
    "RunFailed": "sdk.run_handle",
    "Progress": "sdk.run_handle",
    "Rate": "domain.limits.concurrency",
    "RunHandle": "sdk.run_handle",
    "RunLogHandler": "worker.execute.run_logging",
    "Handler": "sdk.handler",
    "Job": "sdk.job",
    "JobDetails": "sdk.job",
    "Retry": "sdk.retry",
    "Unavailable": "store.connection.database",
    "Cancelled": "worker.context",
    "LeaseLost": "worker.context",
    "NonRetryable": "worker.context",
    "Run": "worker.context",
    "Snooze": "worker.context",
    "TriggerError": "domain.triggers.errors",
    "Workflow": "sdk.workflow",
    "WorkflowFailed": "sdk.workflow_handle",
    "WorkflowHandle": "sdk.workflow_handle",
}
_NAMES = {"Run": "RunContext"}


if not TYPE_CHECKING:  # A type checker that saw this would take any name for one of ours.

    def __getattr__(name: str) -> object:
        """Load a public name from where it lives."""
        if name not in __all__:
            raise AttributeError(f"module 'duly' has no attribute {name!r}")
        from importlib import import_module

        found = getattr(import_module(f"duly.{_HOMES.get(name, 'domain.errors')}"), _NAMES.get(name, name))
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
