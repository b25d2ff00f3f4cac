"""Runs over HTTP: where each stands, its attempts and its log; cancel and replay."""

from datetime import datetime, timedelta

import pytest

from duly.domain.runs.outcome import Failed, Succeeded
from duly.moves.submit import submit
from duly.store.boxes import history
from duly.store.boxes import runs as store
from duly.store.boxes.runs import LogLine
from tests.api.front import A_TARGET
from tests.api.test_jobs import UNKNOWN
from tests.api.working import stage, take, work
from tests.builders import a_submission, settled

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def a_run(api, **fields) -> str:
    answer = await api.post("/v1/jobs", json={"target": A_TARGET, **fields})
    assert answer.status_code == 202, answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


async def one_of_each(api, database, clock) -> dict[str, str]:
    """Give a run in each state."""
    made = {"dead": await a_run(api, queue="dead", tags=["x"])}
    await work(database, Failed("broken", retryable=False), "dead")
    made["succeeded"] = await a_run(api, queue="fine")
    await work(database, Succeeded('{"sum": 3}'), "fine")
    made["retrying"] = await a_run(api, queue="again")
    await work(database, Failed("broken", retry_after=timedelta(hours=1)), "again")
    made["running"] = await a_run(api, queue="busy")
    await take(database, "busy")
    made["cancelled"] = await a_run(api, queue="gone")
    await api.post(f"/v1/runs/{made['cancelled']}/cancel")
    gated = {"queue": "gated", "concurrency": {"key": "g", "limit": 1}}
    inside = await a_run(api, **gated)
    await stage(database)
    made["blocked"] = await a_run(api, **gated)
    await clock.advance(1)
    await stage(database)
    later = (await database.read_clock() + timedelta(days=1)).isoformat()
    made["scheduled"] = await a_run(api, schedule={"trigger": {"type": "at", "at": later}})
    made["ready"] = await a_run(api)
    return {**made, "inside": inside}


async def pages(api, path, **query) -> list[dict]:
    seen, token = [], None
    while True:
        answer = await api.get(path, params=query | ({"page_token": token} if token else {}))
        assert answer.status_code == 200, answer.text
        seen += answer.json()["items"]
        token = answer.json()["next_page_token"]
        if token is None:
            return seen


async def test_a_run_in_each_state_is_read_listed_explained_and_cancelled_as_it_can_be(api, database, clock):
    made = await one_of_each(api, database, clock)
    inside = made.pop("inside")

    for state, run_id in made.items():
        run = (await api.get(f"/v1/runs/{run_id}")).json()
        assert (run["state"], run["run_id"], run["job_id"]) == (state, run_id, run_id)
        [listed] = (await api.get("/v1/runs", params={"filter": f"state:{state} AND job_id:{run_id}"})).json()["items"]
        assert listed["run_id"] == run_id
        explained = (await api.get(f"/v1/runs/{run_id}/explain")).json()
        assert (explained["kind"], explained["state"]) == ("run", state)
        assert explained["reasons"], state
    every = await pages(api, "/v1/runs", page_size=2)
    assert sorted(run["run_id"] for run in every) == sorted([*made.values(), inside]), "each once"

    for state, run_id in made.items():
        if state != "dead":
            assert (await api.post(f"/v1/runs/{run_id}/replay")).status_code == 409, state
        answer = (await api.post(f"/v1/runs/{run_id}/cancel")).json()
        waits = {"scheduled", "retrying", "ready", "blocked"}
        told = "cancelled" if state in waits else "requested" if state == "running" else "too_late"
        now = "cancelled" if told == "cancelled" else state
        assert answer == {"run_id": run_id, "status": told, "state": now, "children": 0}, state
    assert (await api.post(f"/v1/runs/{made['dead']}/replay")).json() == {"run_id": made["dead"], "status": "replayed"}
    assert (await api.get(f"/v1/runs/{made['dead']}")).json()["state"] == "retrying"


async def test_filters_choose(api, database, clock):
    made = await one_of_each(api, database, clock)
    inside = made.pop("inside")
    now = (await database.read_clock()).isoformat()

    async def found(text: str) -> set[str]:
        return {run["run_id"] for run in await pages(api, "/v1/runs", filter=text, page_size=3)}

    assert await found("queue:(busy,fine)") == {made["running"], made["succeeded"]}
    assert await found("tag:x") == {made["dead"]}
    assert await found(f'scheduled_at>"{now}"') == {made["scheduled"]}
    assert await found("state:(dead,blocked)") == {made["dead"], made["blocked"]}
    assert await found('handler:"app:mail"') == {*made.values(), inside}
    assert await found("handler:other") == set()


async def test_no_worker_is_named_by_an_explanation(api, database):
    run_id = await a_run(api)
    await take(database)
    explained = await api.get(f"/v1/runs/{run_id}/explain")
    shown = (await api.get(f"/v1/runs/{run_id}")).json()

    [running] = explained.json()["reasons"]
    assert running["code"] == "running"
    assert running["facts"]["worker"] == shown["worker_id"]

    waiting = await a_run(api, target={"type": "function", "handler": "nobody:knows"})
    reasons = (await api.get(f"/v1/runs/{waiting}/explain")).json()["reasons"]
    [missing] = [reason for reason in reasons if reason["code"] == "unroutable"]
    assert missing["facts"]["known"] == []


