"""Batches of jobs: one line of JSON each, and a line of response for each."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from msgspec import Meta

from duly.domain.fields import Moment
from duly.wire.problems import Fault
from duly.wire.schema.shapes import ResponseModel

LINES_MAX = 50_000
BATCH_BYTES_MAX = 67_108_864


class LineRefused(ResponseModel, frozen=True):
    """The reason why a line was refused: a code as in problem documents, and a sentence."""

    code: str
    detail: str
    errors: list[Fault]


class LineResult(ResponseModel, frozen=True, omit_defaults=True):
    """The result of one line, in the order of the lines: a durable job, or why there is none."""

    line: Annotated[int, Meta(ge=1)]
    job_id: UUID | None = None
    run_id: Annotated[UUID | None, Meta(description="Run of a one-shot.")] = None
    next_run_at: Moment | None = None
    replayed: bool = False
    error: LineRefused | None = None
