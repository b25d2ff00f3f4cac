"""Options of a run: one flat JSON object in its row, three structs above the store.

Decoded once, where a row is read, and encoded once, where it is written. Absent options cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import asyncpg
import msgspec
from msgspec import UNSET, UnsetType

from duly.domain.runs.options import (
    NO_HISTORY,
    NO_METADATA,
    NO_OPTIONS,
    PLAIN,
    RunHistory,
    RunMetadata,
    RunOptions,
    RunPolicy,
)
from duly.domain.runs.run import Run

_UNREADABLE = RunOptions(RunPolicy(own=True))
_SAID = 3  # a policy that names one of the first fields is the job's own: retry, timeout and target
_COLUMNS = Run.__struct_fields__.index("policy")
_POLICY, _METADATA, _HISTORY = (msgspec.structs.astuple(part) for part in (PLAIN, NO_METADATA, NO_HISTORY))
_FROM_METADATA = len(_POLICY)
_FROM_HISTORY = _FROM_METADATA + len(_METADATA)


def _flat() -> type[msgspec.Struct]:
    """Define the struct of a whole row; a field that makes a policy the job's own is unset where it is not named."""
    fields = [field for part in (PLAIN, NO_METADATA, NO_HISTORY) for field in msgspec.structs.fields(part)]
    own = [(field.name, field.type | UnsetType, UNSET) for field in fields[:_SAID]]
    return msgspec.defstruct("Stored", [*own, *((field.name, field.type, field.default) for field in fields[_SAID:])])


_STORED = _flat()
_PLAIN = (*(UNSET,) * _SAID, *_POLICY[_SAID:])
_decoder = msgspec.json.Decoder(_STORED)
_encoder = msgspec.json.Encoder()


def run_of(row: asyncpg.Record) -> Run:
    """Build a run from its columns, of which the last is its options."""
    columns: tuple[Any, ...] = row[:_COLUMNS]
    if (text := row[_COLUMNS]) is not None:
        columns = (*columns, *msgspec.structs.astuple(decode(text)))
    return Run(*columns)


def decode(text: str | None) -> RunOptions:
    """Decode the options of a run; unreadable ones become a policy of defaults, without an unreadable target."""
    if text is None:
        return NO_OPTIONS
    try:
        values = _values(text)
    except (msgspec.MsgspecError, ValueError):
        return _UNREADABLE
    policy, metadata, history = values[:_FROM_METADATA], values[_FROM_METADATA:_FROM_HISTORY], values[_FROM_HISTORY:]
    return RunOptions(
        PLAIN if policy == _PLAIN else _policy(policy),
        NO_METADATA if metadata == _METADATA else RunMetadata(*metadata),
        NO_HISTORY if history == _HISTORY else RunHistory(*history),
    )


def decoded(row: Mapping[str, Any] | asyncpg.Record) -> dict[str, Any]:
    """Return a row with its options decoded."""
    return {**dict(row), "options": decode(row["options"])}


def encode(options: RunOptions) -> str | None:
    """Encode options; None where they are empty."""
    if options is NO_OPTIONS:
        return None
    parts = (_encoder.encode(part)[1:-1] for part in (options.policy, options.metadata, options.history))
    text = b",".join(filter(None, parts)).decode()
    return f"{{{text}}}" if text else None


def encode_history(history: RunHistory | None) -> str | None:
    """Encode a history as it is merged into the options of a run; None: they stay as they are."""
    return None if history is None else _encoder.encode(history).decode()


def _values(text: str) -> tuple[Any, ...]:
    try:
        return msgspec.structs.astuple(_decoder.decode(text))
    except msgspec.ValidationError:  # its target may come from a newer version, or from SQL
        plain = {**msgspec.json.decode(text, type=dict[str, Any]), "own": True}
        plain.pop("target", None)
        return msgspec.structs.astuple(msgspec.convert(plain, _STORED))


def _policy(values: tuple[Any, ...]) -> RunPolicy:
    retry, timeout, target, own, *rest = values
    return RunPolicy(
        PLAIN.retry if retry is UNSET else retry,
        None if timeout is UNSET else timeout,
        None if target is UNSET else target,
        own or not (retry is timeout is target is UNSET),
        *rest,
    )
