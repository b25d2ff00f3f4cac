"""Asked over HTTP why something does not start, the first thing that holds it back is told; one story for each."""

from datetime import timedelta

import pytest

from duly.domain.runs.outcome import Failed, WaitForDestination
from duly.moves.admin.destinations import report
from duly.moves.admin.overload import record_overloads
from duly.moves.defer import Deferred, defer
from duly.moves.submit import submit
from duly.store.tables.destinations import DestinationReport
from tests.api.front import A_TARGET, EVERY_HOUR
from tests.api.test_runs import a_run
from tests.builders import (
    RNG,
    a_key,
    a_leased_run,
    a_ready_run,
    a_retrying_run,
    a_submission,
    a_waiting_run,
    a_worker,
    an_active_schedule,
    claimed,
    seconds,
    settled,
    staged,
)
from tests.clock import START


async def blocker(api, run_id, kind="runs"):
    answer = await api.get(f"/v1/{kind}/{run_id}/explain")
    assert answer.status_code == 200, answer.text
    return answer.json()["blocker"]


def at(span: float) -> str:
    return (START + seconds(span)).isoformat().replace("+00:00", "Z")


async def test_explain_reports_a_start_that_is_not_due(api, database):
    found = await blocker(api, await a_waiting_run(database, delay=90))

    assert (found["code"], found["probable_start_at"]) == ("not_due", at(90))
    job = await api.a_job(schedule={"trigger": {"type": "interval", "every": "PT1H", "anchor": at(600)}})
    found = await blocker(api, job["job_id"], "jobs")
    assert (found["code"], found["probable_start_at"]) == ("not_due", at(600))


async def test_paused(api):
    job = await api.a_job(schedule=EVERY_HOUR)
    await api.post(f"/v1/jobs/{job['job_id']}/pause", json={"reason": "too noisy"})

    found = await blocker(api, job["job_id"], "jobs")

    assert (found["code"], found["resolved_by"], found["probable_start_at"]) == (
        "paused",
        f"`duly jobs resume {job['job_id']}`",
        None,
    )
    assert "too noisy" in found["text"]


async def test_explain_reports_a_concurrency_limit(api, database, clock):
    await a_waiting_run(database, delay=6, concurrency=("g", 1))
    second = await a_waiting_run(database, delay=7, concurrency=("g", 1))
    await clock.advance(8)
    await staged(database)

    found = await blocker(api, second)

    assert (found["code"], found["probable_start_at"]) == ("concurrency_limit", None)
    worker_id = await a_worker(database, lease=timedelta(days=1))
    await a_ready_run(database)
    [_, done] = sorted(await claimed(database, worker_id), key=lambda run: run.due_at)
    await clock.advance(10)
    await settled(database, worker_id, done)
    assert (await blocker(api, second))["probable_start_at"] is not None, "it is known by now how long a run takes"


async def test_explain_reports_rate_limit_and_open_circuit_of_a_destination(api, database):
    worker_id, run = await a_leased_run(database)
    await defer(database, worker_id, [Deferred(run, None, WaitForDestination("https://hooks.example"))])
    seen = DestinationReport(fresh_id=RNG.uuid(), tenant=1, origin="https://hooks.example", failing=5, streak=5)
    await report(database, worker_id, 1, [seen], RNG)

    found = await blocker(api, run.run_id)

    assert found["code"] == "circuit_open"
    assert found["probable_start_at"] is not None
    assert "duly destinations close https://hooks.example" in found["resolved_by"]
    await database.execute(
        "update duly.destinations set state = 'closed', wait_until = '-infinity', requested_until = '-infinity',"
        " rate_per_second = 2"
    )
    assert (await blocker(api, run.run_id))["code"] == "rate_limit"


async def test_explain_reports_fifo_order(api, database, clock):
    line = [(await submit(database, a_submission(fifo="orders", delay=6), key=a_key())).job_id for _ in range(3)]
    await clock.advance(7)
    await staged(database)

    found = await blocker(api, line[2])

    assert (found["code"], found["probable_start_at"]) == ("fifo_order", None)
    assert f"run {line[0]}" in found["resolved_by"]
    assert (await blocker(api, line[0]))["code"] == "queue_backlog"


async def test_explain_reports_a_rate_limit(api, database, clock):
    runs = [
        (await submit(database, a_submission(rate=("provider", 0.5, 1), delay=6), key=a_key())).job_id for _ in range(4)
    ]
    await clock.advance(7)
    await staged(database)
    waiting = [run_id for run_id in runs if (await blocker(api, run_id))["code"] == "rate_limit"]

    found = [await blocker(api, run_id) for run_id in waiting]

    assert len(found) >= 2
    assert all(one["probable_start_at"] is not None for one in found)
    assert "'provider' allows 30 a minute" in found[0]["text"]


async def test_queue_paused(api, database):
    run_id = await a_ready_run(database)
    await api.post("/v1/queues/default/pause", json={"reason": "broken"})

    found = await blocker(api, run_id)

    assert (found["code"], found["resolved_by"]) == ("queue_paused", "`duly resume --queue default --tenant 1`")


