"""Destinations over HTTP: made, limited, closed by hand; secrets are rotated and shown to an admin, and to nobody else."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from duly.clock import Rng
from duly.domain.runs.outcome import Failed, WaitForDestination
from duly.domain.targets.circuit import State
from duly.domain.tenancy.sealing import Keyring
from duly.moves.admin.destinations import mind, report
from duly.moves.claim import claim
from duly.moves.defer import Deferred, defer
from duly.moves.settle import Settled, settle
from duly.store.tables.destinations import DestinationReport
from tests.api.front import Caller
from tests.api.test_runs import pages
from tests.builders import a_leased_run, a_ready_run, a_worker

ORIGIN = "https://hooks.example"
RNG = Rng(3)


async def made(api: Caller, **fields) -> Any:
    answer = await api.post("/v1/destinations", json={"url": f"{ORIGIN}/in?x=1", **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def let_it_fail(database) -> None:
    told = DestinationReport(fresh_id=RNG.uuid(), tenant=1, origin=ORIGIN, failing=5, streak=5)
    [allowed] = await report(database, await a_worker(database), 1, [told], RNG)
    assert allowed.health.state is State.OPEN


async def test_destination_is_created_read_and_listed(api):
    one = await made(api, slots=7, rate_per_second=1.5)

    assert (one["origin"], one["state"], one["slots"], one["rate_per_second"]) == (ORIGIN, "closed", 7, 1.5)
    assert (await api.get(f"/v1/destinations/{one['destination_id']}")).json() == one
    await made(api, url="http://other.example:8080")
    assert [each["origin"] for each in await pages(api, "/v1/destinations", page_size=1)] == [
        "http://other.example:8080",
        ORIGIN,
    ]


async def test_destination_created_again_keeps_its_id_and_secret(api):
    one, again = await made(api), await made(api, slots=3)

    assert one["destination_id"] == again["destination_id"]
    assert again["slots"] == 3
    assert len((await api.get(f"/v1/destinations/{one['destination_id']}/secrets")).json()["items"]) == 1


async def test_destination_patch_keeps_omitted_fields(api):
    one = await made(api, slots=7, rate_per_second=1.5)
    where = f"/v1/destinations/{one['destination_id']}"

    assert (await api.ask("PATCH", where, json={"slots": 9})).json()["rate_per_second"] == 1.5
    changed = (await api.ask("PATCH", where, json={"rate_per_second": None})).json()
    assert (changed["slots"], changed["rate_per_second"]) == (9, None)


@pytest.mark.parametrize("change", [{"slots": 0}, {"slots": 10**6}, {"rate_per_second": 0}, {"color": "red"}])
async def test_limit_out_of_range_is_refused(api, change):
    one = await made(api)
    answer = await api.ask("PATCH", f"/v1/destinations/{one['destination_id']}", json=change)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_body")


@pytest.mark.parametrize("url", ["ftp://x.example", "https://user@x.example", "http://0x7f.1", "nowhere"])
async def test_invalid_address_is_refused(api, url):
    answer = await api.post("/v1/destinations", json={"url": url})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")


async def test_open_circuit_shows_its_wait_until_and_closes_on_request(api, database):
    await let_it_fail(database)
    worker_id, run = await a_leased_run(database)
    await defer(database, worker_id, [Deferred(run, None, WaitForDestination(ORIGIN))])
    [one] = await pages(api, "/v1/destinations")
    assert (one["state"], one["waiting_runs"], one["failing_total"]) == ("open", 1, 5)
    assert one["wait_until"] is not None

    closed = (await api.post(f"/v1/destinations/{one['destination_id']}/close")).json()

    assert (closed["state"], closed["wait_until"]) == ("closed", None)
    assert closed["ramp_rate"] == 10


async def test_rotation_returns_a_new_secret_and_sets_the_old_to_retire(api):
    one = await made(api)
    where = f"/v1/destinations/{one['destination_id']}"
    [first] = (await api.get(f"{where}/secrets")).json()["items"]

    answer = await api.post(f"{where}/rotate")

    assert answer.status_code == 201
    newest, before = (await api.get(f"{where}/secrets")).json()["items"]
    assert newest == answer.json()
    assert (before["secret"], newest["retires_at"]) == (first["secret"], None)
    assert before["retires_at"] is not None


async def test_secrets_without_a_keyring_are_refused_with_a_remedy(front, api):
    one = await made(api)
    front.door.services = msgspec.structs.replace(front.door.services, keyring=None)

    answer = await api.get(f"/v1/destinations/{one['destination_id']}/secrets")

    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")
    assert "DULY_SECRETS_KEY" in answer.json()["detail"]
    assert (await api.get(f"/v1/destinations/{one['destination_id']}")).status_code == 200


async def test_secret_under_a_missing_key_is_refused_with_a_remedy(front, api):
    one = await made(api)

    front.door.services = msgspec.structs.replace(front.door.services, keyring=Keyring({"another": bytes(32)}))
    answer = await api.get(f"/v1/destinations/{one['destination_id']}/secrets")

    assert answer.status_code == 409
    assert "restore that key's line" in answer.json()["detail"]


async def test_circuit_opened_on_request_becomes_half_open_after_its_duration(api, database, clock):
    one = await made(api)
    where = f"/v1/destinations/{one['destination_id']}"
    opened = (await api.post(f"{where}/open", json={"duration": "PT5M"})).json()
    assert opened["state"] == "open"
    assert opened["wait_until"] == f"{clock.at + timedelta(minutes=5):%Y-%m-%dT%H:%M:%SZ}"

    await mind(database, RNG)
    assert (await api.get(where)).json()["state"] == "open"
    await clock.advance(301)
    await mind(database, RNG)
    assert (await api.get(where)).json()["state"] == "half_open"
    assert (await api.post(f"{where}/close")).json()["state"] == "closed"


@pytest.mark.parametrize("duration", ["PT0S", "P8D", 0.5])
async def test_circuit_open_duration_out_of_range_is_refused(api, duration):
    one = await made(api)
    answer = await api.post(f"/v1/destinations/{one['destination_id']}/open", json={"duration": duration})

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")
    assert "PT1S to P7D" in answer.json()["detail"]


async def test_the_runs_that_wait_for_one_are_listed_in_pages(front, api, database):
    await let_it_fail(database)
    waiting = []
    for _ in range(3):
        worker_id, run = await a_leased_run(database)
        await defer(database, worker_id, [Deferred(run, None, WaitForDestination(ORIGIN))])
        waiting.append(str(run.run_id))
    [one] = await pages(api, "/v1/destinations")

    found = await pages(api, f"/v1/destinations/{one['destination_id']}/runs", page_size=2)
    assert {each["run_id"] for each in found} == set(waiting)
    assert found == sorted(found, key=lambda each: (each["due_at"], each["run_id"]))
    stranger = await front.stranger()
    assert (await stranger.get(f"/v1/destinations/{one['destination_id']}/runs")).status_code == 404


async def test_destination_lists_its_last_failures_by_page(api, database):
    one = await made(api)
    detail = '{"to": "https://hooks.example/in", "status": 500}'
    runs = []
    for _ in range(3):
        worker_id = await a_worker(database)
        runs.append(str(await a_ready_run(database, handler="@webhook")))
        [run] = await claim(database, worker_id, ["default"], ["@webhook"], 1)
        now = await database.read_clock()
        failed = Failed("it answered 500", retryable=False, detail=detail)
        await settle(database, worker_id, [Settled(run, now, now, failed)], RNG)

    found = await pages(api, f"/v1/destinations/{one['destination_id']}/failures", page_size=2)

    assert {each["run_id"] for each in found} == set(runs)
    assert {(each["status"], each["outcome"], each["reason"]) for each in found} == {(500, "failed", "it answered 500")}
    assert (await api.get(f"/v1/destinations/{RNG.uuid()}/failures")).status_code == 404
