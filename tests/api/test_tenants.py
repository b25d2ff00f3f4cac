"""Tenants over HTTP, for the operator: made, limited, suspended."""

from datetime import timedelta
from typing import Any, ClassVar

import msgspec

from duly.domain.tenancy.cells import Placement
from duly.store.tenancy import cells as store_of_cells
from duly.store.tenancy import tenants as store
from tests.api.front import A_TARGET, EVERY_HOUR
from tests.api.test_runs import pages


async def made(api, name: str, **limits) -> Any:
    answer = await api.post("/v1/tenants", json={"name": name, "limits": limits})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_tenant_is_created_read_listed_and_changed(api):
    tenant = await made(api, "acme", schedules_max=3)
    path = f"/v1/tenants/{tenant['tenant']}"

    assert (await api.get(path)).json() == tenant
    assert (tenant["name"], tenant["state"], tenant["limits"]["schedules_max"]) == ("acme", "active", 3)
    assert (await api.post("/v1/tenants", json={"name": "acme"})).status_code == 409
    await made(api, "other")
    assert [one["name"] for one in await pages(api, "/v1/tenants", page_size=1)][-2:] == ["acme", "other"]
    changed = await api.ask("PATCH", path, json={"limits": {"submit_rate": 5}})
    assert changed.json()["limits"] == {
        "schedules_max": None,
        "ready_max": None,
        "submit_rate": 5.0,
        "running_max": None,
        "weight": 1,
        "least_period": None,
    }
    assert (await api.ask("PATCH", path, json={})).json() == changed.json()


async def test_api_keys_of_a_suspended_tenant_are_refused_until_it_is_active(front, api, clock):
    stranger = await front.stranger()
    path = f"/v1/tenants/{stranger.tenant}"
    job = await stranger.a_job()

    assert (await api.ask("PATCH", path, json={"state": "suspended"})).json()["state"] == "suspended"
    await clock.advance(timedelta(seconds=4))

    assert (await stranger.get("/v1/jobs")).status_code == 401
    await api.ask("PATCH", path, json={"state": "active"})
    await clock.advance(timedelta(seconds=4))
    assert (await stranger.get(f"/v1/jobs/{job['job_id']}")).status_code == 200


async def test_requests_of_a_leaving_tenant_are_503_but_for_those_of_workers(front, database, clock):
    stranger = await front.stranger()
    await store_of_cells.freeze(database, stranger.tenant, Placement("stranger", "one", 2, "two", "leaving"))
    await clock.advance(timedelta(seconds=4))

    for answer in (await stranger.get("/v1/jobs"), await stranger.post("/v1/jobs", json={"target": A_TARGET})):
        assert (answer.status_code, answer.json()["code"]) == (503, "tenant_moving"), answer.text
        assert int(answer.headers["retry-after"]) >= 1
    worker = {"name": "remote", "queues": ["remote"], "handlers": ["x"]}
    assert (await stranger.post("/v1/worker/register", json=worker)).status_code == 201
    await store.suspend(database, stranger.tenant)
    await clock.advance(timedelta(seconds=4))
    assert (await stranger.post("/v1/worker/register", json=worker)).status_code == 401


async def test_keys_of_a_tenant_that_is_gone_are_told_the_cell_and_others_nothing(front, database, clock):
    stranger = await front.stranger()
    move = Placement("stranger", "one", 2, "two", "leaving")
    await store_of_cells.freeze(database, stranger.tenant, move)
    await store_of_cells.depart(database, stranger.tenant, 2)
    await store_of_cells.finish_departure(database, stranger.tenant, 2)

    answer = await stranger.get("/v1/jobs")
    assert (answer.status_code, answer.json()["code"]) == (421, "tenant_moved")
    assert "cell two" in answer.json()["detail"]
    stranger.key = stranger.key[:-1] + ("A" if stranger.key[-1] != "A" else "B")
    assert (await stranger.get("/v1/jobs")).status_code == 401


async def test_the_operators_own_cannot_be_suspended(api):
    answer = await api.ask("PATCH", "/v1/tenants/1", json={"state": "suspended"})

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")
    assert (await api.get("/v1/tenants/1")).json()["state"] == "active"


