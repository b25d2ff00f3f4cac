"""The HTTP client of Duly: `Client`, `AsyncClient`, their shapes, and their errors.

See docs/how-to/client.md and docs/decisions/0042-python-client.md.
"""

from __future__ import annotations

from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import (
    ApiError,
    Conflict,
    DeclaredInCode,
    Forbidden,
    Invalid,
    KeyReused,
    NameTaken,
    NotFound,
    QuotaReached,
    RateLimited,
    ServerFailed,
    Shed,
    Unauthorized,
    Unavailable,
    UnexpectedResponse,
    VersionChanged,
)
from duly.client.streaming import Event
from duly.client.synchronous.client import Client
from duly.domain.jobs.spec import (
    Callback,
    Concurrency,
    EventMatch,
    JobSpec,
    NodeSpec,
    RateLimit,
    RetryPolicy,
    WorkflowSpec,
    WorkflowTarget,
)
from duly.domain.targets.building import command, container, webhook
from duly.domain.targets.spec import CommandTarget, ContainerTarget, FunctionTarget, WebhookTarget
from duly.wire.calendars import Calendar
from duly.wire.jobs.batches import LineResult
from duly.wire.jobs.definitions import JobTarget
from duly.wire.jobs.jobs import CreatedJob, Job
from duly.wire.jobs.previews import Preview
from duly.wire.jobs.versions import JobVersion
from duly.wire.problems import Fault
from duly.wire.workflows import Node, StartedWorkflow, Workflow

__all__ = [
    "ApiError",
    "AsyncClient",
    "Calendar",
    "Callback",
    "Client",
    "CommandTarget",
    "Concurrency",
    "Conflict",
    "ContainerTarget",
    "CreatedJob",
    "DeclaredInCode",
    "Event",
    "EventMatch",
    "Fault",
    "Forbidden",
    "FunctionTarget",
    "Invalid",
    "Job",
    "JobSpec",
    "JobTarget",
    "JobVersion",
    "KeyReused",
    "LineResult",
    "NameTaken",
    "Node",
    "NodeSpec",
    "NotFound",
    "Preview",
    "QuotaReached",
    "RateLimit",
    "RateLimited",
    "RetryPolicy",
    "ServerFailed",
    "Shed",
    "StartedWorkflow",
    "Unauthorized",
    "Unavailable",
    "UnexpectedResponse",
    "VersionChanged",
    "WebhookTarget",
    "Workflow",
    "WorkflowSpec",
    "WorkflowTarget",
    "command",
    "container",
    "webhook",
]
