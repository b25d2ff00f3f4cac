"""A one-shot without a name can be changed and moved while it waits for its first attempt."""

from datetime import datetime, timedelta
from uuid import UUID

import pytest

from duly.domain.runs.outcome import Failed, Succeeded
from duly.domain.targets.target import Webhook
from duly.domain.tenancy.sealed_options import open_target
from duly.store.boxes import history
from duly.store.boxes.options import decode
from tests.api.front import A_TARGET
from tests.api.working import stage, take, work
from tests.builders import all_started, boxes_of, seconds
from tests.kept import a_keyring

ANY = {"If-Match": "*"}
LATER = {"trigger": {"type": "at", "at": "2026-11-03T09:00:00Z"}}
LARGE = {"text": "x" * 3000}


async def a_shot(api, **fields) -> str:
    answer = await api.post("/v1/jobs", json={"target": A_TARGET, **fields})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["job_id"])


@pytest.mark.parametrize("schedule", [{}, {"schedule": LATER}])
async def test_its_payload_priority_queue_and_options_are_changed(api, database, clock, schedule):
    job_id = await a_shot(api, payload={"n": 1}, tags=["x"], **schedule)

    patch = {"payload": {"n": 2, **LARGE}, "priority": 1, "queue": "mail", "timeout": "PT9S"}
    answer = await api.patch(f"/v1/jobs/{job_id}", patch, headers={"If-Match": '"1"'})

    assert answer.status_code == 200, answer.text
    job = answer.json()
    assert (job["job_id"], job["run_id"], job["version"], answer.headers["etag"]) == (job_id, job_id, 2, '"2"')
    assert (job["payload"], job["priority"], job["queue"], job["timeout"]) == ({"n": 2, **LARGE}, 1, "mail", "PT9S")
    assert job["tags"] == ["x"]
    await clock.advance(86_400)
    [run] = await work(database, Succeeded(), "mail")
    assert str(run.run_id) == job_id
    ended = (await api.get(f"/v1/runs/{job_id}")).json()
    assert (ended["payload"], ended["definition"]["version"]) == ({"n": 2, **LARGE}, 2)


async def test_edit_moves_a_one_shot_to_a_later_time_and_to_now(api, database, clock):
    job_id = await a_shot(api)
    later = await api.patch(f"/v1/jobs/{job_id}", {"schedule": LATER}, headers=ANY)
    assert later.json()["next_run_at"] == "2026-11-03T09:00:00Z"
    assert await work(database) == []
    assert await boxes_of(database, UUID(job_id)) == ["timers"]

    now = await api.put(f"/v1/jobs/{job_id}", json={"target": A_TARGET}, headers=ANY)
    assert now.status_code == 200, now.text
    [run] = await work(database)
    assert str(run.run_id) == job_id
    assert await history.verify(database) == []


async def test_edit_moves_a_one_shot_by_a_delay_from_now(api):
    job_id = await a_shot(api, schedule=LATER)
    made = await api.post("/v1/jobs", json={"target": A_TARGET})

    patch = {"schedule": {"trigger": {"at": None, "delay": "PT2H"}}}
    moved = await api.patch(f"/v1/jobs/{job_id}", patch, headers=ANY)

    assert moved.status_code == 200, moved.text
    now, then = (datetime.fromisoformat(answer.json()["next_run_at"]) for answer in (made, moved))
    assert timedelta(hours=2) <= then - now < timedelta(hours=2, seconds=10)


async def test_a_change_of_nothing_makes_no_version(api, database):
    job_id = await a_shot(api, payload={"n": 1}, priority=3, schedule=LATER)
    read = (await api.get(f"/v1/jobs/{job_id}")).json()

    put = await api.put(f"/v1/jobs/{job_id}", json=read, headers=ANY)
    patched = await api.patch(f"/v1/jobs/{job_id}", {"payload": {"n": 1}}, headers=ANY)

    assert (put.status_code, patched.status_code) == (200, 200), (put.text, patched.text)
    assert (put.json()["version"], patched.json()["version"]) == (1, 1)
    assert await database.fetchval("select count(*) from duly.audit where action = 'job.edited'") == 0


