"""Why something is where it is, as it crosses HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta

from duly.wire.shapes import Told


class Reason(Told, frozen=True):
    """One thing that is so: a stable code, a sentence, and its numbers."""

    code: str
    text: str
    facts: Annotated[dict[str, Any], Meta(description="What the sentence says, for programs.")]


class Explanation(Told, frozen=True):
    """Why a job or a run is where it is, what matters most first."""

    kind: Literal["job", "run"]
    id: UUID
    state: str
    reasons: list[Reason]
