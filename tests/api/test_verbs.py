"""Actions on a job over HTTP: trigger, pause, resume, skip the next, backfill."""

from datetime import datetime, timedelta

import pytest

from tests.api.front import A_TARGET
from tests.api.test_jobs import SCHEDULES, UNKNOWN, read
from tests.api.working import stage, take, work
from tests.builders import all_started

RECURRING = sorted(SCHEDULES)


async def do(api, job, verb, body=None, **request):
    return await api.post(f"/v1/jobs/{job['job_id']}/{verb}", json={} if body is None else body, **request)


class TestTrigger:
    async def test_trigger_starts_a_run_now_with_its_own_payload(self, api, front, database):
        job = await api.a_job(payload={"n": 1}, queue="mail", schedule=SCHEDULES["cron"])
        answer = await do(api, job, "trigger", {"payload": {"n": 2}})

        run = answer.json()
        assert answer.status_code == 202
        assert answer.headers["location"] == f"/v1/runs/{run['run_id']}"
        assert (run["state"], run["job_id"], front.woken) == ("ready", job["job_id"], ["mail"])
        shown = (await api.get(answer.headers["location"])).json()
        assert shown["payload"] == {"n": 2}
        assert (await read(api, job))["payload"] == {"n": 1}

    async def test_trigger_obeys_the_overlap_policy_unless_overlap_is_allowed(self, api, database):
        skips = await api.a_job(schedule={**SCHEDULES["cron"], "overlap": {"policy": "skip"}})
        queues = await api.a_job(schedule={**SCHEDULES["cron"], "overlap": {"policy": "queue"}})
        for job in (skips, queues):
            assert (await do(api, job, "trigger")).json()["state"] == "ready"

        assert (await do(api, skips, "trigger")).json()["state"] == "skipped_overlap"
        assert (await do(api, queues, "trigger")).json()["state"] == "blocked"
        assert (await do(api, skips, "trigger", {"allow_overlap": True})).json()["state"] == "ready"

    async def test_idempotency_key_creates_a_single_run(self, api):
        job = await api.a_job(schedule={**SCHEDULES["cron"], "overlap": {"policy": "allow"}})
        first, again = [await do(api, job, "trigger", headers={"Idempotency-Key": "k"}) for _ in range(2)]
        other = await do(api, job, "trigger")

        assert first.json() == again.json()
        assert other.json()["run_id"] != first.json()["run_id"]

    async def test_job_without_further_runs_refuses_every_verb(self, api):
        job = await api.a_job()
        await api.delete(f"/v1/jobs/{job['job_id']}")
        one_shot = (await api.post("/v1/jobs", json={"target": A_TARGET})).json()

        for verb in ("trigger", "pause", "resume", "skip-next"):
            assert (await do(api, job, verb)).status_code == 409, verb
            assert (await do(api, one_shot, verb)).status_code == 409, verb
            assert (await do(api, {"job_id": UNKNOWN}, verb)).status_code == 404, verb

    async def test_active_job_whose_last_run_started_refuses_pause_skip_and_edit(self, api, database, clock):
        job = await api.a_job(name="last", schedule={"trigger": {"type": "at", "delay": "PT4S"}})
        await stage(database)
        await clock.advance(5)
        await take(database)

        assert (await read(api, job))["status"] == "active"
        with all_started():
            for verb in ("pause", "skip-next"):
                answer = await do(api, job, verb)
                assert (answer.status_code, answer.json()["code"]) == (409, "conflict"), verb
            edited = await api.patch(f"/v1/jobs/{job['job_id']}", {"payload": {"n": 2}}, headers={"If-Match": "*"})
        assert (edited.status_code, edited.json()["code"]) == (409, "conflict")


