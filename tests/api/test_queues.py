"""Queues and the emergency stop over HTTP. What is held starts nowhere, and is kept."""

from typing import Any
from uuid import uuid4

from duly.store.boxes import runs
from tests.api.front import A_TARGET
from tests.api.remote import a_remote
from tests.api.test_runs import a_run
from tests.api.working import stage, take
from tests.builders import a_leased_run, a_worker


async def queue(api, name: str) -> Any:
    [found] = [one for one in (await api.get("/v1/queues")).json()["items"] if one["name"] == name]
    return found


async def test_depth_age_and_workers_are_seen(api, database, clock):
    await a_run(api, queue="mail")
    await clock.advance(30)
    await a_run(api, queue="mail")
    assert {"ready": 2, "workers": 0, "slots": 0, "is_paused": False}.items() <= (await queue(api, "mail")).items()

    await take(database, "mail")

    seen = await queue(api, "mail")
    assert (seen["ready"], seen["workers"], seen["slots"]) == (0, 1, 10)


async def test_the_age_is_that_of_the_oldest(api, clock):
    await a_run(api, queue="mail")
    await clock.advance(30)

    assert 29 <= (await queue(api, "mail"))["oldest_age_seconds"] <= 31


async def test_tenant_pauses_only_its_own_share_of_a_queue(front, api, database):
    stranger = await front.stranger()
    for caller in (api, stranger):
        await a_run(caller, queue="mail")
    paused = await stranger.post("/v1/queues/mail/pause", json={"reason": "broken"})
    again = await stranger.post("/v1/queues/mail/pause", json={"reason": "another"})

    assert (paused.status_code, paused.json()["status"], again.json()["status"]) == (200, "paused", "already")
    [held] = again.json()["remaining"]
    assert (held["tenant"], held["queue"], held["reason"]) == (stranger.tenant, "mail", "broken")
    assert ((await queue(api, "mail"))["is_paused"], (await queue(stranger, "mail"))["is_paused"]) == (False, True)
    _, runs = await take(database, "mail")
    assert {run.tenant for run in runs} == {api.tenant}
    assert (await stranger.post("/v1/queues/mail/resume", json={})).json()["status"] == "resumed"
    assert (await stranger.post("/v1/queues/mail/resume", json={})).json()["status"] == "not_paused"
    _, runs = await take(database, "mail")
    assert {run.tenant for run in runs} == {stranger.tenant}


async def test_queue_name_accepts_path_separators(api):
    for name, sent in {"eu/mail": "eu%2Fmail", "a/pause": "a%2Fpause", "é %": "%C3%A9%20%25"}.items():
        paused = await api.post(f"/v1/queues/{sent}/pause", json={})
        assert (paused.status_code, [one["queue"] for one in paused.json()["remaining"]]) == (200, [name])
        assert (await queue(api, name))["is_paused"]
        assert (await api.post(f"/v1/queues/{sent}/resume", json={})).json()["status"] == "resumed"

    assert (await api.post("/v1/queues/mail/stop", json={})).status_code == 404
    refused = await api.get("/v1/queues/mail/pause")
    assert refused.status_code == 405
    assert set(refused.headers["allow"].split(", ")) == {"POST", "PUT", "OPTIONS"}


async def test_a_queue_of_everyone_is_for_the_operator(front, api, database):
    stranger = await front.stranger()
    await a_run(stranger, queue="mail")
    refused = await stranger.post("/v1/queues/mail/pause", json={"everyone": True})
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")

    assert (await api.post("/v1/queues/mail/pause", json={"everyone": True})).json()["status"] == "paused"

    _, runs = await take(database, "mail")
    assert runs == []
    [seen] = (await stranger.get("/v1/pauses")).json()["items"]
    assert (seen["tenant"], seen["queue"]) == (None, "mail")


async def test_global_pause_stops_all_claims_until_resume(front, api, database):
    stranger = await front.stranger()
    run_ids = {await a_run(api), await a_run(stranger)}
    assert (await api.post("/v1/pause", json={"all": True, "reason": "fire"})).json()["status"] == "paused"
    await stage(database)
    _, runs = await take(database)
    assert runs == []

    assert (await api.post("/v1/resume", json={"all": True})).json()["status"] == "resumed"

    _, runs = await take(database)
    assert {str(run.run_id) for run in runs} == run_ids, "what waited was kept"


async def test_an_admin_of_a_tenant_stops_that_tenant(front, api, database):
    stranger = await front.stranger()
    for body in ({"all": True}, {"tenant": 1}, {"tenant": 1, "queue": "mail"}):
        assert (await stranger.post("/v1/pause", json=body)).status_code == 403, body
    paused = await stranger.post("/v1/pause", json={"tenant": stranger.tenant})
    assert paused.json()["remaining"][0]["tenant"] == stranger.tenant

    assert (await api.get("/v1/pauses")).json()["items"], "the operator sees all"
    assert (await (await front.caller("jobs:write")).post("/v1/pause", json={"all": True})).status_code == 403
    assert (await api.post("/v1/resume", json={"tenant": stranger.tenant})).json()["status"] == "resumed"


async def test_holds_of_one_tenant_are_not_seen_by_another(front, api):
    stranger = await front.stranger()
    await api.post("/v1/queues/secret/pause", json={})

    assert (await stranger.get("/v1/pauses")).json()["items"] == []
    assert "secret" not in (await stranger.get("/v1/queues")).text


