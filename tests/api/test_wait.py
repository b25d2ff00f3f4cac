"""`Prefer: wait=n`: the answer to a create waits for the end of a one-shot, and not longer than was asked."""

import asyncio

import pytest

from duly.api.prefer_wait import requested_seconds
from duly.domain.runs.outcome import Failed, Succeeded
from tests.api.front import A_TARGET, EVERY_HOUR
from tests.api.working import work

ONE = {"target": A_TARGET}


async def worked(database, outcome) -> None:
    while not await work(database, outcome):
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("outcome", "state", "result"),
    [(Succeeded('{"sum": 3}'), "succeeded", {"sum": 3}), (Failed("broken", retryable=False), "dead", None)],
)
async def test_the_end_is_answered_with_the_run(api, database, outcome, state, result):
    asked = asyncio.create_task(api.post("/v1/jobs", json=ONE, headers={"Prefer": "wait=60"}))
    async with asyncio.timeout(30):
        await worked(database, outcome)
        answer = await asked

    run = answer.json()["run"]
    assert (answer.status_code, answer.headers["preference-applied"]) == (200, "wait=60")
    assert (run["state"], run["result"], run["run_id"]) == (state, result, answer.json()["job_id"])
    read = (await api.get(f"/v1/jobs/{run['run_id']}")).json()
    for told in (answer.json(), read):
        assert (told["status"], told["next_run_at"]) == ("completed", None)


async def test_the_end_of_a_one_shot_with_a_name_is_waited_for_too(api, database):
    asked = asyncio.create_task(api.post("/v1/jobs", json={**ONE, "name": "once"}, headers={"Prefer": "wait=60"}))
    async with asyncio.timeout(30):
        await worked(database, Succeeded())
        answer = await asked

    assert (answer.status_code, answer.json()["run"]["run_id"]) == (200, answer.json()["run_id"])


async def test_after_the_wait_it_is_accepted_as_ever(api, database, clock):
    asked = asyncio.create_task(api.post("/v1/jobs", json=ONE, headers={"Prefer": "respond-async, wait=2"}))
    async with asyncio.timeout(30):
        while not await database.fetchval("select count(*) from duly.ready"):
            await asyncio.sleep(0.01)
        assert not asked.done()
        while not asked.done():  # The job is there before the wait begins, which counts from its own beginning.
            await clock.advance(3)
            await asyncio.sleep(0.01)
        answer = await asked

    assert (answer.status_code, answer.json()["run"]) == (202, None)
    assert answer.headers["location"] == f"/v1/jobs/{answer.json()['job_id']}"


async def test_idempotency_key_stores_the_created_job_without_the_wait(api, database):
    headers = {"Prefer": "wait=0", "Idempotency-Key": "k"}
    first, again = [await api.post("/v1/jobs", json=ONE, headers=headers) for _ in range(2)]

    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["job_id"] == again.json()["job_id"]
    assert again.headers["idempotency-replayed"] == "true"


async def test_a_repeat_under_its_key_waits_anew_and_shows_the_run(api, database):
    first = await api.post("/v1/jobs", json=ONE, headers={"Prefer": "wait=0", "Idempotency-Key": "k"})
    asked = asyncio.create_task(
        api.post("/v1/jobs", json=ONE, headers={"Prefer": "wait=60", "Idempotency-Key": "k"}),
    )
    async with asyncio.timeout(30):
        await worked(database, Succeeded('{"sum": 3}'))
        again = await asked
    plain = await api.post("/v1/jobs", json=ONE, headers={"Idempotency-Key": "k"})

    assert (first.status_code, again.status_code, plain.status_code) == (202, 200, 202)
    assert again.json()["run"]["result"] == {"sum": 3}
    assert again.json()["run"]["run_id"] == first.json()["job_id"] == plain.json()["job_id"]
    assert (again.headers["idempotency-replayed"], again.headers["preference-applied"]) == ("true", "wait=60")
    assert again.headers["location"] == first.headers["location"]


async def test_a_schedule_has_no_end_to_wait_for(api):
    answer = await api.post("/v1/jobs", json={**ONE, "schedule": EVERY_HOUR}, headers={"Prefer": "wait=60"})

    assert answer.status_code == 202
    assert "preference-applied" not in answer.headers


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("", None),
        ("wait", None),
        ("wait=", None),
        ("wait=-1", None),
        ("wait=1.5", None),
        ("await=5", None),
        ("wait=5", 5),
        ("WAIT = 5", 5),
        ("respond-async, wait=5", 5),
        ("wait=999999", 60),
        ("wait=" + "9" * 400, None),
        ("wait=٣", None),
    ],
)
def test_prefer_header_yields_the_wait_in_seconds(text, seconds):
    assert requested_seconds(text) == seconds
