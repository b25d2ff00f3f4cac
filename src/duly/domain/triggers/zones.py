"""Time zones: for each a table of the moments when its clocks change, shared by all triggers in that zone.

The data is that of the pinned `tzdata` package alone; the files of the host are never read, so that no two nodes
disagree. The stretch of time between two changes is a *piece*, numbered from 0; in it the offset from UTC is constant.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from importlib import import_module
from importlib.resources import files

import msgspec

from duly.domain.triggers import tzif
from duly.domain.triggers.errors import TriggerError, nearest, shown

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

    Of each piece: the moment it begins (`instants`), its `offsets`, the local time it begins at (`starts`), and the first
    local time it is answerable for (`firsts`). The last differs from the start around a change: a piece after a forward
    jump answers for the local times that were jumped, a piece after a backward one only for those not yet seen. So the
    pieces share out the whole line of local times, each once and in order.
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
        """Give the moment at which the next piece begins."""
        return self.instants[piece + 1] if piece + 1 < len(self.instants) else _NEVER

    def offset_at(self, second: int) -> int:
        """Give the offset from UTC at a moment."""
        return self.offsets[bisect_right(self.instants, second) - 1]

    def local_at(self, second: int) -> int:
        """Give the local time at a moment."""
        return second + self.offsets[bisect_right(self.instants, second) - 1]

    def first_instant(self, local: int) -> int:
        """Give the first moment at which the clock shows `local`, or, if it was jumped over, the moment of the jump."""
        piece = bisect_right(self.firsts, local) - 1
        return max(local, self.starts[piece]) - self.offsets[piece]

    def local_reaching(self, second: int) -> int:
        """Give the least local time whose `first_instant` is at or after a moment."""
        piece = bisect_right(self.instants, second) - 1
        first = self.firsts[piece]
        return first if second == self.instants[piece] else max(second + self.offsets[piece], first)

    def local_reached(self, second: int) -> int:
        """Give the greatest local time whose `first_instant` is at or before a moment."""
        piece = bisect_right(self.instants, second) - 1
        return max(second + self.offsets[piece], self.firsts[piece] - 1)

    def instants_of(self, local: int) -> tuple[int, ...]:
        """Give every moment at which the clock shows `local`: none in a jump, two where it went back."""
        earliest = max(0, self.piece_at(local - 2 * 86_400))
        latest = self.piece_at(local + 2 * 86_400)
        return tuple(
            local - self.offsets[piece]
            for piece in range(earliest, latest + 1)
            if self.instants[piece] <= local - self.offsets[piece] < self.piece_end(piece)
        )


@lru_cache(maxsize=1024)
def load(name: str) -> Zone:
    """Load a zone that is known to exist."""
    content = files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    first, changes = tzif.read(content)
    return build(name, first, list(tzif.merged(first, changes)))


def build(name: str, first: int, changes: list[tuple[int, int]]) -> Zone:
    """Lay out the pieces between changes."""
    instants, offsets, starts, firsts = [_LONG_AGO], [first], [_LONG_AGO], [_LONG_AGO]
    for moment, offset in changes:
        firsts.append(max(firsts[-1], moment + offsets[-1]))
        instants.append(moment)
        offsets.append(offset)
        starts.append(moment + offset)
    return Zone(name, tuple(instants), tuple(offsets), tuple(starts), tuple(firsts))


UTC_ZONE = build(UTC_NAME, 0, [])


@lru_cache(maxsize=1)
def names() -> frozenset[str]:
    """Name the zones that a trigger may use: those with a slash, UTC and GMT."""
    listed = files("tzdata").joinpath("zones").read_text("ascii").split()
    return frozenset(name for name in listed if "/" in name or name in (UTC_NAME, "GMT"))


@lru_cache(maxsize=1)
def database_version() -> str:
    """Give the version of the tz database."""
    return str(import_module("tzdata").IANA_VERSION)


def find(
    name: object, field: str = "tz", *, expression: str | None = None, span: tuple[int, int] | None = None
) -> Zone:
    """Give the zone of that name. Raises TriggerError with the name that was probably meant."""
    if name == UTC_NAME:
        return UTC_ZONE
    if isinstance(name, str) and len(name) <= _CHARACTERS_MAX and name in names():
        return load(name)
    meant = suggestion(name) if isinstance(name, str) else None
    remedy = f"did you mean {meant}?" if meant else "use a tz database name such as Europe/London, or UTC"
    raise TriggerError(
        "TZ_UNKNOWN", f"{field} {shown(name)} is not a time zone here; {remedy}", field, meant,
        expression=expression, span=span,
    )  # fmt: skip


def suggestion(name: str) -> str | None:
    """Guess which zone was meant."""
    if name[:40].upper() in _MEANT:
        return _MEANT[name[:40].upper()]
    if len(name) > _CHARACTERS_MAX:
        return None
    wanted = name.strip().replace(" ", "_").lower()
    for known in names():
        if wanted in (known.lower(), known.lower().rpartition("/")[2]):
            return known
    return nearest(wanted, sorted(names()), _SHARE_MIN)
