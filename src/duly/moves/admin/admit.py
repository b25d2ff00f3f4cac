"""Admission: let a request add jobs, or refuse it with a delay.

Each process has one `Admission`, over the engine's database.

Without a limit the database is not asked. With one, a request is admitted by what its process has reserved; when that
is spent, by one statement, in a transaction of its own: the row of a bucket is locked no longer than that, whatever the
request does next.
"""

from __future__ import annotations

from collections.abc import Sequence

from duly.domain.limits.rate_limit import RateLimit, RequestBudget, Verdict
from duly.domain.tenancy.api_key import ApiKey
from duly.store.connection.database import Database
from duly.store.tenancy import tenants

_BUDGETS_MAX = 10_000
_LEAST_SECONDS = 0.001  # a refusal has a positive wait, even where it rounds to zero


class Admission:
    """The reservations of a process, by bucket."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._budgets: dict[str, RequestBudget] = {}

    async def admit(self, key: ApiKey, count: int = 1) -> Verdict | None:
        """Admit so many submits of a key, by its own limit and its tenant's. None: it has no limit."""
        verdicts: list[Verdict] = []
        for limit in limits_of(key):
            verdict = await self._verdict(limit, count)
            verdicts.append(verdict)
            if not verdict.is_allowed:
                return verdict
        return _nearest(verdicts)

    async def _verdict(self, limit: RateLimit, count: int) -> Verdict:
        budget = self._budget(limit.bucket)
        monotonic = self._database.clock.monotonic()
        if budget.spend(count, monotonic):
            return budget.verdict(limit, 0.0)
        if wait := budget.wait(limit, count, monotonic):
            return budget.verdict(limit, wait)
        wanted = limit.worth_drawing(count)
        drawn = await tenants.draw(self._database, limit.bucket, limit.rate, limit.burst, count, wanted)
        budget.fill(drawn.tokens, drawn.left, monotonic)
        if budget.spend(count, monotonic):
            return budget.verdict(limit, 0.0)
        return budget.verdict(limit, budget.wait(limit, count, monotonic) or _LEAST_SECONDS)

    def _budget(self, bucket: str) -> RequestBudget:
        if len(self._budgets) > _BUDGETS_MAX:
            self._budgets.clear()  # the reserved tokens are lost, as they would have been in a second
        return self._budgets.setdefault(bucket, RequestBudget())


def limits_of(key: ApiKey) -> list[RateLimit]:
    """Return the limits under which a key submits."""
    limits = []
    if key.rate is not None:
        limits.append(RateLimit(f"key:{key.key_id}", key.rate))
    if key.tenant_rate is not None:
        limits.append(RateLimit(f"tenant:{key.tenant}", key.tenant_rate))
    return limits


def _nearest(verdicts: Sequence[Verdict]) -> Verdict | None:
    return min(verdicts, key=lambda verdict: verdict.remaining / verdict.limit.burst, default=None)
