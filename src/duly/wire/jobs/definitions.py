"""Targets, retries and limits of jobs and runs, as they cross HTTP."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from duly.domain.jobs.spec import Callback, PolicySpec
from duly.wire.schema.shapes import ResponseModel


class JobTarget(ResponseModel, frozen=True, omit_defaults=True):
    """The target of a job, by its `type`, with the fields of that type. Secrets are shown as ***.

    Types and fields may be added; ignore those you do not know.
    """

    type: Annotated[str, Meta(examples=["function", "webhook", "command", "container", "workflow"])]
    handler: str | None = None
    url: str | None = None
    method: str | None = None
    headers: dict[str, str] | None = None
    final: list[int] | None = None
    callback_within: str | None = None
    argv: list[str] | None = None
    image: str | None = None
    environment: dict[str, str] | None = None
    network: bool | None = None
    memory_bytes: int | None = None
    cpu_seconds: float | None = None
    cpus: float | None = None
    processes: int | None = None
    file_bytes: int | None = None
    ok: list[int] | None = None
    retry: list[int] | None = None
    name: str | None = None
    nodes: dict[str, Any] | None = None


class RunDefinition(PolicySpec, ResponseModel, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The definition that a run uses or used: of a job with versions, the version; of a one-shot, 1.

    `retry` and `timeout` are null where they are left to the handler.
    """

    version: int
    target: JobTarget
    on_end: Callback | None = None
    on_failure: Callback | None = None
