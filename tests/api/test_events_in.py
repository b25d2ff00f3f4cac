"""Events that come in: one run for each job that waits for it, once, whatever is repeated."""

import asyncio
from datetime import timedelta
from typing import ClassVar

import msgspec
import pytest

from duly.log import Log
from duly.moves.schedules import zones
from duly.store.boxes.history import verify
from duly.store.retention import Aging, forget_older
from tests.api.front import A_TARGET, EVERY_HOUR

ORDERS = {"type": "shop.order.placed", "source": "https://shop.example"}


def an_event(**fields):
    return {
        "specversion": "1.0",
        "id": "e1",
        **ORDERS,
        "time": "2026-11-01T09:00:00Z",
        "subject": "order 7",
        "data": {"order": 7},
        **fields,
    }


async def send(caller, **fields):
    headers = {"Content-Type": "application/cloudevents+json"}
    return await caller.post("/v1/events", content=msgspec.json.encode(an_event(**fields)), headers=headers)


async def a_listener(api, **fields):
    answer = await api.post("/v1/jobs", json={"target": A_TARGET, "on_event": ORDERS, **fields})
    assert answer.status_code == 202, answer.text
    return answer.json()


async def payloads(database):
    return [msgspec.json.decode(row[0]) for row in await database.fetch("select payload::text from duly.ready")]


class TestTaking:
    async def test_a_job_gets_a_run_with_the_event_in_its_payload(self, api, database, front):
        job = await a_listener(api, payload={"shop": "north"}, queue="orders")
        assert job["next_run_at"] is None
        assert job["description"] == "On each event shop.order.placed from https://shop.example"

        answer = await send(api)

        assert (answer.status_code, answer.json()["duplicate"]) == (202, False)
        [payload] = await payloads(database)
        assert payload["shop"] == "north"
        assert payload["event"] == {key: value for key, value in an_event().items() if key != "specversion"}
        [run_id] = answer.json()["runs"]
        assert (await api.get(f"/v1/runs/{run_id}")).json()["job_id"] == job["job_id"]
        assert front.woken == ["orders"]
        assert await verify(database) == []

    async def test_the_same_event_again_makes_nothing_and_names_the_same_runs(self, api, database):
        await a_listener(api)
        first = (await send(api)).json()

        again = (await send(api, data={"order": 8})).json()

        assert again == {**first, "duplicate": True}
        assert len(await payloads(database)) == 1

    async def test_many_at_once_make_one(self, api, database):
        await a_listener(api)

        answers = [answer.json() for answer in await asyncio.gather(*(send(api) for _ in range(6)))]

        assert sorted(answer["duplicate"] for answer in answers) == [False, *[True] * 5]
        assert len({tuple(answer["runs"]) for answer in answers}) == 1
        assert len(await payloads(database)) == 1

    async def test_event_id_is_a_duplicate_for_seven_days(self, api, database, clock):
        await a_listener(api)
        await send(api)
        await clock.advance(timedelta(days=6, hours=23))
        await forget_older(database, Aging.EVENTS, timedelta(days=7), 10)
        assert (await send(api)).json()["duplicate"] is True

        await clock.advance(timedelta(hours=2))
        await forget_older(database, Aging.EVENTS, timedelta(days=7), 10)
        assert (await send(api)).json()["duplicate"] is False

    async def test_each_job_that_matches_gets_its_own_run_and_no_other(self, api, database):
        await a_listener(api)
        await a_listener(api, on_event={"type": "shop.order.placed"})
        await a_listener(api, on_event={"type": "shop.order.placed", "source": "https://other.example"})
        await a_listener(api, on_event={"type": "shop.order.paid"})

        assert len((await send(api)).json()["runs"]) == 2
        assert (await send(api, id="e2", type="shop.nothing")).json()["runs"] == []

    async def test_another_tenant_s_jobs_hear_nothing_and_its_ids_are_its_own(self, front, api, database):
        await a_listener(api)
        stranger = await front.stranger()

        assert (await send(stranger)).json() == {"event_id": "e1", "duplicate": False, "runs": []}
        assert len((await send(api)).json()["runs"]) == 1

    async def test_concurrency_key_admits_the_first_event_run_and_blocks_the_second(self, api, database):
        await a_listener(api, concurrency={"key": "stock", "limit": 1})
        await send(api)
        await send(api, id="e2")

        assert await database.fetchval("select count(*) from duly.ready") == 1
        assert await database.fetchval("select count(*) from duly.blocked") == 1
        assert await verify(database) == []

    async def test_a_large_payload_of_the_job_is_carried_along(self, api, database):
        await a_listener(api, payload={"text": "x" * 5_000})

        await send(api)

        [payload] = await payloads(database)
        assert len(payload["text"]) == 5_000
        assert payload["event"]["id"] == "e1"


