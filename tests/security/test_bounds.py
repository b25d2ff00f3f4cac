"""One caller can neither keep the server busy nor take the places of all others."""

import asyncio
import time
from contextlib import AsyncExitStack

import msgspec
import pytest

from duly.api import admission
from duly.api.auth import failed_logins as attempts
from duly.api.auth.failed_logins import DELAY_SECONDS, DELAYED_MAX, WRONG_MAX
from duly.api.problems import Refusal
from duly.domain.tenancy.api_key import ANYBODY
from tests.api.front import A_TARGET, CALLBACKS
from tests.api.remote import HANDLER, a_remote
from tests.builders import a_leased_run
from tests.clock import START
from tests.security.doors import an_open_door

CPU_SECONDS_MAX = 0.2
EACH_SECOND = [{"type": "cron", "expr": f"*/{n} * * * * *", "tz": "Europe/Berlin"} for n in (1, 2, 3, 5, 7, 9, 11, 13)]
SUCCEEDED = {"outcome": "succeeded"}
HALF_HOURS = [{"days": "MON-FRI", "from": f"{hour:02}:00", "to": f"{hour:02}:30"} for hour in range(24)]


@pytest.fixture
async def front(database):
    async with an_open_door(database) as opened:
        yield opened


async def eventually(pauses):
    """Wait until something holds; the clock of the server stands."""
    async with asyncio.timeout(20):
        while not pauses():
            await asyncio.sleep(0.01)


class TestDryRuns:
    @pytest.mark.parametrize("on_hit", ["", "skip", "defer"])
    @pytest.mark.parametrize("trigger", [EACH_SECOND[0], {"type": "any", "of": EACH_SECOND}], ids=["cron", "any"])
    async def test_a_dry_run_over_decades_costs_little(self, front, trigger, on_hit):
        api = await front.caller()
        calendar = {"tz": "Europe/Berlin", "weekly": HALF_HOURS}
        assert (await api.put("/v1/calendars/work", json=calendar)).is_success
        uses = {"calendars": [{"name": "work", "on_hit": on_hit}]} if on_hit else {}
        job = await api.a_job(schedule={"trigger": trigger, **uses})
        asked = {"from": "1990-01-01T00:00:00Z", "to": START.isoformat(), "dry_run": True}

        began = time.process_time()
        answer = await api.post(f"/v1/jobs/{job['job_id']}/backfill", json=asked)
        spent = time.process_time() - began

        assert answer.status_code == 202, answer.text
        told = answer.json()
        assert told["count"] >= 1_000
        assert len(told["first"]) == 20
        assert told["is_partial"] is (trigger["type"] == "any" or on_hit != ""), "or it is counted without walking"
        assert spent < CPU_SECONDS_MAX

    async def test_backfill_over_a_range_too_long_to_count_is_refused_early(self, front):
        api = await front.caller()
        job = await api.a_job(schedule={"trigger": {"type": "any", "of": EACH_SECOND}})
        asked = {"from": "1990-01-01T00:00:00Z", "to": START.isoformat(), "confirm": True}

        began = time.process_time()
        answer = await api.post(f"/v1/jobs/{job['job_id']}/backfill", json=asked)

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")
        assert "choose a shorter one" in answer.json()["detail"]
        assert time.process_time() - began < CPU_SECONDS_MAX


class TestOpenRequests:
    @pytest.fixture(autouse=True)
    def two(self, monkeypatch):
        """Let a key have two of each."""
        for module, name in (
            ("duly.api.routes.events", "EVENTS"),
            ("duly.api.routes.runs", "LOGS"),
            ("duly.api.routes.worker", "CLAIMS"),
            ("duly.api.dispatch", "WAITS"),
        ):
            monkeypatch.setattr(f"{module}.{name}", msgspec.structs.replace(getattr(admission, name), of_key_max=2))

    async def test_event_streams_of_a_key_are_bounded_and_return_their_slots(self, front):
        await self.is_bounded_stream(front, "/v1/events", "event streams")

    async def test_log_streams_of_a_key_are_bounded_and_return_their_slots(self, front):
        api = await front.caller()
        job = (await api.post("/v1/jobs", json={"target": A_TARGET})).json()
        await self.is_bounded_stream(front, f"/v1/runs/{job['run_id']}/logs", "log streams")

    async def is_bounded_stream(self, front, path, name):
        api, other = await front.caller(), await front.caller()
        async with AsyncExitStack() as open_streams:
            for _ in range(2):
                answer = await open_streams.enter_async_context(self.stream(front, api, path))
                assert answer.status_code == 200
            async with self.stream(front, api, path) as refused:
                problem = msgspec.json.decode(await refused.aread())
            assert (refused.status_code, problem["code"], problem["title"]) == (
                429,
                "quota_reached",
                f"Too many {name}",
            )
            assert int(refused.headers["retry-after"]) > 0
            async with self.stream(front, other, path) as answer:
                assert answer.status_code == 200, "another key has places of its own"

        await eventually(lambda: not front.door.services.open_requests._counts)
        async with self.stream(front, api, path) as answer:
            assert answer.status_code == 200

    @staticmethod
    def stream(front, caller, path):
        headers = {"Authorization": f"Bearer {caller.key}", "Accept": "text/event-stream"}
        return front.client.stream("GET", path, headers=headers)

    async def test_requests_that_wait_for_a_run_are_bounded_and_return_their_slots(self, front, database):
        api = await front.caller()
        ask = {"json": {"target": A_TARGET}, "headers": {"Prefer": "wait=60"}}
        waiting = [asyncio.create_task(api.post("/v1/jobs", **ask)) for _ in range(2)]
        await eventually(lambda: front.door.services.open_requests.taken(admission.WAITS) == 2)
        async with asyncio.timeout(20):
            while (
                await database.fetchval("select count(*) from duly.ready") < 2
            ):  # A place is taken before the job is made.
                await asyncio.sleep(0.01)

        refused = await api.post("/v1/jobs", **ask)

        assert (refused.status_code, refused.json()["title"]) == (429, "Too many waiting requests")
        assert await database.fetchval("select count(*) from duly.ready") == 2, "a refusal has made nothing"
        assert (await api.post("/v1/jobs", json=ask["json"])).status_code == 202, "without a wait it is taken"
        await hang_up(waiting)
        await eventually(lambda: not front.door.services.open_requests._counts)

    async def test_claims_that_wait_are_bounded_and_return_their_slots(self, front):
        api = await front.caller()
        workers = [await a_remote(api, handlers=[HANDLER]) for _ in range(3)]
        ask = {"number": 1, "limit": 1, "wait": 30}
        waiting = [asyncio.create_task(worker.ask("claim", **ask)) for worker in workers[:2]]
        await eventually(lambda: front.door.services.open_requests.taken(admission.CLAIMS) == 2)

        refused = await workers[2].ask("claim", **ask)

        assert (refused.status_code, refused.json()["title"]) == (429, "Too many waiting claims")
        assert (await workers[2].ask("claim", **{**ask, "wait": 0})).status_code == 200, (
            "one that does not wait is taken"
        )
        await hang_up(waiting)
        await eventually(lambda: not front.door.services.open_requests._counts)

    def test_stream_that_is_never_read_returns_its_slot(self):
        kept = admission.OpenRequests()
        key = a_key()

        async def stream(place):
            with place:
                yield b""

        never_read = stream(kept.take(admission.EVENTS, key))
        assert kept.taken(admission.EVENTS) == 1
        del never_read
        assert not kept._counts

    def test_a_tenant_cannot_take_more_by_making_keys(self):
        kept = admission.OpenRequests()
        held = [kept.take(admission.EVENTS, a_key(f"key{number}")) for number in range(admission.EVENTS.of_tenant_max)]

        with pytest.raises(Refusal, match="This tenant may have 100 event streams"):
            kept.take(admission.EVENTS, a_key("one more"))

        assert kept.taken(admission.EVENTS) == len(held)
        kept.take(admission.EVENTS, a_key("other", tenant=8))


