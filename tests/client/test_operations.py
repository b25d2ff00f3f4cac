"""Whatever can be asked for over HTTP can be asked for with the client."""

import asyncio
from datetime import timedelta
from uuid import uuid4

import pytest

from duly.api.routes import OPERATIONS
from duly.client import AsyncClient, Client, Conflict, Invalid, NameTaken, NotFound, Unavailable
from duly.wire.keys import TenantLimits
from tests.api.front import A_TARGET, CALLBACKS, EVERY_HOUR
from tests.api.working import take
from tests.builders import a_dead_run, an_awaited_run

SPOKEN = {
    "create_job": "jobs.create",
    "list_jobs": "jobs.list",
    "read_job": "jobs.get",
    "read_job_by_name": "jobs.get_by_name",
    "explain_job": "jobs.explain",
    "list_job_versions": "jobs.versions",
    "list_moved_fires": "jobs.moved_fires",
    "explain_run": "runs.explain",
    "apply_file": "jobs.apply",
    "export_file": "jobs.export",
    "list_files": "files.list",
    "read_file": "files.get",
    "list_file_jobs": "files.jobs",
    "read_system": "system",
    "list_backfills": "backfills.list",
    "replace_job": "jobs.replace",
    "change_job": "jobs.change",
    "put_job_by_name": "jobs.put_by_name",
    "delete_job": "jobs.delete",
    "trigger_job": "jobs.trigger",
    "pause_job": "jobs.pause",
    "resume_job": "jobs.resume",
    "skip_next": "jobs.skip_next",
    "backfill_job": "jobs.backfill",
    "create_jobs": "jobs.create_many",
    "read_backfill": "backfills.get",
    "cancel_backfill": "backfills.cancel",
    "list_audit": "audit.list",
    "list_calendars": "calendars.list",
    "read_calendar": "calendars.get",
    "put_calendar": "calendars.put",
    "delete_calendar": "calendars.delete",
    "preview_trigger": "preview",
    "stream_events": "events",
    "accept_event": "send_event",
    "list_runs": "runs.list",
    "read_run": "runs.get",
    "list_attempts": "runs.attempts",
    "read_logs": "runs.logs",
    "cancel_run": "runs.cancel",
    "replay_run": "runs.replay",
    "rerun": "runs.rerun",
    "pause_jobs": "jobs.pause_many",
    "resume_jobs": "jobs.resume_many",
    "delete_jobs": "jobs.delete_many",
    "cancel_runs": "runs.cancel_many",
    "replay_runs": "runs.replay_many",
    "list_held_runs": "workers.runs",
    "drain_worker": "workers.drain",
    "drain_host": "hosts.drain",
    "resume_host": "hosts.resume",
    "resume_worker": "workers.resume",
    "create_workflow": "workflows.create",
    "list_workflows": "workflows.list",
    "read_workflow": "workflows.get",
    "read_node": "workflows.node",
    "cancel_workflow": "workflows.cancel",
    "pause_workflow": "workflows.pause",
    "resume_workflow": "workflows.resume",
    "replay_workflow": "workflows.replay",
    "add_nodes": "workflows.add_nodes",
    "list_dead": "dead.list",
    "edit_dead": "dead.edit",
    "replay_dead": "dead.replay",
    "discard_dead": "dead.discard",
    "replay_matching": "dead.replay_matching",
    "discard_matching": "dead.discard_matching",
    "edit_matching": "dead.edit_matching",
    "read_checkpoint": "runs.checkpoint",
    "list_queues": "queues.list",
    "pause_queue": "queues.pause",
    "resume_queue": "queues.resume",
    "change_queue": "queues.change",
    "read_recovery": "recovery.get",
    "approve_recovery": "recovery.approve",
    "dismiss_recovery": "recovery.dismiss",
    "read_series": "figures.series",
    "read_overview": "figures.overview",
    "read_upcoming": "figures.upcoming",
    "read_job_days": "figures.days",
    "list_pauses": "pauses.list",
    "pause": "pauses.pause",
    "resume": "pauses.resume",
    "list_limits": "limits.list",
    "put_limit": "limits.put",
    "remove_limit": "limits.remove",
    "list_workers": "workers.list",
    "list_concurrency_keys": "concurrency_keys.list",
    "read_concurrency_key": "concurrency_keys.get",
    "limit_concurrency_key": "concurrency_keys.limit",
    "unlimit_concurrency_key": "concurrency_keys.unlimit",
    "list_destinations": "destinations.list",
    "create_destination": "destinations.create",
    "read_destination": "destinations.get",
    "limit_destination": "destinations.limit",
    "close_destination": "destinations.close",
    "open_destination": "destinations.open",
    "list_waiting_runs": "destinations.waiting",
    "list_failures": "destinations.failures",
    "rotate_secret": "destinations.rotate",
    "reveal_secrets": "destinations.secrets",
    "list_channels": "channels.list",
    "read_channel": "channels.get",
    "put_channel": "channels.put",
    "delete_channel": "channels.delete",
    "test_channel": "channels.test",
    "list_notification_rules": "notifications.rules",
    "read_notification_rule": "notifications.get_rule",
    "put_notification_rule": "notifications.put_rule",
    "delete_notification_rule": "notifications.delete_rule",
    "list_notifications": "notifications.list",
    "settle_callback": "callbacks.settle",
    "extend_callback": "callbacks.extend",
    "report_callback": "callbacks.progress",
    "list_keys": "keys.list",
    "create_key": "keys.create",
    "revoke_key": "keys.revoke",
    "list_sessions": "sessions.list",
    "revoke_session": "sessions.revoke",
    "list_archives": "archive.list",
    "verify_archive": "archive.verify",
    "stop_archive": "archive.stop",
    "list_legal_holds": "archive.holds",
    "hold_history": "archive.hold",
    "release_history": "archive.release",
    "list_tenants": "tenants.list",
    "create_tenant": "tenants.create",
    "read_tenant": "tenants.get",
    "change_tenant": "tenants.change",
}
# The protocol of workers is for workers.
OTHERS = {operation.name for operation in OPERATIONS if operation.path.startswith("/v1/worker/")}


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_each_operation_has_its_method(kind):
    with Client("http://duly", "duly_a_b") as client:
        opened = client if kind is Client else AsyncClient("http://duly", "duly_a_b")
    for place in SPOKEN.values():
        found = opened
        for step in place.split("."):
            found = getattr(found, step)
        assert callable(found), place

    assert {operation.name for operation in OPERATIONS} - OTHERS <= set(SPOKEN)