async def test_leased_run_shows_its_worker_and_claim_time(api, database, clock):
    run_id = await a_run(api)
    await stage(database)
    before = (await api.get(f"/v1/runs/{run_id}")).json()
    await clock.advance(2)
    worker_id, [run] = await take(database)
    now = await database.read_clock()
    shown = (await api.get(f"/v1/runs/{run_id}")).json()
    lease = shown["lease"]

    assert (before["lease"], before["started_at"]) == (None, None)
    assert (lease["worker_id"], lease["fence"]) == (str(worker_id), run.fence)
    assert shown["started_at"] == lease["claimed_at"]
    assert datetime.fromisoformat(lease["claimed_at"]) == now
    await settled(database, worker_id, run)
    assert (await api.get(f"/v1/runs/{run_id}")).json()["lease"] is None


async def test_run_explain_names_a_pause_as_the_reason(api):
    run_id = await a_run(api, queue="mail")
    await api.post("/v1/pause", json={"all": True, "reason": "the building is on fire"})

    reasons = (await api.get(f"/v1/runs/{run_id}/explain")).json()["reasons"]

    assert reasons[0]["code"] == "queue_paused"
    assert "the building is on fire" in reasons[0]["text"]


async def test_run_lists_its_attempts_and_its_result(api, database, clock):
    run_id = await a_run(api)
    [first] = await work(database, Failed("broken", retry_after=timedelta()))
    [second] = await work(database, Succeeded('{"sum": 3}'))
    run = (await api.get(f"/v1/runs/{run_id}")).json()

    assert (run["state"], run["attempt"], run["result"]) == ("succeeded", 2, {"sum": 3})
    assert [(one["attempt"], one["outcome"], one["fence"]) for one in run["attempts"]] == [
        (1, "failed", first.fence),
        (2, "succeeded", second.fence),
    ]
    assert (await api.get(f"/v1/runs/{run_id}/attempts")).json()["items"] == run["attempts"]
    assert run["finished_at"] == run["attempts"][-1]["finished_at"]


async def test_logs_come_page_by_page_until_the_end(api, database):
    run_id = await a_run(api)
    worker_id, [run] = await take(database)
    at = await database.read_clock()
    lines = [LogLine(run.run_id, run.fence, 1, number, at, "info", f"line {number}", None) for number in range(1001)]
    await store.append_logs(database, worker_id, lines)
    path = f"/v1/runs/{run_id}/logs"

    first = (await api.get(path)).json()
    second = (await api.get(path, params={"page_token": first["next_page_token"]})).json()
    assert [line["number"] for line in first["items"] + second["items"]] == list(range(1001))
    assert (first["is_final"], second["is_final"]) == (False, False)
    await settled(database, worker_id, run)
    last = (await api.get(path, params={"page_token": second["next_page_token"]})).json()
    assert (last["items"], last["is_final"]) == ([], True)
    other = await a_run(api)
    answer = await api.get(f"/v1/runs/{other}/logs", params={"page_token": first["next_page_token"]})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_query")


async def test_the_request_and_the_trace_stay_with_the_run_also_after_its_end(api, database):
    headers = {"X-Request-ID": "mine-7", "traceparent": TRACE}
    answer = await api.post("/v1/jobs", json={"target": A_TARGET, "tags": ["x"]}, headers=headers)
    assert answer.headers["x-request-id"] == "mine-7"
    path = f"/v1/runs/{answer.json()['run_id']}"

    for state in ("ready", "succeeded"):
        run = (await api.get(path)).json()
        assert (run["state"], run["request_id"], run["traceparent"]) == (state, "mine-7", TRACE)
        assert run["tags"] == ["x"]
        await work(database)


async def test_the_request_stays_with_the_runs_of_a_schedule(api, database):
    headers = {"X-Request-ID": "mine-7", "traceparent": TRACE}
    body = {"target": A_TARGET, "schedule": {"trigger": {"type": "interval", "every": "PT1H"}}}
    assert (await api.post("/v1/jobs", json=body, headers=headers)).status_code == 202
    [run] = await work(database)

    shown = (await api.get(f"/v1/runs/{run.run_id}")).json()

    assert (shown["request_id"], shown["traceparent"]) == ("mine-7", TRACE)


async def test_a_trace_that_cannot_be_read_is_not_kept(api):
    for given in ("nonsense", "00-" + "0" * 400, "\t"):
        headers = {"traceparent": given, "X-Request-ID": "x" * 201}
        answer = await api.post("/v1/jobs", json={"target": A_TARGET}, headers=headers)
        run = (await api.get(f"/v1/runs/{answer.json()['run_id']}")).json()
        assert (run["traceparent"], run["request_id"]) == (None, None)


