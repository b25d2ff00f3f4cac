"""The installation as a whole, for the operator: schedulers, the database, settings, and findings."""

from __future__ import annotations

from duly.api.operations import Call, Routes
from duly.api.response import Response
from duly.clock import host_now
from duly.domain.diagnosis.doctor import SHARDS, Facts, findings, is_well
from duly.store.reads import system
from duly.wire.schema.shapes import Nothing
from duly.wire.system import (
    System,
    SystemClock,
    SystemClockSetBack,
    SystemDatabase,
    SystemFinding,
    SystemReplica,
    SystemScheduler,
    SystemSetting,
    SystemTable,
    SystemVersions,
)

routes = Routes("system", reads="admin")


@routes.add("GET /v1/system", responses={200: System}, is_operators=True, is_figure=True)
async def read_system(call: Call[Nothing, None]) -> Response:
    """Read the installation: versions, schedulers and their shards, the database, settings, and the doctor's findings.

    It is read over a small pool of its own, without writing, and no statement takes longer than two seconds.
    """
    facts = await system.read(call.database, host_now)
    found = findings(facts)
    shown = System.of(
        facts,
        is_well=is_well(found),
        findings=[SystemFinding.of(one) for one in found],
        versions=SystemVersions.of(facts, duly=facts.version, postgresql=facts.server.version),
        schedulers=_schedulers(facts),
        shards=SHARDS,
        workers=sum(facts.worker_versions.values()),
        staging_lag_seconds=facts.lag_seconds,
        clocks=[SystemClock.of(one) for one in facts.clocks],
        clock_set_back=None if facts.clock_set_back is None else SystemClockSetBack.of(facts.clock_set_back),
        database=_database(facts),
        settings=[SystemSetting.of(one) for one in call.services.settings],
    )
    return Response(200, shown)


def _schedulers(facts: Facts) -> list[SystemScheduler]:
    return [
        SystemScheduler.of(one, lease_seconds_left=max(0.0, (one.until - facts.read_at).total_seconds()))
        for one in facts.schedulers
    ]


def _database(facts: Facts) -> SystemDatabase:
    return SystemDatabase.of(
        facts.server,
        name=facts.server.database,
        replicas=[SystemReplica.of(one) for one in facts.replicas],
        tables=[SystemTable.of(one) for one in facts.tables],
    )
