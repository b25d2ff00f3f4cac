"""Any answer to a one-shot names its run."""

import msgspec
import pytest

from duly.domain.runs.outcome import Succeeded
from tests.api.front import A_TARGET
from tests.api.working import work

LATER = {"trigger": {"type": "at", "at": "2026-11-03T09:00:00.25Z"}}
EARLIER = {"trigger": {"type": "at", "at": "2026-11-02T12:00:00Z"}}
DAILY = {"trigger": {"type": "cron", "expr": "0 3 * * *"}}


async def runs_of(database) -> list[str]:
    return [str(run.run_id) for run in await work(database, Succeeded())]


@pytest.mark.parametrize("named", [{}, {"name": "once"}])
@pytest.mark.parametrize("schedule", [None, LATER])
async def test_the_answer_to_a_one_shot_names_the_run_that_it_becomes(api, database, clock, named, schedule):
    body = {"target": A_TARGET, **named, **({} if schedule is None else {"schedule": schedule})}
    made = [await api.post("/v1/jobs", json=body, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [answer.status_code for answer in made] == [202, 202], made[0].text
    run_id = made[0].json()["run_id"]
    assert run_id is not None
    assert made[1].json()["run_id"] == run_id
    job_path = f"/v1/jobs/{made[0].json()['job_id']}"
    assert (await api.get(job_path)).json()["run_id"] == run_id

    await clock.advance(90_000)
    assert await runs_of(database) == [run_id]
    assert (await api.get(job_path)).json()["run_id"] == run_id, "also when it is over"


async def test_a_job_that_may_fire_again_names_none(api):
    made = await api.post("/v1/jobs", json={"target": A_TARGET, "schedule": DAILY})

    assert made.json()["run_id"] is None
    assert (await api.get(f"/v1/jobs/{made.json()['job_id']}")).json()["run_id"] is None


async def test_a_change_names_the_run_that_it_becomes_now(api, database, clock):
    body = {"target": A_TARGET, "name": "once", "schedule": LATER}
    made = (await api.post("/v1/jobs", json=body)).json()
    path, any_version = f"/v1/jobs/{made['job_id']}", {"If-Match": "*"}

    put = await api.put(path, json={**body, "schedule": EARLIER}, headers=any_version)
    patched = await api.patch(path, {"priority": 1}, headers=any_version)

    assert put.json()["run_id"] == patched.json()["run_id"] != made["run_id"]
    await clock.advance(14_400)
    assert await runs_of(database) == [put.json()["run_id"]]


async def test_each_line_of_a_batch_names_its_run(api, database):
    lines = [{"target": A_TARGET}, {"target": A_TARGET, "name": "once"}, {"target": A_TARGET, "schedule": DAILY}]
    body = b"\n".join(map(msgspec.json.encode, lines))
    answer = await api.post("/v1/jobs:batch", content=body, headers={"Content-Type": "application/x-ndjson"})
    plain, named, daily = [msgspec.json.decode(line) for line in answer.content.splitlines()]

    assert plain["run_id"] == plain["job_id"]
    assert "run_id" not in daily
    assert sorted(await runs_of(database)) == sorted([plain["run_id"], named["run_id"]])