async def everything(listed):
    return [one async for one in listed]


FLOW = {
    "name": "nightly",
    "nodes": {"first": {"target": A_TARGET}, "second": {"target": A_TARGET, "depends_on": ["first"]}},
}


class TestWorkflows:
    async def test_workflow_is_created_read_paused_and_cancelled(self, client):
        made = await client.workflows.create(FLOW, key="once")
        again = await client.workflows.create(FLOW, key="once")
        read = await client.workflows.get(made.workflow_id)

        assert again == made
        assert [(node.name, node.state) for node in read.nodes] == [("first", "ready"), ("second", "waiting")]
        assert [(edge.node, edge.on) for edge in read.nodes[1].depends_on] == [("first", "success")]
        assert (await client.workflows.pause(made.workflow_id)).state == "paused"
        assert (await client.workflows.resume(made.workflow_id)).state == "running"
        assert (await client.workflows.cancel(made.workflow_id, reason="wrong day")).state == "cancelled"
        assert (await client.workflows.replay(made.workflow_id, "second")).nodes == ["second"]
        assert (await client.workflows.node(made.workflow_id, "second")).state == "ready"

    async def test_pages_are_turned(self, client):
        made = {(await client.workflows.create(FLOW)).workflow_id for _ in range(3)}

        assert {one.workflow_id for one in await everything(client.workflows.list("name:nightly", page_size=1))} == made

    async def test_the_runs_of_one_are_listed(self, client):
        made, _other = await client.workflows.create(FLOW), await client.workflows.create(FLOW)

        found = await everything(client.runs.list(workflow=made.workflow_id, page_size=1))

        assert sorted(run.node for run in found) == ["first", "second"]
        assert {run.workflow_id for run in found} == {made.workflow_id}

    async def test_a_running_node_adds_others(self, client, database):
        made = await client.workflows.create(FLOW)
        _, [run] = await take(database)

        added = await client.workflows.add_nodes(made.workflow_id, "first", run.fence, {"more": {"target": A_TARGET}})

        assert added.nodes == ["more"]

    async def test_invalid_workflow_raises_with_its_pointer(self, client):
        nodes = {"first": {"target": A_TARGET, "depends_on": ["first"]}}
        with pytest.raises(Invalid) as refused:
            await client.workflows.create({"name": "wrong", "nodes": nodes})

        assert [fault.pointer for fault in refused.value.errors] == ["/nodes/first/depends_on/0"]


