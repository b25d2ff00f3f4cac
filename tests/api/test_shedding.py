"""A queue that is overloaded turns work of low priority away at the door; everything else is taken."""

import json

from duly.moves.admin.overload import record_overloads
from tests.api.front import A_TARGET, EVERY_HOUR
from tests.api.test_queues import queue
from tests.builders import a_ready_run, staged


async def overload(database, clock, name: str = "default", seconds: float = 90) -> None:
    """Let a queue be overloaded, and let the API have heard of nothing yet."""
    await a_ready_run(database, queue=name)
    await clock.advance(seconds)
    await record_overloads(database)


async def test_overloaded_queue_refuses_low_priority_with_retry_after(api, database, clock):
    await overload(database, clock, "mail")

    refused = await api.post("/v1/jobs", json={"target": A_TARGET, "queue": "mail", "priority": 7})

    assert (refused.status_code, refused.json()["code"]) == (429, "shed")
    assert refused.headers["retry-after"] == "60"
    assert (
        "queue mail is overloaded for this tenant: its oldest run has waited for 90 s, and its limit is 60 s"
        in refused.json()["detail"]
    )
    for taken in (
        {"priority": 6},
        {"priority": 9, "queue": "other"},
        {"priority": 9, "schedule": EVERY_HOUR},
        {"priority": 9, "schedule": {"trigger": {"type": "at", "at": "2030-01-01T00:00:00Z"}}},
        {"priority": 9, "on_event": {"type": "shop.order.placed"}},
    ):
        answer = await api.post("/v1/jobs", json={"target": A_TARGET, "queue": "mail", **taken})
        assert answer.status_code == 202, taken
    named = await api.post("/v1/jobs", json={"target": A_TARGET, "queue": "mail", "priority": 8, "name": "now"})
    assert named.json()["code"] == "shed"


async def test_a_workflow_is_refused_when_all_that_it_begins_with_would_be(api, database, clock):
    await overload(database, clock, "mail")

    def node(priority, queue="mail", **more):
        return {"target": A_TARGET, "queue": queue, "priority": priority, **more}

    async def answered(**nodes):
        return await api.post("/v1/workflows", json={"name": "w", "nodes": nodes})

    refused = await answered(a=node(9), b=node(7), z=node(5, depends_on=["a"]))
    assert (refused.status_code, refused.json()["code"]) == (429, "shed")
    assert refused.headers["retry-after"] == "60"
    assert "queue mail is overloaded" in refused.json()["detail"]
    for nodes in (
        {"a": node(9), "b": node(5)},
        {"a": node(9), "b": node(9, "other")},
        {"a": node(9, "other"), "z": node(9, depends_on=["a"])},
    ):
        assert (await answered(**nodes)).status_code == 202, nodes


async def test_lines_of_a_batch_are_refused_one_by_one(api, database, clock):
    await overload(database, clock)
    lines = [{"target": A_TARGET, "priority": priority} for priority in (5, 9, 6, 7)]

    answer = await api.post(
        "/v1/jobs:batch",
        content="\n".join(map(json.dumps, lines)),
        headers={"Content-Type": "application/x-ndjson"},
    )

    told = [json.loads(line) for line in answer.text.splitlines()]
    assert [one.get("error", {}).get("code") for one in told] == [None, "shed", None, "shed"]


async def test_manual_trigger_is_not_shed_under_overload(api, database, clock):
    job = await api.a_job(priority=9, schedule=EVERY_HOUR)
    await overload(database, clock)

    assert (await api.post(f"/v1/jobs/{job['job_id']}/trigger", json={})).status_code == 202


async def test_the_key_of_a_request_that_was_shed_is_free(api, database, clock):
    await overload(database, clock)
    body, headers = {"target": A_TARGET, "priority": 9}, {"Idempotency-Key": "again"}
    assert (await api.post("/v1/jobs", json=body, headers=headers)).status_code == 429
    await database.execute("delete from duly.ready")
    await clock.advance(1)
    await record_overloads(database)

    assert (await api.post("/v1/jobs", json=body, headers=headers)).status_code == 202


