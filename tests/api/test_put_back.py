"""A job as it was read can be put back: 200, and nothing has changed. A change that changes nothing makes no version."""

from datetime import timedelta
from typing import Any

import pytest

from tests.api.front import A_TARGET, EVERY_HOUR
from tests.api.test_jobs import EVERYTHING, SCHEDULES, read

TARGETS: list[dict[str, Any]] = [
    A_TARGET,
    {"type": "webhook", "url": "https://example.com/hook", "headers": {"Authorization": "Bearer x", "X-A": "b"},
     "method": "PUT", "final": [410], "callback_within": "PT1H"},
    {"type": "command", "argv": ["/usr/bin/rsync", "a"], "environment": {"API_TOKEN": "x"}, "ok": [0, 3]},
    {"type": "container", "image": "busybox", "argv": ["true"], "network": True},
    {"type": "workflow", "nodes": {"a": {"target": A_TARGET}, "b": {"target": A_TARGET, "depends_on": ["a"]}}},
    {"type": "workflow", "nodes": {"a": {"target": A_TARGET, "timeout": 5},
     "b": {"target": {"type": "webhook", "url": "https://example.com/"}}, "c": {"target": A_TARGET, "retry": {}}}},
]  # fmt: skip
MORE: list[dict[str, Any]] = [
    {},
    {"timeout": "PT90S"},
    {"retry": {"max_attempts": 2}},
    {"tags": ["b", "a"]},
    {"on_end": {"url": "https://example.com/done"}, "on_failure": {"job": "other"}},
    {"expires_after": "PT30M", "rate_limit": {"key": "bank", "limit": 10}},
    {"concurrency": {"key": "one", "limit": 1, "order": "fifo"}},
    {"schedule": None, "on_event": {"type": "paid"}},
]


async def entries(api, job) -> list[Any]:
    answer = await api.get("/v1/audit", params={"subject": job["job_id"], "action": "job.edited"})
    items: list[Any] = answer.json()["items"]
    return items


async def put_back(api, made) -> Any:
    before = await api.get(f"/v1/jobs/{made['job_id']}")
    answer = await api.put(
        f"/v1/jobs/{made['job_id']}", json=before.json(), headers={"If-Match": before.headers["etag"]}
    )
    assert answer.status_code == 200, answer.text
    assert answer.json() == before.json()
    assert answer.headers["etag"] == before.headers["etag"]
    versions = (await api.get(f"/v1/jobs/{made['job_id']}/versions")).json()["items"]
    assert len(versions) == 1
    assert await entries(api, made) == []
    return answer.json()


class TestPutBack:
    async def test_everything(self, api):
        await put_back(api, await api.a_job(**EVERYTHING))

    @pytest.mark.parametrize("kind", SCHEDULES)
    async def test_each_kind_of_schedule(self, api, kind):
        await put_back(api, await api.a_job(name=kind, schedule=SCHEDULES[kind]))

    @pytest.mark.parametrize(
        "schedule",
        [
            {"trigger": {"type": "interval", "every": "PT900S"}, "overlap": {"policy": "queue"}},
            {"trigger": {"type": "interval", "every": "PT15M", "tz": "Europe/Paris", "anchor": None}, "jitter": None},
            {"trigger": {"type": "text", "text": "every 7 minutes"}},
            {"trigger": {"type": "text", "text": "in 20 minutes"}},
            {"trigger": {"type": "at", "delay": "PT20M"}},
            {"trigger": {"type": "cron", "expr": "H * * * *"}, "max_runs": 5},
        ],
    )
    async def test_relative_or_normalized_schedule_is_put_back_unchanged(self, api, clock, schedule):
        made = await api.a_job(name="odd", schedule=schedule)
        await clock.advance(timedelta(seconds=100))

        await put_back(api, made)

    @pytest.mark.parametrize("target", TARGETS, ids=lambda target: target["type"])
    async def test_each_kind_of_target(self, api, target):
        await put_back(api, await api.a_job(name="target", target=target))

    @pytest.mark.parametrize("more", MORE, ids=str)
    async def test_each_option(self, api, more):
        await put_back(api, await api.a_job(name="options", **more))

    async def test_a_moment_that_has_passed_while_it_was_paused(self, api, database, clock):
        soon = (await database.read_clock() + timedelta(minutes=1)).isoformat()
        made = await api.a_job(name="late", schedule={"trigger": {"type": "at", "at": soon}})
        await api.post(f"/v1/jobs/{made['job_id']}/pause")
        await clock.advance(timedelta(hours=1))

        await put_back(api, made)

    async def test_by_its_name(self, api):
        await api.a_job(**{**EVERYTHING, "name": "put"})
        before = (await api.get("/v1/jobs/by-name/put")).json()

        answer = await api.put("/v1/jobs/by-name/put", json=before)

        assert (answer.status_code, answer.json()) == (200, before)

    async def test_unknown_field_in_a_put_is_refused(self, api):
        made = await api.a_job(name="typo")

        answer = await api.put(
            f"/v1/jobs/{made['job_id']}",
            json={"target": A_TARGET, "schedule": EVERY_HOUR, "statsu": "active"},
            headers={"If-Match": "*"},
        )

        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == "/statsu"


class TestNothingChanged:
    @pytest.mark.parametrize(
        "patch",
        [
            {},
            {"priority": 5},
            {"name": "same"},
            {"schedule": {"trigger": {"every": "PT3600S"}}},
            {"schedule": {"trigger": {"every": "PT1H"}}, "tags": []},
            {"payload": {}},
        ],
    )
    async def test_a_patch_that_changes_nothing_makes_no_version_and_no_audit_entry(self, api, patch):
        made = await api.a_job(name="same")

        answer = await api.patch(f"/v1/jobs/{made['job_id']}", patch, headers={"If-Match": '"1"'})

        assert (answer.status_code, answer.json()["version"], answer.headers["etag"]) == (200, 1, '"1"')
        assert await entries(api, made) == []

    async def test_another_anchor_is_a_change(self, api):
        made = await api.a_job(name="same")

        patch = {"schedule": {"trigger": {"anchor": "2026-11-02T09:17:00Z"}}}
        answer = await api.patch(f"/v1/jobs/{made['job_id']}", patch, headers={"If-Match": '"1"'})

        assert (answer.json()["version"], answer.json()["next_run_at"][13:20]) == (2, ":17:00Z")
        assert [one["detail"]["changed"] for one in await entries(api, made)] == [["schedule"]]

    async def test_a_change_makes_one(self, api):
        made = await api.a_job(name="same")

        answer = await api.patch(f"/v1/jobs/{made['job_id']}", {"priority": 4}, headers={"If-Match": '"1"'})

        assert answer.json()["version"] == 2
        assert [one["detail"]["changed"] for one in await entries(api, made)] == [["priority"]]

    async def test_a_version_that_is_not_the_one_that_was_read_is_still_refused(self, api):
        made = await api.a_job(name="same")
        await api.patch(f"/v1/jobs/{made['job_id']}", {"priority": 4}, headers={"If-Match": '"1"'})

        answer = await api.patch(f"/v1/jobs/{made['job_id']}", {}, headers={"If-Match": '"1"'})

        assert answer.status_code == 412

    async def test_options_set_for_the_first_time_count_as_a_change(self, api):
        """Said by the job, they hold whatever its handler says."""
        made = await api.a_job(name="said")
        job = await read(api, made)
        assert job["retry"] is None

        answer = await api.patch(f"/v1/jobs/{made['job_id']}", {"retry": {}}, headers={"If-Match": "*"})

        assert (answer.json()["version"], answer.json()["retry"]["max_attempts"]) == (2, 5)