class TestPause:
    @pytest.mark.parametrize("kind", RECURRING)
    async def test_job_is_paused_resumed_and_skips_its_next_run(self, api, kind):
        job = await api.a_job(name=kind, schedule=SCHEDULES[kind])

        paused = await do(api, job, "pause", {"reason": "month end"})
        assert paused.json() == {"job_id": job["job_id"], "status": "paused", "changed": True, "may_start": []}
        assert (await do(api, job, "pause")).json()["changed"] is False
        shown = await read(api, job)
        assert (shown["status"], shown["pause_reason"], shown["next_run_at"]) == ("paused", "month end", None)
        resumed = await do(api, job, "resume")
        assert resumed.json() == {"job_id": job["job_id"], "status": "active", "changed": True, "may_start": []}
        assert (await do(api, job, "resume")).json()["changed"] is False

        skipped = await do(api, job, "skip-next")

        if kind == "delay":
            assert (skipped.status_code, skipped.json()["code"]) == (422, "invalid_option")
        else:
            assert (skipped.status_code, skipped.json()["scheduled_at"]) == (200, job["next_run_at"])
            shown = await read(api, job)
            assert (shown["status"] == "completed") == (kind == "at")
            assert shown["next_run_at"] != job["next_run_at"]

    async def test_resume_skips_missed_runs_or_catches_up(self, api, database, clock):
        skips, catches = await api.a_job(name="skips"), await api.a_job(name="catches")
        for job in (skips, catches):
            await do(api, job, "pause")
        await clock.advance(timedelta(hours=3, minutes=1))

        await do(api, skips, "resume")
        await do(api, catches, "resume", {"catch_up": True})

        runs = await work(database)
        assert {str(run.job_id) for run in runs} == {catches["job_id"]}

    async def test_a_reason_is_one_line_of_text(self, api):
        job = await api.a_job()
        for reason in ("", "a\nb", "\0", "x" * 2000, 7, None):
            answer = await do(api, job, "pause", {"reason": reason})
            assert answer.status_code == 422, reason
        assert (await read(api, job))["status"] == "active"