async def test_unknown_id_returns_404(api):
    for verb in ("cancel", "replay"):
        assert (await api.post(f"/v1/runs/{UNKNOWN}/{verb}")).status_code == 404


async def test_change_without_a_request_id_keeps_that_of_the_create(api, database):
    headers = {"X-Request-ID": "mine-7", "traceparent": TRACE}
    body = {"target": A_TARGET, "schedule": {"trigger": {"type": "interval", "every": "PT1H"}}}
    path = f"/v1/jobs/{(await api.post('/v1/jobs', json=body, headers=headers)).json()['job_id']}"

    assert (await api.patch(path, {"priority": 1}, headers={"If-Match": "*"})).status_code == 200
    [run] = await work(database)
    kept = (await api.get(f"/v1/runs/{run.run_id}")).json()
    named = {"If-Match": "*", "X-Request-ID": "mine-8"}
    assert (await api.patch(path, {"priority": 2}, headers=named)).status_code == 200
    marks = await database.fetchval("select options from duly.jobs")

    assert (kept["request_id"], kept["traceparent"]) == ("mine-7", TRACE)
    assert '"mine-8"' in marks


@pytest.mark.parametrize(
    "value", ["[" * 3000 + "]" * 3000, "[" * 950 + "]" * 950, "9" * 5000], ids=["deep", "less", "long"]
)
async def test_json_that_cannot_be_decoded_is_shown_as_text(api, database, value):
    """No door takes it; it may stand there from before they looked."""
    text = f'{{"a": {value}}}'
    run_id = (await submit(database, a_submission(payload=text, handler=A_TARGET["handler"]), key="k")).job_id

    shown = [(await api.get(f"/v1/{what}/{run_id}")).json()["payload"] for what in ("runs", "jobs")]
    await work(database, Succeeded(text))
    ended = (await api.get(f"/v1/runs/{run_id}")).json()
    [attempt] = (await api.get(f"/v1/runs/{run_id}/attempts")).json()["items"]

    for told in (*shown, ended["result"], attempt["result"]):
        assert told["text"] == text
        assert "nested deeper than 256 levels" in told["unreadable"] or "out of range" in told["unreadable"]


async def test_ended_run_keeps_its_payload_and_definition(api, database):
    asked = {
        "payload": {"customer": 7},
        "priority": 2,
        "retry": {"max_attempts": 3, "base": "PT2S"},
        "timeout": "PT9S",
        "tags": ["x"],
    }
    run_id = await a_run(api, **asked)
    before = (await api.get(f"/v1/runs/{run_id}")).json()
    await work(database, Succeeded())
    after = (await api.get(f"/v1/runs/{run_id}")).json()

    assert after["state"] == "succeeded"
    assert (after["payload"], after["payload_kept"], after["priority"]) == ({"customer": 7}, True, 2)
    assert (after["definition"]["timeout"], after["definition"]["retry"]["max_attempts"]) == ("PT9S", 3)
    told = ("payload", "payload_kept", "priority", "definition", "tags", "target", "submitted_by")
    assert {name: after[name] for name in told} == {name: before[name] for name in told}
    assert (after["submitted_by"]["kind"], after["submitted_by"]["action"]) == ("key", "job.created")


async def test_ended_run_shows_its_url_and_masks_its_secrets(api, database):
    target = {"type": "webhook", "url": "https://x.example/hook?k=1", "headers": {"Authorization": "Bearer s3cret"}}
    run_id = await a_run(api, target=target)
    assert (await api.post(f"/v1/runs/{run_id}/cancel")).json()["status"] == "cancelled"

    answer = await api.get(f"/v1/runs/{run_id}")

    assert "s3cret" not in answer.text
    assert answer.json()["definition"]["target"]["headers"] == {"Authorization": "***"}
    assert answer.json()["target"]["url"] == "https://x.example/hook?…"


async def test_triggered_run_keeps_its_payload_version_and_submitter(api, database):
    daily = {"trigger": {"type": "cron", "expr": "0 3 * * *"}}
    job = {"target": A_TARGET, "schedule": daily, "payload": {"n": 1}}
    job_id = (await api.post("/v1/jobs", json=job)).json()["job_id"]
    put = await api.put(f"/v1/jobs/{job_id}", json={**job, "payload": {"n": 2}}, headers={"If-Match": "*"})
    assert put.status_code == 200, put.text
    run_id = (await api.post(f"/v1/jobs/{job_id}/trigger", json={"payload": {"n": 3}})).json()["run_id"]
    await work(database)

    run = (await api.get(f"/v1/runs/{run_id}")).json()

    assert (run["state"], run["payload"], run["definition"]["version"]) == ("succeeded", {"n": 3}, 2)
    assert run["submitted_by"]["action"] == "job.triggered"


async def test_run_reports_a_payload_that_is_no_longer_kept(api, database):
    await history.limit_payloads(database, 1)
    run_id = await a_run(api, payload={"customer": 7})
    await work(database)

    run = (await api.get(f"/v1/runs/{run_id}")).json()

    assert (run["payload"], run["payload_kept"]) == (None, False)
