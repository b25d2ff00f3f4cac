"""What a run is for and what it has been through: its metadata and its history. Neither says how it is run."""

from __future__ import annotations

from uuid import UUID

import msgspec

from duly.domain.runs.callbacks import Then
from duly.domain.runs.dependencies import After


class RunMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tags, the request and the runs that a run belongs to, and its completion callbacks."""

    tags: tuple[str, ...] = ()
    request_id: str | None = None
    traceparent: str | None = None
    parent: UUID | None = None  # the run whose subtask this is
    node: tuple[UUID, str] | None = None  # the workflow, and its name there
    after: After = ()
    then: Then | None = None
    again_of: UUID | None = None  # the ended run that this one was made from


class RunHistory(msgspec.Struct, frozen=True, omit_defaults=True):
    """The life of a run so far, as far as its columns do not tell it."""

    replays: int = 0
    attempts_before: int = 0  # how many of its attempts do not count: of earlier lives, and forgiven ones
    since: float | None = (
        None  # seconds since 1970: when the first attempt of this life was due, where its age is bounded
    )
    snoozes: int = 0  # how often a rule has put it off
    probes: int = 0  # how many attempts were spent on finding out how its destination is
    missed: int = 0  # how many occurrences that were noticed too late this run stands for, itself included
    waited: bool = False  # for a concurrency key or a destination, so that its start delay says nothing


NO_METADATA = RunMetadata()  # shared, as PLAIN is
NO_HISTORY = RunHistory()
