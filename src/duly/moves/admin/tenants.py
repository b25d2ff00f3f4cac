"""Tenants: create one, set its limits, and suspend it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from duly.domain.duration import to_iso
from duly.domain.errors import InvalidOption, NotFound
from duly.domain.jobs.job import check_name
from duly.domain.limits.limit import check_slots
from duly.domain.limits.rate_limit import check_rate
from duly.domain.redaction import check_rules
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.tenancy.audit import Action, Subject
from duly.moves.admin.audit import audited, record
from duly.store.connection.database import Database
from duly.store.tenancy import tenants
from duly.store.tenancy.tenants import Limits, Tenant

_COUNT_MAX = 2_000_000_000
_WEIGHT_MAX = 1_000
_LEAST_PERIOD, _LEAST_PERIOD_MAX = timedelta(seconds=1), timedelta(days=366)


@audited
async def create_tenant(database: Database, name: str, limits: Limits, redact: Sequence[str] = ()) -> Tenant:
    """Create a tenant with its limits and rules of redaction. Raises NameTaken, InvalidOption."""
    check_name(name, "tenant")
    if name != name.strip():
        raise InvalidOption(f"tenant {name!r} begins or ends with a space; remove it", "tenant")
    if name.isdecimal():
        raise InvalidOption(f"tenant {name!r} is a number, which names tenants too; add a letter", "tenant")
    check_limits(limits)
    rules = check_rules(redact)
    created = await tenants.create(database, name, limits)
    if rules:
        await tenants.set_rules(database, created.tenant, rules)
    reported = _reported(limits) or None
    await _record(database, Action.TENANT_CREATED, created, limits=reported, redact=list(rules) or None)
    return msgspec.structs.replace(created, redact=rules)


@audited
async def change_tenant(
    database: Database,
    tenant: int,
    *,
    limits: Limits | None = None,
    is_suspended: bool | None = None,
    redact: Sequence[str] | None = None,
) -> None:
    """Change a tenant's limits, its rules of redaction, and whether it is suspended; None leaves a value.

    What it has beyond its limits stays. A suspended tenant's keys grant nothing, and its schedules go on. Raises
    NotFound, InvalidOption.
    """
    if limits is not None:
        check_limits(limits)
    rules = None if redact is None else check_rules(redact)
    if is_suspended and tenant == TENANT_DEFAULT:  # no one would be left to end the suspension
        raise InvalidOption(f"tenant {tenant} is the operator's own and cannot be suspended; revoke its keys instead")
    before = await tenants.find(database, tenant)
    if limits is not None:
        await tenants.set_limits(database, tenant, limits)
    if is_suspended is not None:
        await (tenants.suspend if is_suspended else tenants.resume)(database, tenant)
    if rules is not None and before is not None:
        await tenants.set_rules(database, tenant, rules)
    after = await tenants.find(database, tenant)
    if before is None or after is None:
        raise NotFound(f"no tenant {tenant}; `duly tenants` lists them")
    reported = _reported(after.limits) if after.limits != before.limits else None
    state = after.state if after.state != before.state else None
    rules_now = list(after.redact) if after.redact != before.redact else None
    changes = {"limits": reported, "state": state, "redact": rules_now}
    await _record(database, Action.TENANT_CHANGED, after, int(after != before), **changes)


async def _record(database: Database, action: Action, tenant: Tenant, count: int = 1, **detail: Any) -> None:
    """Record it as the operator's action."""
    await record(database, TENANT_DEFAULT, action, Subject("tenant", str(tenant.tenant), tenant.name), count, **detail)


def _reported(limits: Limits) -> dict[str, Any]:
    reported: dict[str, Any] = msgspec.to_builtins(limits)
    return {name: value for name, value in reported.items() if value is not None}


def check_limits(limits: Limits) -> None:
    """Check limits. Raises InvalidOption."""
    for name in ("schedules_max", "ready_max"):
        value = getattr(limits, name)
        if value is not None and not 0 <= value <= _COUNT_MAX:
            raise InvalidOption(f"{name} {value} is outside 0 to {_COUNT_MAX:,}; leave it out for no limit")
    if limits.running_max is not None:
        check_slots(limits.running_max)
    if not 1 <= limits.weight <= _WEIGHT_MAX:
        raise InvalidOption(
            f"weight {limits.weight} is outside 1 to {_WEIGHT_MAX:,}; to start nothing of a tenant, pause it:"
            " duly pause --tenant NUMBER"
        )
    check_rate(limits.submit_rate)
    least = limits.least_period
    if least is not None and (not _LEAST_PERIOD <= least <= _LEAST_PERIOD_MAX or least.microseconds):
        raise InvalidOption(
            f"least_period {to_iso(least)} is not a number of whole seconds from PT1S to P366D; leave it out for no limit"
        )