class TestRefusals:
    @pytest.mark.parametrize(
        ("fields", "status", "code"),
        [
            ({"specversion": "0.3"}, 422, "invalid_body"),
            ({"id": ""}, 422, "invalid_body"),
            ({"time": "yesterday"}, 422, "invalid_body"),
            ({"data_base64": "eA=="}, 422, "invalid_payload"),
            ({"data": "x" * 262_144}, 422, "invalid_payload"),
            ({"source": "a\nb"}, 422, "invalid_option"),
        ],
    )
    async def test_invalid_event_is_refused(self, api, fields, status, code):
        answer = await send(api, **fields)

        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text

    async def test_sending_an_event_requires_the_trigger_scope(self, front):
        assert (await send(await front.caller("jobs:write"))).status_code == 403
        assert (await send(await front.caller("jobs:trigger"))).status_code == 202

    async def test_a_payload_too_large_with_the_event_names_the_job(self, api, database):
        await a_listener(api, name="heavy", payload={"text": "x" * 200_000})

        answer = await send(api, data="x" * 100_000)

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_payload")
        assert "heavy" in answer.json()["detail"]
        assert await payloads(database) == []

    @pytest.mark.parametrize("fields", [{"schedule": EVERY_HOUR}, {"payload": {"event": 1}}])
    async def test_a_job_that_contradicts_itself_is_refused(self, api, fields):
        answer = await api.post("/v1/jobs", json={"target": A_TARGET, "on_event": ORDERS, **fields})

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")


class TestTheJob:
    async def test_event_job_can_be_put_read_and_listed_by_name(self, api):
        put = await api.put("/v1/jobs/by-name/orders", json={"target": A_TARGET, "on_event": ORDERS})
        assert put.status_code == 201, put.text
        job = put.json()
        assert (job["on_event"], job["schedule"], job["next_run_at"], job["next_fires"]) == (ORDERS, None, None, [])

        [listed] = (await api.get("/v1/jobs")).json()["items"]
        assert (listed["on_event"], listed["schedule"]) == (ORDERS, None)
        again = await api.put("/v1/jobs/by-name/orders", json={"target": A_TARGET, "on_event": ORDERS, "queue": "mail"})
        assert (again.status_code, again.json()["queue"]) == (200, "mail")

    async def test_paused_event_job_starts_no_run_until_it_resumes(self, api, database):
        job = await a_listener(api)
        path = f"/v1/jobs/{job['job_id']}"
        assert (await api.post(f"{path}/pause")).json()["changed"] is True
        assert (await send(api)).json()["runs"] == []
        assert await verify(database) == []

        assert (await api.post(f"{path}/resume")).json() == {
            "job_id": job["job_id"],
            "status": "active",
            "changed": True,
            "may_start": [],
        }
        assert len((await send(api, id="e2")).json()["runs"]) == 1
        assert await verify(database) == []

    async def test_event_job_is_triggered_manually_and_deleted(self, api, database):
        path = f"/v1/jobs/{(await a_listener(api))['job_id']}"
        assert (await api.post(f"{path}/trigger")).json()["state"] == "ready"

        assert (await api.delete(path)).json()["status"] == "cancelled"

        assert (await send(api)).json()["runs"] == []
        assert await verify(database) == []

    @pytest.mark.parametrize(
        ("verb", "body"),
        [
            ("skip-next", None),
            ("backfill", {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}),
        ],
    )
    async def test_event_job_refuses_skip_next_and_backfill(self, api, verb, body):
        path = f"/v1/jobs/{(await a_listener(api))['job_id']}"

        answer = await api.post(f"{path}/{verb}", json=body) if body else await api.post(f"{path}/{verb}")

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")
        assert "waits for events" in answer.json()["detail"]

    async def test_event_job_can_change_to_another_event_or_a_schedule_and_back(self, api, database):
        job = await a_listener(api)
        path, match = f"/v1/jobs/{job['job_id']}", {"If-Match": "*"}

        paid = (await api.patch(path, {"on_event": {"type": "shop.order.paid"}}, headers=match)).json()
        assert paid["on_event"] == {"type": "shop.order.paid", "source": "https://shop.example"}
        assert (await send(api)).json()["runs"] == []
        assert len((await send(api, id="e2", type="shop.order.paid")).json()["runs"]) == 1

        hourly = (await api.patch(path, {"on_event": None, "schedule": EVERY_HOUR}, headers=match)).json()
        assert hourly["on_event"] is None
        assert hourly["next_run_at"] is not None
        assert (await send(api, id="e3", type="shop.order.paid")).json()["runs"] == []

        back = (await api.patch(path, {"on_event": ORDERS, "schedule": None}, headers=match)).json()
        assert (back["on_event"], back["next_run_at"]) == (ORDERS, None)
        assert len((await send(api, id="e4")).json()["runs"]) == 1
        assert await verify(database) == []

    async def test_new_time_zone_data_leaves_it_where_it_is(self, api, database):
        await zones.adopt(database, Log("test"))
        job = await a_listener(api)
        await database.execute("update duly.jobs set tzdb = '2020a'")

        assert await zones.correct(database, Log("test")) == 1

        assert await database.fetchval("select tzdb from duly.jobs") is None
        assert (await api.get(f"/v1/jobs/{job['job_id']}")).json()["next_run_at"] is None
        assert len((await send(api)).json()["runs"]) == 1
        assert await verify(database) == []

    async def test_event_job_is_created_by_a_batch(self, api):
        line = msgspec.json.encode({"target": A_TARGET, "on_event": ORDERS})
        answer = await api.post("/v1/jobs:batch", content=line, headers={"Content-Type": "application/x-ndjson"})

        assert "next_run_at" not in answer.json()
        assert len((await send(api)).json()["runs"]) == 1


