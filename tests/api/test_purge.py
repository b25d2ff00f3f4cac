"""A job is purged: its definition and versions at once, its history when none of its runs is under way any more."""

from datetime import timedelta

import pytest

from duly.domain.runs.outcome import Failed
from duly.moves.schedules import purge
from duly.store.boxes import history
from duly.store.reads import overview
from duly.store.retention import forget_payloads
from tests.api.front import A_TARGET
from tests.api.working import stage, take, work
from tests.builders import settled

HOURLY = {"trigger": {"type": "interval", "every": "PT1H"}}
LARGE = {"text": "x" * 3000}
LEFT = {
    "jobs": "job_id",
    "job_versions": "job_id",
    "job_tags": "job_id",
    "payloads": "job_id",
    "attempts": "job_id",
    "dead": "job_id",
    "purges": "job_id",
}


async def left_of(database, job_id) -> dict[str, int]:
    """Count what tables still have of a job."""
    counted = {
        table: await database.fetchval(f"select count(*) from duly.{table} where {column} = $1", job_id)
        for table, column in LEFT.items()
    }
    return {table: count for table, count in counted.items() if count}


async def a_job_with_a_past(api, database, clock) -> str:
    job = await api.a_job(schedule=HOURLY, name="hourly", tags=["x"], payload=LARGE)
    path = f"/v1/jobs/{job['job_id']}"
    assert (await api.patch(path, {"priority": 1}, headers={"If-Match": "*"})).status_code == 200
    for outcome in (None, Failed("broken", retryable=False)):
        await clock.advance(3_600)
        assert await work(database, outcome)
    return str(job["job_id"])


async def test_nothing_is_left_of_it_but_the_audit(api, database, clock):
    job_id = await a_job_with_a_past(api, database, clock)
    other = await a_job_of_another(api, database)
    assert {"job_versions", "attempts", "dead", "payloads"} <= set(await left_of(database, job_id))

    answer = await api.delete(f"/v1/jobs/{job_id}", params={"purge": True})

    assert (answer.status_code, answer.json()["purged"]) == (200, True), answer.text
    assert await left_of(database, job_id) == {}
    assert (await api.get(f"/v1/jobs/{job_id}")).status_code == 404
    assert (await api.get("/v1/runs", params={"filter": f"job_id:{job_id}"})).json()["items"] == []
    assert await left_of(database, other) != {}
    actions = [entry["action"] for entry in (await api.get("/v1/audit", params={"subject": job_id})).json()["items"]]
    assert {"job.purged", "job.cancelled", "job.created"} <= set(actions)
    assert await history.verify(database) == []
    assert (await api.a_job(name="hourly"))["name"] == "hourly", "its name is free"


async def a_job_of_another(api, database) -> str:
    other: str = (await api.post("/v1/jobs", json={"target": A_TARGET})).json()["job_id"]
    await work(database)
    return other


async def test_purge_keeps_the_payload_of_a_started_run_until_it_ends(api, database, clock):
    job_id = await a_job_with_a_past(api, database, clock)
    await clock.advance(3_600)
    await stage(database)
    worker_id, [run] = await take(database)

    assert (await api.delete(f"/v1/jobs/{job_id}", params={"purge": True})).json()["purged"]
    assert (await api.get(f"/v1/jobs/{job_id}")).status_code == 404
    await clock.advance(timedelta(days=30))
    await forget_payloads(database, timedelta(days=7), timedelta(days=90), 100)
    await purge.go_on(database, None)
    assert (await overview.arguments(database, run.run_id))["payload"] is not None

    await settled(database, worker_id, run)
    await purge.go_on(database, None)
    assert await left_of(database, job_id) == {}


async def test_purge_deletes_a_long_history_in_batches(api, database, clock, monkeypatch):
    monkeypatch.setattr(purge, "AT_ONCE_MAX", 2)
    job = await api.a_job(schedule=HOURLY, name="hourly")
    for _ in range(5):
        await clock.advance(3_600)
        await work(database)

    await api.delete(f"/v1/jobs/{job['job_id']}", params={"purge": True})

    counts = [(await left_of(database, job["job_id"])).get("attempts", 0)]
    while counts[-1]:
        await purge.go_on(database, None)
        counts.append((await left_of(database, job["job_id"])).get("attempts", 0))
    assert counts == [4, 2, 0], "five runs and the record of what was not fired"


@pytest.mark.parametrize("is_over", [True, False])
async def test_a_one_shot_is_purged(api, database, is_over):
    job_id = (await api.post("/v1/jobs", json={"target": A_TARGET, "payload": LARGE})).json()["job_id"]
    if is_over:
        await work(database)

    answer = await api.delete(f"/v1/jobs/{job_id}", params={"purge": True})

    assert answer.json()["purged"], answer.text
    assert await left_of(database, job_id) == {}
    assert (await api.get(f"/v1/runs/{job_id}")).status_code == 404


async def test_a_node_is_not_purged_by_itself(api, database):
    made = await api.post("/v1/workflows", json={"name": "etl", "nodes": {"one": {"target": A_TARGET}}})
    assert made.status_code == 202
    [run] = await work(database)

    answer = await api.delete(f"/v1/jobs/{run.run_id}", params={"purge": True})

    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


async def test_definitions_that_are_over_go_after_their_retention_and_no_others(api, database, clock):
    over = (await api.a_job(name="over"))["job_id"]
    await api.delete(f"/v1/jobs/{over}")
    await clock.advance(timedelta(days=20))
    lately, live = [(await api.a_job(name=name))["job_id"] for name in ("lately", "live")]
    await api.delete(f"/v1/jobs/{lately}")
    await clock.advance(timedelta(days=11))

    await purge.go_on(database, None)
    assert "jobs" in await left_of(database, over), "kept for ever unless somebody says otherwise"
    await purge.go_on(database, timedelta(days=30))

    assert await left_of(database, over) == {}
    assert "jobs" in await left_of(database, lately)
    assert "jobs" in await left_of(database, live)


async def test_job_of_another_tenant_is_not_purged(api, front, database):
    job_id = await a_job_of_another(api, database)
    stranger = await front.stranger()

    answer = await stranger.delete(f"/v1/jobs/{job_id}", params={"purge": True})

    assert answer.status_code == 404
    assert await left_of(database, job_id) != {}
