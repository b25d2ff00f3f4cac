"""Jobs over HTTP: create, read, list, change and end them, of every kind."""

import asyncio
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from duly.domain.runs.outcome import Failed
from tests.api.front import A_TARGET, EVERY_HOUR
from tests.api.working import stage, take, work
from tests.builders import counts, settled

UNKNOWN = "00000000-0000-4000-8000-000000000000"
SCHEDULES: dict[str, Any] = {
    "at": {"trigger": {"type": "at", "at": "2126-01-01T09:00:00+02:00"}},
    "cron": {"trigger": {"type": "cron", "expr": "0 8 * * MON-FRI", "tz": "Europe/Berlin"}},
    "interval": {"trigger": {"type": "interval", "every": "PT24H", "anchor": "2026-01-01T06:00:00Z"}},
    "delay": {"trigger": {"type": "interval", "every": "PT10M", "mode": "fixed_delay"}},
    "iso8601": {"trigger": {"type": "iso8601", "text": "R5/2126-12-01T09:00:00Z/P1D"}},
    "rrule": {"trigger": {"type": "rrule", "rrule": "FREQ=MONTHLY;BYDAY=-1FR", "dtstart": "2026-12-01T09:00:00"}},
    "text": {"trigger": {"type": "text", "text": "every weekday at 9:30am", "tz": "Europe/Berlin"}},
    "any": {
        "trigger": {
            "type": "any",
            "of": [{"type": "cron", "expr": "0 8 * * *"}, {"type": "cron", "expr": "0 20 * * SAT"}],
        },
        "jitter": {"max": "PT5M", "per": "occurrence"},
        "misfire": {"policy": "skip", "grace": "PT1M"},
        "overlap": {"policy": "queue", "limit": 3},
        "max_runs": 7,
    },
}
EVERYTHING: dict[str, Any] = {
    "target": A_TARGET,
    "name": "nightly / report",
    "queue": "reports",
    "priority": 2,
    "payload": {"customer": 7, "lines": [1.5, None, "ä"]},
    "schedule": SCHEDULES["cron"],
    "retry": {
        "policy": "exponential",
        "max_attempts": 3,
        "base": "PT2S",
        "cap": "PT1M",
        "jitter": None,
        "delays": [],
        "max_age": None,
        "rules": [],
    },
    "timeout": "PT5M",
    "concurrency": {"key": "ledger", "limit": 2, "order": None},
    "rate_limit": {"key": "bank", "limit": 10, "per": "PT1M", "burst": 2},
    "tags": ["money", "nightly"],
}


MOMENTS = {"/v1/jobs": "created_at", "/v1/runs": "scheduled_at", "/v1/dead": "buried_at"}
QUESTIONS = [
    ({"filter": "colour:blue"}, 422),
    ({"filter": "queue:"}, 422),
    ({"filter": "queue:\0"}, 400),
    ({"filter": 'created_at>"0001-01-01"'}, 200),
    ({"filter": 'created_at<"0001-01-01"'}, 200),
    ({"filter": 'created_at>"9999-12-31"'}, 200),
    ({"filter": 'created_at<"9999-12-31T23:59:59.999999Z"'}, 200),
    ({"filter": 'created_at<"0001-01-01T00:00:00+14:00"'}, 422),
    ({"filter": "x" * 2001}, 400),
    ({"page_size": "0"}, 400),
    ({"page_size": "201"}, 400),
    ({"page_size": "1e400"}, 400),
    ({"page_size": "9" * 400}, 400),
    ({"page_token": "nonsense"}, 400),
    ({"page_token": "é"}, 400),
    ({"page_token": "x" * 401}, 400),
]


def etag(job) -> dict[str, str]:
    return {"If-Match": f'"{job["version"]}"'}


async def read(api, job):
    answer = await api.get(f"/v1/jobs/{job['job_id']}")
    assert answer.status_code == 200, answer.text
    return answer.json()


