"""Reads from the replica: which requests may be answered from it, what their responses say, and how often it happened.

A request goes to the primary when its key has changed something here that the replica may not have yet, or when it says
`Cache-Control: no-cache`. A read that fails on the replica, or finds nothing there, is done again on the primary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping

from duly.api.metrics.definitions import Family, labelled, one
from duly.api.operations import SAFE, Operation
from duly.api.response import Response
from duly.domain.errors import NotFound
from duly.domain.tenancy.api_key import Identity
from duly.store.connection.replica import Replica, ReplicaPools, is_failure

HEADER = "Read-From"
_WRITERS_MAX = 10_000

Act = Callable[[ReplicaPools], Awaitable[Response]]


class ReplicaReads:
    """Reads of this process that may lag."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self._wrote_at: dict[str, float] = {}
        self._others_wrote_at: float | None = None  # of keys for which there was no room
        self._reads: Counter[str] = Counter()

    def wrote(self, operation: Operation, identity: Identity) -> None:
        """Remember that a key has changed something, until the replica has that."""
        if operation.method in SAFE or identity.is_anonymous:
            return
        if len(self._wrote_at) >= _WRITERS_MAX:
            self._wrote_at = {key: at for key, at in self._wrote_at.items() if not self.replica.has(at)}
        if len(self._wrote_at) < _WRITERS_MAX or identity.key.key_id in self._wrote_at:
            self._wrote_at[identity.key.key_id] = self.replica.moment()
        else:
            self._others_wrote_at = self.replica.moment()

    async def answer(
        self, operation: Operation, identity: Identity, headers: Mapping[str, str], act: Act, beside: dict[str, str]
    ) -> Response | None:
        """Return the response from the replica, or None where the primary must answer; `beside` says which of them did."""
        if not operation.may_lag:
            return None
        pools, reason = self._chosen(identity, headers)
        if pools is not None:
            try:
                response = await act(pools)
            except Exception as error:
                if is_failure(error):
                    self.replica.failed(error)
                    reason = "replica_failed"
                elif isinstance(error, NotFound):
                    reason = "not_on_replica"
                else:
                    raise
            else:
                self.replica.succeeded()
                self._reads["replica"] += 1
                beside[HEADER] = f"replica; age={self.replica.age_seconds or 0.0:.1f}"
                return response
        self._reads["primary"] += 1
        beside[HEADER] = f'primary; reason="{reason}"'
        return None

    def _chosen(self, identity: Identity, headers: Mapping[str, str]) -> tuple[ReplicaPools | None, str]:
        """Return where to read, or why not there: a code, because why a server fails is the operator's."""
        if "no-cache" in headers.get("cache-control", "").lower():
            return None, "requested"
        if (at := self._wrote_at.get(identity.key.key_id)) is not None:
            if not self.replica.has(at):
                return None, "own_write"
            del self._wrote_at[identity.key.key_id]
        if self._others_wrote_at is not None and not self.replica.has(self._others_wrote_at):
            return None, "own_write"  # perhaps: it may be one of those keys
        pools = self.replica.pools
        return pools, "" if pools is not None else "replica_unused"

    def collect(self) -> Iterator[Family]:
        """Return the metrics."""
        fact = self.replica.fact
        yield one("duly_api_replica_used", int(fact.problem is None))
        if fact.age_seconds is not None:
            yield one("duly_api_replica_age_seconds", fact.age_seconds)
        yield labelled("duly_api_list_reads_total", {server: self._reads[server] for server in ("primary", "replica")})
