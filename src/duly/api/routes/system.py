"""The installation as a whole, for the operator: schedulers, the database, settings, and findings."""

from __future__ import annotations

from duly.api import paging
from duly.api.admission import ARCHIVES
from duly.api.operations import Call, Routes
from duly.api.response import Response
from duly.clock import host_now
from duly.domain.archive import Archived
from duly.domain.diagnosis.doctor import SHARDS, Facts, findings, is_well
from duly.domain.errors import NotFound, Refused
from duly.domain.tenancy.audit import Action
from duly.moves.admin import archive as moves
from duly.store.reads import system
from duly.store.tables import archive
from duly.wire.pages import PageQuery
from duly.wire.schema.shapes import Nothing
from duly.wire.system import (
    ArchiveList,
    ArchiveRecord,
    LegalHold,
    LegalHoldList,
    LegalHoldQuery,
    LegalHoldRequest,
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
archive_routes = Routes("archive", scope="admin", in_session=False, takes_key=False, is_operators=True)


@routes.add("GET /v1/system", responses={200: System}, is_operators=True, is_figure=True)
async def read_system(call: Call[Nothing, None]) -> Response:
    """Read the installation: versions, schedulers and their shards, the database, settings, and the doctor's findings.

    It is read over a small pool of its own, without writing, and no statement takes longer than two seconds.
    """
    facts = await system.read(call.database, host_now, call.services.replica)
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


@archive_routes.add("GET /v1/archive", responses={200: ArchiveList})
async def list_archives(call: Call[PageQuery, None]) -> Response:
    """List the archives of history, by name: what each has, where it is, and why the last try failed."""
    after = paging.position(call.query.page_token, "archive", str)
    found = await archive.page(call.database, after or "", call.query.page_size)
    last = found[-1].name if len(found) == call.query.page_size else None
    return paging.page(ArchiveList, [_record(one) for one in found], last, "archive")


@archive_routes.add(
    "POST /v1/archive/{name}/verify",
    responses={200: ArchiveRecord},
    refuses=("not_found", "conflict", "archive_unavailable"),
    unaudited="It reads.",
    seconds_max=600.0,
)
async def verify_archive(call: Call[Nothing, None]) -> Response:
    """Read an archive back, and compare it with its record: the number of its rows, and the checksum over all of them."""
    found = await archive.find(call.database, call.path["name"])
    if found is None:
        raise NotFound(f"no archive {call.path['name']!r}; GET /v1/archive lists them")
    if found.state not in ("verified", "dropped"):
        raise Refused(f"archive {found.name} has no file: its state is {found.state}")
    if call.services.cold is None:
        raise Refused("this server has no archive: set archive_url, as for the scheduler")
    with call.services.open_requests.take(ARCHIVES, call.identity.key):
        await call.services.cold.verify(found)
    return Response(200, _record(found))


@archive_routes.add("POST /v1/archive:stop", responses={204: None}, audits=(Action.ARCHIVE_STOPPED,))
async def stop_archive(call: Call[Nothing, None]) -> Response:
    """Drop history without an archive from now on, unless a scheduler with archive_url runs. Archives stay."""
    await moves.stop(call.database)
    return Response(204)


@archive_routes.add("GET /v1/legal-holds", responses={200: LegalHoldList})
async def list_legal_holds(call: Call[Nothing, None]) -> Response:
    """List the legal holds."""
    return Response(200, LegalHoldList(items=[LegalHold.of(one) for one in await archive.holds(call.database)]))


@archive_routes.add(
    "PUT /v1/legal-holds",
    responses={200: LegalHold},
    refuses=("invalid_option", "not_found"),
    audits=(Action.HOLD_CREATED,),
)
async def hold_history(call: Call[Nothing, LegalHoldRequest]) -> Response:
    """Hold the history of a tenant, or of one of its jobs: it is neither dropped, nor sampled, nor purged."""
    body = call.body
    return Response(200, LegalHold.of(await moves.hold(call.database, body.tenant, body.job_id, body.reason)))


@archive_routes.add(
    "DELETE /v1/legal-holds", responses={204: None}, refuses=("not_found",), audits=(Action.HOLD_REMOVED,)
)
async def release_history(call: Call[LegalHoldQuery, None]) -> Response:
    """End a legal hold; others stay."""
    await moves.release(call.database, call.query.tenant, call.query.job_id)
    return Response(204)


def _record(one: Archived) -> ArchiveRecord:
    return ArchiveRecord.of(one, day=one.day.isoformat())


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