class TestCreate:
    async def test_created_job_returns_its_location_and_next_fires(self, api):
        answer = await api.post("/v1/jobs", json=EVERYTHING)

        made = answer.json()
        assert answer.status_code == 202
        assert answer.headers["location"] == f"/v1/jobs/{made['job_id']}"
        assert answer.headers["etag"] == '"1"'
        assert made["next_fires"][0]["scheduled_at"] == made["next_run_at"]
        assert len(made["next_fires"]) == 3
        assert (made["status"], made["name"], made["run_id"]) == ("active", "nightly / report", None)

    async def test_job_reads_back_as_requested(self, api):
        job = await read(api, (await api.post("/v1/jobs", json=EVERYTHING)).json())

        assert {key: job[key] for key in EVERYTHING} == EVERYTHING
        assert (job["status"], job["version"], job["owner"], job["last_run"]) == ("active", 1, "api", None)

    async def test_a_one_shot_is_its_own_run(self, api, database):
        made = (await api.post("/v1/jobs", json={"target": A_TARGET, "payload": {"n": 1}})).json()

        assert made["run_id"] == made["job_id"]
        job = await read(api, made)
        assert (job["status"], job["payload"], job["last_run"]["state"]) == ("active", {"n": 1}, "ready")
        await work(database)
        assert (await read(api, made))["status"] == "completed"

    @pytest.mark.parametrize("kind", SCHEDULES)
    async def test_every_kind_of_trigger_can_be_kept_read_listed_changed_and_ended(self, api, kind):
        body = {"target": A_TARGET, "name": kind, "schedule": SCHEDULES[kind]}
        made = await api.a_job(**body)
        job = await read(api, made)

        assert job["schedule"] == SCHEDULES[kind]
        assert job["next_run_at"] == made["next_run_at"]
        assert job["description"]
        [listed] = (await api.get("/v1/jobs")).json()["items"]
        assert (listed["job_id"], listed["schedule"]) == (job["job_id"], SCHEDULES[kind])
        changed = await api.patch(f"/v1/jobs/{job['job_id']}", {"priority": 1}, headers=etag(job))
        assert (changed.status_code, changed.json()["version"]) == (200, 2)
        assert changed.json()["next_run_at"] == made["next_run_at"], "the timing was not touched"
        put = await api.put(f"/v1/jobs/{job['job_id']}", json=body, headers=etag(changed.json()))
        assert (put.status_code, put.json()["priority"]) == (200, 5)
        assert (await api.delete(f"/v1/jobs/{job['job_id']}")).json()["status"] == "cancelled"
        assert (await read(api, job))["status"] == "cancelled"

    async def test_an_interval_tells_from_when_it_counts(self, api):
        made = await api.a_job(schedule={"trigger": {"type": "interval", "every": "PT90M"}, "max_runs": 2})

        job = await read(api, made)

        assert job["schedule"]["trigger"] == {"type": "interval", "every": "PT90M", "anchor": made["next_run_at"]}
        changed = await api.put(
            f"/v1/jobs/{job['job_id']}", json={"target": A_TARGET, "schedule": job["schedule"]}, headers=etag(job)
        )
        assert changed.json()["next_run_at"] == made["next_run_at"]

    async def test_job_patch_leaves_retry_and_timeout_to_the_handler(self, api):
        made = await api.a_job(tags=["a"])
        job = await read(api, made)
        assert (job["retry"], job["timeout"]) == (None, None)

        changed = await api.patch(f"/v1/jobs/{job['job_id']}", {"priority": 1}, headers=etag(job))

        assert (changed.json()["retry"], changed.json()["timeout"]) == (None, None)

    async def test_a_policy_that_is_the_default_is_still_the_jobs_own(self, api):
        job = await read(api, await api.a_job(tags=["a"], retry={}))

        assert job["retry"] == {
            "policy": "exponential",
            "max_attempts": 5,
            "base": "PT1S",
            "cap": "PT10M",
            "jitter": None,
            "delays": [],
            "max_age": None,
            "rules": [],
        }

    async def test_a_name_is_given_once(self, api):
        await api.a_job(name="report")
        answer = await api.post("/v1/jobs", json={"target": A_TARGET, "name": "report", "schedule": EVERY_HOUR})

        assert (answer.status_code, answer.json()["code"]) == (409, "name_taken")

    async def test_a_job_with_a_name_and_no_schedule_runs_once(self, api, database):
        made = (await api.post("/v1/jobs", json={"target": A_TARGET, "name": "once", "payload": {"n": 1}})).json()
        assert (await read(api, made))["status"] == "active"

        [run] = await work(database)

        job = await read(api, made)
        assert (job["status"], job["next_run_at"]) == ("completed", None)
        assert job["last_run"] == {"run_id": str(run.run_id), "state": "succeeded", "attempts": 1}
        assert await work(database) == []
        assert (await api.post("/v1/jobs", json={"target": A_TARGET, "name": "once"})).status_code == 202, "it is free"