async def test_a_flood_of_one_tenant_sheds_nothing_of_another(front, api, database, clock):
    other = await front.stranger()
    schedule = {"trigger": {"type": "cron", "expr": "* * * * *", "tz": "UTC"}}
    flooding, calm = [await caller.a_job(priority=8, schedule=schedule) for caller in (api, other)]
    low = {"target": A_TARGET, "priority": 8}
    for _ in range(3):
        assert (await api.post("/v1/jobs", json=low)).status_code == 202
    await clock.advance(90)
    await record_overloads(database)

    assert (await api.post("/v1/jobs", json=low)).json()["code"] == "shed"
    assert (await other.post("/v1/jobs", json=low)).status_code == 202
    [line] = (
        await other.post("/v1/jobs:batch", content=json.dumps(low), headers={"Content-Type": "application/x-ndjson"})
    ).text.splitlines()
    assert "error" not in json.loads(line)
    nodes = {"a": {"target": A_TARGET, "priority": 9}}
    assert (await other.post("/v1/workflows", json={"name": "w", "nodes": nodes})).status_code == 202
    await staged(database)
    fired = {row[0] for row in await database.fetch("select job_id::text from duly.ready")}
    assert calm["job_id"] in fired
    assert flooding["job_id"] not in fired
    assert [(await queue(caller, "default"))["is_overloaded"] for caller in (api, other)] == [True, False]


async def test_overload_check_queries_the_database_at_most_twice_a_second(front, api, database, clock, monkeypatch):
    asked = []

    async def standing(_database):
        asked.append(clock.at)
        return {}

    monkeypatch.setattr("duly.api.admission.overloads.standing", standing)
    for _ in range(10):
        await api.post("/v1/jobs", json={"target": A_TARGET, "priority": 9})
    assert len(asked) == 1
    await clock.advance(0.6)
    await api.post("/v1/jobs", json={"target": A_TARGET, "priority": 9})
    assert len(asked) == 2


async def test_overload_appears_in_queues_and_metrics(front, api, database, clock):
    await overload(database, clock, "mail")
    await api.post("/v1/jobs", json={"target": A_TARGET, "queue": "mail", "priority": 9})

    seen = await queue(api, "mail")
    scraped = (await api.get("/metrics")).text

    assert (seen["is_overloaded"], seen["age_limit_seconds"], seen["desired_workers"]) == (True, 60.0, 1)
    assert len(seen["upcoming"]) == 15
    assert 'duly_queue_overloaded{tenant="1",queue="mail"} 1' in scraped
    assert 'duly_queue_overload_age_seconds{tenant="1",queue="mail"} 90.0' in scraped
    assert 'duly_api_shed_submissions_total{tenant="1",queue="mail"} 1' in scraped
    assert 'duly_desired_workers{queue="mail"} 1' in scraped


async def test_the_limit_is_changed_by_the_operator_while_it_runs(front, api, database, clock):
    await a_ready_run(database, queue="mail")
    told = await api.ask("PUT", "/v1/queues/mail", json={"age_limit": "PT5S"})
    assert (told.status_code, told.json()) == (200, {"name": "mail", "age_limit_seconds": 5.0})
    await clock.advance(6)
    await record_overloads(database)
    assert (await queue(api, "mail"))["is_overloaded"]

    assert (await api.ask("PUT", "/v1/queues/mail", json={"age_limit": None})).json()["age_limit_seconds"] == 60.0
    await clock.advance(1)
    await record_overloads(database)

    assert not (await queue(api, "mail"))["is_overloaded"]
    assert (await api.ask("PUT", "/v1/queues/mail", json={"age_limit": "P2D"})).json()["code"] == "invalid_option"
    stranger = await front.stranger()
    assert (await stranger.ask("PUT", "/v1/queues/mail", json={"age_limit": 5})).status_code == 403
