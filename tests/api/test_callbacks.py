"""Callbacks over HTTP: the token is the right, and nothing else is needed or helps."""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from duly.domain.targets.target import Allowed
from duly.store.boxes import awaited
from tests.api.front import A_TARGET, CALLBACKS, EVERY_HOUR
from tests.builders import a_leased_run, an_awaited_run, boxes_of, found_run, history_of

HOOK = {"url": "https://hooks.example/done"}
UNKNOWN_RUN = UUID("00000000-0000-4000-8000-000000000000")


async def an_open_run(database, **more):
    """Put a run into its receiver's hands. Gives it and the address of its callback."""
    run = await an_awaited_run(database, **more)
    return run, f"/v1/callbacks/{CALLBACKS.make(run.run_id, run.fence)}"


async def test_a_receiver_without_a_key_settles_the_run(front, database):
    run, path = await an_open_run(database)

    answer = await front.nobody().post(path, json={"outcome": "succeeded", "result": {"rows": 7}})

    assert answer.status_code == 200, answer.text
    assert answer.json() == {"run_id": str(run.run_id), "attempt": 1, "state": "succeeded"}
    found = await found_run(database, run.run_id)
    assert (found["state"], found["attempts"][0]["result"]) == ("succeeded", '{"rows": 7}')
    assert front.woken == ["default"]


async def test_repeated_callback_replays_its_response_and_another_outcome_conflicts(front, database):
    _, path = await an_open_run(database)
    first = await front.nobody().post(path, json={"outcome": "succeeded"})

    again = await front.nobody().post(path, json={"outcome": "succeeded"})
    other = await front.nobody().post(path, json={"outcome": "failed"})

    assert (again.status_code, again.json()) == (200, first.json())
    assert (other.status_code, other.json()["code"]) == (409, "attempt_over")
    assert "it succeeded" in other.json()["detail"]


async def test_callback_failure_carries_a_reason_and_a_retry_flag(front, database):
    run, path = await an_open_run(database)

    answer = await front.nobody().post(path, json={"outcome": "failed", "reason": "no such customer", "retry": False})

    assert answer.json()["state"] == "dead"
    assert (await found_run(database, run.run_id))["reason"] == "no such customer"


async def test_a_failure_may_ask_for_patience(front, database, clock):
    run, path = await an_open_run(database)

    answer = await front.nobody().post(path, json={"outcome": "failed", "retry_after": "PT15M"})

    assert answer.json()["state"] == "retrying"
    assert (await found_run(database, run.run_id))["due_at"] >= clock.at + timedelta(minutes=15)


async def test_receiver_extends_the_deadline_of_its_run(front, database, clock):
    run, path = await an_open_run(database)

    answer = await front.nobody().post(f"{path}/extend", json={"within": "P2D"})

    assert answer.status_code == 200, answer.text
    found = await awaited.find(database, (run.run_id, run.fence))
    assert found is not None
    assert found.deadline_at == clock.at + timedelta(days=2)
    assert answer.json()["deadline_at"] == found.deadline_at.isoformat().replace("+00:00", "Z")


async def test_receiver_reports_the_progress_of_its_run(front, database, api):
    run, path = await an_open_run(database)

    answer = await front.nobody().post(f"{path}/progress", json={"done": 40, "total": 120, "note": "page 4"})

    assert answer.status_code == 204, answer.text
    told = (await api.get(f"/v1/runs/{run.run_id}")).json()["progress"]
    assert (told["done"], told["total"], told["note"]) == (40, 120, "page 4")
    for wrong in ({}, {"done": -1}, {"done": "much"}, {"done": 1, "note": "x" * 1001}, {"done": 1, "state": 1}):
        assert (await front.nobody().post(f"{path}/progress", json=wrong)).status_code == 422, wrong
    await front.nobody().post(path, json={"outcome": "succeeded"})
    late = await front.nobody().post(f"{path}/progress", json={"done": 120})
    assert (late.status_code, late.json()["code"]) == (409, "attempt_over")


async def test_leased_run_accepts_progress_by_callback(front, database, api):
    _, run = await a_leased_run(database)
    path = f"/v1/callbacks/{CALLBACKS.make(run.run_id, run.fence)}"

    assert (await front.nobody().post(f"{path}/progress", json={"done": 1})).status_code == 204

    assert (await api.get(f"/v1/runs/{run.run_id}")).json()["progress"]["done"] == 1


async def test_callback_for_an_ended_attempt_returns_attempt_over(front, database):
    run, path = await an_open_run(database)
    await front.nobody().post(path, json={"outcome": "failed"})

    answer = await front.nobody().post(path, json={"outcome": "succeeded"})

    assert (answer.status_code, answer.json()["code"]) == (409, "attempt_over")
    assert await history_of(database, run.run_id) == [(1, "failed", "retrying")]


