"""Options of a run, decoded: its policy, its metadata and its history. A definition has the first two.

`store/` decodes them once; no other code sees them as text. No name is in two of them, so options are built and changed
field by field: `options_of(retry=…, tags=…)`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from duly.domain.runs.callbacks import Callbacks
from duly.domain.runs.dependencies import DependsOn
from duly.domain.runs.retry import Retry
from duly.domain.targets.target import Target


class RunPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """The policies of a run. `own`: they are the job's, and nothing is left to the handler."""

    retry: Retry = Retry()
    timeout_seconds: float | None = None
    target: Target | None = None  # None: a function
    own: bool = False
    concurrency: tuple[str, int] | None = (
        None  # a concurrency key, and how many of its runs may be ready or running at once
    )
    fifo: bool | int = False  # the runs of its key go one after another, in order; the store numbers them
    rate: tuple[str, float, int] | None = None  # a key, its starts a second, and how many at once after a rest
    expires_at: float | None = None  # seconds since 1970: after this it is not started
    expires_seconds: float | None = None  # the same, counted from its scheduled moment
    rearm: bool = False  # the schedule's next fire counts from the end of this run
    watch: int | None = None  # after so many dead runs in a row, the schedule pauses

    @property
    def has_consequence(self) -> bool:
        """Return whether the end of a run has more effects than its record: a slot, the next fire, or a count of failures."""
        return self.concurrency is not None or self.rearm or self.watch is not None

    def or_handlers(self, handler: RunPolicy) -> RunPolicy:
        """Return this policy; unless it is the job's own, with the handler's retries, timeout and expiry."""
        if self.own or handler is PLAIN:
            return self
        if self is PLAIN:
            return handler
        expires_seconds = handler.expires_seconds if self.expires_seconds is None else self.expires_seconds
        return msgspec.structs.replace(
            self, retry=handler.retry, timeout_seconds=handler.timeout_seconds, expires_seconds=expires_seconds
        )


class RunMetadata(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tags, the request and the runs that a run belongs to, and its completion callbacks."""

    tags: tuple[str, ...] = ()
    request_id: str | None = None
    traceparent: str | None = None
    parent: UUID | None = None  # the run whose subtask this is
    node: tuple[UUID, str] | None = None  # the workflow, and its name there
    depends_on: DependsOn = ()
    callbacks: Callbacks | None = None
    rerun_of: UUID | None = None  # the ended run that this one was copied from
    redact: tuple[
        str, ...
    ] = ()  # rules of redaction; as a worker holds a run, also its tenant's and the installation's


class RunHistory(msgspec.Struct, frozen=True, omit_defaults=True):
    """The history of a run that its columns do not have."""

    replays: int = 0
    attempts_before: int = 0  # attempts that do not count: before a replay, and forgiven ones
    # Seconds since 1970: when the first attempt since the last replay was due, if its age is bounded.
    since: float | None = None
    snoozes: int = 0  # how often a rule has snoozed it
    probes: int = 0  # attempts spent on probing its destination
    missed: int = 0  # occurrences noticed too late that this run stands for, including itself
    waited: bool = False  # for a concurrency key or a destination, so that its start delay says nothing


PLAIN = RunPolicy()  # shared by all runs that carry no options
NO_METADATA = RunMetadata()  # shared, as PLAIN is
NO_HISTORY = RunHistory()

# Options that name one of these are a policy of the job's own.
_OWN = frozenset({"retry", "timeout_seconds", "target"})
_SAID = _OWN | {"concurrency", "rate"}  # So is a change that names these; in a row, the engine may have added them.
_FIELDS = frozenset(name for part in (PLAIN, NO_METADATA, NO_HISTORY) for name in part.__struct_fields__)
_OVERLAP = "overlap/"  # prefix of the concurrency key of a schedule whose occurrences wait for each other

Part = TypeVar("Part", RunPolicy, RunMetadata, RunHistory)


class RunOptions(msgspec.Struct, frozen=True):
    """All options that a run carries beside its columns."""

    policy: RunPolicy = PLAIN
    metadata: RunMetadata = NO_METADATA
    history: RunHistory = NO_HISTORY

    def but(self, **fields: Any) -> RunOptions:
        """Return these options with some fields changed, by name."""
        if not fields:
            return self
        assert fields.keys() <= _FIELDS, fields.keys() - _FIELDS
        if not fields.keys().isdisjoint(_SAID):
            fields = {"own": True, **fields}
        return RunOptions(
            _changed(self.policy, fields), _changed(self.metadata, fields), _changed(self.history, fields)
        )

    def rules(self, above: Sequence[str] | None = None) -> tuple[str, ...]:
        """Return the rules of redaction: its own, and those of its tenant and of the installation."""
        return (*self.metadata.redact, *(above or ()))

    def for_rerun(self, run_id: UUID, labels: Mapping[str, Any]) -> RunOptions:
        """Return the options of a new run that repeats an ended one, for the request that `labels` describe.

        A run of a schedule drops the schedule's overlap and failure count.
        """
        policy, metadata = self.policy, self.metadata
        is_overlap = policy.concurrency is not None and policy.concurrency[0].startswith(_OVERLAP)
        return RunOptions(
            msgspec.structs.replace(
                policy,
                concurrency=None if is_overlap else policy.concurrency,
                fifo=bool(policy.fifo),  # The store numbers them.
                expires_at=None,
                rearm=False,
                watch=None,
            ),
            RunMetadata(metadata.tags, callbacks=metadata.callbacks, rerun_of=run_id, redact=metadata.redact, **labels),
        )


NO_OPTIONS = RunOptions()


def options_of(**fields: Any) -> RunOptions:
    """Return options with these fields, by name."""
    return NO_OPTIONS.but(**fields)


def plain_of(options: RunOptions) -> dict[str, Any]:
    """Return options as one flat mapping of plain values, without defaults."""
    parts = ((options.policy, PLAIN), (options.metadata, NO_METADATA), (options.history, NO_HISTORY))
    said = {
        name: getattr(part, name)
        for part, usual in parts
        for name in part.__struct_fields__
        if getattr(part, name) != getattr(usual, name)
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(said))  # lists, as they are when read again
    return plain


def read_plain(plain: Mapping[str, Any]) -> RunOptions:
    """Read options from a flat mapping. Raises msgspec.ValidationError."""
    own = bool(plain.get("own")) or not plain.keys().isdisjoint(_OWN)
    return RunOptions(
        msgspec.convert({**plain, "own": own}, RunPolicy),
        msgspec.convert(plain, RunMetadata),
        msgspec.convert(plain, RunHistory),
    )


def _changed(part: Part, fields: Mapping[str, Any]) -> Part:
    changes = {name: value for name, value in fields.items() if name in part.__struct_fields__}
    return msgspec.structs.replace(part, **changes) if changes else part