class TestBackfill:
    async def asked(self, api, job, database, hours=5, **more):
        end = await database.read_clock()
        body = {"from": (end - timedelta(hours=hours)).isoformat(), "to": end.isoformat(), **more}
        return await do(api, job, "backfill", body)

    async def a_job(self, api):
        return await api.a_job(schedule={"trigger": {"type": "cron", "expr": "30 * * * *"}})

    async def test_a_dry_run_counts_and_makes_nothing(self, api, database):
        job = await self.a_job(api)
        answer = await self.asked(api, job, database, dry_run=True)

        asked = answer.json()
        assert (answer.status_code, asked["backfill_id"], asked["count"], len(asked["first"])) == (202, None, 5, 5)
        assert (await api.get("/v1/backfills", params={"job_id": job["job_id"]})).json()["items"] == []

    async def test_backfill_can_be_read_listed_and_cancelled(self, api, database):
        job = await self.a_job(api)
        made = [(await self.asked(api, job, database, overlap=overlap)).json() for overlap in ("queue", "allow")]
        [first, second] = [one["backfill_id"] for one in made]

        status = (await api.get(f"/v1/backfills/{first}")).json()
        assert (status["state"], status["total"], status["created"], status["job_id"]) == (
            "active",
            5,
            0,
            job["job_id"],
        )
        listed, token = [], None
        for _ in range(2):
            query = {"job_id": job["job_id"], "page_size": 1} | ({"page_token": token} if token else {})
            page = (await api.get("/v1/backfills", params=query)).json()
            listed += [one["backfill_id"] for one in page["items"]]
            token = page["next_page_token"]
        assert sorted(listed) == sorted([first, second])
        other = (await self.asked(api, await self.a_job(api), database)).json()["backfill_id"]
        everything, token = [], None
        for _ in range(3):
            query = {"page_size": 1} | ({"page_token": token} if token else {})
            page = (await api.get("/v1/backfills", params=query)).json()
            everything += [one["backfill_id"] for one in page["items"]]
            token = page["next_page_token"]
        assert sorted(everything) == sorted([first, second, other])
        assert (await api.get("/v1/backfills", params={"page_token": "x"})).status_code == 400

        stopped = await api.delete(f"/v1/backfills/{first}")
        assert (stopped.status_code, stopped.json()["recalled"]) == (200, 0)
        assert (await api.get(f"/v1/backfills/{first}")).json()["state"] == "cancelled"
        assert (await api.delete(f"/v1/backfills/{first}")).status_code == 404, "nothing is left of it"

    async def test_many_need_to_be_confirmed(self, api, database):
        job = await api.a_job(schedule={"trigger": {"type": "cron", "expr": "* * * * *"}})
        asked = await self.asked(api, job, database, hours=200)

        assert (asked.status_code, asked.json()["code"]) == (422, "invalid_option")
        confirmed = await self.asked(api, job, database, hours=200, confirm=True)
        assert (confirmed.status_code, confirmed.json()["count"]) == (202, 12_000)

    async def test_the_older_names_of_its_ends_are_refused(self, api):
        job = await self.a_job(api)
        begin, end = "2026-11-01T00:00:00Z", "2026-11-01T05:00:00Z"

        taken = await do(api, job, "backfill", {"from": begin, "to": end, "dry_run": True})
        assert (taken.status_code, taken.json()["count"]) == (202, 5)
        for body, older in (({"from": begin, "end": end}, "/end"), ({"start": begin, "to": end}, "/start")):
            answer = await do(api, job, "backfill", {**body, "dry_run": True})
            assert (answer.status_code, [one["pointer"] for one in answer.json()["errors"]]) == (422, [older])
        missing = await do(api, job, "backfill", {"to": end})
        assert [one["pointer"] for one in missing.json()["errors"]] == ["/from"]

    async def test_invalid_request_is_refused(self, api, database):
        job, delay = await self.a_job(api), await api.a_job(schedule=SCHEDULES["delay"])
        good = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"}
        wrong = [
            {},
            {"from": good["from"]},
            {"to": good["to"]},
            {**good, "start": good["from"]},
            {**good, "end": good["to"]},
            {**good, "to": good["from"]},
            {**good, "to": None},
            {**good, "from": "2026-01-01T00:00:00"},
            {**good, "from": 5},
            {**good, "from": "0001-01-01T00:00:00Z"},
            {**good, "rate": 0},
            {**good, "rate": 1001},
            {**good, "overlap": "skip"},
            {**good, "confirm": "yes"},
        ]
        for body in wrong:
            answer = await do(api, job, "backfill", body)
            assert answer.status_code == 422, (body, answer.text)
        assert (await do(api, delay, "backfill", good)).status_code == 422
        rare = await api.a_job(schedule={"trigger": {"type": "cron", "expr": "0 0 29 2 *"}})
        for start in ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z"):
            assert (await do(api, rare, "backfill", {**good, "from": start})).status_code == 422, start
        never = {"from": "9999-12-01T00:00:00Z", "to": "9999-12-29T00:00:00Z"}
        to_come = await do(api, rare, "backfill", never)
        assert (to_come.status_code, to_come.json()["code"]) == (422, "invalid_option")
        assert "in the future" in to_come.json()["detail"]
        for query in ({"job_id": "x"}, {"job_id": job["job_id"], "page_token": "x"}):
            assert (await api.get("/v1/backfills", params=query)).status_code == 400


async def test_the_moment_of_a_skip_is_on_record(api, database, clock):
    job = await api.a_job(schedule=SCHEDULES["cron"])
    moment = (await do(api, job, "skip-next")).json()["scheduled_at"]
    await clock.advance(datetime.fromisoformat(moment) - await database.read_clock() + timedelta(minutes=1))
    await stage(database)

    _, runs = await take(database)
    assert runs == []
    listed = (await api.get("/v1/runs", params={"filter": f"job_id:{job['job_id']} AND state:skipped"})).json()["items"]
    assert [run["scheduled_at"] for run in listed] == [moment]