async def test_exceeded_quota_returns_429_with_retry_after(front, api, database, clock):
    stranger = await front.stranger()
    path = f"/v1/tenants/{stranger.tenant}"
    await api.ask("PATCH", path, json={"limits": {"schedules_max": 1, "ready_max": 1}})
    await clock.advance(timedelta(seconds=4))
    await stranger.a_job()
    body = {"target": A_TARGET, "schedule": EVERY_HOUR}

    for answer in (
        await stranger.post("/v1/jobs", json=body),
        await stranger.put("/v1/jobs/by-name/x", json=body),
    ):
        assert (answer.status_code, answer.json()["code"]) == (429, "quota_reached"), answer.text
        assert int(answer.headers["retry-after"]) >= 1
    assert (await stranger.post("/v1/jobs", json={"target": A_TARGET})).status_code == 202
    await store.count_usage(database)
    assert (await stranger.post("/v1/jobs", json={"target": A_TARGET})).status_code == 429


async def test_a_rate_is_429_for_all_keys_of_the_tenant(front, api):
    tenant = await made(api, "slow", submit_rate=1)
    first, second = [await front.caller("jobs:write", tenant=tenant["tenant"]) for _ in range(2)]
    answers = [await caller.post("/v1/jobs", json={"target": A_TARGET}) for caller in [first, second] * 15]

    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert int(refused[-1].headers["retry-after"]) >= 1
    assert refused[-1].headers["ratelimit"]
    assert refused[-1].json()["detail"] == "The limit of the tenant is 1 submits a second."


class TestTheSmallestPeriod:
    """A schedule that is denser than its tenant may have it is refused at every door."""

    DENSE: ClassVar = {"trigger": {"type": "cron", "expr": "* * * * *"}}
    PERIOD: ClassVar = {"trigger": {"type": "interval", "every": "PT4M59S"}}
    ENOUGH: ClassVar = {"trigger": {"type": "interval", "every": "PT5M"}}

    async def limited(self, front, api):
        stranger = await front.stranger()
        changed = await api.ask("PATCH", f"/v1/tenants/{stranger.tenant}", json={"limits": {"least_period": "PT5M"}})
        assert changed.json()["limits"]["least_period"] == "PT5M"
        return stranger

    def refused(self, answer):
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_schedule"), answer.text
        [error] = answer.json()["errors"]
        assert (error["code"], error["pointer"]) == ("LIMIT", "/schedule/trigger"), error
        assert "this tenant's limit is PT5M apart" in error["message"]

    async def test_job_create_enforces_the_smallest_period(self, front, api):
        stranger = await self.limited(front, api)

        for dense in (self.DENSE, self.PERIOD):
            body = {"target": A_TARGET, "schedule": dense}
            self.refused(await stranger.post("/v1/jobs", json=body))
            self.refused(await stranger.put("/v1/jobs/by-name/x", json=body))
            batch = await stranger.post(
                "/v1/jobs:batch", content=msgspec.json.encode(body), headers={"content-type": "application/x-ndjson"}
            )
            assert "PT5M apart or more" in batch.text, batch.text
        assert (await stranger.post("/v1/jobs", json={"target": A_TARGET, "schedule": self.ENOUGH})).status_code == 202
        assert (await api.post("/v1/jobs", json={"target": A_TARGET, "schedule": self.DENSE})).status_code == 202

    async def test_job_edit_enforces_the_smallest_period_only_on_a_new_schedule(self, front, api):
        stranger = await front.stranger()
        job = await stranger.a_job(schedule=self.DENSE)
        path = f"/v1/jobs/{job['job_id']}"
        await api.ask("PATCH", f"/v1/tenants/{stranger.tenant}", json={"limits": {"least_period": "PT5M"}})

        async def patched(body):
            etag = (await stranger.get(path)).headers["etag"]
            return await stranger.ask("PATCH", path, json=body, headers={"If-Match": etag})

        assert (await patched({"priority": 1})).status_code == 200, "its timing is as it was"
        self.refused(await patched({"schedule": {"trigger": {"expr": None, **self.PERIOD["trigger"]}}}))
        self.refused(await patched({"schedule": {"trigger": {"type": "cron", "expr": "*/2 * * * *"}}}))
        enough = {"schedule": {"trigger": {"expr": None, **self.ENOUGH["trigger"]}}}
        assert (await patched(enough)).status_code == 200

    async def test_where_a_file_is_planned_or_applied(self, front, api):
        stranger = await self.limited(front, api)
        for schedule in ({"cron": "* * * * *"}, {"every": "PT1M"}):
            body = {"source": "shop", "jobs": {"often": {"target": "app:often", "schedule": schedule}}}
            for dry_run in ("true", "false"):
                answer = await stranger.post("/v1/jobs:apply", json=body, params={"dry_run": dry_run})
                assert (answer.status_code, answer.json()["code"]) == (422, "invalid_manifest"), answer.text
                assert "PT5M apart or more" in answer.text

    async def test_preview_reports_a_period_below_the_minimum(self, front, api):
        stranger = await self.limited(front, api)

        found = (await stranger.post("/v1/triggers/preview", json={"schedule": self.DENSE})).json()

        assert (found["valid"], [error["code"] for error in found["errors"]]) == (False, ["LIMIT"])

    async def test_idempotent_create_is_not_checked_again_for_the_smallest_period(self, front, api):
        stranger = await front.stranger()
        asked = {"json": {"target": A_TARGET, "schedule": self.PERIOD, "idempotency_key": "once"}}
        made = await stranger.post("/v1/jobs", **asked)
        await api.ask("PATCH", f"/v1/tenants/{stranger.tenant}", json={"limits": {"least_period": "PT5M"}})

        again = await stranger.post("/v1/jobs", **asked)

        assert (again.status_code, again.json()["job_id"]) == (202, made.json()["job_id"])


