"""Time zones: for each a table of the moments when its clocks change, shared by all triggers in that zone.

The data comes from the pinned `tzdata` package alone; the files of the host are never read, so that no two nodes
disagree. One version of it is an *edition*; a rule that was compiled with another one is read with `using`. The span
between two changes is a *piece*, numbered from 0; in it the offset from UTC is constant.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, cached_property
from importlib import import_module
from importlib.resources import files

import msgspec

from duly.domain.triggers.errors import TriggerError, nearest, shown
from duly.domain.triggers.zones import tzif

_LONG_AGO = -(2**60)
_NEVER = 2**60
UTC_NAME = "UTC"
_CHARACTERS_MAX = 64
_SHARE_MIN = 0.75  # of pairs of letters: names of zones are long, and many end alike
# Abbreviations are not zones: they do not say when clocks change, and several stand for more than one zone.
_MEANT = {
    "EST": "America/New_York", "EDT": "America/New_York", "EST5EDT": "America/New_York", "ET": "America/New_York",
    "CST": "America/Chicago", "CDT": "America/Chicago", "CST6CDT": "America/Chicago",
    "MST": "America/Denver", "MDT": "America/Denver", "MST7MDT": "America/Denver",
    "PST": "America/Los_Angeles", "PDT": "America/Los_Angeles", "PST8PDT": "America/Los_Angeles",
    "CET": "Europe/Paris", "CEST": "Europe/Paris", "MET": "Europe/Paris", "EET": "Europe/Athens", "EEST": "Europe/Athens",
    "WET": "Europe/Lisbon", "WEST": "Europe/Lisbon", "BST": "Europe/London", "GB": "Europe/London",
    "JST": "Asia/Tokyo", "JAPAN": "Asia/Tokyo", "IST": "Asia/Kolkata", "AEST": "Australia/Sydney",
    "Z": "UTC", "ZULU": "UTC", "UCT": "UTC", "UNIVERSAL": "UTC", "LOCAL": "UTC", "HST": "Pacific/Honolulu",
    "SINGAPORE": "Asia/Singapore", "HONGKONG": "Asia/Hong_Kong", "TURKEY": "Europe/Istanbul", "EIRE": "Europe/Dublin",
    "ISRAEL": "Asia/Jerusalem", "IRAN": "Asia/Tehran", "EGYPT": "Africa/Cairo", "CUBA": "America/Havana",
    "PRC": "Asia/Shanghai", "ROC": "Asia/Taipei", "ROK": "Asia/Seoul", "POLAND": "Europe/Warsaw", "NZ": "Pacific/Auckland",
    "PORTUGAL": "Europe/Lisbon", "ICELAND": "Atlantic/Reykjavik", "JAMAICA": "America/Jamaica", "LIBYA": "Africa/Tripoli",
}  # fmt: skip


class Zone(msgspec.Struct, frozen=True):
    """A zone, piece by piece.

    Of each piece: the moment it begins (`instants`), its `offsets`, the local time it begins at (`starts`), and the
    first local time that it maps (`firsts`). The last differs from the start around a change: a piece after a forward
    jump maps the skipped local times, a piece after a backward one only those not yet seen. So the pieces divide the
    whole line of local times, each once and in order.
    """

    name: str
    instants: tuple[int, ...]
    offsets: tuple[int, ...]
    starts: tuple[int, ...]
    firsts: tuple[int, ...]

    def piece_at(self, second: int) -> int:
        """Find the piece that a moment lies in."""
        return bisect_right(self.instants, second) - 1

    def piece_end(self, piece: int) -> int:
        """Return the moment at which the next piece begins."""
        return self.instants[piece + 1] if piece + 1 < len(self.instants) else _NEVER

    def offset_at(self, second: int) -> int:
        """Return the offset from UTC at a moment."""
        return self.offsets[bisect_right(self.instants, second) - 1]

    def local_at(self, second: int) -> int:
        """Return the local time at a moment."""
        return second + self.offsets[bisect_right(self.instants, second) - 1]

    def from_then(self, second: int) -> tuple[int, tuple[tuple[int, int], ...]]:
        """Return the offset at a moment, and every change after it."""
        piece = self.piece_at(second)
        return self.offsets[piece], tuple(zip(self.instants[piece + 1 :], self.offsets[piece + 1 :], strict=True))

    def first_instant(self, local: int) -> int:
        """Return the first moment at which the clock shows `local`, or, if it was skipped, the moment of the jump."""
        piece = bisect_right(self.firsts, local) - 1
        return max(local, self.starts[piece]) - self.offsets[piece]

    def local_reaching(self, second: int) -> int:
        """Return the least local time whose `first_instant` is at or after a moment."""
        piece = bisect_right(self.instants, second) - 1
        first = self.firsts[piece]
        return first if second == self.instants[piece] else max(second + self.offsets[piece], first)

    def local_reached(self, second: int) -> int:
        """Return the greatest local time whose `first_instant` is at or before a moment."""
        piece = bisect_right(self.instants, second) - 1
        return max(second + self.offsets[piece], self.firsts[piece] - 1)

    def instants_of(self, local: int) -> tuple[int, ...]:
        """Return every moment at which the clock shows `local`: none in a forward jump, two where it went back."""
        earliest = max(0, self.piece_at(local - 2 * 86_400))
        latest = self.piece_at(local + 2 * 86_400)
        return tuple(
            local - self.offsets[piece]
            for piece in range(earliest, latest + 1)
            if self.instants[piece] <= local - self.offsets[piece] < self.piece_end(piece)
        )


def build(name: str, first: int, changes: list[tuple[int, int]]) -> Zone:
    """Build the pieces between changes."""
    instants, offsets, starts, firsts = [_LONG_AGO], [first], [_LONG_AGO], [_LONG_AGO]
    for moment, offset in changes:
        firsts.append(max(firsts[-1], moment + offsets[-1]))
        instants.append(moment)
        offsets.append(offset)
        starts.append(moment + offset)
    return Zone(name, tuple(instants), tuple(offsets), tuple(starts), tuple(firsts))


UTC_ZONE = build(UTC_NAME, 0, [])


class Edition:
    """One version of the tz database: the file of each zone."""

    def __init__(self, version: str, contents: Mapping[str, bytes]) -> None:
        self.version = version
        self.contents = contents
        self._zones: dict[str, Zone] = {}

    @cached_property
    def names(self) -> frozenset[str]:
        """The zones that a trigger may use: those with a slash, UTC and GMT."""
        return frozenset(name for name in self.contents if "/" in name or name in (UTC_NAME, "GMT"))

    def zone(self, name: str) -> Zone:
        """Return a zone that is known to exist."""
        found = self._zones.get(name)
        if found is None:
            first, changes = tzif.read(self.contents[name])
            found = self._zones[name] = build(name, first, list(tzif.merged(first, changes)))
        return found

    @cached_property
    def packed(self) -> bytes:
        """The contents as one blob, for the store."""
        return pack(self.contents)

    def changed_since(self, before: Edition, second: int) -> list[str]:
        """Return the zones whose clocks this edition sets otherwise than another one, at or after a moment."""
        shared = sorted(name for name in self.names & before.names if self.contents[name] != before.contents[name])
        return [name for name in shared if self.zone(name).from_then(second) != before.zone(name).from_then(second)]


def pack(contents: Mapping[str, bytes]) -> bytes:
    """Pack the files of zones into one blob."""
    return zlib.compress(msgspec.msgpack.encode(dict(contents)))


def unpack(packed: bytes) -> dict[str, bytes]:
    """Unpack the files of zones."""
    return msgspec.msgpack.decode(zlib.decompress(packed), type=dict[str, bytes])


class _Files(Mapping[str, bytes]):
    """The files of the installed package, each read on first use."""

    def __init__(self) -> None:
        self._folder = files("tzdata").joinpath("zoneinfo")
        self._names = frozenset(files("tzdata").joinpath("zones").read_text("ascii").split())
        self._read: dict[str, bytes] = {}

    def __getitem__(self, name: str) -> bytes:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._read:
            self._read[name] = self._folder.joinpath(*name.split("/")).read_bytes()
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@cache
def installed() -> Edition:
    """Return the edition of the installed package."""
    return Edition(str(import_module("tzdata").IANA_VERSION), _Files())


_edition: ContextVar[Edition | None] = ContextVar("edition", default=None)


def current() -> Edition:
    """Return the edition that zones are read from: the installed one, unless another is in use."""
    return _edition.get() or installed()


@contextmanager
def using(edition: Edition) -> Iterator[None]:
    """Read zones from an edition for a while. Rules compiled meanwhile keep them."""
    token = _edition.set(edition)
    try:
        yield
    finally:
        _edition.reset(token)


def names() -> frozenset[str]:
    """Return the zones that a trigger may use: those with a slash, UTC and GMT."""
    return current().names


def database_version() -> str:
    """Return the version of the tz database."""
    return current().version


def find(
    name: object, field: str = "tz", *, expression: str | None = None, span: tuple[int, int] | None = None
) -> Zone:
    """Return the zone of that name. Raises TriggerError with the most similar name."""
    if name == UTC_NAME:
        return UTC_ZONE
    if isinstance(name, str) and len(name) <= _CHARACTERS_MAX and name in names():
        return current().zone(name)
    meant = suggestion(name) if isinstance(name, str) else None
    remedy = f"did you mean {meant}?" if meant else "use a tz database name such as Europe/London, or UTC"
    raise TriggerError(
        "TZ_UNKNOWN", f"{field} {shown(name)} is not a time zone here; {remedy}", field, meant,
        expression=expression, span=span,
    )  # fmt: skip


def suggestion(name: str) -> str | None:
    """Return the most similar zone."""
    if name[:40].upper() in _MEANT:
        return _MEANT[name[:40].upper()]
    if len(name) > _CHARACTERS_MAX:
        return None
    wanted = name.strip().replace(" ", "_").lower()
    for known in names():
        if wanted in (known.lower(), known.lower().rpartition("/")[2]):
            return known
    return nearest(wanted, sorted(names()), _SHARE_MIN)
