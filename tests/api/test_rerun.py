"""Run again over HTTP: a new run of what an ended run was, as it was or changed."""

import pytest

from duly.domain.runs.outcome import Failed, Succeeded
from duly.domain.targets.target import Webhook
from duly.domain.tenancy.sealed_options import open_target
from duly.store.boxes import history
from duly.store.boxes.options import decode
from tests.api.front import A_TARGET
from tests.api.test_jobs import UNKNOWN
from tests.api.test_runs import a_run, one_of_each
from tests.api.working import take, work
from tests.kept import a_keyring

ASKED = {
    "payload": {"customer": 7},
    "priority": 2,
    "queue": "mail",
    "retry": {"max_attempts": 3},
    "timeout": "PT9S",
    "tags": ["x"],
    "concurrency": {"key": "k", "limit": 1, "order": "fifo"},
    "expires_after": "PT1H",
    "on_failure": {"job": "mop-up"},
}


async def read(api, run_id) -> dict:
    answer = await api.get(f"/v1/runs/{run_id}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def again(api, run_id, **changes) -> str:
    answer = await api.post(f"/v1/runs/{run_id}/rerun", json=changes)
    assert answer.status_code == 202, answer.text
    assert answer.headers["Location"] == f"/v1/runs/{answer.json()['run_id']}"
    return str(answer.json()["run_id"])


async def test_a_run_that_succeeded_is_run_again_as_it_was(api, database, clock):
    first = await a_run(api, **ASKED)
    await clock.advance(1)
    [ran] = await work(database, Succeeded(), "mail")
    assert str(ran.run_id) == first

    second = await again(api, first)

    made, was = await read(api, second), await read(api, first)
    assert second != first
    assert was["state"] == "succeeded", "it stays as it is"
    assert (made["rerun_of"], made["job_id"]) == (first, second)
    told = ("payload", "priority", "queue", "tags", "definition", "target")
    for name in told:
        assert made[name] == was[name]
    assert (made["submitted_by"]["action"], made["submitted_by"]["kind"]) == ("run.rerun", "key")
    await clock.advance(1)
    [ran] = await work(database, Succeeded(), "mail")
    assert (str(ran.run_id), ran.payload) == (second, '{"customer": 7}')
    assert (await read(api, second))["rerun_of"] == first, "also when it has ended"


async def test_every_ended_run_can_be_run_again_and_no_other(api, database, clock):
    made = await one_of_each(api, database, clock)
    for state, run_id in made.items():
        answer = await api.post(f"/v1/runs/{run_id}/rerun", json={})
        if state in ("succeeded", "dead", "cancelled"):
            assert answer.status_code == 202, (state, answer.text)
        else:
            assert (answer.status_code, answer.json()["code"]) == (409, "conflict"), state
            assert "cannot be run again yet" in answer.json()["detail"]


async def test_rerun_applies_the_given_overrides(api, database):
    first = await a_run(api, payload={"customer": 7})
    await work(database, Failed("broken", retryable=False))

    second = await again(api, first, payload={"customer": 8}, queue="other", priority=1, at="2027-01-01T00:00:00Z")

    made = await read(api, second)
    assert (made["payload"], made["queue"], made["priority"]) == ({"customer": 8}, "other", 1)
    assert (made["state"], made["scheduled_at"]) == ("scheduled", "2027-01-01T00:00:00Z")
    assert (await read(api, first))["payload"] == {"customer": 7}


async def test_rerun_of_a_scheduled_run_is_independent_of_its_deleted_schedule(api, database, clock):
    hourly = {"trigger": {"type": "interval", "every": "PT1H"}, "overlap": {"policy": "queue"}}
    job = await api.post(
        "/v1/jobs", json={"target": A_TARGET, "schedule": hourly, "payload": {"n": 1}, "name": "hourly"}
    )
    assert job.status_code == 202, job.text
    await clock.advance(3_601)
    [ran, *_] = await work(database)
    assert (await api.delete(f"/v1/jobs/{job.json()['job_id']}")).status_code == 200

    second = await again(api, str(ran.run_id))

    _, [run] = await take(database)
    assert (str(run.run_id), str(run.job_id), run.payload) == (second, second, '{"n": 1}')
    assert (await read(api, second))["definition"]["concurrency"] is None, "the overlap was the schedule's"


async def test_a_webhook_is_run_again_with_its_secrets(api, database):
    target = {"type": "webhook", "url": "https://x.example/hook", "headers": {"Authorization": "Bearer s3cret"}}
    first = await a_run(api, target=target)
    await api.post(f"/v1/runs/{first}/cancel")

    second = await again(api, first)

    kept = decode(
        await database.fetchval("select options::text from duly.ready where run_id = $1", second)
    ).policy.target
    assert isinstance(kept, Webhook)
    assert open_target(kept, 1, a_keyring).headers == {"Authorization": "Bearer s3cret"}


async def test_where_the_payload_is_no_longer_kept_one_must_be_given(api, database):
    await history.limit_payloads(database, 1)
    first = await a_run(api, payload={"customer": 7})
    await work(database)

    refused = await api.post(f"/v1/runs/{first}/rerun", json={})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_option")
    assert "no stored payload any more; give one" in refused.json()["detail"]
    second = await again(api, first, payload={"customer": 9})
    assert (await read(api, second))["payload"] == {"customer": 9}


async def test_idempotency_key_creates_a_single_run(api, database):
    first = await a_run(api)
    await work(database)
    path, key = f"/v1/runs/{first}/rerun", {"Idempotency-Key": "k"}

    made = [await api.post(path, json={}, headers=key) for _ in range(2)]

    assert made[0].json() == made[1].json()
    assert made[1].headers["Idempotency-Replayed"] == "true"
    assert (await api.post(path, json={"priority": 1}, headers=key)).json()["code"] == "key_reused"
    assert await database.fetchval("select count(*) from duly.ready") == 1


async def test_rerun_is_audited_with_its_original_run(api, database):
    first = await a_run(api)
    await work(database)
    second = await again(api, first, payload={"customer": 8})

    [entry] = (await api.get("/v1/audit", params={"action": "run.rerun"})).json()["items"]

    assert entry["subject"]["id"] == second
    assert (entry["detail"]["rerun_of"], entry["detail"]["has_payload"]) == (first, True)


@pytest.mark.parametrize("given", [{"payload": {"n": 1}}, {}])
async def test_rerun_of_a_node_with_references_requires_its_own_payload(api, database, given):
    nodes = {
        "extract": {"target": A_TARGET},
        "load": {"target": A_TARGET, "depends_on": ["extract"], "payload": {"rows": {"$result": "extract"}}},
    }
    answer = await api.post("/v1/workflows", json={"name": "etl", "nodes": nodes})
    assert answer.status_code == 202, answer.text
    await work(database, Succeeded('{"a": 1}'))
    [ran] = await work(database)

    answer = await api.post(f"/v1/runs/{ran.run_id}/rerun", json=given)

    assert answer.status_code == (202 if given else 422), answer.text
    assert given or "replay the workflow from that node" in answer.json()["detail"]


async def test_unknown_id_is_not_found(api):
    assert (await api.post(f"/v1/runs/{UNKNOWN}/rerun", json={})).status_code == 404