async def send_batch(caller, *events, **more):
    headers = {"Content-Type": "application/cloudevents-batch+json", **more}
    return await caller.post("/v1/events", content=msgspec.json.encode(events), headers=headers)


class TestABatch:
    async def test_event_batch_treats_events_independently_and_reports_them_in_order(self, api, database, front):
        await a_listener(api, queue="orders")
        await send(api, id="b")

        answer = await send_batch(api, an_event(id="c"), an_event(id="b"), an_event(id="a"), an_event(id="c"))

        assert answer.status_code == 200, answer.text
        items = answer.json()["items"]
        assert [(one["event_id"], one["duplicate"]) for one in items] == [
            ("c", False),
            ("b", True),
            ("a", False),
            ("c", True),
        ]
        assert items[0]["runs"] == items[3]["runs"]
        assert sorted(payload["event"]["id"] for payload in await payloads(database)) == ["a", "b", "c"]
        assert front.woken == ["orders", "orders"]

    async def test_event_batch_is_accepted_whole_or_not_at_all(self, api, database):
        await a_listener(api)

        shapeless = await send_batch(api, an_event(id="a"), {"specversion": "1.0", "id": "b"})
        assert (shapeless.status_code, shapeless.json()["errors"][0]["pointer"]) == (422, "/1/source")
        both = await send_batch(api, an_event(id="a"), an_event(id="b", data_base64="aGk="))
        assert (both.status_code, both.json()["code"]) == (422, "invalid_payload")
        many = await send_batch(api, *(an_event(id=str(number)) for number in range(1001)))
        assert many.status_code == 422
        assert (await send_batch(api)).json() == {"items": []}
        assert await payloads(database) == []
        assert (await send(api, id="a")).json()["duplicate"] is False

    async def test_under_a_key_it_is_answered_the_same(self, api):
        await a_listener(api)
        first = await send_batch(api, an_event(), **{"Idempotency-Key": "once"})

        again = await send_batch(api, an_event(), **{"Idempotency-Key": "once"})

        assert (again.status_code, again.json()) == (200, first.json())
        assert again.headers["idempotency-replayed"] == "true"

    async def test_every_event_counts_against_the_rate(self, front, api):
        tenant = (await api.post("/v1/tenants", json={"name": "slow", "limits": {"submit_rate": 1}})).json()["tenant"]
        caller = await front.caller("jobs:trigger", tenant=tenant)

        answers = [await send_batch(caller, *(an_event(id=f"{turn}-{n}") for n in range(8))) for turn in range(3)]

        assert [answer.status_code for answer in answers][-1] == 429

    async def test_two_that_hold_the_same_in_another_order_do_not_undo_each_other(self, api, database):
        await a_listener(api)
        events = [an_event(id=str(number)) for number in range(40)]

        answers = await asyncio.gather(*(send_batch(api, *events[::step]) for step in (1, -1, 1, -1)))

        assert [answer.status_code for answer in answers] == [200] * 4
        assert len(await payloads(database)) == 40


