"""Why something is where it is, as it crosses HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta

from duly.domain.diagnosis.explain.codes import Code, HoldingCode
from duly.domain.fields import Moment
from duly.wire.schema.shapes import Told


class Reason(Told, frozen=True):
    """One thing that is so: a stable code, a sentence, and its numbers."""

    code: Code
    text: str
    facts: Annotated[dict[str, Any], Meta(description="The facts of the sentence, for programs.")]


class Holding(Told, frozen=True):
    """What holds a job or a run back, and what would free it."""

    code: HoldingCode
    text: str
    frees: Annotated[str, Meta(description="The event or command that would unblock it.")]
    probable_start_at: Annotated[Moment | None, Meta(description="Estimated start; null: unknown.")]


class Explanation(Told, frozen=True):
    """Why a job or a run is where it is: the first thing that holds it back, and all that is so, what matters most first."""

    kind: Literal["job", "run"]
    id: UUID
    state: str
    holding: Annotated[Holding | None, Meta(description="null: nothing; it runs or has ended.")]
    reasons: list[Reason]