class TestJobs:
    async def test_pages_of_jobs_are_turned_and_one_is_found_by_its_name(self, client):
        for number in range(3):
            await client.jobs.create("app:mail", schedule=EVERY_HOUR, name=f"job/{number}", tags=["new"])

        names = [job.name for job in await everything(client.jobs.list("tag:new", page_size=1))]

        assert sorted(names) == ["job/0", "job/1", "job/2"]
        assert (await client.jobs.get_by_name("job/1")).name == "job/1"

    async def test_why_a_job_and_a_run_are_where_they_are(self, client):
        job = await client.jobs.create("app:mail", schedule=EVERY_HOUR)
        run = await client.jobs.create("app:mail", queue="nobody")

        assert (await client.jobs.explain(job.job_id)).kind == "job"
        assert (await client.runs.explain(run.job_id)).reasons

    async def test_a_file_is_planned_applied_and_written(self, client):
        file = {"source": "shop", "jobs": {"nightly": {"target": "app:mail", "schedule": {"cron": "0 2 * * *"}}}}

        plan = await client.jobs.apply(file, dry_run=True)
        done = await client.jobs.apply(file, digest=plan.digest)
        written = await client.jobs.export("shop")

        assert [step.kind for step in plan.steps] == ["create"]
        assert [one.name for one in done.done] == ["nightly"]
        assert (await client.jobs.apply(written)).unchanged == 1

    async def test_the_versions_of_a_job(self, client):
        job = await client.jobs.create("app:mail", schedule=EVERY_HOUR)
        await client.jobs.change(job.job_id, {"queue": "mail"}, version=1)

        found = await everything(client.jobs.versions(job.job_id, page_size=1))

        assert [(one.version, one.queue) for one in found] == [(2, "mail"), (1, "default")]

    async def test_the_next_fires_that_new_time_zone_data_has_moved(self, client, database):
        job = await client.jobs.create("app:mail", schedule=EVERY_HOUR)
        await database.execute(
            "insert into duly.zone_moves (job_id, tenant, tzdb, was_at, next_at, moved_at)"
            " select job_id, tenant, '2026b', '2026-11-03T02:00Z', '2026-11-03T01:00Z', '2026-11-02T09:00Z' from duly.jobs"
        )

        [moved] = await client.jobs.moved_fires(job.job_id)

        assert (moved.job_id, moved.tzdb) == (job.job_id, "2026b")
        assert list(await client.jobs.moved_fires(uuid4())) == []

    async def test_the_backfills_of_a_job(self, client, database):
        anchored = {"trigger": {"type": "interval", "every": "PT1H", "anchor": "2020-01-01T00:00:00Z"}}
        job = await client.jobs.create("app:mail", schedule=anchored)
        now = await database.read_clock()
        made = await client.jobs.backfill(job.job_id, now - timedelta(hours=3), now, overlap="allow", rate=0.01)

        for found in (client.backfills.list(job.job_id), client.backfills.list()):
            assert [one.backfill_id for one in await everything(found)] == [made.backfill_id]


class TestEvents:
    async def test_an_event_is_taken_once(self, client):
        await client.jobs.create("app:mail", name="on-order", on_event={"type": "shop.order.placed"})

        first = await client.send_event("shop.order.placed", "/shop", data={"order": 7}, id="7")
        again = await client.send_event("shop.order.placed", "/shop", data={"order": 7}, id="7")
        batch = await client.send_events(
            [{"id": name, "source": "/shop", "type": "shop.order.placed", "data": {"order": 7}} for name in ("8", "7")]
        )
        assert [(one.event_id, one.duplicate) for one in batch] == [("8", False), ("7", True)]

        assert (len(first.runs), first.duplicate, again.duplicate, again.runs) == (1, False, True, first.runs)
        assert (await client.runs.get(first.runs[0])).payload["event"]["data"] == {"order": 7}


