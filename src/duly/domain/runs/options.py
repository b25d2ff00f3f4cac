"""Options of a run, decoded: its policy, its metadata and its history. A definition has the first two.

No name stands in two of them, so options are built and changed field by field: `options_of(retry=…, tags=…)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from duly.domain.runs.metadata import NO_HISTORY, NO_METADATA, RunHistory, RunMetadata
from duly.domain.runs.policy import PLAIN, RunPolicy

_OWN = frozenset(
    {"retry", "timeout_seconds", "target"}
)  # Options that name one of these are a policy of the job's own.
_SAID = _OWN | {"gate", "rate"}  # So is a change that does; in a row the engine may have added these two.
_FIELDS = frozenset(name for part in (PLAIN, NO_METADATA, NO_HISTORY) for name in part.__struct_fields__)
_OVERLAP = "overlap/"  # begins the concurrency key of a schedule whose occurrences wait for each other

Part = TypeVar("Part", RunPolicy, RunMetadata, RunHistory)


class RunOptions(msgspec.Struct, frozen=True):
    """All that a run carries beside its columns."""

    policy: RunPolicy = PLAIN
    metadata: RunMetadata = NO_METADATA
    history: RunHistory = NO_HISTORY

    def but(self, **fields: Any) -> RunOptions:
        """Return these options with some fields changed, each by its name."""
        if not fields:
            return self
        assert fields.keys() <= _FIELDS, fields.keys() - _FIELDS
        if not fields.keys().isdisjoint(_SAID):
            fields = {"own": True, **fields}
        return RunOptions(
            _changed(self.policy, fields), _changed(self.metadata, fields), _changed(self.history, fields)
        )

    def again(self, run_id: UUID, marks: Mapping[str, Any]) -> RunOptions:
        """Return the options of a new run that does what an ended one did, for the request that `marks` tell of.

        A run of a schedule leaves the schedule's own overlap and counting behind.
        """
        policy, metadata = self.policy, self.metadata
        is_overlap = policy.gate is not None and policy.gate[0].startswith(_OVERLAP)
        return RunOptions(
            msgspec.structs.replace(
                policy,
                gate=None if is_overlap else policy.gate,
                fifo=bool(policy.fifo),  # The store numbers them.
                expires_at=None,
                rearm=False,
                watch=None,
            ),
            RunMetadata(metadata.tags, then=metadata.then, again_of=run_id, **marks),
        )


NO_OPTIONS = RunOptions()


def options_of(**fields: Any) -> RunOptions:
    """Return options with these fields, each by its name."""
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
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(said))  # Lists, as they are read again.
    return plain


def read_plain(plain: Mapping[str, Any]) -> RunOptions:
    """Read options from such a mapping. Raises msgspec.ValidationError."""
    own = bool(plain.get("own")) or not plain.keys().isdisjoint(_OWN)
    return RunOptions(
        msgspec.convert({**plain, "own": own}, RunPolicy),
        msgspec.convert(plain, RunMetadata),
        msgspec.convert(plain, RunHistory),
    )


def _changed(part: Part, fields: Mapping[str, Any]) -> Part:
    changes = {name: value for name, value in fields.items() if name in part.__struct_fields__}
    return msgspec.structs.replace(part, **changes) if changes else part
