"""Calendars and previews over HTTP."""

from tests.api.front import A_TARGET
from tests.api.test_jobs import SCHEDULES, read

HOLIDAYS = {"dates": ["2026-12-25", "2026-12-26"], "tz": "Europe/Berlin"}
DAILY = {"trigger": {"type": "cron", "expr": "0 8 * * *"}, "calendars": [{"name": "DE/holidays"}]}


async def test_calendar_is_stored_read_listed_changed_and_deleted(api):
    put = await api.put("/v1/calendars/DE/holidays", json={"name": "DE/holidays", **HOLIDAYS})
    assert (put.status_code, put.json()["schedules"]) == (200, 0)
    assert (await api.get("/v1/calendars/DE/holidays")).json() == {
        "name": "DE/holidays",
        "definition": {"name": "DE/holidays", **HOLIDAYS},
        "jobs": [],
    }
    job = await api.a_job(schedule=DAILY)
    [user] = (await api.get("/v1/calendars/DE/holidays")).json()["jobs"]
    assert (user["job_id"], user["scheduled_at"]) == (job["job_id"], job["next_run_at"])

    changed = await api.put("/v1/calendars/DE/holidays", json={"dates": [job["next_run_at"][:10]]})

    assert changed.json()["schedules"] == 1, "the schedules that use it are armed anew"
    assert (await read(api, job))["next_run_at"] != job["next_run_at"]
    [listed] = (await api.get("/v1/calendars")).json()["items"]
    assert listed["definition"]["dates"] == [job["next_run_at"][:10]]
    used = await api.delete("/v1/calendars/DE/holidays")
    assert (used.status_code, used.json()["code"]) == (422, "invalid_option")
    await api.delete(f"/v1/jobs/{job['job_id']}")
    assert (await api.delete("/v1/calendars/DE/holidays")).status_code == 204
    assert (await api.delete("/v1/calendars/DE/holidays")).status_code == 404
    assert (await api.get("/v1/calendars/DE/holidays")).status_code == 404


async def test_a_job_cannot_name_one_that_is_not_there(api):
    answer = await api.post("/v1/jobs", json={"target": A_TARGET, "schedule": DAILY})

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_schedule")
    assert "DE/holidays" in answer.json()["detail"]


async def test_invalid_request_is_refused(api):
    wrong = [
        {"name": "other", "dates": ["2026-12-25"]},
        {"dates": ["2026-13-45"]},
        {"dates": ["0000-01-01"]},
        {"dates": "2026-12-25"},
        {"dates": [7]},
        {"tz": "Mars/Olympus"},
        {"tz": "\0"},
        {"colour": "blue"},
        {"windows": [{"start": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"}]},
        {"weekly": [{"days": "XYZ", "from": "00:00", "to": "24:00"}]},
        {"weekly": [{"days": "SAT", "from": "25:00", "to": "26:00"}]},
        {"dates": ["2026-12-25"], "name": 7},
        [],
        "x",
    ]
    for body in wrong:
        answer = await api.put("/v1/calendars/wrong", json=body)
        assert answer.status_code == 422, (body, answer.text)
    assert (await api.get("/v1/calendars")).json()["items"] == []
    for name in ("x" * 201,):
        assert (await api.put(f"/v1/calendars/{name}", json=HOLIDAYS)).status_code == 422
        assert (await api.delete(f"/v1/calendars/{name}")).status_code == 404


class TestPreview:
    async def test_preview_describes_every_trigger_type_and_lists_its_fires(self, api):
        for kind, schedule in SCHEDULES.items():
            answer = await api.post("/v1/triggers/preview", json={"schedule": schedule, "n": 2})
            told = answer.json()
            assert (answer.status_code, told["valid"], told["errors"]) == (200, True, []), kind
            assert told["description"], kind
            assert len(told["next"]) == (1 if kind == "at" else 2), kind

    async def test_its_fires_are_those_of_the_job(self, api):
        job = await api.a_job(schedule=SCHEDULES["cron"])
        told = (await api.post("/v1/triggers/preview", json={"schedule": SCHEDULES["cron"], "n": 3})).json()

        assert [fire["scheduled_at"] for fire in told["next"]] == [fire["scheduled_at"] for fire in job["next_fires"]]

    async def test_preview_with_a_job_id_matches_the_next_fires_of_the_job(self, api):
        schedule = {"trigger": {"type": "cron", "expr": "H H * * *"}, "jitter": {"max": "PT1H"}}
        job = await api.a_job(schedule=schedule)
        asked = {"schedule": schedule, "n": 3}
        unknown = (await api.post("/v1/triggers/preview", json=asked)).json()
        told = (await api.post("/v1/triggers/preview", json={**asked, "job_id": job["job_id"]})).json()

        assert (unknown["valid"], {error["code"] for error in unknown["errors"]}) == (False, {"CRON_MODIFIER"})
        assert told["next"] == job["next_fires"]

    async def test_preview_reports_an_invalid_schedule_with_its_field(self, api):
        wrong = {
            "expr": {"trigger": {"type": "cron", "expr": "61 * * * *"}},
            "type": {"trigger": {"type": "moon"}},
            "trigger": {},
            "calendars": {"trigger": {"type": "cron", "expr": "0 8 * * *"}, "calendars": [{"name": "nowhere"}]},
            "at": {"trigger": {"type": "at", "at": "\0"}},
            "every": {"trigger": {"type": "interval", "every": "-PT5M"}},
        }
        for place, schedule in wrong.items():
            told = (await api.post("/v1/triggers/preview", json={"schedule": schedule})).json()
            assert told["valid"] is False, place
            assert place in told["errors"][0]["field"], told["errors"]

    async def test_the_ends_of_time_are_no_failure(self, api):
        for after in (
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
            "0001-01-01T00:00:00+14:00",
            "9999-12-31T23:59:59-14:00",
        ):
            for schedule in SCHEDULES.values():
                answer = await api.post("/v1/triggers/preview", json={"schedule": schedule, "after": after, "n": 3})
                assert (answer.status_code, answer.json()["code"]) == (422, "invalid_body"), answer.text