class TestRead:
    async def test_unknown_id_returns_404(self, api):
        paths = ["/v1/jobs/{}", "/v1/jobs/{}/explain", "/v1/runs/{}", "/v1/runs/{}/explain", "/v1/runs/{}/logs"]
        for path, identifier in product(paths, [UNKNOWN, "nonsense", "%ff", "1" * 300]):
            answer = await api.get(path.format(identifier))
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path

    async def test_by_its_name(self, api):
        made = await api.a_job(name="a/b c")
        answer = await api.get("/v1/jobs/by-name/a/b c")

        assert (answer.status_code, answer.json()["job_id"]) == (200, made["job_id"])
        assert answer.headers["etag"] == '"1"'
        assert (await api.get("/v1/jobs/by-name/other")).status_code == 404

    async def test_the_last_run_is_the_newest_that_has_begun(self, api, database, clock):
        made = await api.a_job()
        await work(database)
        assert (await read(api, made))["last_run"]["state"] == "succeeded"

        await clock.advance(timedelta(hours=1))
        await work(database, Failed("broken", retryable=False))

        assert (await read(api, made))["last_run"]["state"] == "dead"

    async def test_job_explain_names_pauses_and_missing_workers(self, api, database):
        made = await api.a_job(queue="reports")
        await take(database, "other")
        answer = (await api.get(f"/v1/jobs/{made['job_id']}/explain")).json()
        assert [reason["code"] for reason in answer["reasons"]] == ["not_due", "no_run_yet", "no_worker_for_queue"]

        await api.post("/v1/queues/reports/pause", json={"reason": "month end"})
        held = (await api.get(f"/v1/jobs/{made['job_id']}/explain")).json()

        [reason] = [reason for reason in held["reasons"] if reason["code"] == "queue_paused"]
        assert "month end" in reason["text"]

    async def test_a_one_shot_is_explained_as_its_run(self, api):
        made = (await api.post("/v1/jobs", json={"target": A_TARGET})).json()
        answer = (await api.get(f"/v1/jobs/{made['job_id']}/explain")).json()

        assert (answer["kind"], answer["id"]) == ("run", made["job_id"])
        assert [reason["code"] for reason in answer["reasons"]] == ["unroutable", "queue_backlog"]


class TestList:
    async def test_pages_hold_each_job_once_and_filters_choose(self, api):
        made = [
            await api.a_job(name=f"job {number}", queue="odd" if number % 2 else "even", tags=[f"t{number % 3}"])
            for number in range(7)
        ]
        seen, token = [], None
        while True:
            query = {"page_size": 3} | ({"page_token": token} if token else {})
            page = (await api.get("/v1/jobs", params=query)).json()
            seen += [job["job_id"] for job in page["items"]]
            token = page["next_page_token"]
            if token is None:
                break
        assert seen == sorted((job["job_id"] for job in made), reverse=True), "each once, the newest first"

        async def found(text: str) -> set[str]:
            answer = await api.get("/v1/jobs", params={"filter": text})
            assert answer.status_code == 200, answer.text
            return {job["name"] for job in answer.json()["items"]}

        assert await found("queue:odd") == {"job 1", "job 3", "job 5"}
        assert await found("queue:(odd,even) AND tag:t0") == {"job 0", "job 3", "job 6"}
        assert await found('name:"job 4"') == {"job 4"}
        assert await found("name:job*") == {f"job {number}" for number in range(7)}
        assert await found("state:paused") == set()
        assert await found('created_at>"2100-01-01"') == set()

    @pytest.mark.parametrize("path", ["/v1/jobs", "/v1/runs", "/v1/dead"])
    async def test_a_question_that_makes_no_sense_is_refused(self, api, path):
        for query, status in QUESTIONS:
            told = {key: value.replace("created_at", MOMENTS[path]) for key, value in query.items()}
            answer = await api.get(path, params=told)
            assert answer.status_code == status, (query, answer.text)

    async def test_a_token_of_another_list_is_refused(self, api):
        for _ in range(2):
            await api.a_job()
        token = (await api.get("/v1/jobs", params={"page_size": 1})).json()["next_page_token"]

        for path, query in (("/v1/runs", {}), ("/v1/jobs", {"filter": "queue:a"}), ("/v1/dead", {}), ("/v1/keys", {})):
            answer = await api.get(path, params={**query, "page_token": token})
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_query"), path


