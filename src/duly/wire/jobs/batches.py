"""Many jobs in one request: a line of JSON each, and a line of answer for each."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from msgspec import Meta

from duly.domain.fields import Moment
from duly.wire.problems import Fault
from duly.wire.schema.shapes import Told

LINES_MAX = 50_000
BATCH_BYTES_MAX = 67_108_864


class LineRefused(Told, frozen=True):
    """Why a line was refused: a code as in problem documents, and what is wrong."""

    code: str
    detail: str
    errors: list[Fault]


class LineAnswer(Told, frozen=True, omit_defaults=True):
    """What became of one line, in the order of the lines: a job that is durable, or why there is none."""

    line: Annotated[int, Meta(ge=1)]
    job_id: UUID | None = None
    run_id: Annotated[UUID | None, Meta(description="Run of a one-shot.")] = None
    next_run_at: Moment | None = None
    replayed: bool = False
    error: LineRefused | None = None
