"""Files of schedules over HTTP: who applied them and when, and what was changed by hand since, field by field."""

from tests.api.test_as_code import FILE, apply
from tests.api.test_runs import pages
from tests.clock import START

REPORT = FILE["jobs"]["report"]


async def applied(api, **more):
    answer = await apply(api, {**FILE, **more})
    assert answer.status_code == 200, answer.text
    return {done["name"]: done["job_id"] for done in answer.json()["done"]}


async def test_file_shows_its_applier_and_apply_time(api):
    await applied(api)
    await applied(api, source="bank", jobs={"interest": REPORT})

    bank, shop = await pages(api, "/v1/files", page_size=1)
    assert (bank["source"], bank["jobs"], bank["drifted"]) == ("bank", 1, 0)
    assert (shop["source"], shop["jobs"], shop["drifted"]) == ("shop", 2, 0)
    assert shop["applied_by"] == "key test"
    assert shop["applied_at"] == START.isoformat().replace("+00:00", "Z")
    assert (await api.get("/v1/files/shop")).json() == shop


async def test_manually_changed_job_is_drifted_and_shows_its_differences(api, clock):
    made = await applied(api)
    await clock.advance(60)
    where = f"/v1/jobs/{made['report']}"
    patch = {"priority": 1, "schedule": {"trigger": {"type": "cron", "expr": "30 9 * * *"}}}
    assert (await api.patch(where, patch, headers={"If-Match": '"1"'})).status_code == 200

    clean, report = (await api.get("/v1/files/shop/jobs")).json()["items"]
    assert (clean["name"], clean["status"], clean["drift"], clean["differences"]) == ("clean up", "paused", None, [])
    assert (report["drift"], report["version"], report["applied_version"]) == ("changed", 2, 1)
    fields = {one["field"]: (one["before"], one["after"]) for one in report["differences"]}
    assert fields["priority"] == (5, 1)
    assert fields["schedule.trigger"][0]["expr"] == "0 8 * * *"
    assert fields["schedule.trigger"][1]["expr"] == "30 9 * * *"
    assert report["changed_at"] > START.isoformat()
    assert (await api.get("/v1/files/shop")).json()["drifted"] == 1
    only = (await api.get("/v1/files/shop/jobs", params={"drifted": "true"})).json()["items"]
    assert [one["name"] for one in only] == ["report"]


async def test_a_drift_is_over_when_the_file_is_applied_again(api):
    made = await applied(api)
    await api.patch(f"/v1/jobs/{made['report']}", {"priority": 1}, headers={"If-Match": '"1"'})
    await applied(api)

    assert (await api.get("/v1/files/shop")).json()["drifted"] == 0
    assert [one["drift"] for one in (await api.get("/v1/files/shop/jobs")).json()["items"]] == [None, None]


async def test_job_changed_back_has_another_version_and_no_differences(api):
    made = await applied(api)
    await api.patch(f"/v1/jobs/{made['report']}", {"priority": 1}, headers={"If-Match": '"1"'})
    await api.patch(f"/v1/jobs/{made['report']}", {"priority": 5}, headers={"If-Match": '"2"'})

    [one] = (await api.get("/v1/files/shop/jobs", params={"drifted": "true"})).json()["items"]
    assert (one["drift"], one["version"], one["differences"]) == ("changed", 3, [])


async def test_cancelled_job_is_drifted_until_its_file_recreates_it(api):
    made = await applied(api)
    assert (await api.delete(f"/v1/jobs/{made['report']}")).status_code == 200

    [one] = (await api.get("/v1/files/shop/jobs", params={"drifted": "true"})).json()["items"]
    assert (one["name"], one["status"], one["drift"]) == ("report", "cancelled", "cancelled")
    assert (await api.get("/v1/files/shop")).json() | {"applied_at": None} == {
        "source": "shop",
        "jobs": 1,
        "drifted": 1,
        "rules": 0,
        "drifted_rules": 0,
        "applied_at": None,
        "applied_by": "key test",
    }
    await applied(api)
    assert (await api.get("/v1/files/shop")).json()["drifted"] == 0


async def test_job_pruned_by_its_file_is_not_drifted(api):
    await applied(api)
    await apply(api, {**FILE, "jobs": {"report": REPORT}}, prune=True)

    assert [one["name"] for one in (await api.get("/v1/files/shop/jobs")).json()["items"]] == ["report"]
    assert (await api.get("/v1/files/shop")).json()["drifted"] == 0


async def test_the_jobs_come_in_pages(api):
    jobs = {f"job {number:02}": {"target": "app:x", "schedule": "every day at 3am"} for number in range(5)}
    await applied(api, jobs=jobs)

    assert [one["name"] for one in await pages(api, "/v1/files/shop/jobs", page_size=2)] == list(jobs)


async def test_file_api_masks_secrets_in_targets(api):
    hook = {"type": "webhook", "url": "https://hooks.example/in", "headers": {"Authorization": "Bearer canary-one"}}
    jobs = {"hook": {"target": hook, "schedule": "every day at 3am"}}
    made = await applied(api, jobs=jobs)
    changed = {"target": {**hook, "headers": {"Authorization": "Bearer canary-two"}}}
    answer = await api.patch(f"/v1/jobs/{made['hook']}", changed, headers={"If-Match": '"1"'})
    assert answer.status_code == 200, answer.text

    told = await api.get("/v1/files/shop/jobs")
    assert [one["field"] for one in told.json()["items"][0]["differences"]] == ["target.headers.Authorization"]
    assert "canary" not in told.text


async def test_file_unapplied_or_of_another_tenant_is_not_found(front, api):
    await applied(api)
    stranger = await front.stranger()

    assert (await stranger.get("/v1/files")).json()["items"] == []
    for where in ("/v1/files/shop", "/v1/files/shop/jobs"):
        answer = await stranger.get(where)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert "GET /v1/files lists them" in (await api.get("/v1/files/nothing")).json()["detail"]


async def test_file_with_a_slash_in_its_name_is_found(api):
    await applied(api, source="teams/shop", jobs={"report": REPORT})

    assert (await api.get("/v1/files/teams%2Fshop")).json()["source"] == "teams/shop"
    assert len((await api.get("/v1/files/teams%2Fshop/jobs")).json()["items"]) == 1
