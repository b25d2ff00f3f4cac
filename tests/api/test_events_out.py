"""Events that go out: each thing that happens to a tenant's runs is heard once, in order, and a gap is never silent."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import count

import httpx
import msgspec
import pytest

from duly.api.server.listen import address_of, listen
from duly.api.server.server import Server
from duly.api.streams import event_ids
from duly.api.streams import events as module
from duly.api.streams.events import EventHub, Wanted
from duly.domain.errors import DatabaseUnusable
from duly.domain.runs.outcome import Cancelled, Failed
from duly.log import Log
from duly.moves.cancel import cancel_job
from duly.moves.schedules.edit import amend
from duly.moves.schedules.pause import pause, resume
from duly.moves.submit import submit, submit_recurring
from duly.moves.workflows.workflows import cancel_workflow, pause_workflow, replay_workflow, resume_workflow
from duly.store.connection.database import Database
from duly.store.reads import changes
from tests.builders import (
    a_key,
    a_leased_run,
    a_ready_run,
    a_schedule,
    a_submission,
    a_worker,
    an_active_schedule,
    claimed,
    settled,
    staged,
)
from tests.graphs import FAILS, a_workflow, carried_through

MINE = Wanted(1)


class Stream:
    """What a listener has heard, line by line."""

    def __init__(self, lines):
        self._lines = lines

    async def events(self, number):
        """Read so many events."""
        found: list[dict] = []
        async with asyncio.timeout(30):
            while len(found) < number:
                blocks = (await anext(self._lines)).split(b"\n\n")
                found += [read(block) for block in blocks if block.startswith(b"id:")]
        return found

    async def close(self):
        await self._lines.aclose()


def read(block):
    fields = dict(line.split(b": ", 1) for line in block.split(b"\n"))
    event = msgspec.json.decode(fields[b"data"])
    assert event["type"] == fields[b"event"].decode()
    return {"place": fields[b"id"].decode(), **event}


async def always():
    return True


@pytest.fixture
async def hub(database):
    made = EventHub(database, Log("test"))
    yield made
    made.close()


async def listening(hub, wanted=MINE, last_id=None):
    return Stream(hub.listen(wanted, await hub.join(wanted, last_id), always))


async def a_running_one(database, *, queue, tenant=1):
    """Let a worker take a run of a tenant."""
    submitted = await submit(database, a_submission(queue=queue), key=a_key(), tenant=tenant)
    await claimed(database, await a_worker(database, queues=[queue]), queues=[queue])
    return str(submitted.job_id)


async def finished(connection, worker_id, run, clock):
    """Let a run succeed in a transaction that may stay open."""
    finish = (
        "select duly.finish($1, array[$2::tid], array[$3::bigint], array[$4::float8], array[$4], array[null::jsonb])"
    )
    assert await connection.fetchval(finish, worker_id, run.tid, run.fence, clock.at.timestamp())


def kinds(events):
    return [event["type"].split(".")[-2] for event in events]


class TestHearing:
    async def test_a_run_that_starts_and_ends_is_heard_once_each(self, hub, database):
        stream = await listening(hub)
        worker_id, run = await a_leased_run(database)
        [started] = await stream.events(1)
        await settled(database, worker_id, run)
        [ended] = await stream.events(1)

        assert kinds([started, ended]) == ["started", "succeeded"]
        assert started["subject"] == ended["subject"] == str(run.run_id)
        assert ended["specversion"] == "1.0"
        assert "tenant" not in ended["data"]

    async def test_a_run_too_short_to_be_seen_is_heard_to_start_all_the_same(self, hub, database):
        stream = await listening(hub)
        hub._looking.cancel()
        worker_id, run = await a_leased_run(database)
        await settled(database, worker_id, run)

        await hub.step()

        assert kinds(await stream.events(2)) == ["started", "succeeded"]

    async def test_each_run_of_a_claim_is_heard_to_start_when_it_does(self, hub, database, clock):
        stream = await listening(hub)
        hub._looking.cancel()
        now, soon = await a_ready_run(database), await a_ready_run(database, delay=3)
        await staged(database)
        await claimed(database, await a_worker(database))
        await hub.step()
        [first] = await stream.events(1)
        await clock.advance(3)
        await hub.step()
        [second] = await stream.events(1)

        assert kinds([first, second]) == ["started", "started"]
        assert [first["subject"], second["subject"]] == [str(now), str(soon)]

    async def test_of_two_runs_of_a_claim_neither_is_too_short_to_be_heard_to_start(self, hub, database):
        stream = await listening(hub)
        hub._looking.cancel()
        for _ in range(2):
            await a_ready_run(database)
        worker_id = await a_worker(database)
        for run in await claimed(database, worker_id):
            await settled(database, worker_id, run)

        await hub.step()

        assert sorted(kinds(await stream.events(4))) == ["started", "started", "succeeded", "succeeded"]

    async def test_stream_distinguishes_failed_dead_and_cancelled_runs(self, hub, database):
        stream = await listening(hub, Wanted(1, types={f"duly.run.{k}.v1" for k in ("failed", "dead", "cancelled")}))
        worker_id, run = await a_leased_run(database)
        await settled(database, worker_id, run, Failed("once more", retry_after=timedelta(minutes=1)))
        for outcome in (Failed("for good", retryable=False), Cancelled("no longer needed")):
            await a_ready_run(database)
            [run] = await claimed(database, worker_id)
            await settled(database, worker_id, run, outcome)

        assert kinds(await stream.events(3)) == ["failed", "dead", "cancelled"]

    async def test_run_leased_ahead_is_streamed_as_started_only_when_due(self, hub, database, clock):
        stream = await listening(hub)
        _, run = await a_leased_run(database, delay=3)
        for _ in range(3):
            await hub.step()
        assert hub._count == 0

        await clock.advance(3)

        [started] = await stream.events(1)
        assert started["subject"] == str(run.run_id)

    async def test_other_tenants_and_other_queues_are_not_heard(self, hub, database):
        stream = await listening(hub, Wanted(1, queue="mail"))
        others = await listening(hub, Wanted(2))
        await a_running_one(database, queue="default")
        theirs = await a_running_one(database, queue="mail", tenant=2)
        mine = await a_running_one(database, queue="mail")

        assert [event["subject"] for event in await stream.events(1)] == [mine]
        assert [event["subject"] for event in await others.events(1)] == [theirs]


class TestResuming:
    async def test_ring_replay_loses_no_event_and_repeats_none(self, hub, database):
        stream = await listening(hub)
        await a_leased_run(database)
        [first] = await stream.events(1)
        await stream.close()
        await a_leased_run(database)
        await hub.step()

        again = await listening(hub, last_id=first["place"])
        await a_leased_run(database)

        events = await again.events(2)
        assert len({event["subject"] for event in [first, *events]}) == 3

    async def test_stream_resumed_in_another_process_reads_ends_from_history(self, hub, database, clock):
        stream = await listening(hub)
        worker_id, run = await a_leased_run(database)
        [first] = await stream.events(1)
        await clock.advance(1)
        await settled(database, worker_id, run)
        other = EventHub(database, Log("test"))

        resumed = await listening(other, last_id=first["place"])

        [ended] = await resumed.events(1)
        other.close()
        assert (ended["subject"], kinds([ended])) == (str(run.run_id), ["succeeded"])

    async def test_stream_of_another_process_includes_an_end_that_commits_late(self, hub, database, clock):
        """It ended before the last event that was heard, and became visible after it."""
        stream = await listening(hub)
        worker_id, run = await a_leased_run(database)
        await stream.events(1)
        async with database.transaction() as slow:
            await finished(slow, worker_id, run, clock)
            await clock.advance(20)
            await a_leased_run(database)
            [last] = await stream.events(1)
        await stream.close()
        other = EventHub(database, Log("test"))

        [ended] = await (await listening(other, last_id=last["place"])).events(1)

        other.close()
        assert (ended["subject"], kinds([ended])) == (str(run.run_id), ["succeeded"])

    async def test_event_cursor_names_few_open_transactions_and_loses_no_event(self, hub, database, clock):
        stream = await listening(hub)
        worker_id = await a_worker(database)
        runs = []
        for _ in range(3):
            await a_ready_run(database)
            runs += await claimed(database, worker_id)
        await stream.events(3)
        async with AsyncExitStack() as late:
            for run in runs:
                await finished(await late.enter_async_context(database.transaction()), worker_id, run, clock)
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(event_ids, "_OPEN_MAX", 1)
                await a_leased_run(database, worker_id)
                [last] = await stream.events(1)
        other = EventHub(database, Log("test"))

        ended = await (await listening(other, last_id=last["place"])).events(3)

        other.close()
        assert {event["subject"] for event in ended} == {str(run.run_id) for run in runs}

    async def test_an_event_of_another_server_is_one_gap(self, hub, database, postgres_15, template_15):
        async with Database(postgres_15.url(postgres_15.create(template_15)), clock=database.clock) as far:
            theirs = EventHub(far, Log("test"))
            stream = await listening(theirs)
            await a_leased_run(far)
            [heard] = await stream.events(1)
            await stream.close()
            theirs.close()

        [gap] = await (await listening(hub, last_id=heard["place"])).events(1)

        assert kinds([gap]) == ["gap"]
        assert "another database" in gap["data"]["reason"]

    async def test_run_ending_during_a_poll_for_another_tenant_is_streamed(self, hub, database, monkeypatch):
        await listening(hub, Wanted(2))
        hub._looking.cancel()
        looking, go_on = asyncio.Event(), asyncio.Event()
        look = hub._endings.look

        async def slowly(tenants):
            looking.set()
            await go_on.wait()
            return await look(tenants)

        monkeypatch.setattr(hub._endings, "look", slowly)
        stepping = asyncio.create_task(hub.step())
        await looking.wait()
        joining = asyncio.create_task(listening(hub, Wanted(1, types={"duly.run.succeeded.v1"})))
        await asyncio.sleep(0)
        worker_id, run = await a_leased_run(database)
        go_on.set()
        await stepping
        stream = await joining
        await settled(database, worker_id, run)
        await hub.step()

        assert [event["subject"] for event in await stream.events(1)] == [str(run.run_id)]

    @pytest.mark.parametrize("last_id", ["nonsense", "00000000-0-1", "00000000-0-999999999999999"])
    async def test_event_id_before_the_replay_window_yields_a_gap_with_a_reason(self, hub, database, last_id):
        stream = await listening(hub, last_id=last_id)

        [gap] = await stream.events(1)

        assert gap["type"] == "duly.stream.gap.v1"
        assert gap["data"]["reason"]

    async def test_replay_beyond_its_maximum_yields_a_gap(self, hub, database, clock, monkeypatch):
        monkeypatch.setattr(module, "REPLAY_MAX", 1)
        stream = await listening(hub)
        worker_id, run = await a_leased_run(database)
        [first] = await stream.events(1)
        await settled(database, worker_id, run)
        worker_id, run = await a_leased_run(database)
        await settled(database, worker_id, run)
        other = EventHub(database, Log("test"))

        [gap] = await (await listening(other, last_id=first["place"])).events(1)

        other.close()
        assert gap["type"] == "duly.stream.gap.v1"


class TestLimits:
    async def test_slow_listener_receives_a_gap_and_then_new_events(self, hub, database, monkeypatch):
        stream = await listening(hub)
        await anext(stream._lines)
        hub._looking.cancel()
        ring = hub._ring = type(hub._ring)(maxlen=2)
        for _ in range(3):
            await a_leased_run(database)
        await hub.step()
        assert len(ring) == 2

        assert kinds(await stream.events(1)) == ["gap"]
        await a_leased_run(database)
        await hub.step()
        assert kinds(await stream.events(1)) == ["started"]

    async def test_a_look_that_broke_off_is_a_gap(self, hub, database, monkeypatch):
        stream = await listening(hub)
        look = hub._endings.look
        broken = iter([DatabaseUnusable("it is away")])

        async def looked(tenants):
            if error := next(broken, None):
                raise error
            return await look(tenants)

        monkeypatch.setattr(hub._endings, "look", looked)

        assert kinds(await stream.events(1)) == ["gap"]

    @pytest.mark.parametrize("kind", ["jobs", "workflows"])
    @pytest.mark.parametrize(("number", "gaps"), [(2, 0), (3, 1)])
    async def test_more_changes_than_are_read_at_once_are_a_gap(self, hub, database, monkeypatch, kind, number, gaps):
        workflows = [await a_workflow(database, "a") for _ in range(number)] if kind == "workflows" else []
        stream = await listening(hub)
        hub._looking.cancel()
        monkeypatch.setattr(changes, "ROWS_MAX", 2)
        if kind == "jobs":
            for _ in range(number):
                await an_active_schedule(database, every=60)
        for workflow_id in workflows:
            await pause_workflow(database, 1, workflow_id)
        await hub.step()
        await a_leased_run(database)
        await hub.step()

        assert kinds(await stream.events(3 + gaps)) == ["changed"] * 2 + ["gap"] * gaps + ["started"]

    async def test_event_hub_stops_polling_after_a_time_without_listeners(self, hub, database, clock):
        await (await listening(hub)).close()
        looking = hub._looking

        await clock.advance(31)
        await asyncio.wait_for(looking, 20)

        assert hub._until == {}
        stream = await listening(hub)
        await a_leased_run(database)
        assert kinds(await stream.events(1)) == ["started"]

    async def test_idle_stream_sends_a_heartbeat(self, hub, clock):
        stream = await listening(hub)
        await anext(stream._lines)

        await clock.advance(15)

        assert await anext(stream._lines) == b": alive\n\n"

    async def test_stream_ends_when_its_api_key_is_revoked_or_the_hub_closes(self, hub):
        admitted = (number < 2 for number in count())

        async def is_admitted():
            return next(admitted)

        lines = hub.listen(MINE, await hub.join(MINE, None), is_admitted)
        assert [line async for line in lines] == [b"retry: 1000\n\n"]

        stream = await listening(hub)
        await anext(stream._lines)
        hub.close()
        assert [line async for line in stream._lines] == []


class TestOverHttp:
    async def test_a_stream_is_opened_heard_and_ends_with_the_server(self, front, api, database):
        app = front.client._transport.app
        with listen("127.0.0.1", 0) as listener:
            server = Server(app, listener)
            serving = asyncio.create_task(server.run())
            headers = {"Authorization": f"Bearer {api.key}"}
            async with (
                httpx.AsyncClient(base_url=address_of(listener)) as client,
                client.stream("GET", "/v1/events", headers=headers) as answer,
            ):
                assert answer.headers["content-type"].startswith("text/event-stream")
                lines = answer.aiter_lines()
                assert await anext(lines) == "retry: 1000"
                await a_leased_run(database)
                async with asyncio.timeout(20):
                    while not (line := await anext(lines)).startswith("event:"):
                        pass
                assert line == "event: duly.run.started.v1"
                front.door.close()
                server.stop()
                async with asyncio.timeout(20):
                    assert [line async for line in lines if line.startswith("event:")] == []
            await asyncio.wait_for(serving, 20)

    async def test_an_unknown_type_is_refused_with_the_nearest(self, api):
        answer = await api.get("/v1/events?types=duly.run.start.v1")

        assert answer.json()["code"] == "invalid_query"
        assert "duly.run.started.v1" in answer.json()["detail"]


class TestWorkflows:
    """What a workflow came to is heard, once, by those of its tenant."""

    ENDS = Wanted(1, types={"duly.workflow.ended.v1"})
    CHANGES = Wanted(1, types={"duly.workflow.changed.v1"})

    async def test_each_end_of_a_workflow_is_heard_behind_those_of_its_nodes(self, hub, database, clock):
        stream = await listening(hub)
        worker_id = await a_worker(database)
        good = await a_workflow(database, "a b:a", name="nightly")
        await carried_through(database, worker_id)

        *of_runs, end = await stream.events(5)

        assert {event["source"] for event in of_runs} == {"/v1/runs"}
        assert (end["type"], end["source"], end["subject"]) == ("duly.workflow.ended.v1", "/v1/workflows", str(good))
        told = end["data"]
        assert (told["name"], told["state"], told["nodes"], told["replays"]) == ("nightly", "succeeded", 2, 0)
        assert "tenant" not in told

    async def test_failed_and_replayed_workflow_emits_two_end_events(self, hub, database):
        stream = await listening(hub, self.ENDS)
        worker_id = await a_worker(database)
        workflow_id = await a_workflow(database, "a")
        await carried_through(database, worker_id, {"a": FAILS})
        [failed] = await stream.events(1)
        await replay_workflow(database, 1, workflow_id, "a")
        await carried_through(database, worker_id)
        [done] = await stream.events(1)

        assert [event["data"]["state"] for event in (failed, done)] == ["failed", "succeeded"]
        assert failed["id"] != done["id"]

    async def test_an_end_is_heard_when_its_transaction_ends_and_not_before(self, hub, database, clock):
        stream = await listening(hub, self.ENDS)
        first, second = await a_workflow(database, "a"), await a_workflow(database, "a")
        async with database.transaction() as slow:
            await slow.execute("select duly.cancel_workflow(1, $1, 'enough')", first)
            await slow.execute("set constraints all immediate")
            await cancel_workflow(database, 1, second, "enough")
            assert [event["subject"] for event in await stream.events(1)] == [str(second)]
            await clock.advance(20)
            await hub.step()

        assert [event["subject"] for event in await stream.events(1)] == [str(first)]

    async def test_workflow_changes_are_streamed_in_order_without_no_ops(self, hub, database):
        stream = await listening(hub, self.CHANGES)
        theirs = await listening(hub, Wanted(2, types=self.CHANGES.types))
        worker_id = await a_worker(database)
        workflow_id = await a_workflow(database, "a b:a", name="nightly")
        for move in (pause_workflow, pause_workflow, resume_workflow, resume_workflow):
            await move(database, 1, workflow_id)
        await carried_through(database, worker_id, {"a": FAILS})
        await replay_workflow(database, 1, workflow_id, "a")
        await cancel_workflow(database, 1, workflow_id, "enough")
        other = await a_workflow(database, "z", tenant=2)
        await pause_workflow(database, 2, other)

        heard = await stream.events(4)

        assert [event["data"]["change"] for event in heard] == ["paused", "resumed", "replayed", "cancelling"]
        assert {(event["subject"], event["source"]) for event in heard} == {(str(workflow_id), "/v1/workflows")}
        assert [event["data"]["replays"] for event in heard] == [0, 0, 1, 1]
        assert (heard[0]["data"]["name"], "tenant" in heard[0]["data"]) == ("nightly", False)
        assert len({event["id"] for event in heard}) == 4
        assert [event["subject"] for event in await theirs.events(1)] == [str(other)]

    async def test_workflow_pause_is_streamed_after_commit_and_on_reconnect(self, hub, database, clock):
        stream = await listening(hub, self.CHANGES)
        first, second = await a_workflow(database, "a"), await a_workflow(database, "a")
        async with database.transaction() as slow:
            await slow.execute("select duly.pause_workflow(1, $1)", first)
            await pause_workflow(database, 1, second)
            [heard] = await stream.events(1)
            assert heard["subject"] == str(second)
            await hub.step()
        assert [event["subject"] for event in await stream.events(1)] == [str(first)]
        await stream.close()
        await clock.advance(5)
        await resume_workflow(database, 1, first)
        other = EventHub(database, Log("test"))
        again = await listening(other, self.CHANGES, heard["place"])

        assert (await again.events(3))[-1]["data"]["change"] == "resumed"
        await again.close()
        other.close()

    async def test_others_do_not_hear_of_it_nor_does_a_queue(self, hub, database):
        theirs, mail = await listening(hub, Wanted(2)), await listening(hub, Wanted(1, queue="mail"))
        worker_id = await a_worker(database, queues=["default", "mail"])
        await a_workflow(database, "a")
        await carried_through(database, worker_id)
        await a_workflow(database, "z", tenant=2)
        await submit(database, a_submission(queue="mail"), key=a_key())
        for run in await claimed(database, worker_id, queues=["default", "mail"]):
            await settled(database, worker_id, run)
        await hub.step()

        heard = await theirs.events(3)
        assert [event["type"] for event in heard][-1] == "duly.workflow.ended.v1"
        assert all(event["source"] != "/v1/workflows" for event in await mail.events(2))

    async def test_reconnected_listener_receives_missed_workflow_ends(self, hub, database, clock):
        stream = await listening(hub, self.ENDS)
        worker_id = await a_worker(database)
        first = await a_workflow(database, "a")
        await carried_through(database, worker_id)
        [heard] = await stream.events(1)
        await stream.close()
        await clock.advance(5)
        second = await a_workflow(database, "a")
        await carried_through(database, worker_id)
        other = EventHub(database, Log("test"))
        again = await listening(other, self.ENDS, heard["place"])

        assert [event["subject"] for event in await again.events(2)] == [str(first), str(second)]
        await again.close()
        other.close()


class TestJobs:
    """What is done to definitions is heard, once, by those of its tenant."""

    CHANGES = Wanted(1, types={"duly.job.changed.v1"})

    async def test_job_changes_are_streamed_in_order(self, hub, database):
        stream = await listening(hub, self.CHANGES)
        job_id = (await an_active_schedule(database, name="nightly")).job_id
        await pause(database, job_id)
        await pause(database, job_id)
        await resume(database, job_id)
        await amend(database, job_id, lambda job: msgspec.structs.replace(job, priority=1))
        await cancel_job(database, job_id)

        heard = await stream.events(5)

        assert [event["data"]["change"] for event in heard] == ["created", "paused", "resumed", "edited", "cancelled"]
        assert {event["subject"] for event in heard} == {str(job_id)}
        assert heard[0]["source"] == "/v1/jobs"
        assert [event["data"]["version"] for event in heard] == [1, 1, 1, 2, 2]
        assert heard[0]["data"]["name"] == "nightly"
        assert "tenant" not in heard[0]["data"]
        assert len({event["id"] for event in heard}) == 5

    async def test_job_change_is_streamed_only_after_its_transaction_commits(self, hub, database):
        stream = await listening(hub, self.CHANGES)
        async with database.transaction() as slow:
            first = await submit_recurring(slow, a_schedule(), key=a_key())
            second = await an_active_schedule(database)
            assert [event["subject"] for event in await stream.events(1)] == [str(second.job_id)]
            await hub.step()

        assert [event["subject"] for event in await stream.events(1)] == [str(first.job_id)]

    async def test_a_schedule_that_ends_by_itself_is_completed(self, hub, database):
        stream = await listening(hub, self.CHANGES)
        await an_active_schedule(database, max_runs=1)
        await staged(database)

        assert [event["data"]["change"] for event in await stream.events(2)] == ["created", "completed"]

    async def test_others_do_not_hear_of_it_and_a_queue_hears_of_its_own(self, hub, database):
        mail = await listening(hub, Wanted(1, queue="mail"))
        theirs = await listening(hub, Wanted(2))
        await an_active_schedule(database)
        wanted = await submit_recurring(database, a_schedule(queue="mail"), key=a_key())
        other = await submit_recurring(database, a_schedule(), key=a_key(), tenant=2)

        assert [event["subject"] for event in await mail.events(1)] == [str(wanted.job_id)]
        assert [event["subject"] for event in await theirs.events(1)] == [str(other.job_id)]

    async def test_listener_reconnected_elsewhere_receives_missed_job_changes(self, hub, database):
        stream = await listening(hub, self.CHANGES)
        job = await an_active_schedule(database)
        [made] = await stream.events(1)
        await pause(database, job.job_id)
        elsewhere = EventHub(database, Log("test"))

        again = await listening(elsewhere, self.CHANGES, made["place"])

        assert [event["data"]["change"] for event in await again.events(2)] == ["created", "paused"]
        elsewhere.close()
