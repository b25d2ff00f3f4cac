"""Explanations, as they cross HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta

from duly.domain.diagnosis.explain.codes import BlockerCode, Code
from duly.domain.fields import Moment
from duly.wire.schema.shapes import ResponseModel


class Reason(ResponseModel, frozen=True):
    """One reason: a stable code, a sentence, and its numbers."""

    code: Code
    text: str
    facts: Annotated[dict[str, Any], Meta(description="The facts of the sentence, for programs.")]


class Blocker(ResponseModel, frozen=True):
    """The reason that holds a job or a run back, and what would free it."""

    code: BlockerCode
    text: str
    resolved_by: Annotated[str, Meta(description="The event or command that would unblock it.")]
    probable_start_at: Annotated[Moment | None, Meta(description="Estimated start; null: unknown.")]


class Explanation(ResponseModel, frozen=True):
    """The explanation of a job or a run: the first reason that holds it back, and all reasons, most important first."""

    kind: Literal["job", "run"]
    id: UUID
    state: str
    blocker: Annotated[Blocker | None, Meta(description="null: nothing; it runs or has ended.")]
    reasons: list[Reason]
