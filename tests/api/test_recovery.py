"""Recovery over HTTP: the operator sees what was missed and what becomes of it, approves, watches, or dismisses."""

from datetime import timedelta

import pytest

from duly.clock import Rng
from duly.log import Log
from duly.scheduler.service import Scheduler
from tests.builders import a_worker
from tests.clock import START
from tests.schedules.stories import a_cron, occurrences

HOUR = timedelta(hours=1)


@pytest.fixture
async def scheduler(database, clock):
    """A scheduler that comes back after three hours, to a cron of each policy."""
    first = Scheduler(database, name="first", rng=Rng(1), log=Log("test"), recovery_after=HOUR)
    for policy in ("skip", "fire_once", "fire_all"):
        await a_cron(database, name=policy, misfire={"policy": policy})
    await _step(first)
    await database.execute("delete from duly.ready")
    await first._release_shards()
    await clock.advance(3 * HOUR)
    second = Scheduler(database, name="second", rng=Rng(2), log=Log("test"), recovery_after=HOUR)
    await _step(second)
    return second


async def _step(scheduler, clock=None, times=1) -> None:
    for _ in range(times):
        await scheduler.renew()
        await scheduler.step()
        if clock is not None:
            await clock.advance(1)


async def test_recovery_plan_shows_missed_and_resulting_runs_by_policy(database, clock, scheduler, front):
    api = await front.caller()
    await a_worker(database)

    plan = (await api.get("/v1/recovery")).json()

    assert (plan["recovery"]["state"], plan["recovery"]["schedules_waiting"]) == ("open", 3)
    assert plan["recovery"]["down_since"] == START.isoformat().replace("+00:00", "Z")
    assert {
        item["name"]: (item["policy"], item["missed"], item["runs"], item["is_waiting"]) for item in plan["items"]
    } == {
        "skip": ("skip", 180, 0, True),
        "fire_once": ("fire_once", 180, 1, True),
        "fire_all": ("fire_all", 180, 180, True),
    }
    assert plan["tenants"] == [{"tenant": 1, "schedules": 3, "missed": 540, "runs": 181}]
    assert plan["left"] == 181
    assert plan["proposed_rate"] == 10.0, "half of what twenty slots can do"
    assert plan["finish_at"] == (START + 3 * HOUR + timedelta(minutes=3)).isoformat().replace("+00:00", "Z")


async def test_recovery_is_approved_with_choices_and_observed_to_its_end(database, clock, scheduler, front):
    api = await front.caller()
    [job_id] = [row[0] for row in await database.fetch("select job_id from duly.jobs where name = 'fire_all'")]
    body = {"rules": [{"choice": "skip"}, {"choice": "fire_once", "job_id": str(job_id)}], "rate": 5}

    approved = (await api.post("/v1/recovery/approve", json=body)).json()

    assert (approved["recovery"]["state"], approved["recovery"]["rate"], approved["left"]) == ("approved", 5.0, 1)
    assert approved["recovery"]["decided_by"].startswith("key ")
    await _step(scheduler, clock, 12)
    ended = (await api.get("/v1/recovery")).json()
    assert (ended["recovery"]["state"], ended["recovery"]["created"], ended["items"]) == ("done", 1, [])
    assert await occurrences(database) == [START + 3 * HOUR]
    again = await api.post("/v1/recovery/approve", json={})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")


async def test_recovery_can_be_dismissed(database, clock, scheduler, front):
    api = await front.caller()

    told = (await api.ask("DELETE", "/v1/recovery")).json()

    assert told["recovery"]["state"] == "dismissing"
    await _step(scheduler, clock, 12)
    assert (await api.get("/v1/recovery")).json()["recovery"]["state"] == "dismissed"
    assert await occurrences(database) == []


async def test_operator_endpoints_refuse_other_tenants(front):
    stranger = await front.stranger()

    for method, path in (("GET", ""), ("POST", "/approve"), ("DELETE", "")):
        answer = await stranger.ask(method, f"/v1/recovery{path}", **({"json": {}} if method == "POST" else {}))
        assert answer.status_code == 403


async def test_where_nothing_was_missed(api):
    plan = (await api.get("/v1/recovery")).json()

    assert (plan["recovery"], plan["left"], plan["items"], plan["finish_at"]) == (None, 0, [], None)
    assert (await api.post("/v1/recovery/approve", json={"rate": 600})).status_code == 422


async def test_a_dry_run_of_an_approval_shows_the_plan_and_changes_nothing(database, clock, scheduler, front):
    api = await front.caller()
    asked = {"rules": [{"choice": "fire_all"}], "rate": 3, "dry_run": True}

    plan = (await api.post("/v1/recovery/approve", json=asked)).json()

    planned = {item["name"]: (item["choice"], item["runs"]) for item in plan["items"]}
    assert planned == dict.fromkeys(("skip", "fire_once", "fire_all"), ("fire_all", 180))
    assert (plan["recovery"]["state"], plan["recovery"]["rate"], plan["left"]) == ("open", 3, 540)
    now = (await api.get("/v1/recovery")).json()
    assert (now["recovery"]["state"], now["recovery"]["rate"], now["left"]) == ("open", None, 181)

    await api.post("/v1/recovery/approve", json={"rate": 5})
    refused = await api.post("/v1/recovery/approve", json=asked)
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
