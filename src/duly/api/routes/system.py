"""The installation as a whole, for the operator: what runs, who holds what, how the database is, and what is wrong."""

from __future__ import annotations

from typing import Any

import msgspec

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
    """Show the installation: versions, schedulers and their shards, the database, settings, and what the doctor finds.

    It is read over a small pool of its own, without writing, and no statement takes longer than two seconds.
    """
    facts = await system.read(call.database, host_now)
    found = findings(facts)
    shown = System(
        read_at=facts.read_at,
        is_well=is_well(found),
        findings=[_as(SystemFinding, one) for one in found],
        versions=SystemVersions(
            duly=facts.version,
            schema=facts.schema,
            postgresql=facts.server.version,
            tzdb=facts.tzdb,
            tzdb_in_force=facts.tzdb_in_force,
        ),
        schedulers=_schedulers(facts),
        shards_held=facts.shards_held,
        shards=SHARDS,
        workers=sum(facts.worker_versions.values()),
        staging_lag_seconds=facts.lag_seconds,
        reaper_age_seconds=facts.reaper_age_seconds,
        clock_difference_seconds=facts.clock_difference_seconds,
        clocks=[_as(SystemClock, one) for one in facts.clocks],
        clock_set_back=None if facts.clock_set_back is None else _as(SystemClockSetBack, facts.clock_set_back),
        database=_database(facts),
        settings=[_as(SystemSetting, one) for one in call.services.settings],
    )
    return Response(200, shown)


def _schedulers(facts: Facts) -> list[SystemScheduler]:
    return [
        SystemScheduler(
            **{
                name: getattr(one, name) for name in ("scheduler_id", "name", "version", "tzdb", "shards", "started_at")
            },
            lease_seconds_left=max(0.0, (one.until - facts.read_at).total_seconds()),
        )
        for one in facts.schedulers
    ]


def _database(facts: Facts) -> SystemDatabase:
    server = facts.server
    copied = (
        *("bytes", "connections", "connections_max", "oldest_transaction_seconds", "prepared_transactions"),
        *("wal_level", "wal_position"),
    )
    return SystemDatabase(
        **{name: getattr(server, name) for name in copied},
        name=server.database,
        replicas=[_as(SystemReplica, one) for one in facts.replicas],
        tables=[_as(SystemTable, one) for one in facts.tables],
    )


def _as(shape: Any, one: msgspec.Struct) -> Any:
    return shape(**{name: getattr(one, name) for name in shape.__struct_fields__})
