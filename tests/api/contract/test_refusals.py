"""Every operation is done once, and refuses in every way it is described with; each answer is as its description says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from uuid import UUID

import httpx
import msgspec
import pytest

from duly.api.admission import ARCHIVES, CLAIMS, EVENTS, LOGS
from duly.api.operations import Operation
from duly.api.request import HEADER_BYTES_MAX
from duly.api.response import EVENT_STREAM, NDJSON
from duly.api.routes.jobs import _SORTED
from duly.domain.jobs.declaration import OWNER
from duly.domain.limits.pause import SCOPES_MAX
from duly.domain.tenancy.api_key import ANYBODY, Scope, implied_by
from duly.moves.submit import submit_recurring
from duly.outbound.archive_files import ArchiveFiles
from duly.store.connection.database import Database
from duly.store.tables.remote_workers import WORKERS_MAX
from duly.store.tenancy import tenants
from duly.store.tenancy.tenants import Limits
from duly.wire.jobs.batches import LINES_MAX
from tests.api.contract.described import BY_NAME, NAMES, codes, faults
from tests.api.contract.yard import A_WORKER, HOURLY_SINCE_LONG_AGO, UNKNOWN_ID, Asked, Yard, request_for, unknown
from tests.api.front import A_TARGET, CALLBACKS, Caller, Front
from tests.builders import a_key, a_leased_run, a_ready_run, a_schedule, a_worker
from tests.clock import ManualClock

A_LONG_WORD = "x" * 300_000
CONTROL = "two\nlines"
AN_OVERLOAD = """
insert into duly.overloads (tenant, queue, oldest_due_at, recorded_at)
select 1, $1, duly.clock_now() - interval '90 seconds', duly.clock_now()
"""


LEFT = """
insert into duly.absent_tenants (tenant, state, epoch, cell, since) values ({tenant}, '{state}', 2, 'two', duly.clock_now());
insert into duly.moved_keys (key_id, tenant, secret_hash)
select key_id, tenant, secret_hash from duly.api_keys where key_id = '{key_id}';
delete from duly.api_keys where key_id = '{key_id}';
"""


class Scene:
    """What a refusal needs: the application, someone who may do all, and what requests are about."""

    def __init__(
        self, front: Front, api: Caller, patience: pytest.MonkeyPatch, clock: ManualClock, files: ArchiveFiles
    ) -> None:
        self.front = front
        self.clock = clock
        self.patience = patience
        self.api = api
        self.files = files
        self.yard = Yard(front.database, api, files)


@pytest.fixture
async def scene(front, api, monkeypatch, clock, archive_files):
    return Scene(front, api, monkeypatch, clock, archive_files)


Provoke = Callable[[Scene, Operation, Asked], Awaitable[httpx.Response]]
PROVOKE: dict[str, Provoke] = {}


def provokes(code: str) -> Callable[[Provoke], Provoke]:
    """Name what a story provokes."""

    def keep(story: Provoke) -> Provoke:
        PROVOKE[code] = story
        return story

    return keep


@provokes("invalid_query")
async def _(scene, operation, asked):
    return await asked.with_query("nonsense=1").by(scene.api)


@provokes("unauthorized")
async def _(scene, operation, asked):
    return await asked.by(scene.front.nobody())


@provokes("forbidden")
async def _(scene, operation, asked):
    [scope, *_] = [scope for scope in Scope if operation.scope not in implied_by([scope])]
    return await asked.by(await scene.front.caller(scope))


@provokes("tenant_moved")
async def _(scene, operation, asked):
    return await asked.by(await gone(scene, "gone"))


@provokes("tenant_moving")
async def _(scene, operation, asked):
    return await asked.by(await gone(scene, "departed"))


async def gone(scene: Scene, state: str) -> Caller:
    """Give a caller whose tenant has left for another cell, with its keys."""
    caller = await scene.front.stranger()
    await scene.front.database.execute(LEFT.format(key_id=caller.key_id, tenant=caller.tenant, state=state))
    return caller


@provokes("headers_too_large")
async def _(scene, operation, asked):
    return await asked.with_headers(X_Padding="x" * HEADER_BYTES_MAX).by(scene.api)


@provokes("invalid_header")
async def _(scene, operation, asked):
    if operation.may_stream:
        return await asked.with_headers(Accept=EVENT_STREAM, Last_Event_ID="one").by(scene.api)
    return await asked.with_headers(Idempotency_Key="x" * 201).by(scene.api)


@provokes("malformed_json")
async def _(scene, operation, asked):
    return await asked.with_body(b"{").by(scene.api)


@provokes("invalid_body")
async def _(scene, operation, asked):
    return await asked.with_body(b"[1]").by(scene.api)


@provokes("body_too_large")
async def _(scene, operation, asked):
    if operation.media_type == NDJSON:  # Sooner reached than its bytes.
        return await asked.with_body(b"{}\n" * (LINES_MAX + 1)).by(scene.api)
    return await asked.with_body(b" " * (operation.body_bytes_max + 1)).by(scene.api)


@provokes("unsupported_media_type")
async def _(scene, operation, asked):
    return await asked.with_headers(Content_Type="text/plain").by(scene.api)


@provokes("not_found")
async def _(scene, operation, asked):
    if operation.name in OF_A_TENANT:
        return await asked.with_fields(tenant=999_999).by(scene.api)
    if operation.name == "remove_limit":
        return await asked.with_query("queue=never-was").by(scene.api)
    if operation.name == "release_history":
        return await asked.with_query("tenant=999999").by(scene.api)
    if operation.name == "export_file":
        return await asked.with_query("source=never-was").by(scene.api)
    if operation.name in OF_A_LEASE:
        return await request_for(operation, worker_id="no-id").by(scene.api)
    return await request_for(operation, **unknown(operation)).by(scene.api)


@provokes("key_in_progress")
async def _(scene, operation, asked):
    async with scene.front.database.transaction() as transaction:
        lock = f"{scene.api.tenant} {operation.name} busy"
        await transaction.fetch("select pg_advisory_xact_lock(hashtextextended($1, 0))", lock)
        return await asked.with_headers(Idempotency_Key="busy").by(scene.api)


@provokes("key_reused")
async def _(scene, operation, asked):
    keyed = asked.with_headers(Idempotency_Key="used")
    first = await keyed.by(scene.api)
    assert first.is_success, first.text
    return await keyed.with_query("another=1").by(scene.api)


@provokes("key_mismatch")
async def _(scene, operation, asked):
    return await asked.with_fields(idempotency_key="one").with_headers(Idempotency_Key="another").by(scene.api)


@provokes("precondition_required")
async def _(scene, operation, asked):
    del asked.headers["If-Match"]
    return await asked.by(scene.api)


@provokes("version_changed")
async def _(scene, operation, asked):
    return await asked.with_headers(If_Match='"999"').by(scene.api)


@provokes("invalid_schedule")
async def _(scene, operation, asked):
    if operation.name == "put_calendar":
        return await asked.with_fields(dates=["2026-02-30"]).by(scene.api)
    if operation.name == "rerun":
        return await asked.with_fields(at="2020-01-01T00:00:00Z").by(scene.api)
    wrong = {"trigger": {"type": "cron", "expr": "61 * * * *"}}
    return await asked.with_fields(schedule=wrong).by(scene.api)


@provokes("invalid_payload")
async def _(scene, operation, asked):
    if (field := PAYLOADS.get(operation.name)) is not None:
        return await asked.with_fields(**field).by(scene.api)
    return await asked.with_fields(payload={"word": A_LONG_WORD}).by(scene.api)


@provokes("archive_unavailable")
async def _(scene, operation, asked):
    name = await scene.yard.an_archive(scene.files)
    scene.files.delete(name)
    return await from_the_archive(scene, operation, name)


async def from_the_archive(scene: Scene, operation: Operation, name: str = "") -> httpx.Response:
    if operation.name == "list_runs":
        return await scene.api.get("/v1/runs", params={"filter": 'finished_at<"2026-11-02"'})
    name = name or await scene.yard.an_archive(scene.files)
    return await request_for(operation, name=name, run_id=UNKNOWN_ID).by(scene.api)


@provokes("invalid_option")
async def _(scene, operation, asked):
    if (story := OPTIONS.get(operation.name)) is not None:
        return await story(scene, asked)
    return await asked.with_fields(queue=CONTROL).by(scene.api)


@provokes("invalid_filter")
async def _(scene, operation, asked):
    if operation.body is not None:
        return await asked.with_fields(filter="nonsense:1").by(scene.api)
    return await asked.with_query("filter=nonsense:1").by(scene.api)


@provokes("name_taken")
async def _(scene, operation, asked):
    if "tenants" in operation.path:
        await asked.with_fields(name="taken").by(scene.api)
        return await asked.with_fields(name="taken").by(scene.api)
    await scene.api.a_job(name="taken")
    return await asked.with_fields(name="taken").by(scene.api)


@provokes("declared_in_code")
async def _(scene, operation, asked):
    job_id = await a_declared_job(scene.front.database)
    named = {"job_id": str(job_id), "name": "declared"}
    return await request_for(operation, **named).by(scene.api)


@provokes("rate_limited")
async def _(scene, operation, asked):
    if operation.is_open:  # All share one limit.
        limited = msgspec.structs.replace(ANYBODY.key, key_id="limited", rate=0.001)
        scene.patience.setattr("duly.api.auth.authenticate.ANYBODY", msgspec.structs.replace(ANYBODY, key=limited))
    slow = await scene.front.caller(rate=0.001)
    answers = [await asked.by(slow) for _ in range(3)]
    return answers[-1]


PLACES = {
    "stream_events": ("duly.api.routes.events.EVENTS", EVENTS),
    "read_logs": ("duly.api.routes.runs.LOGS", LOGS),
    "claim_runs": ("duly.api.routes.worker.CLAIMS", CLAIMS),
    "list_runs": ("duly.api.routes.runs.ARCHIVES", ARCHIVES),
    "read_run": ("duly.api.routes.runs.ARCHIVES", ARCHIVES),
    "verify_archive": ("duly.api.routes.system.ARCHIVES", ARCHIVES),
}


@provokes("quota_reached")
async def _(scene, operation, asked):
    if operation.name == "register_worker":
        await asked.by(scene.api)
        await fill_with_workers(scene.front.database)
        return await asked.by(scene.api)
    if operation.name in PLACES:
        module, kind = PLACES[operation.name]
        with scene.patience.context() as patience:
            patience.setattr(module, msgspec.structs.replace(kind, of_key_max=0))
            if kind is ARCHIVES:
                return await from_the_archive(scene, operation)
            asked = asked.with_fields(wait=1) if kind is CLAIMS else asked
            return await asked.with_headers(Accept=EVENT_STREAM).by(scene.api)
    made = await tenants.create(scene.front.database, "small", Limits(schedules_max=0, ready_max=0))
    caller = await scene.front.caller(tenant=made.tenant)
    if operation.name in ("accept_event", "trigger_job"):  # The job is there; for its runs there is no room.
        await tenants.set_limits(scene.front.database, made.tenant, Limits(ready_max=0))
        on_event = {"schedule": None, "on_event": {"type": "shop.order.placed"}}
        job = await caller.a_job(**(on_event if operation.name == "accept_event" else {}))
        asked = request_for(operation, job_id=job["job_id"])
    if operation.name == "rerun":  # The run has ended; for another there is no room.
        await tenants.set_limits(scene.front.database, made.tenant, Limits())
        ended = (await caller.post("/v1/jobs", json={"target": A_TARGET})).json()["run_id"]
        assert (await caller.post(f"/v1/runs/{ended}/cancel")).is_success
        await tenants.set_limits(scene.front.database, made.tenant, Limits(ready_max=0))
        asked = request_for(operation, run_id=ended)
    return await asked.by(caller)


@provokes("shed")
async def _(scene, operation, asked):
    await scene.front.database.fetch(AN_OVERLOAD, "default")
    await scene.clock.advance(1)  # What the API knows of it may be half a second old.
    low = {"priority": 9, "queue": "default"}
    if operation.name == "create_workflow":
        return await asked.with_fields(nodes={"a": {"target": A_TARGET, **low}}).by(scene.api)
    return await asked.with_fields(**low).by(scene.api)


async def fill_with_workers(database: Database) -> None:
    """Let so many workers live as the one that has registered that there is no room for one more."""
    columns = [row[0] for row in await database.fetch(COLUMNS)]
    others = ", ".join(column for column in columns if column != "worker_id")
    await database.execute(
        f"insert into duly.workers (worker_id, {others}) select gen_random_uuid(), {others}"
        f" from (select * from duly.workers where tenant = 1 limit 1) as one, generate_series(1, {WORKERS_MAX})"
    )


COLUMNS = (
    "select attname from pg_attribute where attrelid = 'duly.workers'::regclass and attnum > 0 and not attisdropped"
)
# These name a tenant in what they are sent.
OF_A_TENANT = ("hold_history", "create_key", "pause", "put_limit")
# These answer for the lease, whatever the worker's id; only what is no id at all is not found.
OF_A_LEASE = ("append_logs", "report_progress", "save_checkpoint", "settle_runs")


@provokes("conflict")
async def _(scene, operation, asked):
    return await CONFLICTS.get(operation.name, without_patience)(scene, operation)


@provokes("attempt_over")
async def _(scene, operation, asked):
    settle = request_for(BY_NAME["settle_callback"], token=asked.path.split("/")[3].partition("?")[0])
    assert (await settle.with_fields(outcome="succeeded").by(scene.api)).is_success
    return await asked.with_fields(**({"outcome": "failed"} if operation.name == "settle_callback" else {})).by(
        scene.api
    )


@provokes("lease_lost")
async def _(scene, operation, asked):
    return await asked.with_fields(fence=999_999).by(scene.api)


@provokes("worker_expired")
async def _(scene, operation, asked):
    await scene.front.database.execute("update duly.workers set until = duly.clock_now() - interval '1 minute'")
    return await asked.by(scene.api)


@provokes("invalid_workflow")
async def _(scene, operation, asked):
    nodes = {"one": {"target": A_TARGET, "depends_on": ["one"]}}
    if "/workflows" not in operation.path:
        instead = {"handler": None} if operation.method == "PATCH" else {}
        return await asked.with_fields(target={"type": "workflow", "nodes": nodes, **instead}).by(scene.api)
    return await asked.with_fields(nodes=nodes).by(scene.api)


@provokes("invalid_manifest")
async def _(scene, operation, asked):
    return await asked.with_fields(jobs={"one": {"nonsense": 1}}).by(scene.api)


@provokes("not_the_files")
async def _(scene, operation, asked):
    await scene.api.a_job(name="by-hand")
    return await asked.with_body(a_file("by-hand")).by(scene.api)


@provokes("plan_changed")
async def _(scene, operation, asked):
    return await asked.with_body(a_file("new")).with_query(f"digest={'0' * 64}").by(scene.api)


def a_file(name: str) -> dict[str, Any]:
    """Give a file of one job."""
    return {"source": "test", "jobs": {name: {"target": "app:mail", "schedule": "every day at 9am"}}}


async def without_patience(scene: Scene, operation: Operation) -> httpx.Response:
    """Look not once, as if all looks had been overtaken: a race that is lost a hundred times cannot be staged."""
    asked = await scene.yard.request(operation)
    if "{name}" in operation.path:
        await asked.by(scene.api)
    with scene.patience.context() as patience:
        moves = ("workers.receive", "cancel", "schedules.apply", "admin.destinations")
        for name in ("schedules.retry_on_conflict.ATTEMPTS_MAX", *(f"{move}._LOOKS_MAX" for move in moves)):
            patience.setattr(f"duly.moves.{name}", 0)
        return await asked.by(scene.api)


async def a_declared_job(database: Database) -> UUID:
    """Make a job as a program would that declares it, and lives."""
    job = msgspec.structs.replace(a_schedule(name="declared"), owner=OWNER, source="app")
    await a_worker(database, declares=[f"1/{job.digest().hex()}/declared"])
    return (await submit_recurring(database, job, key=a_key())).job_id


async def of_a_run_that_is_not_dead(scene: Scene, operation: Operation) -> httpx.Response:
    run_id = await scene.yard.ended_run()
    return await request_for(operation, run_id=str(run_id)).by(scene.api)


async def of_a_run_that_waits(scene: Scene, operation: Operation) -> httpx.Response:
    return await request_for(operation, run_id=str(await a_ready_run(scene.front.database))).by(scene.api)


async def numbered_as_one_before(scene: Scene, operation: Operation) -> httpx.Response:
    asked = (await scene.yard.request(operation)).with_fields(number=2)
    for _ in range(2):
        await a_ready_run(scene.front.database, queue=A_WORKER["queues"][0])
    first = await asked.by(scene.api)
    assert len(first.json()["runs"]) == 1, first.text
    return await asked.with_fields(number=1).by(scene.api)


async def of_a_job_that_is_over(scene: Scene, operation: Operation) -> httpx.Response:
    job = await scene.api.a_job()
    await scene.api.delete(f"/v1/jobs/{job['job_id']}")
    return await request_for(operation, job_id=job["job_id"]).by(scene.api)


async def before_the_webhook_is_answered(scene: Scene, operation: Operation) -> httpx.Response:
    _, run = await a_leased_run(scene.front.database)
    return await request_for(operation, token=CALLBACKS.make(run.run_id, run.fence)).by(scene.api)


async def beside_too_many_pauses(scene: Scene, operation: Operation) -> httpx.Response:
    await scene.front.database.execute(
        "insert into duly.pauses (tenant, queue, reason, paused_by, paused_at)"
        " select tenant, 'queue-' || number, 'full', 'test', duly.clock_now()"
        "   from generate_series(1, $1::int) as number, unnest(array[1, null]) as tenant",
        SCOPES_MAX,
    )
    return await (await scene.yard.request(operation)).by(scene.api)


async def beside_too_many_limits(scene: Scene, operation: Operation) -> httpx.Response:
    await scene.front.database.execute(
        "insert into duly.limits (queue, slots, set_by, set_at)"
        " select 'queue-' || number, 1, 'test', duly.clock_now() from generate_series(1, $1::int) as number",
        SCOPES_MAX,
    )
    return await (await scene.yard.request(operation)).by(scene.api)


async def of_a_parent_that_has_ended(scene: Scene, operation: Operation) -> httpx.Response:
    asked = await scene.yard.request(operation)
    return await asked.with_fields(parent=str(await scene.yard.ended_run())).by(scene.api)


async def without_a_keyring(scene: Scene, operation: Operation) -> httpx.Response:
    asked = await scene.yard.request(operation)
    with scene.patience.context() as patience:
        patience.setattr(scene.front.door, "services", msgspec.structs.replace(scene.front.door.services, keyring=None))
        return await asked.by(scene.api)


async def of_a_workflow_that_has_ended(scene: Scene, operation: Operation) -> httpx.Response:
    asked = await scene.yard.request(operation)
    await scene.api.post(f"{asked.path.rpartition('/')[0]}/cancel")
    return await asked.by(scene.api)


async def of_a_workflow_that_is_ending(scene: Scene, operation: Operation) -> httpx.Response:
    asked = await scene.yard.request(operation)
    if operation.name != "add_nodes":
        await scene.yard.running_node(asked.path.split("/")[3])
    await scene.api.post(f"{asked.path.rpartition('/')[0]}/cancel")
    return await asked.by(scene.api)


async def of_a_node_under_way(scene: Scene, operation: Operation) -> httpx.Response:
    started = await scene.yard.request(BY_NAME["add_nodes"])
    named = {"workflow_id": started.path.split("/")[3]}
    return await request_for(operation, **named).by(scene.api)


async def of_a_recovery_that_is_not_there(scene: Scene, operation: Operation) -> httpx.Response:
    await scene.front.database.execute("delete from duly.recoveries")
    return await request_for(operation).by(scene.api)


async def that_the_operator_has_set(scene: Scene, operation: Operation) -> httpx.Response:
    stranger = await scene.front.stranger()
    limit = {"tenant": stranger.tenant, "queue": "limited", "slots": 5}
    assert (await scene.api.put("/v1/limits", json=limit)).is_success
    return await request_for(operation).with_query("queue=limited").by(stranger)


async def of_an_archive_that_is_being_made(scene: Scene, _: Operation) -> httpx.Response:
    name = await scene.yard.an_archive(scene.files, "exporting")
    return await scene.api.post(f"/v1/archive/{name}/verify")


CONFLICTS: dict[str, Any] = {
    "verify_archive": of_an_archive_that_is_being_made,
    "remove_limit": that_the_operator_has_set,
    "approve_recovery": of_a_recovery_that_is_not_there,
    "dismiss_recovery": of_a_recovery_that_is_not_there,
    "pause_workflow": of_a_workflow_that_has_ended,
    "resume_workflow": of_a_workflow_that_is_ending,
    "replay_workflow": of_a_node_under_way,
    "add_nodes": of_a_workflow_that_is_ending,
    "create_job": of_a_parent_that_has_ended,
    "create_destination": without_a_keyring,
    "put_channel": without_a_keyring,
    "reveal_secrets": without_a_keyring,
    "replay_run": of_a_run_that_is_not_dead,
    "rerun": of_a_run_that_waits,
    "claim_runs": numbered_as_one_before,
    "trigger_job": of_a_job_that_is_over,
    "pause_job": of_a_job_that_is_over,
    "resume_job": of_a_job_that_is_over,
    "skip_next": of_a_job_that_is_over,
    "backfill_job": of_a_job_that_is_over,
    "pause_queue": beside_too_many_pauses,
    "pause": beside_too_many_pauses,
    "put_limit": beside_too_many_limits,
    "extend_callback": before_the_webhook_is_answered,
}


def with_two_lines_as(field: str) -> Any:
    async def ask(scene: Scene, asked: Asked) -> httpx.Response:
        return await asked.with_fields(**{field: CONTROL}).by(scene.api)

    return ask


async def after_the_end_of_time(scene: Scene, asked: Asked) -> httpx.Response:
    return await asked.with_fields(after="9999-12-30T00:00:00Z").by(scene.api)


async def of_a_name_that_is_none(scene: Scene, asked: Asked) -> httpx.Response:
    asked.path = asked.path.replace("named-", "two%0Alines-")
    return await asked.by(scene.api)


async def under_another_name_than_its_path(scene: Scene, asked: Asked) -> httpx.Response:
    return await asked.with_fields(name="another").by(scene.api)


async def with_its_end_before_its_start(scene: Scene, asked: Asked) -> httpx.Response:
    return await asked.with_fields(to="2026-10-01T00:00:00Z").by(scene.api)


async def of_a_calendar_in_use(scene: Scene, asked: Asked) -> httpx.Response:
    name = asked.path.rpartition("/")[2]
    await scene.api.a_job(schedule={**HOURLY_SINCE_LONG_AGO, "calendars": [{"name": name}]})
    return await asked.by(scene.api)


async def of_a_channel_in_use(scene: Scene, asked: Asked) -> httpx.Response:
    rule = {"events": ["dead"], "channels": [asked.path.rpartition("/")[2]]}
    await scene.api.put("/v1/notification-rules/uses-it", json=rule)
    return await asked.by(scene.api)


async def with_a_scheme_that_is_not_allowed(scene: Scene, asked: Asked) -> httpx.Response:
    return await asked.with_body({"kind": "apprise", "url": "slack://a/b/c"}).by(scene.api)


async def with_a_channel_that_is_not_there(scene: Scene, asked: Asked) -> httpx.Response:
    return await asked.with_body({"events": ["dead"], "channels": ["nobody"]}).by(scene.api)


async def of_a_job_that_counts_from_its_end(scene: Scene, asked: Asked) -> httpx.Response:
    job = await scene.api.a_job(schedule={"trigger": {"type": "interval", "every": "PT1H", "mode": "fixed_delay"}})
    return await scene.api.post(f"/v1/jobs/{job['job_id']}/skip-next")


async def with_a_lease_of_an_hour(scene: Scene, asked: Asked) -> httpx.Response:
    return await asked.with_fields(lease="PT1H").by(scene.api)


async def with_a_wait_of_an_hour(scene: Scene, asked: Asked) -> httpx.Response:
    return await asked.with_fields(wait="PT1H").by(scene.api)


async def of_a_failure_to_be_tried_again_before_now(scene: Scene, asked: Asked) -> httpx.Response:
    return await asked.with_fields(outcome="failed", retry_after=-1).by(scene.api)


async def with_an_extension_of_a_year(scene: Scene, asked: Asked) -> httpx.Response:
    return await asked.with_fields(within="P365D").by(scene.api)


async def of_a_snooze_without_end(scene: Scene, asked: Asked) -> httpx.Response:
    outcome = {"run_id": UNKNOWN_ID, "fence": 1, "outcome": "snoozed"}
    return await asked.with_fields(outcomes=[outcome]).by(scene.api)


async def of_one_of_two_files(scene: Scene, asked: Asked) -> httpx.Response:
    for source in ("one", "two"):
        answer = await scene.api.post("/v1/jobs:apply", json={**a_file(f"of-{source}"), "source": source})
        assert answer.is_success, answer.text
    return await asked.with_query("").by(scene.api)


async def that_limits_nothing(scene: Scene, asked: Asked) -> httpx.Response:
    return await asked.with_fields(limit=None, rate=None).by(scene.api)


async def of_everything_and_a_queue(scene: Scene, asked: Asked) -> httpx.Response:
    return await asked.with_fields(all=True, queue="limited").by(scene.api)


async def of_everything_and_a_queue_in_the_query(scene: Scene, asked: Asked) -> httpx.Response:
    return await asked.with_query("all=true&queue=limited").by(scene.api)


PAYLOADS: dict[str, Any] = {
    "accept_event": {"data": A_LONG_WORD},
    "save_checkpoint": {"value": A_LONG_WORD},
    "append_logs": {"lines": [{"level": "info", "message": "much", "fields": {"word": A_LONG_WORD}}]},
}


async def with_periods_of_ages(scene: Scene, asked: Asked) -> httpx.Response:
    return await asked.with_fields(limits={"least_period": 1e17}).by(scene.api)


async def with_an_age_of_a_week(scene: Scene, asked: Asked) -> httpx.Response:
    return await asked.with_fields(age_limit="P7D").by(scene.api)


async def of_steps_that_are_not_whole(scene, asked):
    return await asked.with_query("step=90").by(scene.api)


async def of_a_zone_that_is_none(scene, asked):
    return await asked.with_query("zone=Mars/Olympus").by(scene.api)


async def for_no_time(scene, asked):
    return await asked.with_fields(duration="PT0S").by(scene.api)


async def in_an_order_for_fewer(scene, asked):
    by_next = _SORTED["next_run_at"]
    fewer = msgspec.structs.replace(by_next, read=partial(by_next.read, most=0))
    scene.patience.setitem(_SORTED, "next_run_at", fewer)
    await scene.api.a_job()
    return await asked.with_query("sort=next_run_at").by(scene.api)


OPTIONS: dict[str, Any] = {
    "list_jobs": in_an_order_for_fewer,
    "open_destination": for_no_time,
    "read_series": of_steps_that_are_not_whole,
    "change_queue": with_an_age_of_a_week,
    "create_destination": with_two_lines_as("url"),
    "limit_concurrency_key": that_limits_nothing,
    "resume_queue": of_a_name_that_is_none,
    "preview_trigger": after_the_end_of_time,
    "register_worker": with_a_lease_of_an_hour,
    "claim_runs": with_a_wait_of_an_hour,
    "settle_runs": of_a_snooze_without_end,
    "export_file": of_one_of_two_files,
    "put_limit": of_everything_and_a_queue,
    "remove_limit": of_everything_and_a_queue_in_the_query,
    "accept_event": with_two_lines_as("id"),
    "pause_job": with_two_lines_as("reason"),
    "pause_jobs": with_two_lines_as("reason"),
    "read_job_days": of_a_zone_that_is_none,
    "create_workflow": with_two_lines_as("name"),
    "cancel_workflow": with_two_lines_as("reason"),
    "pause_queue": with_two_lines_as("reason"),
    "create_tenant": with_two_lines_as("name"),
    "change_tenant": with_periods_of_ages,
    "create_key": with_two_lines_as("name"),
    "put_calendar": under_another_name_than_its_path,
    "backfill_job": with_its_end_before_its_start,
    "delete_calendar": of_a_calendar_in_use,
    "delete_channel": of_a_channel_in_use,
    "put_channel": with_a_scheme_that_is_not_allowed,
    "put_notification_rule": with_a_channel_that_is_not_there,
    "hold_history": with_two_lines_as("reason"),
    "skip_next": of_a_job_that_counts_from_its_end,
    "settle_callback": of_a_failure_to_be_tried_again_before_now,
    "extend_callback": with_an_extension_of_a_year,
}


async def until_closed(asking: Any, front: Front, operation: Operation) -> httpx.Response:
    """Give an answer; a stream is closed once it has begun."""
    task = asyncio.ensure_future(asking)
    if operation.response_type == EVENT_STREAM:
        await asyncio.wait([task], timeout=0.5)
        front.door.close()
    answer: httpx.Response = await task
    return answer


@pytest.mark.parametrize("name", NAMES)
async def test_operation_succeeds_with_the_described_response(scene, name):
    operation = BY_NAME[name]
    asked = await scene.yard.request(operation)

    answer = await until_closed(asked.by(scene.api), scene.front, operation)

    assert answer.is_success, answer.text
    assert faults(operation, answer) == []


@pytest.mark.parametrize("name", NAMES)
async def test_an_operation_refuses_in_every_way_it_is_described_with(scene, name):
    operation = BY_NAME[name]
    wrong = []
    for code in codes(operation):
        asked = await scene.yard.request(operation)
        answer = await PROVOKE[code](scene, operation, asked)
        found = answer.json().get("code") if answer.content and not answer.is_success else None
        if found != code:
            wrong.append(f"{code}: got {answer.status_code} {found} {answer.text[:200]}")
        wrong += [f"{code}: {fault}" for fault in faults(operation, answer)]

    assert wrong == []
