"""Figures over HTTP: the same numbers as in the database, bounded, and of nobody else."""

from datetime import timedelta

import pytest

from duly.domain.limits.pause import EVERYTHING
from duly.domain.runs.outcome import Failed
from duly.moves.admin.pause import pause_scope
from duly.store.reads import figures
from tests.api.front import EVERY_HOUR
from tests.builders import HANDLER, QUEUE, a_dead_run, a_ready_run, a_worker, claimed, settled
from tests.clock import START


async def ended(database, outcome=None, queue=QUEUE):
    """Let a run end now."""
    worker_id = await a_worker(database, queues=[queue])
    await a_ready_run(database, queue=queue)
    [run] = await claimed(database, worker_id, queues=[queue])
    await settled(database, worker_id, run, outcome)
    await figures.fold(database, 1000)


class TestSeries:
    async def test_series_returns_every_step_and_the_total(self, api, database, clock):
        await ended(database)
        await clock.advance(timedelta(minutes=3))
        await ended(database, Failed("no", retryable=False))

        found = (await api.get("/v1/series")).json()

        assert [(one["ended"], one["succeeded"], one["failed"]) for one in found["points"][-4:]] == [
            (1, 1, 0),
            (0, 0, 0),
            (0, 0, 0),
            (1, 0, 1),
        ]
        assert (found["step"], found["total"]["ended"], found["total"]["success_rate"]) == (60, 2, 0.5)
        assert found["points"][-2]["skew_p95"] is None

    async def test_of_one_queue(self, api, database):
        await ended(database, queue="mail")
        await ended(database, queue="slow")

        found = (await api.get("/v1/series?queue=mail")).json()

        assert (found["queue"], found["total"]["ended"]) == ("mail", 1)

    async def test_series_over_days_uses_hourly_steps(self, api, database):
        await ended(database)
        since = (START - timedelta(days=6)).isoformat().replace("+00:00", "Z")

        found = (await api.get(f"/v1/series?from={since}")).json()

        assert (found["step"], found["total"]["ended"], found["points"][-1]["ended"]) == (3600, 1, 1)

    @pytest.mark.parametrize(
        "query",
        [
            "from=2026-11-15T00:00:00Z&to=2026-11-14T00:00:00Z",
            "from=2020-11-15T00:00:00Z",
            "step=90",
            "from=2026-11-01T00:00:00Z&to=2026-11-09T00:00:00Z&step=600",
            "from=2026-11-14T00:00:00Z&to=2026-11-16T00:00:00Z&step=60",
        ],
    )
    async def test_invalid_request_is_refused(self, api, query):
        answer = await api.get(f"/v1/series?{query}")

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")

    async def test_another_tenants_runs_are_not_in_it(self, front, database):
        await ended(database)
        stranger = await front.stranger()

        assert (await stranger.get("/v1/series")).json()["total"]["ended"] == 0


class TestOverview:
    async def test_overview_shows_age_throughput_failures_and_skew(self, api, database, clock):
        await ended(database)
        await ended(database, Failed("no", retryable=False))
        await a_ready_run(database)
        await clock.advance(timedelta(seconds=70))

        found = (await api.get("/v1/overview")).json()

        assert found["oldest_ready_seconds"] == 70
        assert found["runs_per_second"] == pytest.approx(2 / 60)
        assert found["failing"] == 1
        assert found["skew_p95_seconds"] < 0.002
        assert (found["ready"], found["dead"]) == (1, 1)

    async def test_overview_lists_items_that_need_attention(self, api, database):
        await a_ready_run(database, queue="lonely")
        await a_dead_run(database)
        await api.post("/v1/queues/mail/pause", json={"reason": "flooded"})

        found = {one["code"]: one for one in (await api.get("/v1/overview")).json()["attention"]}

        assert found["no_worker"]["id"] == "lonely"
        assert "duly worker" in found["no_worker"]["text"]
        assert "flooded" in found["queue_paused"]["text"]
        assert found["dead_recently"]["count"] == 1

    async def test_overview_names_handlers_that_no_worker_of_their_queue_has(self, api, database, clock):
        await a_worker(database, queues=["mail"], handlers=["other"])
        await a_worker(database, queues=["default"])
        for _ in range(2):
            await a_ready_run(database, queue="mail", handler="send")
        await a_ready_run(database, queue="mail", handler="other")
        await a_ready_run(database, queue="lonely", handler="send")

        found = (await api.get("/v1/overview")).json()

        unknown = [one for one in found["attention"] if one["code"] == "unroutable"]
        assert [(one["id"], one["count"], one["severity"]) for one in unknown] == [("send", 2, "bad")]
        assert "No live worker of queue mail has handler send, and 2 runs wait for it" in unknown[0]["text"]
        assert "duly worker module:app --queue mail" in unknown[0]["text"]
        assert {one["name"]: one["ready"] for one in found["queues"]} == {"default": 0, "lonely": 1, "mail": 3}

    async def test_all_is_held(self, api, database):
        await pause_scope(database, EVERYTHING, reason="fire drill", paused_by="op")
        [first, *_] = (await api.get("/v1/overview")).json()["attention"]

        assert (first["code"], first["severity"]) == ("everything_paused", "bad")

    async def test_another_tenant_sees_its_own(self, front, database):
        await a_dead_run(database)
        await a_ready_run(database)
        found = (await (await front.stranger()).get("/v1/overview")).json()

        assert (found["ready"], found["dead"], found["attention"]) == (0, 0, [])


class TestComing:
    async def test_intervals_crons_and_one_shots_are_counted_by_the_minute(self, api):
        await api.a_job(schedule={"trigger": {"type": "interval", "every": "PT10S"}})
        await api.a_job(schedule={"trigger": {"type": "cron", "expr": "*/15 * * * *"}})
        await api.a_job(schedule={"trigger": {"type": "at", "at": (START + timedelta(minutes=7)).isoformat()}})

        found = (await api.get("/v1/upcoming")).json()

        counts = [one["fires"] for one in found["minutes"]]
        assert found["is_complete"] is True
        assert len(counts) == 60
        assert counts[1] == 6
        assert counts[7] == 7
        assert sum(counts) == pytest.approx(6 * 60 + 4 + 1, abs=1)

    async def test_another_tenants_fires_are_not_in_it(self, front, api):
        await api.a_job(schedule=EVERY_HOUR)
        found = (await (await front.stranger()).get("/v1/upcoming")).json()

        assert sum(one["fires"] for one in found["minutes"]) == 0


async def test_the_days_of_a_job(api, front, database, parts):
    job = await api.a_job(
        schedule={"trigger": {"type": "interval", "every": "PT1H"}}, target={"type": "function", "handler": HANDLER}
    )
    worker_id = await a_worker(database)
    for outcome in (None, Failed("no", retryable=False)):
        await api.post(f"/v1/jobs/{job['job_id']}/trigger", json={})
        [run] = await claimed(database, worker_id)
        await settled(database, worker_id, run, outcome)

    found = (await api.get(f"/v1/jobs/{job['job_id']}/days")).json()

    [day] = found["items"]
    assert (day["day"], day["succeeded"], day["dead"]) == (f"{START:%Y-%m-%d}", 1, 1)
    assert (await (await front.stranger()).get(f"/v1/jobs/{job['job_id']}/days")).status_code == 404
