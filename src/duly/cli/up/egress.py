"""Egress settings.

A `duly up` stores its egress rules in its data folder. A worker beside it uses them by default: both claim the same
runs, and one of them would fail what the other sends.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from duly.api.server.listen import is_loopback
from duly.clock import SystemClock
from duly.log import Log
from duly.outbound.guard import Guard
from duly.outbound.resolver import SystemResolver
from duly.outbound.shapes import Check, egress_of, url_check
from duly.settings import Settings

if TYPE_CHECKING:
    from duly.outbound.calling import Caller

FILE = "egress.json"
_OF_UP = "the `duly up` of this folder"


class _Kept(msgspec.Struct, frozen=True):
    """The stored egress rules of a `duly up`, under the names of the settings."""

    egress_loopback: bool
    egress_ports: tuple[int, ...]
    egress_allow: tuple[str, ...]


def keep_egress(settings: Settings, data: Path | None) -> None:
    """Store the egress rules in the data folder of a `duly up`."""
    if data is None:
        return
    kept = _Kept(may_call_loopback(settings), settings.egress_ports, settings.egress_allow)
    write_private(data / FILE, msgspec.json.encode(kept))


def write_private(file: Path, data: bytes) -> None:
    """Write a file that only its owner can read; at no moment is there less than a whole one."""
    new = file.with_name(f"{file.name}.new")
    with suppress(FileNotFoundError):
        new.unlink()
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as writing:
        writing.write(data)
    new.rename(file)


def as_up_does(settings: Settings) -> Settings:
    """Return the settings with the egress rules of this folder's `duly up`, where they are not set."""
    kept = None if settings.database_url else _kept(settings.data / FILE)
    if kept is None:
        return settings
    taken = {name: value for name, value in msgspec.structs.asdict(kept).items() if not settings.is_given(name)}
    return msgspec.structs.replace(settings, **taken, sources={**settings.sources, **dict.fromkeys(taken, _OF_UP)})


def is_as_up_does(settings: Settings) -> bool:
    """Return whether the permission to call this machine comes from a `duly up`."""
    return settings.egress_loopback and settings.sources["egress_loopback"] == _OF_UP


def _kept(file: Path) -> _Kept | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Kept)
    except (OSError, msgspec.MsgspecError):
        return None  # of an older version, or invalid: then nothing is allowed that was not set here


def caller_of(settings: Settings) -> Caller:
    """Build the caller, for one loop. Raises SettingsError."""
    from duly.outbound.calling import Caller
    from duly.outbound.transport import PinnedTransport  # slow to import, and not everybody calls out

    log = Log("outbound")
    return Caller(Guard(egress_of(settings), SystemResolver(SystemClock()), log), PinnedTransport(), log)


def submitted_check(settings: Settings) -> Check:
    """Return the check of addresses submitted to the database itself. Raises SettingsError.

    The server of a `duly up` is for development, so the same addresses are allowed as by its API.
    """
    settings = as_up_does(settings)
    loopback = may_call_loopback(settings) if settings.database_url is None else None
    return url_check(egress_of(settings, loopback=loopback))


def may_call_loopback(settings: Settings) -> bool:
    """Return whether the workers of a `duly up` may call this machine: as set, else only if no other machine can reach us."""
    return settings.egress_loopback if settings.is_given("egress_loopback") else is_loopback(settings.host)