async def test_edit_of_a_one_shot_with_an_outdated_version_is_refused(api):
    job_id = await a_shot(api, schedule=LATER)
    await api.patch(f"/v1/jobs/{job_id}", {"priority": 1}, headers={"If-Match": '"1"'})

    answer = await api.patch(f"/v1/jobs/{job_id}", {"priority": 2}, headers={"If-Match": '"1"'})

    assert answer.json()["code"] == "version_changed"


async def test_started_ended_or_retrying_one_shot_refuses_changes(api, database):
    tried = await a_shot(api, queue="mail")
    await work(database, Failed("broken", retry_after=seconds(60)), "mail")
    ended = await a_shot(api)
    await work(database)
    running = await a_shot(api)
    await take(database)

    for job_id, state in ((tried, "retrying"), (ended, "succeeded"), (running, "running")):
        with all_started():
            answer = await api.patch(f"/v1/jobs/{job_id}", {"priority": 1}, headers=ANY)
        assert (answer.status_code, answer.json()["code"]) == (409, "conflict"), state
        assert f"it is {state}" in answer.json()["detail"]


async def test_one_shot_dropping_its_concurrency_key_unblocks_the_next(api, database, clock):
    key = {"concurrency": {"key": "k", "limit": 1}}
    first = await a_shot(api, **key)
    await stage(database)
    second = await a_shot(api, **key)
    await clock.advance(1)
    await stage(database)
    assert (await boxes_of(database, UUID(first)), await boxes_of(database, UUID(second))) == (["ready"], ["blocked"])

    answer = await api.patch(f"/v1/jobs/{first}", {"concurrency": None}, headers=ANY)

    assert answer.status_code == 200, answer.text
    assert await boxes_of(database, UUID(second)) == ["ready"]
    assert await history.verify(database) == []


async def test_changed_one_shot_keeps_its_dependencies(api, database):
    first = await a_shot(api)
    second = await a_shot(api, depends_on=[first])

    answer = await api.patch(f"/v1/jobs/{second}", {"payload": {"n": 2}}, headers=ANY)

    assert answer.json()["depends_on"] == [{"job": first, "on": "success"}]
    [run] = await work(database)
    assert str(run.run_id) == first
    [run] = await work(database)
    assert (str(run.run_id), run.payload) == (second, '{"n": 2}')
    assert await history.verify(database) == []


async def test_its_secrets_stay_when_they_are_sent_back_masked(api, database):
    target = {"type": "webhook", "url": "https://x.example/hook", "headers": {"Authorization": "Bearer s3cret"}}
    job_id = await a_shot(api, target=target, schedule=LATER)

    answer = await api.patch(f"/v1/jobs/{job_id}", {"priority": 1}, headers=ANY)

    assert answer.json()["target"]["headers"] == {"Authorization": "***"}
    kept = decode(
        await database.fetchval("select options::text from duly.timers where run_id = $1", job_id)
    ).policy.target
    assert isinstance(kept, Webhook)
    assert open_target(kept, 1, a_keyring).headers == {"Authorization": "Bearer s3cret"}


async def test_a_name_or_a_schedule_is_no_change_of_a_one_shot(api):
    job_id = await a_shot(api, schedule=LATER)
    for patch in ({"name": "once"}, {"schedule": {"trigger": {"type": "cron", "at": None, "expr": "0 3 * * *"}}}):
        answer = await api.patch(f"/v1/jobs/{job_id}", patch, headers=ANY)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option"), answer.text
    past = {"schedule": {"trigger": {"at": "2020-01-01T00:00:00Z"}}}
    assert (await api.patch(f"/v1/jobs/{job_id}", past, headers=ANY)).json()["code"] == "invalid_schedule"


async def test_edit_of_a_one_shot_is_audited(api):
    job_id = await a_shot(api, schedule=LATER)
    await api.patch(f"/v1/jobs/{job_id}", {"priority": 1}, headers=ANY)

    [entry] = (await api.get("/v1/audit", params={"action": "job.edited"})).json()["items"]

    assert (entry["subject"]["id"], entry["detail"]) == (job_id, {"version": 2})
