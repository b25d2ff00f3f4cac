"""A run as a worker holds it: the leased row, and the options it carries from box to box."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.errors import InvalidOption
from duly.domain.runs.callbacks import Then
from duly.domain.runs.metadata import NO_HISTORY, NO_METADATA, RunHistory, RunMetadata
from duly.domain.runs.policy import PLAIN, RunPolicy
from duly.domain.runs.retry import Retry
from duly.domain.targets.target import Target

QUEUE_DEFAULT = "default"
PRIORITY_DEFAULT = 5
TENANT_DEFAULT = 1
NOT_BLANK = r"\S"  # What a name must hold, as a pattern of shapes.
NAME_CHARACTERS_MAX = 200
HORIZON = timedelta(seconds=5)  # What is due within it is ready: a worker may hold it ahead of its moment.


class Options(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run carries besides its columns; absent from the row when all is default."""

    retry: Retry = Retry()
    timeout_seconds: float | None = None
    replays: int = 0
    attempts_before: int = 0
    gate: tuple[str, int] | None = None  # a name, and how many runs of it may be ready or running at once
    fifo: bool | int = False  # at its gate they run one after another, in order; the store numbers them
    rate: tuple[str, float, int] | None = (
        None  # a key, how many runs of it start a second, and how many at once after a rest
    )
    expires_at: float | None = None  # seconds since 1970: after this it is not worth starting
    expires_seconds: float | None = None  # of a schedule: how long after its moment an occurrence is worth starting
    since: float | None = (
        None  # seconds since 1970: when the first attempt of this life was due, where its age is bounded
    )
    snoozes: int = 0  # how often a rule has put it off
    probes: int = 0  # how many of its attempts were spent on finding out how its destination is
    missed: int = 0  # how many occurrences that were noticed too late this run stands for, itself included
    rearm: bool = False  # the schedule's next fire counts from the end of this run
    watch: int | None = None  # after so many runs in a row that failed for good, the schedule pauses
    target: Target | None = None  # what it does, where that is no function
    own: bool = False  # Nothing is left to its handler.
    # Marks: they say what a run is for, who asked for it and who is told of its end, not how it is run.
    tags: tuple[str, ...] = ()
    request_id: str | None = None
    traceparent: str | None = None
    parent: str | None = None  # the id of the run whose subtask this is
    node: tuple[str, str] | None = None  # the id of the workflow, and its name there
    after: tuple[tuple[str, str], ...] = ()  # jobs that it follows, and the end that is asked of each
    then: Then | None = None
    again_of: str | None = None  # the id of the ended run that this one was made from


DEFAULTS = Options()
# What has no say in how a run is run: what it is marked with, until when it is worth running, and how its life went so far.
_EXPIRY = frozenset({"expires_at", "expires_seconds"})
_LIFE = frozenset({"replays", "attempts_before", "since", "snoozes", "probes"})
MARKS = (
    frozenset({"tags", "request_id", "traceparent", "parent", "node", "after", "then", "again_of"}) | _EXPIRY | _LIFE
)
_OWN = frozenset({"own", "retry", "timeout_seconds", "target"})  # Options that name one leave nothing to the handler.
_encoder = msgspec.json.Encoder()


def encode_options(options: Options) -> str | None:
    """Write options for the store; nothing when all is default."""
    return None if options == DEFAULTS else _encoder.encode(options).decode()


def is_marks_only(text: str) -> bool:
    """Say whether options say nothing of how to run a job: then that is left to the handler."""
    return not _decoded(text).own


def said(text: str | None) -> str:
    """Write options so that they are a job's own even where they are the defaults: nothing is left to the handler."""
    return msgspec.json.encode({**({} if text is None else msgspec.json.decode(text)), "own": True}).decode()


def target_of(text: str | None) -> Target | None:
    """Give the target among options; none where it is a function, or one that this version cannot read."""
    return None if text is None or '"target"' not in text else read_options(text, None).target