def a_key(key_id="a", tenant=7):
    """Give a key that was never stored."""
    return msgspec.structs.replace(ANYBODY.key, key_id=key_id, tenant=tenant)


async def hang_up(tasks):
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class TestLogIns:
    WRONG = "duly_aaaaaaaaaa_" + "a" * 39

    @pytest.fixture
    def lapse(self, clock, monkeypatch):
        """Give what lets the time of those pass who are made to wait; the clock of tests passes over short waits."""
        lapsed, sleep = asyncio.Event(), clock.sleep

        async def sleep_until_lapsed(seconds):
            await (lapsed.wait() if seconds == DELAY_SECONDS else sleep(seconds))

        monkeypatch.setattr(clock, "sleep", sleep_until_lapsed)
        return lapsed.set

    async def log_in(self, front, key):
        return await front.client.post("/v1/session", json={"key": key})

    async def use_up(self, front):
        for _ in range(WRONG_MAX):
            assert (await self.log_in(front, self.WRONG)).status_code == 401

    async def test_after_ten_wrong_keys_each_answer_takes_seconds(self, front, lapse):
        await self.use_up(front)

        eleventh = asyncio.create_task(self.log_in(front, self.WRONG))
        await asyncio.sleep(0.3)
        assert not eleventh.done()
        lapse()
        assert (await eleventh).status_code == 401

    async def test_a_flood_is_refused_and_the_right_key_still_gets_in(self, front, lapse):
        await self.use_up(front)
        flood = [asyncio.create_task(self.log_in(front, self.WRONG)) for _ in range(DELAYED_MAX + 10)]
        await eventually(lambda: sum(task.done() for task in flood) >= 10)
        refused = [task.result() for task in flood if task.done()]
        assert {(answer.status_code, answer.json()["code"]) for answer in refused} == {(429, "rate_limited")}

        operator = await front.caller()
        async with asyncio.timeout(5):
            assert (await self.log_in(front, operator.key)).status_code == 200

        lapse()
        assert {(await task).status_code for task in flood} == {401, 429}

    async def test_wrong_keys_are_forgiven_with_time(self, front, clock):
        await self.use_up(front)
        await clock.advance(attempts.FORGIVEN_SECONDS * WRONG_MAX)
        await self.use_up(front)

    async def test_log_ins_do_not_use_up_the_rate_of_callbacks(self, front, database, monkeypatch):
        small = msgspec.structs.replace(ANYBODY, key=msgspec.structs.replace(ANYBODY.key, rate=2.0))
        monkeypatch.setattr("duly.api.auth.authenticate.ANYBODY", small)
        operator = await front.caller()
        for key in (self.WRONG, operator.key) * 10:
            await self.log_in(front, key)

        _, run = await a_leased_run(database)
        answer = await front.client.post(f"/v1/callbacks/{CALLBACKS.make(run.run_id, run.fence)}", json=SUCCEEDED)

        assert answer.status_code != 429, answer.text

    def test_addresses_are_forgotten_before_they_are_too_many(self, clock, monkeypatch):
        monkeypatch.setattr(attempts, "_ADDRESSES_MAX", 5)
        wrong = attempts.FailedLogins(clock)
        for number in range(20):
            asyncio.run(wrong.slow_down(f"10.0.0.{number}"))

        assert len(wrong._buckets) == 5