class TestBinaryMode:
    HEADERS: ClassVar = {
        "ce-specversion": "1.0",
        "ce-id": "e1",
        "ce-source": "https://shop.example",
        "ce-type": "shop.order.placed",
    }

    async def sent(self, api, content, kind, **headers):
        every = {
            **self.HEADERS,
            "Content-Type": kind,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return await api.post("/v1/events", content=content, headers=every)

    async def test_attributes_are_headers_and_the_body_is_the_data(self, api, database):
        await a_listener(api)

        answer = await self.sent(
            api, b'{"order": 7}', "application/json", ce_subject="order%207%20%E2%82%AC", ce_time="2026-11-01T09:00:00Z"
        )

        assert (answer.status_code, answer.json()["event_id"]) == (202, "e1")
        [payload] = await payloads(database)
        assert payload["event"] == {
            "id": "e1",
            "source": "https://shop.example",
            "type": "shop.order.placed",
            "time": "2026-11-01T09:00:00Z",
            "subject": "order 7 €",
            "data": {"order": 7},
        }
        structured = await send(api)
        assert structured.json()["duplicate"], "it is the same event, however it comes"

    @pytest.mark.parametrize(
        ("content", "kind", "carried"),
        [
            (b"[1]", "application/vnd.shop+json; charset=utf-8", {"data": [1]}),
            ("grüße".encode(), "text/plain", {"data": "grüße"}),
            (b"\x00\xff", "application/octet-stream", {"data_base64": "AP8="}),
            (b"", "application/json", {}),
        ],
    )
    async def test_data_may_be_of_any_type(self, api, database, content, kind, carried):
        await a_listener(api)

        assert (await self.sent(api, content, kind)).status_code == 202

        [payload] = await payloads(database)
        assert {key: value for key, value in payload["event"].items() if key.startswith("data")} == carried

    @pytest.mark.parametrize(
        ("headers", "content", "status", "pointer"),
        [
            ({"ce_specversion": "0.3"}, b"1", 422, "ce-specversion"),
            ({"ce_id": ""}, b"1", 422, "ce-id"),
            ({"ce_type": "x" * 201}, b"1", 422, "ce-type"),
            ({"ce_time": "yesterday"}, b"1", 422, "ce-time"),
            ({"ce_subject": "%ff"}, b"1", 422, "ce-subject"),
            ({}, b"{", 400, None),
            ({}, b"[" * 100 + b"]" * 100, 422, ""),
        ],
    )
    async def test_invalid_event_header_is_named_in_the_error(self, api, headers, content, status, pointer):
        answer = await self.sent(api, content, "application/json", **headers)

        assert answer.status_code == status, answer.text
        if pointer is not None:
            assert answer.json()["errors"][0]["pointer"] == pointer

    async def test_a_key_is_held_against_the_headers_too(self, api):
        first = await self.sent(api, b"1", "application/json", Idempotency_Key="once")
        assert (await self.sent(api, b"1", "application/json", Idempotency_Key="once")).json() == first.json()

        other = await self.sent(api, b"1", "application/json", Idempotency_Key="once", ce_id="e2")

        assert (other.status_code, other.json()["code"]) == (422, "key_reused")

    async def test_without_attributes_it_is_no_event(self, api):
        answer = await api.post("/v1/events", content=b"hello", headers={"Content-Type": "text/plain"})

        assert answer.status_code == 415
        assert "application/cloudevents+json or application/cloudevents-batch+json" in answer.json()["detail"]