def then_of(text: str | None) -> Then | None:
    """Give who is told of the ends of runs, among options."""
    return None if text is None or '"then"' not in text else read_options(text, None).then


def amend_options(text: str | None, changes: Mapping[str, Any], defaults: Options | None) -> str | None:
    """Change some of the options a job has, or, where it has none of its own, of the defaults; without changes they stay."""
    if not changes:
        return text
    before = read_options(text, defaults)
    if before.target is None and text is not None and "target" in msgspec.json.decode(text):
        raise InvalidOption("the job has a target that this version of Duly cannot read; change it with a newer one")
    return said(encode_options(msgspec.structs.replace(before, **changes)))


def read_options(text: str | None, defaults: Options | None) -> Options:
    """Read the options a job has of its own; where it has none, the defaults. A target that cannot be read is left out."""
    if text is None:
        return defaults or DEFAULTS
    read, usual = _decoded(text), defaults or DEFAULTS
    if read.own:
        return read
    return msgspec.structs.replace(read, retry=usual.retry, timeout_seconds=usual.timeout_seconds)


_OVERLAP = "overlap/"  # begins the gate of a schedule whose occurrences wait for each other
_OF_AGAIN = ("own", "retry", "timeout_seconds", "gate", "fifo", "rate", "expires_seconds", "tags", "target", "then")


def options_again(text: str | None, run_id: str, marks: Mapping[str, str]) -> str:
    """Give the options of a new run that does what an ended one did: all but its place, its life so far and its request.

    A run of a schedule leaves the schedule's own overlap and counting behind.
    """
    before: dict[str, Any] = {} if text is None else msgspec.json.decode(text)
    kept = {name: before[name] for name in _OF_AGAIN if before.get(name) is not None}
    if "gate" in kept and kept["gate"][0].startswith(_OVERLAP):
        del kept["gate"]
    if "fifo" in kept:
        kept["fifo"] = True  # The store numbers them.
    return msgspec.json.encode({**kept, **marks, "again_of": run_id}).decode()


def kept_of_one_shot(text: str | None, standing: str | None) -> str | None:
    """Give the options of a one-shot that is changed: those asked for, with its parent, what it follows and where it is from."""
    before: dict[str, Any] = {} if standing is None else msgspec.json.decode(standing)
    kept = {name: before[name] for name in ("parent", "after", "again_of") if name in before}
    if not kept:
        return text
    return msgspec.json.encode({**({} if text is None else msgspec.json.decode(text)), **kept}).decode()


def has_parent(text: str | None) -> bool:
    """Say whether options name the run whose subtask this is."""
    return text is not None and '"parent"' in text and "parent" in msgspec.json.decode(text)


def _decoded(text: str) -> Options:
    plain: dict[str, Any] = msgspec.json.decode(text)
    plain["own"] = not _OWN.isdisjoint(plain)
    try:
        return msgspec.convert(plain, Options)
    except msgspec.ValidationError:  # It may come from a newer version, or from SQL.
        if plain.pop("target", None) is None:
            raise
        return msgspec.convert(plain, Options)


class Run(msgspec.Struct, frozen=True, gc=False):
    """One leased run. `place` and `fence` are the holder's handle; `attempt` is the attempt this lease is for."""

    place: tuple[int, int]
    fence: int
    run_id: UUID
    job_id: UUID
    scheduled_at: datetime
    due_at: datetime
    previous_scheduled_at: datetime | None
    generation: int
    tenant: int
    attempt: int
    priority: int
    losses: int
    suspect: bool
    payload_stored: bool
    queue: str
    handler: str
    payload: str | None
    policy: RunPolicy = PLAIN
    metadata: RunMetadata = NO_METADATA
    history: RunHistory = NO_HISTORY
    parents: str | None = None  # of a node: what those before it came to, by name, as JSON
    refused: str | None = None  # of a node: why it cannot be given what it is to work on