async def test_explain_names_a_resume_for_each_pause(api, database):
    run_id = await a_ready_run(database)
    await api.post("/v1/queues/default/pause", json={"reason": "broken"})
    await api.post("/v1/pause", json={"all": True})

    found = await blocker(api, run_id)

    assert "--queue default" in found["resolved_by"]
    assert "--all" in found["resolved_by"]


@pytest.mark.parametrize("scope", [{"queue": "default"}, {"all": True}, {"tenant": 1}])
async def test_explain_reports_a_reached_limit(api, database, scope):
    await api.put("/v1/limits", json={"slots": 1, **scope})
    await a_leased_run(database)
    run_id = await a_ready_run(database)

    found = await blocker(api, run_id)
    assert found["code"] == "limit_reached"
    assert "duly limits set" in found["resolved_by"]

    await api.put("/v1/limits", json={"slots": 2, **scope})
    assert (await blocker(api, run_id))["code"] != "limit_reached"


async def test_no_worker_for_queue_and_no_worker_has_handler(api, database):
    run_id = await a_run(api, queue="mail")
    assert (await blocker(api, run_id))["code"] == "no_worker_for_queue"
    await a_worker(database, queues=["mail"], handlers=["other"])

    found = await blocker(api, run_id)

    assert (found["code"], found["probable_start_at"]) == ("unroutable", None)


async def test_queue_backlog(api, database, clock):
    worker_id = await a_worker(database, lease=timedelta(days=1))
    for _ in range(90):
        await a_ready_run(database)
    for run in await claimed(database, worker_id):
        await settled(database, worker_id, run)
    for _ in range(4):
        await a_ready_run(database, priority=0)
    run_id = await a_ready_run(database)
    await clock.advance(1)

    found = await blocker(api, run_id)

    assert (found["code"], found["probable_start_at"]) == ("queue_backlog", at(11)), "five of half a run a second"
    assert "with 4 before it" in found["text"]
    assert "0.5 runs a second" in found["text"]


async def test_retry_backoff(api, database):
    found = await blocker(api, await a_retrying_run(database, after=60))

    assert (found["code"], found["probable_start_at"]) == ("retry_backoff", at(60))


async def test_calendar(api):
    whole = {"name": "closed", "tz": "UTC", "windows": [{"start": at(-600), "end": at(7_200)}]}
    assert (await api.ask("PUT", "/v1/calendars/closed", json=whole)).status_code in (200, 201)
    job = await api.a_job(
        schedule={
            "trigger": {"type": "cron", "expr": "0 * * * *"},
            "calendars": [{"name": "closed", "mode": "exclude"}],
        }
    )

    found = await blocker(api, job["job_id"], "jobs")

    assert found["code"] == "calendar"
    assert "closed" in found["text"]
    assert found["probable_start_at"] == job["next_run_at"]


async def test_shed(api, database, clock):
    job = await an_active_schedule(database, every=3_600, priority=8)
    await a_ready_run(database)
    await clock.advance(90)
    await record_overloads(database)

    found = await blocker(api, job.job_id, "jobs")

    assert (found["code"], found["probable_start_at"]) == ("shed", None)
    assert "queue default is overloaded" in found["text"]


async def test_blocked_parent_of_a_node(api):
    nodes = {"extract": {"target": A_TARGET}, "load": {"target": A_TARGET, "depends_on": ["extract"]}}
    made = await api.post("/v1/workflows", json={"name": "nightly", "nodes": nodes})
    shown = (await api.get(f"/v1/workflows/{made.json()['workflow_id']}")).json()
    [load] = [node["run_id"] for node in shown["nodes"] if node["name"] == "load"]

    found = await blocker(api, load)

    assert (found["code"], found["resolved_by"]) == ("dependency", "the end of extract")
    assert "extract" in found["text"]
    assert found["probable_start_at"] is None


async def test_explain_lists_the_dependencies_that_block_a_run(api, database):
    first, second = await a_waiting_run(database), await a_waiting_run(database)
    child = await a_run(api, depends_on=[str(first), {"job": str(second), "on": "always"}])

    found = await blocker(api, child)

    assert (found["code"], found["probable_start_at"]) == ("dependency", None)
    assert f"job {first}" in found["text"]
    assert f"job {second}" in found["resolved_by"]


@pytest.mark.parametrize("outcome", [None, Failed("broken", retryable=False)])
async def test_ended_run_has_no_blocker(api, database, outcome):
    worker_id, run = await a_leased_run(database)
    assert await blocker(api, run.run_id) is None
    await settled(database, worker_id, run, outcome)

    assert await blocker(api, run.run_id) is None


async def test_the_description_names_every_code(api):
    described = (await api.get("/openapi.json")).json()["components"]["schemas"]["Blocker"]["properties"]["code"][
        "enum"
    ]

    assert set(described) >= {"not_due", "dependency", "fifo_order", "shed", "calendar"}
