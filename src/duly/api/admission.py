"""Admission of requests: rate limits of a key and its tenant, a cap on open requests, and load shedding.

Open requests are streams, waiting reads and waiting claims: so many of a key, of a tenant and in all, counted in this
process and released when the request ends. Overloads are read from the database at most twice a second, and not per
request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType

import msgspec

from duly.api.metrics.definitions import Family
from duly.api.problems import QUOTA_SECONDS, Refusal
from duly.domain.diagnosis.labels import OTHER, Labels
from duly.domain.errors import DulyError, Shed
from duly.domain.limits.overload import Overload, is_shed
from duly.domain.runs.run import HORIZON
from duly.domain.tenancy.api_key import ApiKey, Identity
from duly.moves.admin.admit import Admission
from duly.store.connection.database import Database
from duly.store.tables import overloads

LOOK_SECONDS = 0.5


class OpenKind(msgspec.Struct, frozen=True):
    """A kind of request that stays open: its name, and how many there may be."""

    name: str
    of_key_max: int
    of_tenant_max: int
    most: int
    remedy: str


EVENTS = OpenKind("event streams", 50, 100, 1_000, "Close some, or share one stream between readers.")
LOGS = OpenKind("log streams", 25, 50, 200, "Close some, or read the log by pages.")
WAITS = OpenKind("waiting requests", 100, 200, 1_000, "Retry when some have ended, or without Prefer: wait.")
CLAIMS = OpenKind("waiting claims", 200, 400, 2_000, "Retry when some have ended, or claim with wait 0.")

ARCHIVES = OpenKind("reads of the archive", 2, 2, 16, "Retry when they have ended, or ask for a shorter time range.")


class OpenRequest:
    """A slot of an open request. It is released at the end of a `with`, or when nothing refers to it any more."""

    def __init__(self, counts: Counter[str], names: tuple[str, ...]) -> None:
        self._counts = counts
        self._names = names
        counts.update(names)

    def __enter__(self) -> OpenRequest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.give_back()

    def __del__(self) -> None:
        # A stream that was never read has no end of its own.
        self.give_back()

    def give_back(self) -> None:
        """Release the slot; a second time changes nothing."""
        names, self._names = self._names, ()
        self._counts.subtract(names)
        for name in names:
            if not self._counts[name]:
                del self._counts[name]


class OpenRequests:
    """The slots of one process."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def taken(self, kind: OpenKind) -> int:
        """Return how many requests of a kind are open."""
        return self._counts[kind.name]

    def take(self, kind: OpenKind, key: ApiKey) -> OpenRequest:
        """Take a slot for a request of a key. Raises Refusal when there is none."""
        limits = {
            f"{kind.name} of key {key.key_id}": (kind.of_key_max, "this key"),
            f"{kind.name} of tenant {key.tenant}": (kind.of_tenant_max, "this tenant"),
            kind.name: (kind.most, "all callers together"),
        }
        for name, (most, owner) in limits.items():
            if self._counts[name] >= most:
                raise Refusal(
                    "quota_reached",
                    f"{owner.capitalize()} may have {most} {kind.name} open at once, and all are in use.",
                    title=f"Too many {kind.name}",
                    headers={"Retry-After": str(QUOTA_SECONDS)},
                    remedy=kind.remedy,
                )
        return OpenRequest(self._counts, tuple(limits))


class LoadShedding:
    """Refuses work of low priority from tenants that are overloaded in its queue. One for each process."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._standing: Mapping[tuple[int, str], Overload] = {}
        self._looked_at: float | None = None
        self._shed: Counter[tuple[str, str]] = Counter()
        self._labels = Labels()

    async def look(self) -> None:
        """Read the overloads, unless that was just now; a database that does not answer changes nothing."""
        now = self._database.clock.monotonic()
        if self._looked_at is not None and now - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = now  # set first, so that only one of many callers reads
        try:
            self._standing = await overloads.standing(self._database)
        except DulyError:
            self._looked_at = None

    def check(self, tenant: int, queue: str, priority: int, at: datetime | None, now: datetime) -> None:
        """Admit a one-shot that is due at a moment, None: now. Raises Shed."""
        found = self._standing.get((tenant, queue))
        if found is None or not is_shed(priority) or (at is not None and at > now + HORIZON):
            return
        raise self._counted(found, priority)

    def check_all(self, tenant: int, first: Sequence[tuple[str, int]]) -> None:
        """Admit a workflow by the queues and priorities of its first nodes, unless all would be shed. Raises Shed."""
        found = [self._standing.get((tenant, queue)) if is_shed(priority) else None for queue, priority in first]
        if found and found[0] is not None and None not in found:
            raise self._counted(found[0], first[0][1])

    def _counted(self, found: Overload, priority: int) -> Shed:
        is_admitted = self._labels.admits(found.tenant, (found.tenant, found.queue))
        self._shed[str(found.tenant), found.queue if is_admitted else OTHER] += 1
        return found.refusal(priority)

    def collect(self) -> Iterator[Family]:
        """Return the number of refusals."""
        yield Family("duly_api_shed_submissions_total", sorted(self._shed.items()))


async def admit(admission: Admission, identity: Identity, headers: dict[str, str], count: int) -> None:
    """Count submits against their rate limits, and add what is left to `headers`. Raises Refusal."""
    verdict = await admission.admit(identity.key, count)
    if verdict is None:
        return
    if not identity.is_anonymous or not verdict.is_allowed:  # a shared limit is nothing to plan with
        headers |= verdict.headers
    if not verdict.is_allowed:
        owner = "all callbacks together" if identity.is_anonymous else f"the {verdict.limit.owner}"
        raise Refusal("rate_limited", f"The limit of {owner} is {verdict.limit.rate:g} submits a second.")