async def test_workers_of_one_tenant_are_not_seen_by_another(front, api):
    stranger = await front.stranger()
    await a_remote(stranger, queues=["secret"])
    assert (await queue(stranger, "secret"))["workers"] == 1

    assert "secret" not in (await api.get("/v1/queues")).text
    run_id = await a_run(api, queue="secret")
    reasons = (await api.get(f"/v1/runs/{run_id}/explain")).json()["reasons"]
    assert [reason["code"] for reason in reasons] == ["no_worker_for_queue", "queue_backlog"]
    [worker] = [one for one in (await api.get("/v1/workers")).json()["items"] if one["queues"] == ["secret"]]
    assert worker["tenant"] == stranger.tenant


async def test_workers_are_for_the_operator(front, api, database):
    await take(database, "mail")
    stranger = await front.stranger()

    assert (await stranger.get("/v1/workers")).status_code == 403
    [worker] = [one for one in (await api.get("/v1/workers")).json()["items"] if one["queues"] == ["mail"]]
    assert (worker["handlers"], worker["slots"]) == ([A_TARGET["handler"]], 10)
    assert worker["lease_seconds_left"] > 0


async def test_invalid_request_is_refused(api):
    wrong: list[dict[str, Any]] = [
        {},
        {"all": True, "queue": "a"},
        {"queue": ""},
        {"queue": "\0"},
        {"queue": "x" * 201},
        {"tenant": 0},
        {"tenant": 2**31},
        {"tenant": 10**400},
        {"tenant": 1.5},
        {"all": "yes"},
        {"all": True, "reason": "a\nb"},
        {"all": True, "reason": ""},
    ]
    for body in wrong:
        assert (await api.post("/v1/pause", json=body)).status_code == 422, body
        lift = {key: value for key, value in body.items() if key != "reason"}
        if lift != {"all": True}:
            assert (await api.post("/v1/resume", json=lift)).status_code == 422, body
    for name in ("a%0Ab", "x" * 201):
        assert (await api.post(f"/v1/queues/{name}/pause", json={})).status_code == 422
    assert (await api.get("/v1/pauses")).json()["items"] == []


async def worker_of(api, worker_id) -> Any:
    [found] = [one for one in (await api.get("/v1/workers")).json()["items"] if one["worker_id"] == str(worker_id)]
    return found


class TestWorkers:
    async def test_worker_shows_its_held_runs(self, api, database):
        worker_id, run = await a_leased_run(database)

        worker = await worker_of(api, worker_id)
        held = (await api.get(f"/v1/workers/{worker_id}/runs")).json()

        assert (worker["held_runs"], worker["is_draining"]) == (1, False)
        assert [one["run_id"] for one in held["items"]] == [str(run.run_id)]
        assert held["is_complete"] is True

    async def test_stalled_worker_shows_its_stall_time_and_handlers(self, api, database):
        worker_id, run = await a_leased_run(database)
        assert (await worker_of(api, worker_id))["stalled_at"] is None

        await database.execute("update duly.workers set stalled_at = duly.clock_now(), stalled_in = '{crunch}'")

        worker = await worker_of(api, worker_id)
        assert (worker["stalled_at"] is not None, worker["stalled_in"]) == (True, ["crunch"])
        explained = (await api.get(f"/v1/runs/{run.run_id}/explain")).json()
        [stalled] = [reason for reason in explained["reasons"] if reason["code"] == "worker_stalled"]
        assert stalled["facts"]["handlers"] == ["crunch"]

    async def test_drained_worker_serves_no_queue_until_resumed(self, api, database):
        worker_id = await a_worker(database, queues=["mail"])

        drained = await api.post(f"/v1/workers/{worker_id}/drain")
        assert drained.json() == {"worker_id": str(worker_id), "is_draining": True, "held_runs": 0}
        assert (await runs.look(database, worker_id)).is_draining
        assert (await worker_of(api, worker_id))["is_draining"] is True
        assert [one["name"] for one in (await api.get("/v1/queues")).json()["items"] if one["name"] == "mail"] == []

        assert (await api.post(f"/v1/workers/{worker_id}/resume")).json()["is_draining"] is False
        assert not (await runs.look(database, worker_id)).is_draining
        assert (await queue(api, "mail"))["workers"] == 1

    async def test_over_http_it_is_given_nothing_while_it_is_drained(self, api, database):
        worker = await a_remote(api, queues=["mail"])
        await a_run(api, queue="mail")
        await api.post(f"/v1/workers/{worker.worker_id}/drain")
        assert await worker.claim() == []

        await api.post(f"/v1/workers/{worker.worker_id}/resume")
        assert len(await worker.claim()) == 1

    async def test_unknown_worker_is_not_found(self, api):
        for path in ("drain", "resume"):
            assert (await api.post(f"/v1/workers/{uuid4()}/{path}")).status_code == 404
        assert (await api.get(f"/v1/workers/{uuid4()}/runs")).status_code == 404


async def test_operator_sees_queues_of_all_tenants_and_a_tenant_only_its_own(front, api):
    stranger = await front.stranger()
    await a_run(stranger, queue="mail")
    await stranger.post("/v1/queues/mail/pause", json={"reason": "broken"})

    everything = (await api.get("/v1/queues", params={"everyone": "true"})).json()["items"]
    [seen] = [one for one in everything if one["name"] == "mail"]
    refused = await stranger.get("/v1/queues", params={"everyone": "true"})

    assert seen["ready"] == 1
    assert [(one["tenant"], one["reason"]) for one in seen["pauses"]] == [(stranger.tenant, "broken")]
    assert seen["unroutable"] == [{"handler": A_TARGET["handler"], "runs": 1}]
    assert "mail" not in [one["name"] for one in (await api.get("/v1/queues")).json()["items"]]
    assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