class TestDestinations:
    async def test_destination_is_created_limited_and_its_secret_rotated(self, client):
        made = await client.destinations.create("https://hooks.example/in", slots=5)
        [first] = (await client.destinations.secrets(made.destination_id)).items
        limited = await client.destinations.limit(made.destination_id, rate_per_second=2.5)
        rotated = await client.destinations.rotate(made.destination_id)

        assert (limited.slots, limited.rate_per_second) == (5, 2.5)
        assert (await client.destinations.limit(made.destination_id, rate_per_second=None)).rate_per_second is None
        shown = (await client.destinations.secrets(made.destination_id)).items
        assert [one.secret for one in shown] == [rotated.secret, first.secret]
        assert first.secret not in repr(shown)
        assert (await client.destinations.close(made.destination_id)).state == "closed"
        assert [one.origin for one in await everything(client.destinations.list())] == ["https://hooks.example"]
        assert (await client.destinations.get(made.destination_id)).waiting_runs == 0


class TestRuns:
    async def test_pages_are_turned_until_the_last(self, client):
        made = [(await client.jobs.create("app:mail", payload={"n": n})).run_id for n in range(7)]

        runs = await everything(client.runs.list("queue:default", page_size=3))

        assert sorted(run.run_id for run in runs) == sorted(made)

    async def test_a_list_can_be_left_early(self, client):
        for _ in range(3):
            await client.jobs.create("app:mail")

        async for run in client.runs.list(page_size=1):
            assert run.state == "ready"
            break

    async def test_pages_without_a_loop(self, client, blocking):
        for _ in range(5):
            await client.jobs.create("app:mail")

        runs = await asyncio.to_thread(lambda: list(blocking.runs.list(page_size=2)))

        assert len({run.run_id for run in runs}) == 5

    async def test_a_run_is_read_and_cancelled(self, client):
        made = await client.jobs.create("app:mail", payload={"n": 1}, tags=["new"])

        run = await client.runs.get(made.run_id)
        cancelled = await client.runs.cancel(made.run_id)
        attempts = await everything(client.runs.attempts(made.run_id))

        assert (run.payload, run.tags) == ({"n": 1}, ["new"])
        assert (cancelled.status, attempts[-1].outcome) == ("cancelled", "cancelled")
        with pytest.raises(Conflict, match="only dead runs"):
            await client.runs.replay(made.run_id)

    async def test_an_ended_run_is_run_again(self, client):
        made = await client.jobs.create("app:mail", payload={"n": 1}, tags=["new"])
        with pytest.raises(Conflict, match=f"run {made.run_id} is ready.*wait for its end, or cancel it"):
            await client.runs.rerun(made.run_id)
        await client.runs.cancel(made.run_id)

        again = await client.runs.rerun(made.run_id, payload={"n": 2}, priority=1, key="k")
        assert again == await client.runs.rerun(made.run_id, payload={"n": 2}, priority=1, key="k")

        run = await client.runs.get(again.run_id)
        assert (run.payload, run.tags, run.priority, run.rerun_of) == ({"n": 2}, ["new"], 1, made.run_id)

    async def test_log_of_a_run_without_output_is_empty(self, client):
        made = await client.jobs.create("app:mail")
        await client.runs.cancel(made.run_id)

        assert await everything(client.runs.logs(made.run_id)) == []
        assert await everything(client.runs.follow_logs(made.run_id)) == []

    async def test_the_end_of_a_run_is_waited_for(self, client):
        made = await client.jobs.create("app:mail", wait=0)

        assert (made.run, made.run_id) == (None, made.job_id)


class TestDead:
    async def test_dead_run_can_be_edited_replayed_and_discarded(self, client, database):
        first, second = await a_dead_run(database), await a_dead_run(database)

        await client.dead.edit(first, {"n": 2})
        found = {letter.run_id for letter in await everything(client.dead.list("queue:default", page_size=1))}
        replayed = await client.dead.replay(first)
        discarded = await client.dead.discard(second)

        assert found == {first, second}
        assert (replayed.status, discarded.status) == ("replayed", "discarded")
        assert (await client.runs.get(first)).payload == {"n": 2}
        with pytest.raises(NotFound):
            await client.dead.discard(second)

    async def test_by_a_filter(self, client, database):
        for _ in range(3):
            await a_dead_run(database)

        dry = await client.dead.discard_matching("queue:default", dry_run=True)
        edited = await client.dead.edit_matching("queue:default", {"n": 3})
        some = await client.dead.replay_matching("queue:default", limit=2)
        rest = await client.dead.discard_matching("queue:default", page_token=some.next_page_token)

        assert (dry.matched, dry.moved, edited.moved, some.moved, rest.moved) == (3, 0, 3, 2, 1)


