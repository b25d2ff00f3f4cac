"""The desk for recoveries: of a database, or of a Duly over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol
from uuid import UUID

from duly.api.views.recovery import told
from duly.cli import tenants_over_http
from duly.cli.connect import is_remote, opened_by_hand
from duly.cli.options import span
from duly.client.asynchronous.client import AsyncClient
from duly.clock import Rng
from duly.domain.jobs.recovery import Rule
from duly.log import Log
from duly.moves.admin.tenants import tenant_named
from duly.moves.schedules import recover
from duly.moves.schedules.schedule import find_job_id
from duly.settings import Settings
from duly.store.connection.database import Database
from duly.store.reads import recovery_plan
from duly.store.reads.pressure import Gauge
from duly.wire.recovery import RecoveryPlan, RecoveryRule

_BY = "the command line"
_DEADLINE_SECONDS = 20.0


class RecoveryDesk(Protocol):
    """What commands ask for. What is refused raises Refused."""

    async def read(self) -> RecoveryPlan:
        """Show what was missed, and what becomes of it."""
        ...

    async def job_id(self, job: str) -> UUID:
        """Find a schedule by its id or its name."""
        ...

    async def tenant(self, name: str) -> int:
        """Find a tenant's number by its name or number."""
        ...

    async def preview(self, rules: Sequence[Rule], rate: float | None) -> RecoveryPlan:
        """Show what would become of it with these rules and this rate."""
        ...

    async def approve(self, rules: Sequence[Rule], rate: float | None) -> RecoveryPlan:
        """Let it be carried out."""
        ...

    async def dismiss(self) -> RecoveryPlan:
        """Leave out what is not made yet."""
        ...


@asynccontextmanager
async def at_recovery(settings: Settings) -> AsyncIterator[RecoveryDesk]:
    """Go to the desk that the settings name."""
    if is_remote(settings):
        async with AsyncClient(settings.url, settings.api_key, deadline=_DEADLINE_SECONDS) as client:
            yield HttpRecovery(client)
    else:
        async with opened_by_hand(settings) as database:
            yield DatabaseRecovery(database, Gauge(database, span(settings, "queue_age_limit")))


class DatabaseRecovery:
    """Asks the database."""

    def __init__(self, database: Database, gauge: Gauge) -> None:
        self._database = database
        self._gauge = gauge
        self._log = Log("recovery")

    async def read(self) -> RecoveryPlan:
        """Show what was missed, and what becomes of it."""
        return told(await recovery_plan.read(self._database, self._gauge))

    async def job_id(self, job: str) -> UUID:
        """Find a schedule by its id or its name."""
        return await find_job_id(self._database, job)

    async def tenant(self, name: str) -> int:
        """Find a tenant's number by its name or number."""
        return (await tenant_named(self._database, name)).tenant

    async def preview(self, rules: Sequence[Rule], rate: float | None) -> RecoveryPlan:
        """Show what would become of it with these rules and this rate."""
        await recover.check_approval(self._database, rules, rate)
        return told(await recovery_plan.read(self._database, self._gauge, rules=rules, rate=rate))

    async def approve(self, rules: Sequence[Rule], rate: float | None) -> RecoveryPlan:
        """Let it be carried out."""
        await recover.approve(self._database, Rng(), self._log, rules=rules, rate=rate, by=_BY)
        return await self.read()

    async def dismiss(self) -> RecoveryPlan:
        """Leave out what is not made yet."""
        await recover.dismiss(self._database, Rng(), self._log, by=_BY)
        return await self.read()


class HttpRecovery:
    """Asks a Duly over HTTP."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def read(self) -> RecoveryPlan:
        """Show what was missed, and what becomes of it."""
        return await self._client.recovery.get()

    async def job_id(self, job: str) -> UUID:
        """Find a schedule by its id or its name."""
        try:
            return UUID(job)
        except ValueError:
            return (await self._client.jobs.get_by_name(job)).job_id

    async def tenant(self, name: str) -> int:
        """Find a tenant's number by its name or number."""
        return (await tenants_over_http.tenant_named(self._client, name)).tenant

    async def preview(self, rules: Sequence[Rule], rate: float | None) -> RecoveryPlan:
        """Show what would become of it with these rules and this rate."""
        return await self._client.recovery.approve(rules=_asked(rules), rate=rate, dry_run=True)

    async def approve(self, rules: Sequence[Rule], rate: float | None) -> RecoveryPlan:
        """Let it be carried out."""
        return await self._client.recovery.approve(rules=_asked(rules), rate=rate)

    async def dismiss(self) -> RecoveryPlan:
        """Leave out what is not made yet."""
        return await self._client.recovery.dismiss()


def _asked(rules: Sequence[Rule]) -> list[RecoveryRule]:
    return [RecoveryRule(choice=rule.choice, tenant=rule.tenant, job_id=rule.job_id) for rule in rules]
