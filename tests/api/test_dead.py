"""Dead letters over HTTP: look, mend, replay, discard; one by one and by a filter."""

from datetime import datetime
from typing import Any

from duly.domain.runs.outcome import Failed
from tests.api.test_jobs import UNKNOWN
from tests.api.test_runs import a_run, pages
from tests.api.working import work


async def dead_runs(api, database, count: int, queue: str = "default", reason: str = "broken") -> list[str]:
    made = [await a_run(api, queue=queue, payload={"n": number}) for number in range(count)]
    await work(database, Failed(reason, retryable=False), queue)
    return made


async def test_dead_run_accepts_a_new_payload_and_a_replay(api, database):
    [run_id] = await dead_runs(api, database, 1)
    [letter] = (await api.get("/v1/dead")).json()["items"]
    assert (letter["run_id"], letter["reason"], letter["attempt"]) == (run_id, "broken", 1)

    edited = await api.ask("PATCH", f"/v1/dead/{run_id}", json={"payload": {"n": "mended"}})
    assert edited.status_code == 204
    replayed = await api.post(f"/v1/dead/{run_id}/replay")
    assert (replayed.status_code, replayed.json()["status"]) == (202, "replayed")

    run = (await api.get(replayed.headers["location"])).json()
    assert (run["state"], run["payload"]) == ("retrying", {"n": "mended"})
    for answer in (
        await api.post(f"/v1/dead/{run_id}/replay"),
        await api.delete(f"/v1/dead/{run_id}"),
        await api.ask("PATCH", f"/v1/dead/{run_id}", json={"payload": {}}),
        await api.delete(f"/v1/dead/{UNKNOWN}"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    [run] = await work(database)
    assert run.attempt == 2, "attempts go on"


async def test_discarded_dead_run_keeps_its_record(api, database):
    [run_id] = await dead_runs(api, database, 1)

    assert (await api.delete(f"/v1/dead/{run_id}")).json() == {"run_id": run_id, "status": "discarded"}
    assert (await api.get("/v1/dead")).json()["items"] == []
    assert (await api.get(f"/v1/runs/{run_id}")).json()["attempts"][0]["outcome"] == "failed"


async def test_pages_and_filters(api, database):
    mail = await dead_runs(api, database, 5, "mail", "smtp down")
    other = await dead_runs(api, database, 2, "other", "bug")

    assert sorted(one["run_id"] for one in await pages(api, "/v1/dead", page_size=2)) == sorted([*mail, *other])
    for text in ("queue:mail", 'reason:"smtp down"', "reason:smtp*"):
        assert {one["run_id"] for one in await pages(api, "/v1/dead", filter=text, page_size=3)} == set(mail), text


async def test_many_are_counted_mended_replayed_and_given_up_by_a_filter(api, database):
    mail, other = await dead_runs(api, database, 5, "mail"), await dead_runs(api, database, 2, "other")

    async def bulk(verb: str, **body) -> Any:
        answer = await api.post(f"/v1/dead:{verb}", json={"filter": "queue:mail", **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    verbs: list[tuple[str, dict[str, Any]]] = [("replay", {}), ("discard", {}), ("edit", {"payload": {}})]
    for verb, more in verbs:
        counted = await bulk(verb, dry_run=True, **more)
        assert (counted["matched"], counted["moved"], counted["dry_run"]) == (5, 0, True), verb
        assert set(counted["sample"]) == set(mail)
    edited = await bulk("edit", payload={"n": "mended"})
    assert (edited["matched"], edited["moved"]) == (5, 5)
    first = await bulk("replay", limit=2)
    assert (first["matched"], first["moved"]) == (2, 2)
    rest = await bulk("replay", page_token=first["next_page_token"])
    assert (rest["matched"], rest["moved"], rest["next_page_token"]) == (3, 3, None)
    ready = await pages(api, "/v1/runs", filter="state:retrying")
    assert {run["run_id"] for run in ready} == set(mail)
    assert (await api.get(f"/v1/runs/{mail[0]}")).json()["payload"] == {"n": "mended"}
    gone = (await api.post("/v1/dead:discard", json={"all": True})).json()
    assert (gone["moved"], set(gone["sample"])) == (2, set(other))
    assert (await api.get("/v1/dead")).json()["items"] == []


async def test_a_bulk_under_a_key_is_done_once(api, database):
    await dead_runs(api, database, 3)
    first, again = [
        await api.post("/v1/dead:replay", json={"all": True, "limit": 1}, headers={"Idempotency-Key": "k"})
        for _ in range(2)
    ]

    assert first.json() == again.json()
    assert len((await api.get("/v1/dead")).json()["items"]) == 2


async def test_invalid_request_is_refused(api, database):
    [run_id] = await dead_runs(api, database, 1)
    wrong = [
        ("replay", {}),
        ("replay", {"filter": "colour:blue"}),
        ("replay", {"filter": "queue:\0"}),
        ("replay", {"all": True, "limit": 0}),
        ("replay", {"all": True, "limit": 10_001}),
        ("replay", {"all": True, "limit": 10**30}),
        ("replay", {"all": True, "rate": 0}),
        ("replay", {"all": True, "rate": -1}),
        ("discard", {"all": True, "rate": 1}),
        ("discard", {"all": True, "page_token": "x"}),
        ("discard", {"all": True, "dry_run": "yes"}),
        ("edit", {"all": True}),
        ("edit", {"all": True, "payload": []}),
        ("edit", {"all": True, "payload": {"x": "\0"}}),
    ]
    for verb, body in wrong:
        answer = await api.post(f"/v1/dead:{verb}", json=body)
        assert answer.status_code in (400, 422), (verb, body, answer.text)
    for body in ({}, {"payload": None}, {"payload": {"x": "\0"}}, {"payload": {"x" * 300_000: 1}}):
        assert (await api.ask("PATCH", f"/v1/dead/{run_id}", json=body)).status_code == 422, body
    assert (await api.get(f"/v1/runs/{run_id}")).json()["payload"] == {"n": 0}


async def test_empty_filter_does_not_match_every_dead_run(api, database):
    await dead_runs(api, database, 1)
    for body in (
        {},
        {"filter": ""},
        {"filter": " \t"},
        {"filter": "", "dry_run": True},
        {"filter": "queue:default", "all": True},
    ):
        for verb in ("replay", "discard", "edit"):
            payload: dict[str, Any] = {"payload": {}} if verb == "edit" else {}
            answer = await api.post(f"/v1/dead:{verb}", json={**body, **payload})
            assert (answer.status_code, answer.json()["code"]) == (422, "invalid_filter"), (verb, body, answer.text)
            assert '"all": true' in answer.json()["remedy"]
    assert len((await api.get("/v1/dead")).json()["items"]) == 1


async def test_replay_at_a_rate_spreads_its_runs_and_continues_on_the_next_page(api, database, clock):
    mail = await dead_runs(api, database, 4, "mail")
    asked = {"filter": "queue:mail", "limit": 2, "rate": 0.1}

    first = (await api.post("/v1/dead:replay", json=asked)).json()
    rest = (await api.post("/v1/dead:replay", json={**asked, "page_token": first["next_page_token"]})).json()

    assert (first["moved"], rest["moved"], rest["next_page_token"]) == (2, 2, None)
    found = [(await api.get(f"/v1/runs/{run_id}")).json() for run_id in mail]
    due = sorted(datetime.fromisoformat(run["due_at"]) for run in found)
    assert [(at - clock.at).total_seconds() for at in due] == [0, 10, 20, 30]
    assert {run["state"] for run in found} == {"retrying"}
    [run] = await work(database, queue="mail")
    assert (run.attempt, run.history.replays) == (2, 1), "it is the same run, and its attempts go on"


async def test_dead_runs_are_counted_by_error_group(api, database):
    for number in range(3):
        await dead_runs(api, database, 1, reason=f"customer {number} is gone")
    await dead_runs(api, database, 1, "mail", "smtp down")

    answer = (await api.get("/v1/dead", params={"group": "error"})).json()
    mail = (await api.get("/v1/dead", params={"group": "error", "filter": "queue:mail"})).json()

    assert [(group["error"], group["count"]) for group in answer["groups"]] == [
        ("customer … is gone", 3),
        ("smtp down", 1),
    ]
    assert answer["items"] == []
    assert [group["error"] for group in mail["groups"]] == ["smtp down"]
    assert (await api.get("/v1/dead", params={"group": "colour"})).status_code == 400


async def test_error_group_strips_ids_and_numbers_from_the_reason(api, database):
    names = {
        "run 7c9e6679-7425-40de-944b-e07fc1f90ae7 is gone": "run … is gone",
        "at 0xDEADbeef": "at …",
        "0x12 of 7c9e6679-7425-40de-944b-e07fc1f90ae7": "… of …",
        "took 12.5 s, 1,024 bytes, 10:30": "took … s, … bytes, …",
        "a-b-c-d-e stays, and so does 0x": "a-b-c-d-e stays, and so does …x",
        "first 1\nsecond 0x1 2-3-4-5-6": "first …",
        "it answered 404, after 3 attempts in 12 s": "it answered 404, after … attempts in … s",
        "exit status 75": "exit status 75",
        "HTTP 503 for order 77": "HTTP 503 for order …",
        "": "",
        "x" * 300: "x" * 200,
    }

    found = await database.fetch(
        "select reason, duly.error_group(reason) as name from unnest($1::text[]) as reason", [*names]
    )

    assert {row["reason"]: row["name"] for row in found} == names


async def test_error_group_shows_handlers_sample_runs_and_times(api, database):
    first, last = [
        *await dead_runs(api, database, 1, reason="customer 1 is gone"),
        *await dead_runs(api, database, 1, reason="customer 22 is gone"),
    ]
    await dead_runs(api, database, 1, "mail", "smtp down")

    [group] = (await api.get("/v1/dead", params={"group": "error", "filter": 'error:"customer … is gone"'})).json()[
        "groups"
    ]

    assert (group["error"], group["count"], group["handlers"]) == ("customer … is gone", 2, ["app:mail"])
    assert set(group["sample"]) == {first, last}
    assert group["first_buried_at"] <= group["last_buried_at"]
