"""One-shots that follow others, over HTTP: asked for, told back, let go, and refused with the remedy."""

import msgspec
import pytest

from duly.domain.runs.outcome import Failed
from duly.moves.waiting import check_dependents
from tests.api.front import A_TARGET, EVERY_HOUR
from tests.api.test_runs import a_run
from tests.builders import a_leased_run, a_waiting_run, settled

UNKNOWN = "00000000-0000-4000-8000-000000000000"


async def read(api, run_id):
    """Read a run."""
    return (await api.get(f"/v1/runs/{run_id}")).json()


async def test_dependent_run_waits_lists_its_dependencies_and_runs_when_they_end(api, database):
    worker_id, run = await a_leased_run(database)
    waiting = await a_waiting_run(database)
    depends_on = [str(run.run_id), {"job": str(waiting), "on": "always"}]
    child = await a_run(api, depends_on=depends_on)

    told = [{"job": str(run.run_id), "on": "success"}, {"job": str(waiting), "on": "always"}]
    assert ((await read(api, child))["state"], (await read(api, child))["depends_on"]) == ("blocked", told)
    assert (await api.get(f"/v1/jobs/{child}")).json()["depends_on"] == told
    await settled(database, worker_id, run)
    assert (await read(api, child))["state"] == "blocked"
    await api.post(f"/v1/runs/{waiting}/cancel")

    assert (await read(api, child))["state"] == "ready"


async def test_skipped_run_shows_its_reason_and_dependencies(api, database):
    worker_id, run = await a_leased_run(database)
    child = await a_run(api, depends_on=[str(run.run_id)])

    await settled(database, worker_id, run, Failed("broken", retryable=False))

    found = await read(api, child)
    assert (found["state"], found["reason"]) == (
        "skipped",
        f"job {run.run_id} is dead, and this was to run on its success",
    )
    assert found["depends_on"] == [{"job": str(run.run_id), "on": "success"}]
    why = (await api.get(f"/v1/runs/{child}/explain")).json()["reasons"][0]["text"]
    assert f"it did not run: job {run.run_id} is dead" in why


async def test_batch_job_depends_on_an_ended_run(api, database):
    worker_id, run = await a_leased_run(database)
    await settled(database, worker_id, run)
    lines = [
        {"target": A_TARGET},
        {"target": A_TARGET, "depends_on": [str(run.run_id)]},
        {"target": A_TARGET, "depends_on": [UNKNOWN]},
    ]
    content = b"\n".join(map(msgspec.json.encode, lines))

    answer = await api.post("/v1/jobs:batch", content=content, headers={"Content-Type": "application/x-ndjson"})

    told = [msgspec.json.decode(line) for line in answer.content.splitlines()]
    made = [one for one in told if one.get("job_id")]
    assert len(made) == 2, told
    assert UNKNOWN in str(told), "the third names what nobody knows"
    assert {(await read(api, one["job_id"]))["state"] for one in made} == {"ready", "blocked"}
    await check_dependents(database)
    assert {(await read(api, one["job_id"]))["state"] for one in made} == {"ready"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"depends_on": [UNKNOWN]}, "nothing is known"),
        ({"depends_on": [UNKNOWN, UNKNOWN]}, "twice"),
        ({"depends_on": [UNKNOWN], "schedule": EVERY_HOUR}, "on_end"),
        ({"depends_on": [UNKNOWN], "name": "nightly"}, "on_end"),
    ],
)
async def test_invalid_dependency_is_refused(api, more, words):
    answer = await api.post("/v1/jobs", json={"target": A_TARGET, **more})

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")
    assert words in answer.json()["detail"]


@pytest.mark.parametrize("depends_on", [["nightly"], [{"job": UNKNOWN, "on": "maybe"}], [UNKNOWN] * 101, UNKNOWN])
async def test_malformed_dependency_list_is_refused(api, depends_on):
    answer = await api.post("/v1/jobs", json={"target": A_TARGET, "depends_on": depends_on})

    assert answer.status_code in {400, 422}
    assert answer.json()["errors"][0]["pointer"].startswith("/depends_on")


async def test_a_schedule_is_refused_with_the_remedy(api):
    schedule = await api.a_job(schedule=EVERY_HOUR)

    answer = await api.post("/v1/jobs", json={"target": A_TARGET, "depends_on": [schedule["job_id"]]})

    assert answer.status_code == 422
    assert (
        "is a schedule and has no one end; let each of its runs trigger this job with on_end" in answer.json()["detail"]
    )
