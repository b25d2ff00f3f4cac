"""Recovery after downtime, for the operator: missed fires, the decision, and its progress."""

from __future__ import annotations

from typing import Any

from duly.api.operations import Call, Routes
from duly.api.response import Response
from duly.domain.jobs.recovery import Rule
from duly.domain.tenancy.audit import Action
from duly.log import Log
from duly.moves.schedules import recover
from duly.store.reads import recovery_plan
from duly.store.reads.recovery_plan import Plan
from duly.store.tables.recovery import Recovery, Totals
from duly.wire.recovery import (
    ApprovedRule,
    RecoveryApproval,
    RecoveryItem,
    RecoveryPlan,
    RecoveryState,
    RecoveryTenant,
    RunInFlight,
)
from duly.wire.schema.shapes import Nothing

routes = Routes("recovery", scope="admin", in_session=False, takes_key=False, is_operators=True)
_LOG = Log("recovery")


@routes.add("GET /v1/recovery", responses={200: RecoveryPlan})
async def read_recovery(call: Call[Nothing, None]) -> Response:
    """Read the fires missed while no scheduler was alive, what each schedule's policy would make of them, a rate and a
    finish time.

    Where `recovery_after` is not set, or no occurrence waits for a decision: the catch-ups by policy.
    """
    return Response(200, await _shown(call))


@routes.add(
    "POST /v1/recovery/approve",
    responses={200: RecoveryPlan},
    refuses=("conflict",),
    audits=(Action.RECOVERY_APPROVED,),
)
async def approve_recovery(call: Call[Nothing, RecoveryApproval]) -> Response:
    """Approve the recovery of missed fires, by each schedule's policy or by the given rules, at a rate.

    The rate of a recovery under way, and of catch-ups by policy, may be changed. With `dry_run` the plan is returned as
    it would be, and nothing is changed.
    """
    rules, rate = [Rule(rule.choice, rule.tenant, rule.job_id) for rule in call.body.rules], call.body.rate
    if call.body.dry_run:
        await recover.check_approval(call.database, rules, rate)
        return Response(
            200, _shown_plan(await recovery_plan.read(call.database, call.services.gauge, rules=rules, rate=rate))
        )
    await recover.approve(call.database, call.services.rng, _LOG, rules=rules, rate=rate, by=call.identity.shown_name)
    return Response(200, await _shown(call))


@routes.add(
    "DELETE /v1/recovery", responses={200: RecoveryPlan}, refuses=("conflict",), audits=(Action.RECOVERY_DISMISSED,)
)
async def dismiss_recovery(call: Call[Nothing, None]) -> Response:
    """Dismiss missed fires that are not created yet; each schedule's history records them."""
    await recover.dismiss(call.database, call.services.rng, _LOG, by=call.identity.shown_name)
    return Response(200, await _shown(call))


async def _shown(call: Call[Any, Any]) -> RecoveryPlan:
    return _shown_plan(await recovery_plan.read(call.database, call.services.gauge))


def _shown_plan(plan: Plan) -> RecoveryPlan:
    return RecoveryPlan.of(
        plan,
        recovery=None if plan.recovery is None else _state(plan.recovery, plan.totals),
        left=plan.runs,
        tenants=[RecoveryTenant.of(one) for one in plan.tenants],
        items=[RecoveryItem.of(one) for one in plan.items],
        in_flight=[RunInFlight.of(one) for one in plan.in_flight],
    )


def _state(found: Recovery, totals: Totals) -> RecoveryState:
    rules = [ApprovedRule.of(rule) for rule in found.rules]
    return RecoveryState.of(
        found, rules=rules, schedules_waiting=totals.held, schedules_decided=totals.decided, created=totals.created
    )