@pytest.mark.parametrize("kind", ["forged", "changed", "of no run", "no token at all"])
@pytest.mark.parametrize("verb", ["", "/extend", "/progress"])
async def test_invalid_callback_tokens_all_get_the_same_response(front, database, api, kind, verb):
    run, path = await an_open_run(database)
    token = {
        "forged": f"cb_{run.run_id.hex}_{run.fence}_{'A' * 43}",
        "changed": path.rpartition("/")[2].replace(f"_{run.fence}_", f"_{run.fence + 1}_"),
        "of no run": CALLBACKS.make(UNKNOWN_RUN, 1),
        "no token at all": "please",
    }[kind]
    body = {"": {"outcome": "succeeded"}, "/extend": {"within": "PT1H"}, "/progress": {"done": 1}}[verb]

    answers = [await caller.post(f"/v1/callbacks/{token}{verb}", json=body) for caller in (front.nobody(), api)]

    assert all("X-Callback-Token" in answer.json()["remedy"] for answer in answers)
    told = [(answer.status_code, answer.json()["code"], answer.json()["detail"]) for answer in answers]
    assert (
        told
        == [
            (
                404,
                "not_found",
                "no such callback; a token is valid for one attempt, while it runs and while its history is kept",
            )
        ]
        * 2
    )
    assert await boxes_of(database, run.run_id) == ["leased"]


async def test_server_without_a_keyring_rejects_callback_tokens(front, database):
    _, path = await an_open_run(database)
    front.door.services = msgspec.structs.replace(front.door.services, keyring=None)

    answer = await front.nobody().post(path, json={"outcome": "succeeded"})

    assert answer.status_code == 404


async def test_a_receiver_that_is_faster_than_its_own_answer_is_heard(front, database):
    _, run = await a_leased_run(database)

    answer = await front.nobody().post(
        f"/v1/callbacks/{CALLBACKS.make(run.run_id, run.fence)}", json={"outcome": "succeeded"}
    )

    assert answer.json()["state"] == "succeeded"


async def test_a_cancel_of_a_run_that_waits_for_its_receiver_is_done_when_it_is_answered(api, database):
    run, _ = await an_open_run(database)

    answer = await api.post(f"/v1/runs/{run.run_id}/cancel")

    assert answer.json()["status"] == "cancelled"
    assert (await found_run(database, run.run_id))["state"] == "cancelled"


async def test_another_tenant_cancels_nothing_of_it(front, database):
    run, _ = await an_open_run(database)

    answer = await (await front.stranger()).post(f"/v1/runs/{run.run_id}/cancel")

    assert answer.status_code == 404
    assert await boxes_of(database, run.run_id) == ["leased"]


