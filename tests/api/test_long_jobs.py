"""Long jobs over HTTP: progress, checkpoints, logs that are followed, subtasks, and the truth about a cancel."""

import asyncio
import json
from datetime import timedelta
from uuid import UUID, uuid4

import msgspec
import pytest

from duly.api.admission import LOGS
from duly.api.streams import logs as log_streams
from duly.domain.runs.outcome import Cancelled, Failed, Succeeded
from duly.domain.runs.payload import CHECKPOINT_BYTES_MAX
from duly.domain.runs.progress import Progress
from duly.domain.tenancy.api_key import ANYBODY
from duly.moves.claim import claim
from duly.store.boxes import awaited
from duly.store.boxes import runs as store
from tests.api.front import A_TARGET
from tests.api.test_runs import a_run, pages
from tests.api.working import stage, take, work
from tests.builders import settled
from tests.clock import START

EVENTS = {"Accept": "text/event-stream"}


async def a_line(database, run, number: int, *, attempt: int = 1) -> None:
    line = (run, attempt, number, START, f"line {number}")
    await database.execute("insert into duly.logs values ($1, $2, $3, $4, 'info', $5)", *line)


def events_in(text: str) -> list[tuple[str, str, dict]]:
    """Read the events of a stream: id, name and data."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":") and ": " in line)
        if "data" in fields:
            found.append((fields.get("id", ""), fields["event"], json.loads(fields["data"])))
    return found


class TestProgressAndCheckpoint:
    async def test_run_shows_its_progress_and_checkpoint(self, api, database, clock):
        run_id = await a_run(api)
        worker_id, [run] = await take(database)
        bare = (await api.get(f"/v1/runs/{run_id}")).json()
        assert (bare["progress"], bare["checkpoint"]) == (None, None)
        assert (await api.get(f"/v1/runs/{run_id}/checkpoint")).status_code == 404

        await store.save_progress(database, run.run_id, run.fence, worker_id, Progress(30, 120, "page 4"))
        await store.save_checkpoint(database, run.run_id, run.fence, worker_id, '{"page":[4,5]}')

        shown = (await api.get(f"/v1/runs/{run_id}")).json()
        at = clock.at.isoformat().replace("+00:00", "Z")
        assert shown["progress"] == {"done": 30, "total": 120, "fraction": 0.25, "note": "page 4", "updated_at": at}
        assert shown["checkpoint"] == {"bytes": 14, "fence": run.fence, "saved_at": at}
        kept = (await api.get(f"/v1/runs/{run_id}/checkpoint")).json()
        assert kept == {"bytes": 14, "fence": run.fence, "saved_at": at, "value": {"page": [4, 5]}}

    async def test_a_checkpoint_over_http_is_handed_on_up_to_its_limit_and_not_beyond(self, api, database, clock):
        await a_run(api, queue="remote")
        answer = await api.post(
            "/v1/worker/register", json={"name": "w", "queues": ["remote"], "handlers": ["app:mail"]}
        )
        worker = f"/v1/worker/{answer.json()['worker_id']}"
        [run] = (await api.post(f"{worker}/claim", json={"number": 1})).json()["runs"]
        lease = {"run_id": run["run_id"], "fence": run["fence"]}
        just = "x" * (CHECKPOINT_BYTES_MAX - 2)  # and two quotes

        assert (await api.post(f"{worker}/checkpoint", json={**lease, "value": just + "x"})).status_code == 422
        assert (await api.post(f"{worker}/checkpoint", json={**lease, "value": just})).status_code == 204
        assert (await api.get(f"/v1/runs/{run['run_id']}")).json()["checkpoint"]["bytes"] == CHECKPOINT_BYTES_MAX
        outcome = {**lease, "outcome": "failed", "retry_after": "PT0S"}
        await api.post(f"{worker}/settle", json={"outcomes": [outcome]})
        await clock.advance(1)
        [again] = (await api.post(f"{worker}/claim", json={"number": 2})).json()["runs"]
        assert (again["attempt"], again["checkpoint"]) == (2, just)


class TestLogStream:
    async def test_log_stream_of_an_ended_run_sends_the_whole_log_and_then_end(self, api, database):
        run_id = await a_run(api)
        [run] = await work(database)
        for number in (1, 2, 3):
            await a_line(database, run.run_id, number)

        answer = await api.get(f"/v1/runs/{run_id}/logs", headers=EVENTS)

        assert answer.headers["content-type"].startswith("text/event-stream")
        *lines, end = events_in(answer.text)
        assert [(place, name, line["message"]) for place, name, line in lines] == [
            (f"1/{number}", "line", f"line {number}") for number in (1, 2, 3)
        ]
        assert end == ("", "end", {"state": "succeeded"})

    async def test_log_stream_resumes_after_the_last_received_line(self, api, database):
        run_id = await a_run(api)
        [run] = await work(database, Failed("broken", retryable=False))
        for attempt in (1, 2):
            for number in (1, 2):
                await a_line(database, run.run_id, number, attempt=attempt)
        path = f"/v1/runs/{run_id}/logs"

        slots = [
            [place for place, *_ in events_in((await api.get(path, headers=EVENTS | {"Last-Event-ID": last})).text)]
            for last in ("0/0", "1/2", "2/2")
        ]

        assert slots == [["1/1", "1/2", "2/1", "2/2", ""], ["2/1", "2/2", ""], [""]]

    async def test_lines_come_while_the_run_is_under_way(self, front, api, database):
        run_id = UUID(await a_run(api))
        worker_id, [run] = await take(database)

        async def always() -> bool:
            return True

        open_session = lambda: front.door._sessions.open(1)  # noqa: E731 - as the door hands it out
        dependency = front.door.services.hub.logs.read(
            front.door.services.open_requests.take(LOGS, ANYBODY.key), run_id, (0, -1), open_session, always
        )
        assert await anext(dependency) == b"retry: 1000\n\n"
        upcoming = asyncio.ensure_future(anext(dependency))
        await asyncio.sleep(0.05)
        assert not upcoming.done()
        await a_line(database, run_id, 1)
        assert events_in((await upcoming).decode())[0][:2] == ("1/1", "line")
        upcoming = asyncio.ensure_future(anext(dependency))
        await settled(database, worker_id, run)
        assert events_in((await upcoming).decode()) == [("", "end", {"state": "succeeded"})]
        with pytest.raises(StopAsyncIteration):
            await anext(dependency)

    async def test_idle_log_stream_sends_heartbeats_and_ends_when_its_key_is_revoked(self, front, api, database, clock):
        run_id = UUID(await a_run(api))
        may_listen = True

        async def is_admitted() -> bool:
            return may_listen

        open_session = lambda: front.door._sessions.open(1)  # noqa: E731 - as above
        dependency = front.door.services.hub.logs.read(
            front.door.services.open_requests.take(LOGS, ANYBODY.key), run_id, (0, -1), open_session, is_admitted
        )
        await anext(dependency)
        upcoming = asyncio.ensure_future(anext(dependency))
        await asyncio.sleep(0.02)
        await clock.advance(log_streams.HEARTBEAT_SECONDS)
        assert await upcoming == b": alive\n\n"
        may_listen = False
        with pytest.raises(StopAsyncIteration):
            await anext(dependency)

    async def test_only_so_many_follow_at_once_and_one_that_ends_makes_room(self, front, api, database, monkeypatch):
        monkeypatch.setattr("duly.api.routes.runs.LOGS", msgspec.structs.replace(LOGS, of_tenant_max=1))
        run_id = await a_run(api)
        path = f"/v1/runs/{run_id}/logs"
        first = asyncio.ensure_future(api.get(path, headers=EVENTS))
        await asyncio.sleep(0.1)

        refused = await api.get(path, headers=EVENTS)
        assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (
            429,
            "quota_reached",
            "10",
        )
        await api.post(f"/v1/runs/{run_id}/cancel")
        assert events_in((await first).text) == [("", "end", {"state": "cancelled"})]
        assert (await api.get(path, headers=EVENTS)).status_code == 200

    async def test_a_run_of_another_tenant_is_not_there(self, front, api):
        run_id = await a_run(api)
        stranger = await front.stranger()

        assert (await stranger.get(f"/v1/runs/{run_id}/logs", headers=EVENTS)).status_code == 404
        assert (await stranger.get(f"/v1/runs/{run_id}/checkpoint")).status_code == 404


class TestSubtasks:
    async def test_a_subtask_knows_its_parent_and_the_parent_its_subtasks(self, api, database, clock):
        parent = await a_run(api)
        await take(database)
        first = await a_run(api, parent=parent, tags=["part"])
        second = await a_run(api, parent=parent, queue="other", retry={"max_attempts": 1})
        await a_run(api)
        await work(database, queue="other")

        assert (await api.get(f"/v1/runs/{first}")).json()["parent"] == parent
        assert (await api.get(f"/v1/runs/{second}")).json()["parent"] == parent, "also when it has ended"
        assert (await api.get(f"/v1/runs/{parent}")).json()["parent"] is None
        listed = await pages(api, "/v1/runs", filter=f"parent:{parent}", page_size=1)
        assert {(run["run_id"], run["state"]) for run in listed} == {(first, "ready"), (second, "succeeded")}
        for text, found in (("state:succeeded", [second]), ("tag:part", [first]), ("queue:none", [])):
            assert [
                run["run_id"] for run in await pages(api, "/v1/runs", filter=f"parent:{parent} AND {text}")
            ] == found
        assert await pages(api, "/v1/runs", filter=f"parent:{first}") == []

    async def test_options_of_its_own_and_a_parent_go_together(self, api, database):
        parent = await a_run(api)
        child = await a_run(api, parent=parent, timeout="PT30S")

        assert (await api.get(f"/v1/jobs/{child}")).json()["timeout"] == "PT30S"
        assert (await api.get(f"/v1/runs/{child}")).json()["parent"] == parent

    @pytest.mark.parametrize("end", [Succeeded(), Failed("broken", retryable=False)], ids=["ended", "dead"])
    async def test_a_run_that_has_ended_gets_no_more_subtasks(self, api, database, end):
        parent = await a_run(api)
        await work(database, end)

        answer = await api.post("/v1/jobs", json={"target": A_TARGET, "parent": parent})

        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
        assert parent in answer.json()["detail"]
        assert await database.fetchval("select count(*) from duly.ready") == 0, "nothing was made"

    async def test_neither_does_one_of_another_tenant_nor_one_that_never_was(self, front, api):
        theirs = await a_run(await front.stranger())
        for parent in (theirs, str(uuid4())):
            answer = await api.post("/v1/jobs", json={"target": A_TARGET, "parent": parent})
            assert answer.status_code == 409

    async def test_subtask_create_is_idempotent_even_after_its_parent_ended(self, api, database):
        parent = await a_run(api)
        body = {"target": A_TARGET, "parent": parent, "idempotency_key": "part 1"}
        first = (await api.post("/v1/jobs", json=body)).json()["run_id"]
        await work(database)

        assert (await api.post("/v1/jobs", json=body)).json()["run_id"] == first
        assert len(await pages(api, "/v1/runs", filter=f"parent:{parent}")) == 1

    async def test_a_schedule_has_no_parent(self, api):
        parent = await a_run(api)
        body = {"target": A_TARGET, "parent": parent, "schedule": {"trigger": {"type": "interval", "every": "PT1H"}}}

        answer = await api.post("/v1/jobs", json=body)

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")

    async def test_batch_refuses_only_the_subtask_of_an_ended_parent(self, api, database):
        gone = await a_run(api)
        await work(database)
        parent = await a_run(api)
        lines = [{"target": A_TARGET, "parent": one} if one else {"target": A_TARGET} for one in (parent, gone, None)]

        answer = await api.post(
            "/v1/jobs:batch",
            content="\n".join(json.dumps(line) for line in lines),
            headers={"Content-Type": "application/x-ndjson"},
        )

        told = [json.loads(line) for line in answer.text.splitlines()]
        assert [line.get("error", {}).get("code") for line in told] == [None, "conflict", None]
        assert [run["run_id"] for run in await pages(api, "/v1/runs", filter=f"parent:{parent}")] == [told[0]["job_id"]]

    async def test_cancel_includes_subtasks_in_every_state(self, api, database, clock):
        parent = await a_run(api)
        _worker_id, _ = await take(database)
        later = {"trigger": {"type": "at", "at": "2026-11-03T09:00:00Z"}}
        ready, waiting = await a_run(api, parent=parent), await a_run(api, parent=parent, schedule=later)
        running = await a_run(api, parent=parent, queue="busy")
        busy, _ = await take(database, "busy")
        grandchild, below_running = await a_run(api, parent=ready), await a_run(api, parent=running)
        other = await a_run(api)

        alone = (await api.post(f"/v1/runs/{other}/cancel?children=true")).json()
        told = (await api.post(f"/v1/runs/{parent}/cancel?children=true")).json()

        assert alone["children"] == 0
        assert told == {"run_id": parent, "status": "requested", "state": "running", "children": 5}
        states = {
            run_id: (await api.get(f"/v1/runs/{run_id}")).json()["state"]
            for run_id in (ready, waiting, running, grandchild, below_running)
        }
        cancelled = dict.fromkeys([ready, waiting, grandchild, below_running], "cancelled")
        assert states == {**cancelled, running: "running"}
        assert [signal.run_id for signal in (await store.look(database, busy)).signals] == [UUID(running)]

    async def test_subtask_awaiting_a_callback_is_cancelled_with_its_parent(self, api, database):
        parent = await a_run(api)
        await take(database)
        child = await a_run(api, parent=parent, queue="hooks")
        worker_id, [run] = await take(database, "hooks")
        await awaited.put(database, worker_id, [awaited.TakenOn(run, None, timedelta(hours=1))])

        assert (await api.post(f"/v1/runs/{parent}/cancel?children=true")).json()["children"] == 1

        assert (await api.get(f"/v1/runs/{child}")).json()["state"] == "cancelled"

    async def test_subtask_leased_ahead_is_signalled_when_its_parent_is_cancelled(self, api, database):
        parent = await a_run(api)
        worker_id, _ = await take(database)
        soon = {"trigger": {"type": "at", "at": "2026-11-02T09:00:03Z"}}
        ahead = await a_run(api, parent=parent, schedule=soon)
        [held] = await claim(database, worker_id, ["default"], ["app:mail"], 10)

        assert (await api.post(f"/v1/runs/{parent}/cancel?children=true")).json()["children"] == 1

        told = {signal.run_id for signal in (await store.look(database, worker_id)).signals}
        assert told == {UUID(parent), UUID(ahead)}
        assert held.run_id == UUID(ahead)


class TestTheAnswerToACancelIsTrue:
    async def test_first_settled_outcome_decides_a_cancel_race(self, api, database):
        for outcome, state in ((Succeeded(), "succeeded"), (Cancelled(), "cancelled")):
            run_id = await a_run(api)
            worker_id, [run] = await take(database)
            asked = (await api.post(f"/v1/runs/{run_id}/cancel")).json()
            assert (asked["status"], asked["state"]) == ("requested", "running")

            await settled(database, worker_id, run, outcome)

            assert (await api.get(f"/v1/runs/{run_id}")).json()["state"] == state
            late = (await api.post(f"/v1/runs/{run_id}/cancel")).json()
            assert (late["status"], late["state"]) == ("too_late", state)
            gone = (await api.delete(f"/v1/jobs/{run_id}")).json()
            assert (gone["status"], gone["state"]) == ("too_late", state)

    async def test_a_failure_after_a_cancel_is_not_tried_again(self, api, database):
        run_id = await a_run(api)
        worker_id, [run] = await take(database)
        await api.post(f"/v1/runs/{run_id}/cancel")

        await settled(database, worker_id, run, Failed("broken"))

        assert (await api.get(f"/v1/runs/{run_id}")).json()["state"] == "cancelled"

    async def test_run_leased_ahead_of_its_due_time_accepts_a_cancel_request(self, api, database):
        made = await api.a_job(schedule={"trigger": {"type": "at", "at": "2026-11-02T09:00:03Z"}})
        await stage(database)
        await take(database)

        answer = (await api.post(f"/v1/runs/{made['job_id']}/cancel")).json()

        assert (answer["status"], answer["state"]) == ("requested", "ready")
