"""Places for requests that stay open: streams, waiting reads and waiting claims, so many for each key, each tenant and in all.

Counted in this process. A place is given back when the request ends, however it ends.
"""

from __future__ import annotations

from collections import Counter
from types import TracebackType

import msgspec

from duly.api.refusals import QUOTA_SECONDS, Refusal
from duly.domain.tenancy.api_key import ApiKey


class Kind(msgspec.Struct, frozen=True):
    """A kind of request that stays open: what it is called, and how many there may be."""

    name: str
    of_key_max: int
    of_tenant_max: int
    most: int
    remedy: str


EVENTS = Kind("event streams", 50, 100, 1_000, "End some, or let one stream serve several readers.")
LOGS = Kind("log streams", 25, 50, 200, "End some, or read the log page by page.")
WAITS = Kind("waiting requests", 100, 200, 1_000, "Ask again when some have ended, or without Prefer: wait.")
CLAIMS = Kind("waiting claims", 200, 400, 2_000, "Ask again when some have ended, or claim with wait 0.")


class Place:
    """A place that somebody has. It is given back at the end of a `with`, or when nobody holds it any more."""

    def __init__(self, counts: Counter[str], names: tuple[str, ...]) -> None:
        self._counts = counts
        self._names = names
        counts.update(names)

    def __enter__(self) -> Place:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.give_back()

    def __del__(self) -> None:
        # A stream that nobody began to read has no end of its own.
        self.give_back()

    def give_back(self) -> None:
        """Let somebody else have it; a second time changes nothing."""
        names, self._names = self._names, ()
        self._counts.subtract(names)
        for name in names:
            if not self._counts[name]:
                del self._counts[name]


class Places:
    """The places of one process."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def taken(self, kind: Kind) -> int:
        """Say how many places of a kind are taken."""
        return self._counts[kind.name]

    def take(self, kind: Kind, key: ApiKey) -> Place:
        """Take a place for a request of a key. Raises Refusal when there is none."""
        limits = {
            f"{kind.name} of key {key.key_id}": (kind.of_key_max, "this key"),
            f"{kind.name} of tenant {key.tenant}": (kind.of_tenant_max, "this tenant"),
            kind.name: (kind.most, "all callers together"),
        }
        for name, (most, whose) in limits.items():
            if self._counts[name] >= most:
                raise Refusal(
                    "quota_reached",
                    f"{whose.capitalize()} may have {most} {kind.name} open at once, and has.",
                    title=f"Too many {kind.name}",
                    headers={"Retry-After": str(QUOTA_SECONDS)},
                    remedy=kind.remedy,
                )
        return Place(self._counts, tuple(limits))
