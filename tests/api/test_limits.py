"""Limits on what is under way at once, over HTTP: whose they are to set, and that claims keep to them."""

from tests.api.remote import a_job_due_now, a_remote
from tests.api.test_runs import a_run
from tests.api.working import take


async def put(api, **body):
    return await api.ask("PUT", "/v1/limits", json=body)


async def test_a_limit_is_set_shown_kept_to_and_removed(api, database):
    for _ in range(3):
        await a_run(api, queue="mail")

    made = await put(api, queue="mail", slots=2)
    _, runs = await take(database, "mail")

    assert (made.status_code, made.json()["slots"], made.json()["running"]) == (200, 2, 0)
    assert len(runs) == 2
    [shown] = (await api.get("/v1/limits")).json()["items"]
    assert (shown["tenant"], shown["queue"], shown["slots"], shown["running"]) == (None, "mail", 2, 2)
    assert shown["set_by"].startswith("the operator, key ")
    assert (await put(api, queue="mail", slots=5)).json()["slots"] == 5
    assert (await api.delete("/v1/limits?queue=mail")).status_code == 204
    assert (await api.get("/v1/limits")).json()["items"] == []
    again = await api.delete("/v1/limits?queue=mail")
    assert (again.status_code, again.json()["code"]) == (404, "not_found")


async def test_everything_has_a_limit_too(api):
    assert (await put(api, all=True, slots=7)).json()["tenant"] is None
    assert (await api.delete("/v1/limits?all=true")).status_code == 204


async def test_scope_is_refused_if_missing_ambiguous_or_invalid(api):
    for body in ({}, {"all": True, "queue": "mail"}):
        refused = await put(api, slots=1, **body)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_option")
    assert (await put(api, queue="mail", slots=0)).status_code == 422
    assert (await put(api, tenant=999_999, slots=1)).status_code == 404


async def test_a_tenants_admin_limits_its_share_of_a_queue_and_nothing_else(front, api):
    stranger = await front.stranger()

    mine = await put(stranger, queue="mail", slots=1)

    assert (mine.json()["tenant"], mine.json()["queue"]) == (stranger.tenant, "mail")
    for wide in ({"all": True}, {"tenant": stranger.tenant}, {"queue": "mail", "tenant": 1}):
        refused = await put(stranger, slots=9, **wide)
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden"), wide
    await put(api, tenant=1, slots=3)
    assert [one["tenant"] for one in (await stranger.get("/v1/limits")).json()["items"]] == [stranger.tenant]
    assert (await stranger.delete("/v1/limits?queue=mail")).status_code == 204


async def test_a_limit_that_the_operator_has_set_on_a_tenants_share_stays(front, api):
    stranger = await front.stranger()
    await put(stranger, queue="mail", slots=50)
    await put(api, queue="mail", tenant=stranger.tenant, slots=5)

    higher, lower = [await put(stranger, queue="mail", slots=slots) for slots in (50, 1)]
    removed = await stranger.delete("/v1/limits?queue=mail")

    for refused in (higher, lower, removed):
        assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
        assert "has a limit of 5, set by the operator, key" in refused.json()["detail"]
    [told] = (await stranger.get("/v1/limits")).json()["items"]
    assert told["slots"] == 5
    assert told["set_by"].startswith("the operator, key ")
    assert (await put(api, queue="mail", tenant=stranger.tenant, slots=7)).json()["slots"] == 7
    assert (await api.delete(f"/v1/limits?queue=mail&tenant={stranger.tenant}")).status_code == 204
    assert (await put(stranger, queue="mail", slots=50)).json()["slots"] == 50


async def test_running_quota_of_a_tenant_is_its_limit_and_appears_with_its_weight(front, api):
    stranger = await front.stranger()
    path = f"/v1/tenants/{stranger.tenant}"

    changed = await api.ask("PATCH", path, json={"limits": {"running_max": 4, "weight": 3}})

    assert {"running_max": 4, "weight": 3}.items() <= changed.json()["limits"].items()
    [shown] = (await stranger.get("/v1/limits")).json()["items"]
    assert (shown["tenant"], shown["queue"], shown["slots"]) == (stranger.tenant, None, 4)
    for wrong in ({"weight": 0}, {"weight": 1_001}, {"running_max": 0}):
        assert (await api.ask("PATCH", path, json={"limits": wrong})).status_code == 422
    freed = await api.ask("PATCH", path, json={"limits": {}})
    assert {"running_max": None, "weight": 1}.items() <= freed.json()["limits"].items()
    assert (await api.get("/v1/limits")).json()["items"] == []


async def test_http_worker_respects_the_tenant_limit(api):
    remote = await a_remote(api, slots=10)
    for _ in range(4):
        await a_job_due_now(api)
    await put(api, tenant=1, slots=1)

    [first] = await remote.claim(limit=5)
    assert await remote.claim(limit=5) == []
    assert await remote.settle(first) == "settled"
    assert len(await remote.claim(limit=5)) == 1


async def test_http_worker_foresees_no_run_while_all_slots_are_in_use(api, database):
    remote = await a_remote(api, slots=10)
    await a_job_due_now(api)
    await put(api, tenant=1, queue="default", slots=1)
    [first] = await remote.claim()
    await a_job_due_now(api)

    foreseen = "select duly.foresee($1, 1)"
    assert await database.fetchval(foreseen, remote.worker_id) is None
    await remote.settle(first)
    assert await database.fetchval(foreseen, remote.worker_id) == 0