class TestChange:
    async def test_a_change_needs_the_version_that_was_read(self, api):
        job = await read(api, await api.a_job())
        path = f"/v1/jobs/{job['job_id']}"

        assert (await api.patch(path, {"priority": 1})).status_code == 428
        stale = await api.patch(path, {"priority": 1}, headers={"If-Match": '"7"'})
        assert (stale.status_code, stale.json()["code"]) == (412, "version_changed")
        assert (await api.patch(path, {"priority": 1}, headers={"If-Match": 'W/"1"'})).status_code == 412
        fresh = await api.patch(path, {"priority": 1}, headers={"If-Match": '"0", "1"'})
        assert (fresh.status_code, fresh.headers["etag"]) == (200, '"2"')
        assert (await api.patch(path, {"priority": 2}, headers={"If-Match": '"1"'})).status_code == 412
        assert (await api.patch(path, {"priority": 3}, headers={"If-Match": "*"})).json()["priority"] == 3

    async def test_null_takes_a_part_away(self, api):
        job = await read(api, (await api.post("/v1/jobs", json=EVERYTHING)).json())
        patch = {
            "name": None,
            "retry": None,
            "timeout": None,
            "concurrency": None,
            "rate_limit": None,
            "expires_after": None,
            "tags": None,
            "payload": {"lines": None},
        }

        answer = await api.patch(f"/v1/jobs/{job['job_id']}", patch, headers=etag(job))

        changed = answer.json()
        assert answer.status_code == 200, answer.text
        assert (changed["name"], changed["retry"], changed["timeout"]) == (None, None, None)
        assert (changed["concurrency"], changed["tags"], changed["payload"]) == (None, [], {"customer": 7})
        assert changed["schedule"] == EVERYTHING["schedule"]

    async def test_a_schedule_is_merged(self, api):
        job = await read(api, await api.a_job(schedule=SCHEDULES["cron"]))
        path = f"/v1/jobs/{job['job_id']}"

        answer = await api.patch(
            path, {"schedule": {"trigger": {"tz": "Asia/Tokyo"}, "max_runs": 3}}, headers=etag(job)
        )

        assert answer.json()["schedule"] == {
            "trigger": {"type": "cron", "expr": "0 8 * * MON-FRI", "tz": "Asia/Tokyo"},
            "max_runs": 3,
        }

    @pytest.mark.parametrize(
        ("patch", "code"),
        [
            ({"target": None}, "invalid_body"),
            ({"prioritty": 1}, "invalid_body"),
            ({"priority": "1"}, "invalid_body"),
            ({"schedule": {"trigger": {"every": "PT0S"}}}, "invalid_schedule"),
            ({"payload": {"x": "\0"}}, "invalid_payload"),
            ({"name": "a\nb"}, "invalid_option"),
        ],
    )
    async def test_a_change_that_cannot_be_kept_changes_nothing(self, api, patch, code):
        job = await read(api, await api.a_job())
        answer = await api.patch(f"/v1/jobs/{job['job_id']}", patch, headers=etag(job))

        assert (answer.status_code, answer.json()["code"]) == (422, code), answer.text
        assert await read(api, job) == job

    async def test_a_name_that_another_has_is_refused(self, api):
        await api.a_job(name="taken")
        job = await read(api, await api.a_job(name="free"))
        answer = await api.patch(f"/v1/jobs/{job['job_id']}", {"name": "taken"}, headers=etag(job))

        assert (answer.status_code, answer.json()["code"]) == (409, "name_taken")

    async def test_cancelled_job_refuses_changes(self, api):
        made = await api.a_job()
        await api.delete(f"/v1/jobs/{made['job_id']}")
        one_shot = (await api.post("/v1/jobs", json={"target": A_TARGET})).json()
        await api.delete(f"/v1/jobs/{one_shot['job_id']}")

        for job in (made, one_shot):
            answer = await api.patch(f"/v1/jobs/{job['job_id']}", {"priority": 1}, headers={"If-Match": "*"})
            assert (answer.status_code, answer.json()["code"]) == (409, "conflict"), answer.text

    async def test_of_two_changes_at_once_one_is_refused(self, api):
        job = await read(api, await api.a_job())
        path = f"/v1/jobs/{job['job_id']}"
        answers = await asyncio.gather(
            *(api.patch(path, {"priority": number}, headers=etag(job)) for number in range(4))
        )

        assert sorted(answer.status_code for answer in answers) == [200, 412, 412, 412]

    async def test_any_version_will_do_at_once(self, api):
        job = await read(api, await api.a_job())
        path = f"/v1/jobs/{job['job_id']}"
        answers = await asyncio.gather(
            *(api.patch(path, {"priority": number}, headers={"If-Match": "*"}) for number in range(4))
        )

        assert [answer.status_code for answer in answers] == [200] * 4
        assert (await read(api, job))["version"] == 5