async def test_operator_endpoints_refuse_other_tenants(front):
    stranger = await front.stranger()

    assert (await stranger.get("/v1/tenants")).status_code == 403
    assert (await stranger.get(f"/v1/tenants/{stranger.tenant}")).status_code == 403
    assert (await stranger.post("/v1/tenants", json={"name": "x"})).status_code == 403


async def test_invalid_request_is_refused(api):
    wrong = [
        {},
        {"name": ""},
        {"name": "\0"},
        {"name": "x" * 201},
        {"name": "x", "limits": {"schedules_max": -1}},
        {"name": "x", "limits": {"schedules_max": 2_000_000_001}},
        {"name": "x", "limits": {"ready_max": 10**400}},
        {"name": "x", "limits": {"submit_rate": 0}},
        {"name": "x", "limits": {"submit_rate": 1e-9}},
        {"name": "x", "limits": {"least_period": "PT0.5S"}},
        {"name": "x", "limits": {"least_period": "PT1.5S"}},
        {"name": "x", "limits": {"least_period": "P400D"}},
        {"name": "x", "limits": {"least_period": "often"}},
        {"name": "x", "limits": {"colour": 1}},
        {"name": "x", "limits": None},
    ]
    for body in wrong:
        assert (await api.post("/v1/tenants", json=body)).status_code == 422, body
    for number in ("999", "0", "x", "9" * 30, "-1", "1.0"):
        assert (await api.get(f"/v1/tenants/{number}")).status_code == 404, number
    for body in ({"state": "gone"}, {"state": None}, {"limits": None}, {"name": "y"}):
        assert (await api.ask("PATCH", "/v1/tenants/1", json=body)).status_code == 422, body


async def test_a_key_cannot_name_another_tenant_by_the_header_of_local_callers(front, api):
    stranger = await front.stranger()
    theirs = (await stranger.a_job())["job_id"]
    for name in (str(stranger.tenant), "default"):
        assert (await api.get(f"/v1/jobs/{theirs}", headers={"Duly-Tenant": name})).status_code == 404
        assert (await stranger.get("/v1/tenants", headers={"Duly-Tenant": name})).status_code == 403