class TestOperator:
    async def test_queues_and_holds(self, client):
        await client.jobs.create("app:mail", queue="mail")

        held = await client.queues.pause("mail", reason="tea")
        [queue] = [one for one in await everything(client.queues.list()) if one.name == "mail"]
        resumed = await client.queues.resume("mail")
        stopped = await client.pauses.pause(everything=True)
        [hold] = await everything(client.pauses.list())
        await client.pauses.resume(everything=True)

        assert (held.status, queue.is_paused, resumed.status) == ("paused", True, "resumed")
        assert (stopped.status, hold.queue, hold.tenant) == ("paused", None, None)

    async def test_limits(self, client):
        made = await client.limits.put(3, queue="mail")
        await client.limits.put(9, everything=True)
        shown = [(one.tenant, one.queue, one.slots) for one in await everything(client.limits.list())]
        await client.limits.remove(everything=True)
        await client.limits.remove(queue="mail")

        assert (made.slots, made.running) == (3, 0)
        assert shown == [(None, None, 9), (None, "mail", 3)]
        with pytest.raises(NotFound):
            await client.limits.remove(queue="mail")

    async def test_workers(self, client):
        [worker] = await everything(client.workers.list())

        assert worker.queues == ["default"]

    async def test_tenants_and_keys(self, client, transport):
        tenant = await client.tenants.create("second", limits=TenantLimits(schedules_max=1))
        made = await client.keys.create("writer", ["jobs:write"], tenant=tenant.tenant)
        async with AsyncClient("http://duly", made.key, transport=transport) as theirs:
            await theirs.jobs.create("app:mail", schedule=EVERY_HOUR)
        names = [key.name for key in await everything(client.keys.list(tenant=tenant.tenant, page_size=1))]
        await client.keys.revoke(made.key_id)
        suspended = await client.tenants.change(tenant.tenant, state="suspended")

        assert (names, suspended.state, suspended.limits.schedules_max) == (["writer"], "suspended", 1)
        assert (await client.tenants.get(tenant.tenant)).name == "second"
        assert "second" in [one.name for one in await everything(client.tenants.list())]
        with pytest.raises(NameTaken):
            await client.tenants.create("second")


class TestLostAnswers:
    async def test_api_key_is_not_created_again_after_a_lost_response(self, proxy, caller, client):
        proxy.lose = 1
        async with AsyncClient(proxy.url, caller.key, deadline=5.0) as lossy:
            with pytest.raises(Unavailable, match="carried out again"):
                await lossy.keys.create("writer", ["jobs:write"])

        assert [key.name for key in await everything(client.keys.list())].count("writer") == 1

    async def test_tenant_name_conflict_names_a_possible_earlier_try(self, proxy, caller):
        proxy.lose = 1
        async with AsyncClient(proxy.url, caller.key, deadline=5.0) as lossy:
            with pytest.raises(NameTaken, match="may be what that try did"):
                await lossy.tenants.create("second")

    async def test_calendar_delete_succeeds_despite_a_lost_response(self, proxy, caller, client):
        await client.calendars.put("holidays", {"dates": ["2026-12-25"]})
        proxy.lose = 1
        async with AsyncClient(proxy.url, caller.key, deadline=5.0) as lossy:
            await lossy.calendars.delete("holidays")

        assert await everything(client.calendars.list()) == []


class TestCallbacks:
    async def test_a_receiver_settles_gives_up_or_asks_for_time_without_a_key(self, client, database):
        first, second = await an_awaited_run(database), await an_awaited_run(database)
        tokens = [CALLBACKS.make(run.run_id, run.fence) for run in (first, second)]

        assert (await client.callbacks.extend(tokens[0], "PT1H")).run_id == first.run_id
        await client.callbacks.progress(tokens[0], 1, 3, "one of three")
        assert (await client.callbacks.settle(tokens[0], {"rows": 7})).state == "succeeded"
        assert (await client.callbacks.fail(tokens[1], "no such customer", retry=False)).state == "dead"
        with pytest.raises(Conflict, match="it succeeded"):
            await client.callbacks.fail(tokens[0])
        with pytest.raises(NotFound):
            await client.callbacks.settle("cb_nothing")

    async def test_client_reads_back_completion_callbacks(self, client):
        made = await client.jobs.create("app:mail", schedule=EVERY_HOUR, on_failure={"job": "alert"})

        job = await client.jobs.get(made.job_id)

        assert (job.on_end, job.on_failure.job) == (None, "alert")