class TestByName:
    async def test_put_twice_is_one_job(self, api):
        body = {"target": A_TARGET, "schedule": EVERY_HOUR}
        first = await api.put("/v1/jobs/by-name/nightly/report", json=body)
        again = await api.put("/v1/jobs/by-name/nightly/report", json={**body, "priority": 1})

        assert (first.status_code, again.status_code) == (201, 200)
        assert first.headers["location"] == f"/v1/jobs/{first.json()['job_id']}"
        assert (again.json()["job_id"], again.json()["priority"]) == (first.json()["job_id"], 1)
        assert again.json()["name"] == "nightly/report"
        assert again.json()["next_run_at"] == first.json()["next_run_at"]

    async def test_concurrent_puts_by_name_create_one_job_and_all_succeed(self, api, database):
        body = {"target": A_TARGET, "schedule": EVERY_HOUR}
        answers = await asyncio.gather(*(api.put("/v1/jobs/by-name/report", json=body) for _ in range(6)))

        assert sorted(answer.status_code for answer in answers) == [200] * 5 + [201]
        assert len({answer.json()["job_id"] for answer in answers}) == 1
        assert await database.fetchval("select count(*) from duly.jobs") == 1

    async def test_the_path_and_the_body_name_one_job(self, api):
        answer = await api.put("/v1/jobs/by-name/a", json={"target": A_TARGET, "schedule": EVERY_HOUR, "name": "b"})

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")

    async def test_invalid_job_name_is_refused_by_put_and_not_found_by_get(self, api):
        body = {"target": A_TARGET, "schedule": EVERY_HOUR}

        for name in ("a%0Ab", "x" * 201):
            assert (await api.put(f"/v1/jobs/by-name/{name}", json=body)).status_code == 422
            assert (await api.get(f"/v1/jobs/by-name/{name}")).status_code == 404


class TestDelete:
    async def test_job_delete_stops_a_running_run_only_on_request(self, api, database):
        for running, stopping in (("keep", 0), ("stop", 1)):
            made = await api.a_job()
            await stage(database)
            worker_id, [run] = await take(database)

            answer = (await api.delete(f"/v1/jobs/{made['job_id']}?running={running}")).json()

            assert (answer["status"], answer["stopping"]) == ("cancelled", stopping)
            assert await database.fetchval("select count(*) from duly.signals") == stopping
            await settled(database, worker_id, run)

    async def test_delete_leaves_a_started_one_shot_running_unless_a_stop_is_requested(self, api, database):
        made = (await api.post("/v1/jobs", json={"target": A_TARGET})).json()
        await take(database)
        path = f"/v1/jobs/{made['job_id']}"

        told = {"job_id": made["job_id"], "status": "too_late", "state": "running", "stopping": 0}
        unknown = [made["job_id"]]  # Its worker does not answer, so nobody knows whether its handler was called.
        assert (await api.delete(path)).json() == {**told, "may_start": unknown, "purged": False}
        assert await database.fetchval("select count(*) from duly.signals") == 0
        assert (await api.delete(f"{path}?running=stop")).json()["status"] == "requested"
        assert await database.fetchval("select count(*) from duly.signals") == 1

    async def test_job_delete_removes_its_waiting_run(self, api, database):
        soon = (await api.post("/v1/jobs", json={"target": A_TARGET})).json()
        later = await api.a_job(schedule=SCHEDULES["at"])
        once = (await api.post("/v1/jobs", json={"target": A_TARGET, "name": "once"})).json()
        await stage(database)

        for made in (soon, later, once):
            assert (await api.delete(f"/v1/jobs/{made['job_id']}")).json()["status"] == "cancelled"
            assert (await api.delete(f"/v1/jobs/{made['job_id']}")).json()["status"] == "too_late"
        assert await counts(database) == {}

    async def test_unknown_id_returns_404(self, api, database):
        made = await api.a_job()
        [run] = await work(database)

        assert (await api.delete(f"/v1/jobs/{UNKNOWN}")).status_code == 404
        assert str(run.run_id) != made["job_id"]
        assert (await api.delete(f"/v1/jobs/{run.run_id}")).status_code == 404, "a run of a job is no job"