class TestCompletionCallbacks:
    """`on_end` and `on_failure` of a job, written and read back."""

    async def test_job_returns_its_completion_callbacks(self, api):
        made = await api.a_job(on_end=HOOK, on_failure={"job": "alert"})
        job = (await api.get(f"/v1/jobs/{made['job_id']}")).json()

        assert (job["on_end"], job["on_failure"]) == (HOOK, {"job": "alert"})
        assert job["retry"] is None  # Which is left to the handler, as before.

    async def test_a_one_shot_too(self, api):
        made = await api.a_job(schedule=None, on_end={**HOOK, "queue": "hooks"})
        job = (await api.get(f"/v1/jobs/{made['job_id']}")).json()

        assert (job["on_end"], job["on_failure"]) == ({**HOOK, "queue": "hooks"}, None)

    async def test_a_patch_changes_and_takes_away(self, api):
        made = await api.a_job(on_end=HOOK, tags=["night"])
        path = f"/v1/jobs/{made['job_id']}"
        changed = await api.patch(path, {"on_failure": {"job": "alert"}}, headers={"If-Match": "*"})
        assert (changed.json()["on_end"], changed.json()["on_failure"]) == (HOOK, {"job": "alert"})

        changed = await api.patch(path, {"on_end": None}, headers={"If-Match": "*"})
        assert (changed.json()["on_end"], changed.json()["tags"]) == (None, ["night"])

    @pytest.mark.parametrize(
        "callback",
        [{}, {"url": "https://a.example/", "job": "b"}, {"url": "ftp://a.example/"}, {"job": "b", "queue": "c"}],
    )
    async def test_callback_with_an_invalid_receiver_is_refused(self, api, callback):
        answer = await api.post("/v1/jobs", json={"target": A_TARGET, "on_failure": callback})

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")
        assert "on_failure" in answer.json()["detail"] or "ftp" in answer.json()["detail"]

    async def test_a_file_asks_for_it_is_applied_and_exported_as_it_was(self, api):
        jobs: dict[str, dict[str, Any]] = {
            "nightly": {"target": "app:mail", "schedule": "every day at 9am", "on_end": "follow-up"},
            "follow-up": {
                "target": "app:mail",
                "schedule": "every day at 10am",
                "on_failure": {"url": "https://hooks.example/dead", "queue": "hooks"},
            },
        }
        file = {"source": "test", "jobs": jobs}
        applied = await api.post("/v1/jobs:apply", json=file)
        assert applied.status_code == 200, applied.text
        again = (await api.post("/v1/jobs:apply", json=file)).json()
        assert (again["steps"], again["unchanged"]) == ([], 2)

        exported = (await api.get("/v1/jobs:export?source=test")).json()
        assert {
            name: {key: job.get(key) for key in ("on_end", "on_failure")} for name, job in exported["jobs"].items()
        } == {
            "nightly": {"on_end": "follow-up", "on_failure": None},
            "follow-up": {"on_end": None, "on_failure": jobs["follow-up"]["on_failure"]},
        }

    async def test_plan_shows_changed_completion_callbacks(self, api):
        job = {"target": "app:mail", "schedule": "every day at 9am"}
        await api.post("/v1/jobs:apply", json={"source": "test", "jobs": {"nightly": job}})
        wanted = {"source": "test", "defaults": {"on_failure": "https://hooks.example/dead"}, "jobs": {"nightly": job}}

        [step] = (await api.post("/v1/jobs:apply?dry_run=true", json=wanted)).json()["steps"]

        assert step["differences"] == [
            {"field": "on_failure", "before": None, "after": {"url": "https://hooks.example/dead"}}
        ]

    async def test_manifest_with_an_invalid_callback_is_refused_with_its_pointer(self, api):
        jobs = {"nightly": {"target": "app:mail", "schedule": "every day at 9am", "on_end": {"url": 7}}}
        answer = await api.post("/v1/jobs:apply", json={"source": "test", "jobs": jobs})

        assert answer.json()["code"] == "invalid_manifest"
        assert answer.json()["errors"][0]["pointer"] == "/jobs/nightly/on_end/url"


async def test_explain_shows_that_a_run_awaits_its_callback(api, database, clock):
    run, _ = await an_open_run(database)

    [reason] = (await api.get(f"/v1/runs/{run.run_id}/explain")).json()["reasons"]

    assert reason["code"] == "awaiting_callback"
    assert "in 60 min" in reason["text"]


@pytest.mark.parametrize("word", ["on_end", "on_failure"])
async def test_callback_url_is_refused_by_every_endpoint_without_signing(front, api, monkeypatch, word):
    job = await api.a_job()
    monkeypatch.setattr(
        front.door, "services", msgspec.structs.replace(front.door.services, allowed=Allowed(webhooks=False))
    )
    shot, nightly = {"target": A_TARGET, word: HOOK}, {"target": "app:mail", "schedule": "every day at 9am", word: HOOK}

    answers = [
        await api.post("/v1/jobs", json=shot),
        await api.post("/v1/jobs", json={**shot, "name": "hourly", "schedule": EVERY_HOUR}),
        await api.post("/v1/jobs:batch", content=json.dumps(shot), headers={"Content-Type": "application/x-ndjson"}),
        await api.patch(f"/v1/jobs/{job['job_id']}", {word: HOOK}, headers={"If-Match": "*"}),
        await api.post("/v1/jobs:apply", json={"source": "shop", "jobs": {"nightly": nightly}}),
    ]

    for answer in answers:
        assert "webhooks cannot be signed" in answer.text
    assert (await api.post("/v1/jobs", json={"target": A_TARGET, word: {"job": "hourly"}})).status_code == 202


async def test_no_refusal_repeats_the_token(front, database):
    """A refusal is logged and passed on by whoever gets it, and the token is a right by itself."""
    _, path = await an_open_run(database)
    token = path.rpartition("/")[2]
    unknown = f"cb_{UNKNOWN_RUN.hex}_1_{'x' * 43}"
    for asked, told in (
        (path, "/v1/callbacks/***"),
        (f"{path}/extend", "/v1/callbacks/***/extend"),
        (f"{path}/nothing", "/v1/callbacks/***/nothing"),
        (f"/v1/callbacks/{unknown}", "/v1/callbacks/***"),
    ):
        refused = await front.nobody().post(asked, json={"outcome": "perhaps"})
        assert refused.status_code in (404, 405, 422)
        assert refused.json()["instance"] == told
        assert token not in refused.text
        assert unknown not in refused.text
