"""One-shots over HTTP: a moment to the microsecond, a delay by the database's clock, and a moment that is past."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from tests.api.front import A_TARGET
from tests.api.test_as_code import apply
from tests.api.test_jobs import read

NDJSON = {"Content-Type": "application/x-ndjson"}


def once(**trigger: Any) -> dict[str, Any]:
    return {"trigger": {"type": "at", **trigger}}


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


async def batch(api, *jobs) -> list[dict[str, Any]]:
    answer = await api.post("/v1/jobs:batch", content=b"\n".join(map(msgspec.json.encode, jobs)), headers=NDJSON)
    return [msgspec.json.decode(line) for line in answer.content.splitlines()]


class TestThePast:
    @pytest.mark.parametrize("name", [None, "late"])
    async def test_a_moment_that_is_past_is_refused_with_its_code_and_field(self, api, database, name):
        now = await database.read_clock()
        body = {"target": A_TARGET, "name": name, "schedule": once(at=(now - timedelta(seconds=61)).isoformat())}

        answer = await api.post("/v1/jobs", json=body)

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_schedule")
        [fault] = answer.json()["errors"]
        assert (fault["code"], fault["pointer"]) == ("AT_PAST", "/schedule/trigger/at")
        assert "in the past" in fault["message"]

    @pytest.mark.parametrize("name", [None, "late"])
    async def test_a_moment_that_has_just_passed_runs_at_once(self, api, database, name):
        at = (await database.read_clock() - timedelta(seconds=30)).isoformat()

        made = await api.a_job(name=name, schedule=once(at=at))

        assert moment(made["next_run_at"]) == moment(at)

    async def test_a_line_of_a_batch_is_refused_alone(self, api, database):
        past = (await database.read_clock() - timedelta(hours=1)).isoformat()

        lines = await batch(
            api,
            {"target": A_TARGET},
            {"target": A_TARGET, "schedule": once(at=past)},
            {"target": A_TARGET, "name": "late", "schedule": once(at=past)},
        )

        assert "job_id" in lines[0]
        for line in lines[1:]:
            [fault] = line["error"]["errors"]
            assert (fault["code"], fault["pointer"]) == ("AT_PAST", "/schedule/trigger/at")

    async def test_a_change_to_a_moment_that_is_past_is_refused(self, api, database):
        made = await api.a_job(name="soon", schedule=once(at="2126-01-01T00:00:00Z"))
        past = (await database.read_clock() - timedelta(hours=1)).isoformat()

        patched = await api.patch(
            f"/v1/jobs/{made['job_id']}", {"schedule": once(at=past)}, headers={"If-Match": '"1"'}
        )

        assert patched.status_code == 422
        [fault] = patched.json()["errors"]
        assert (fault["code"], fault["pointer"]) == ("AT_PAST", "/schedule/trigger/at")
        assert (await read(api, made))["version"] == 1

    async def test_words_for_a_moment_that_is_past_are_named(self, api):
        answer = await api.post(
            "/v1/jobs",
            json={"target": A_TARGET, "schedule": {"trigger": {"type": "text", "text": "2020-01-01 at noon"}}},
        )

        [fault] = answer.json()["errors"]
        assert (fault["code"], fault["pointer"]) == ("AT_PAST", "/schedule/trigger/text")


class TestMicroseconds:
    @pytest.mark.parametrize("name", [None, "fine"])
    async def test_a_moment_is_kept_to_the_microsecond(self, api, name):
        made = await api.a_job(name=name, schedule=once(at="2126-01-01T09:00:00.123456Z"))

        assert moment(made["next_run_at"]).microsecond == 123456
        job = await read(api, made)
        assert moment(job["next_run_at"]).microsecond == 123456
        assert moment(job["schedule"]["trigger"]["at"]).microsecond == 123456
        if name is not None:
            assert made["next_fires"][0]["scheduled_at"] == "2126-01-01T09:00:00.123456Z"

    async def test_time_finer_than_a_microsecond_is_refused(self, api):
        answer = await api.post(
            "/v1/jobs", json={"target": A_TARGET, "schedule": once(at="2126-01-01T09:00:00.1234567Z")}
        )

        [fault] = answer.json()["errors"]
        assert (fault["code"], fault["pointer"]) == ("SUB_SECOND", "/schedule/trigger/at")
        assert "finer than a microsecond" in fault["message"]


class TestADelay:
    @pytest.mark.parametrize("name", [None, "later"])
    @pytest.mark.parametrize(("delay", "seconds"), [("PT90S", 90), (0.25, 0.25), ("PT0.000001S", 0.000001)])
    async def test_a_delay_counts_from_the_databases_clock(self, api, database, name, delay, seconds):
        before = await database.read_clock()
        made = await api.a_job(name=name, schedule=once(delay=delay))
        after = await database.read_clock()

        due = moment(made["next_run_at"])
        assert before <= due - timedelta(seconds=seconds) <= after

    async def test_a_delay_is_taken_in_a_batch(self, api, database):
        before = await database.read_clock()
        lines = await batch(
            api,
            {"target": A_TARGET, "schedule": once(delay="PT1H")},
            {"target": A_TARGET, "name": "later", "schedule": once(delay="PT1H")},
        )
        after = await database.read_clock()

        for line in lines:
            assert before <= moment(line["next_run_at"]) - timedelta(hours=1) <= after

    async def test_a_change_counts_its_delay_from_the_change(self, api, database):
        made = await api.a_job(name="moved", schedule=once(at="2126-01-01T00:00:00Z"))
        before = await database.read_clock()

        patch = {"schedule": once(at=None, delay="PT10M")}
        answer = await api.patch(f"/v1/jobs/{made['job_id']}", patch, headers={"If-Match": "*"})

        assert answer.status_code == 200, answer.text
        after = await database.read_clock()
        assert before <= moment(answer.json()["next_run_at"]) - timedelta(minutes=10) <= after

    async def test_a_delay_is_not_counted_anew_by_another_change(self, api):
        made = await api.a_job(name="moved", schedule=once(delay="PT10M"))

        answer = await api.patch(f"/v1/jobs/{made['job_id']}", {"priority": 1}, headers={"If-Match": "*"})

        assert answer.json()["next_run_at"] == made["next_run_at"]
        assert answer.json()["schedule"] == once(delay="PT10M")

    async def test_a_delay_in_a_file_is_planned_without_a_difference(self, api):
        file = {"source": "shop", "jobs": {"soon": {"target": "app:a", "schedule": {"delay": "PT1H"}}}}
        assert [done["kind"] for done in (await apply(api, file)).json()["done"]] == ["create"]

        assert (await apply(api, file, dry_run=True)).json()["steps"] == []
        assert (await api.get("/v1/jobs:export")).json()["jobs"]["soon"]["schedule"] == {"delay": "PT1H"}

    async def test_the_same_delay_under_one_key_is_one_job(self, api):
        body = {"target": A_TARGET, "schedule": once(delay="PT1H")}
        first = await api.post("/v1/jobs", json=body, headers={"Idempotency-Key": "one"})
        again = await api.post("/v1/jobs", json=body, headers={"Idempotency-Key": "one"})

        assert again.json()["job_id"] == first.json()["job_id"]
        assert again.json()["next_run_at"] == first.json()["next_run_at"]

    @pytest.mark.parametrize(
        ("trigger", "code", "field"),
        [
            ({"at": "2126-01-01T00:00:00Z", "delay": "PT1S"}, "TRIGGER_KEY", "delay"),
            ({}, "TRIGGER_KEY", "at"),
            ({"delay": "-PT1S"}, "DURATION_SYNTAX", "delay"),
            ({"delay": -1}, "DURATION_SYNTAX", "delay"),
            ({"delay": "soon"}, "DURATION_SYNTAX", "delay"),
            ({"delay": True}, "DURATION_SYNTAX", "delay"),
            ({"delay": "P40000D"}, "DURATION_SYNTAX", "delay"),
        ],
    )
    @pytest.mark.parametrize("name", [None, "odd"])
    async def test_a_delay_that_is_none_is_refused_with_its_field(self, api, name, trigger, code, field):
        answer = await api.post("/v1/jobs", json={"target": A_TARGET, "name": name, "schedule": once(**trigger)})

        assert answer.status_code == 422
        [fault] = answer.json()["errors"]
        assert (fault["code"], fault["pointer"]) == (code, f"/schedule/trigger/{field}")