@pytest.mark.parametrize(
    ("every", "shown"), [("PT90M", "PT1H30M"), ("PT5400S", "PT1H30M"), ("PT90S", "PT1M30S"), ("PT45S", "PT45S")]
)
async def test_a_period_reads_as_people_write_it(api, every, shown):
    body = {"target": A_TARGET, "schedule": {"trigger": {"type": "interval", "every": every}}}
    path = f"/v1/jobs/{(await api.post('/v1/jobs', json=body)).json()['job_id']}"

    assert (await api.get(path)).json()["schedule"]["trigger"]["every"] == shown


class TestOneShotsAmongJobs:
    async def test_they_are_listed_on_request_each_once_over_pages(self, api, database):
        named = [(await api.a_job(name=f"n{number}"))["job_id"] for number in range(4)]
        plain = []
        for number in range(5):
            at = {"trigger": {"type": "at", "at": f"2026-11-0{number + 3}T09:00:00Z"}}
            plain.append((await api.post("/v1/jobs", json={"target": A_TARGET, "schedule": at})).json()["job_id"])
        now = (await api.post("/v1/jobs", json={"target": A_TARGET, "priority": 2})).json()["job_id"]
        await work(database)

        seen, token = [], None
        while True:
            query = {"include": "one_shots", "page_size": 2} | ({"page_token": token} if token else {})
            page = (await api.get("/v1/jobs", params=query)).json()
            seen += page["items"]
            token = page["next_page_token"]
            if token is None:
                break

        assert sorted(job["job_id"] for job in seen) == sorted([*named, *plain, now])
        [job] = [job for job in seen if job["job_id"] == now]
        assert (job["run_id"], job["status"], job["name"], job["next_run_at"]) == (now, "completed", None, None)
        assert job["priority"] == 2
        [job] = [job for job in seen if job["job_id"] == plain[0]]
        assert (job["status"], job["next_run_at"]) == ("active", "2026-11-03T09:00:00Z")
        assert len((await api.get("/v1/jobs")).json()["items"]) == 4, "not unless asked"

    @pytest.mark.parametrize(
        ("chosen", "count"),
        [
            ("state:active", 2),
            ("state:completed", 1),
            ("state:paused", 0),
            ("tag:x", 1),
            ("name:n0", 1),
            ('next_run_at<"2026-11-04"', 1),
        ],
    )
    async def test_a_filter_chooses_among_them(self, api, database, chosen, count):
        daily = {"trigger": {"type": "cron", "expr": "0 3 5 11 *"}}
        await api.a_job(name="n0", schedule=daily)
        await api.post("/v1/jobs", json={"target": A_TARGET, "tags": ["x"]})
        await work(database)
        at = {"trigger": {"type": "at", "at": "2026-11-03T09:00:00Z"}}
        await api.post("/v1/jobs", json={"target": A_TARGET, "schedule": at})

        answer = await api.get("/v1/jobs", params={"include": "one_shots", "filter": chosen})

        assert len(answer.json()["items"]) == count

    async def test_no_other_order_has_them(self, api):
        answer = await api.get("/v1/jobs", params={"include": "one_shots", "sort": "name"})

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")
