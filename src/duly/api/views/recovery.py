"""A recovery as it crosses HTTP."""

from __future__ import annotations

from typing import Any

import msgspec

from duly.store.reads.recovery_plan import Plan
from duly.wire.recovery import RecoveryItem, RecoveryPlan, RecoveryState, RecoveryTenant, ToldRule


def told(plan: Plan) -> RecoveryPlan:
    """Return a plan in the shape that crosses HTTP."""
    return RecoveryPlan(
        recovery=_state(plan),
        left=plan.runs,
        proposed_rate=plan.proposed_rate,
        finish_at=plan.finish_at,
        tenants=[RecoveryTenant(**msgspec.structs.asdict(one)) for one in plan.tenants],
        items=[RecoveryItem(**msgspec.structs.asdict(one)) for one in plan.items],
        is_partial=plan.is_partial,
    )


def _state(plan: Plan) -> RecoveryState | None:
    found = plan.recovery
    if found is None:
        return None
    copied = ("recovery_id", "down_since", "opened_at", "decided_at", "decided_by", "ended_at", "rate")
    fields: dict[str, Any] = {name: getattr(found, name) for name in copied}
    return RecoveryState(
        **fields,
        state=found.state,  # type: ignore[arg-type]
        rules=[ToldRule(choice=rule.choice, tenant=rule.tenant, job_id=rule.job_id) for rule in found.rules],
        schedules_held=plan.totals.held,
        schedules_decided=plan.totals.decided,
        made=plan.totals.made,
    )
