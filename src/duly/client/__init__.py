"""The client of a Duly over HTTP: `Client`, `AsyncClient`, the shapes that they take and give, and what they raise.

See docs/client.md and docs/decisions/0019-the-client.md.
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
    UnexpectedAnswer,
    VersionChanged,
)
from duly.client.streaming import Event
from duly.client.synchronous.client import Client
from duly.client.targets import command, container, webhook
from duly.domain.targets.shapes import CommandTarget, ContainerTarget, WebhookTarget
from duly.wire.calendars import Calendar
from duly.wire.callbacks import Callback
from duly.wire.events import EventMatch
from duly.wire.jobs.batches import LineAnswer
from duly.wire.jobs.definitions import Concurrency, JobTarget, RateLimit, RetryPolicy
from duly.wire.jobs.jobs import CreatedJob, FunctionTarget, Job, JobDefinition, NodeDefinition, WorkflowTarget
from duly.wire.jobs.previews import Preview
from duly.wire.jobs.versions import JobVersion
from duly.wire.problems import Fault
from duly.wire.workflows import Node, StartedWorkflow, Workflow, WorkflowDefinition

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
    "JobDefinition",
    "JobTarget",
    "JobVersion",
    "KeyReused",
    "LineAnswer",
    "NameTaken",
    "Node",
    "NodeDefinition",
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
    "UnexpectedAnswer",
    "VersionChanged",
    "WebhookTarget",
    "Workflow",
    "WorkflowDefinition",
    "WorkflowTarget",
    "command",
    "container",
    "webhook",
]
