"""Jobs and runs in bulk: by a filter, by their ids or all of them, counted first, page by page, and only one's own."""

from typing import Any
from uuid import uuid4

import pytest

from duly.moves import bulk
from duly.moves.cancel import cancel_live
from duly.store.boxes import runs
from duly.store.connection.database import Unavailable
from tests.api.front import EVERY_HOUR
from tests.builders import QUEUE, a_dead_run, a_leased_run, a_ready_run


async def some_jobs(api, number, queue="mail"):
    names = [f"{queue}-{i}-{uuid4().hex[:6]}" for i in range(number)]
    return [str((await api.a_job(name=name, queue=queue, schedule=EVERY_HOUR))["job_id"]) for name in names]


async def statuses(api, job_ids):
    return [(await api.get(f"/v1/jobs/{job_id}")).json()["status"] for job_id in job_ids]


async def state_of(database, run_id):
    found = await runs.find(database, run_id)
    assert found is not None
    return found["state"]


async def ask(api, path, **body):
    answer = await api.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


class TestJobs:
    async def test_matching_jobs_are_counted_paused_resumed_and_cancelled(self, api):
        mail, other = await some_jobs(api, 3), await some_jobs(api, 1, "other")

        counted = await ask(api, "/v1/jobs:pause", filter="queue:mail", dry_run=True)
        assert (counted["matched"], counted["changed"], counted["next_page_token"]) == (3, 0, None)
        assert await statuses(api, mail) == ["active"] * 3

        paused = await ask(api, "/v1/jobs:pause", filter="queue:mail", reason="a quiet night")
        assert (paused["matched"], paused["changed"], paused["refused"]) == (3, 3, [])
        assert await statuses(api, [*mail, *other]) == ["paused"] * 3 + ["active"]
        assert (await api.get(f"/v1/jobs/{mail[0]}")).json()["pause_reason"] == "a quiet night"

        assert (await ask(api, "/v1/jobs:resume", all=True))["changed"] == 3
        assert await statuses(api, mail) == ["active"] * 3
        assert (await ask(api, "/v1/jobs:delete", filter="queue:mail"))["changed"] == 3
        assert await statuses(api, [*mail, *other]) == ["cancelled"] * 3 + ["active"]

    async def test_named_jobs_are_paused_and_unknown_ids_are_reported(self, api):
        [job_id], nobody = await some_jobs(api, 1), str(uuid4())

        done = await ask(api, "/v1/jobs:pause", ids=[job_id, nobody, job_id])

        assert (done["matched"], done["changed"]) == (2, 1)
        [refused] = done["refused"]
        assert refused["id"] == nobody
        assert "no job" in refused["reason"]

    async def test_a_limit_leaves_the_rest_for_the_next_request(self, api):
        job_ids = await some_jobs(api, 5)
        first = await ask(api, "/v1/jobs:pause", filter="queue:mail", limit=3)
        then = await ask(api, "/v1/jobs:pause", filter="queue:mail", limit=3, page_token=first["next_page_token"])

        assert (first["changed"], then["changed"], then["next_page_token"]) == (3, 2, None)
        assert await statuses(api, job_ids) == ["paused"] * 5

    async def test_paused_job_is_not_counted_as_changed_again(self, api):
        [job_id] = await some_jobs(api, 1)
        await ask(api, "/v1/jobs:pause", ids=[job_id])

        assert (await ask(api, "/v1/jobs:pause", ids=[job_id]))["changed"] == 0


class TestRuns:
    async def test_bulk_cancel_cancels_only_unfinished_runs(self, api, database):
        dead = await a_dead_run(database)
        waiting = [await a_ready_run(database) for _ in range(3)]

        counted = await ask(api, "/v1/runs:cancel", filter=f"queue:{QUEUE}", dry_run=True)
        done = await ask(api, "/v1/runs:cancel", filter=f"queue:{QUEUE}")

        assert (counted["matched"], done["matched"], done["changed"]) == (3, 3, 3)
        assert [await state_of(database, run_id) for run_id in waiting] == ["cancelled"] * 3
        assert await state_of(database, dead) == "dead"

    async def test_bulk_cancel_signals_the_worker_of_a_leased_run(self, api, database):
        worker_id, run = await a_leased_run(database)

        assert (await ask(api, "/v1/runs:cancel", ids=[str(run.run_id)]))["changed"] == 1
        assert [signal.run_id for signal in (await runs.look(database, worker_id)).signals] == [run.run_id]

    async def test_dead_ones_are_replayed(self, api, database):
        dead = [await a_dead_run(database) for _ in range(2)]
        alive = await a_ready_run(database)

        done = await ask(api, "/v1/runs:replay", ids=[*map(str, dead), str(alive), str(uuid4())])

        assert (done["matched"], done["changed"]) == (3, 2)
        assert {await state_of(database, run_id) for run_id in dead} == {"retrying"}

    async def test_bulk_replay_continues_its_rate_on_the_next_page(self, api, database):
        for _ in range(4):
            await a_dead_run(database)
        first = await ask(api, "/v1/runs:replay", all=True, rate=0.01, limit=2)
        await ask(api, "/v1/runs:replay", all=True, rate=0.01, limit=2, page_token=first["next_page_token"])

        due = [row["due_at"] for row in await database.fetch("select due_at from duly.live_runs order by due_at")]
        assert [round((at - due[0]).total_seconds()) for at in due] == [0, 100, 200, 300]


@pytest.mark.parametrize("path", ["/v1/jobs:pause", "/v1/jobs:delete", "/v1/runs:cancel"])
@pytest.mark.parametrize(
    "body", [{}, {"filter": "queue:mail", "all": True}, {"ids": [str(uuid4())], "filter": "queue:a"}]
)
async def test_bulk_request_requires_exactly_one_of_ids_filter_and_all(api, path, body):
    answer = await api.post(path, json=body)

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_filter")


async def test_more_than_a_batch_is_taken_in_batches(api, database, monkeypatch):
    monkeypatch.setattr(bulk, "_BATCH", 2)
    for _ in range(5):
        await a_ready_run(database)

    assert (await ask(api, "/v1/runs:cancel", all=True))["changed"] == 5


async def many_ready_runs(database, number):
    await database.execute(
        "insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses, suspect,"
        "                        payload_stored, queue, handler)"
        " select id, id, duly.clock_now(), duly.clock_now(), 1, 1, 0, 5, 0, false, false, 'default', 'greet'"
        "   from generate_series(1, $1::int) as number, lateral (select lpad(number::text, 32, '0')::uuid as id) as named",
        number,
    )


async def test_a_dry_run_counts_all(api, database, monkeypatch):
    await many_ready_runs(database, 2_345)
    await some_jobs(api, 3)

    counted = await ask(api, "/v1/runs:cancel", all=True, dry_run=True)
    assert (counted["matched"], counted["is_partial"], counted["next_page_token"]) == (2_345, False, None)
    assert len(counted["sample"]) == 10
    assert (await ask(api, "/v1/runs:cancel", all=True, dry_run=True, limit=7))["matched"] == 7
    assert (await ask(api, "/v1/jobs:pause", all=True, dry_run=True))["matched"] == 3

    monkeypatch.setattr("duly.api.routes.bulk._COUNT_SECONDS", 0)
    least = await ask(api, "/v1/runs:cancel", all=True, dry_run=True)
    assert (least["matched"], least["is_partial"]) == (2_000, True)
    rest = await ask(api, "/v1/runs:cancel", all=True, dry_run=True, page_token=least["next_page_token"])
    assert (rest["matched"], rest["is_partial"]) == (345, False)


async def waiting(database):
    return await database.fetchval("select count(*) from duly.ready")


class TestHalfWay:
    """What stops half way says how far it came, and goes on from there."""

    @pytest.fixture
    def failing(self, monkeypatch):
        """Let the database not answer at some batches, by their numbers."""
        batches: list[object] = []
        numbers: set[int] = set()

        async def cancel(session, run_ids, reason):
            batches.append(run_ids)
            cancelled = await cancel_live(session, run_ids, reason)
            if len(batches) in numbers:
                raise Unavailable("the database is overwhelmed")
            return cancelled

        monkeypatch.setattr(bulk, "_BATCH", 2)
        monkeypatch.setattr("duly.api.routes.bulk.cancel_live", cancel)
        return numbers

    async def test_partial_bulk_response_reports_its_count_and_the_next_page(self, api, database, failing):
        await many_ready_runs(database, 9)
        failing.add(3)

        first = await ask(api, "/v1/runs:cancel", all=True)
        assert (first["matched"], first["changed"], first["is_partial"]) == (4, 4, True)
        assert await waiting(database) == 5
        then = await ask(api, "/v1/runs:cancel", all=True, page_token=first["next_page_token"])

        assert (then["changed"], then["is_partial"], then["next_page_token"]) == (5, False, None)
        assert await waiting(database) == 0

    async def test_bulk_request_that_changed_nothing_returns_503(self, api, database, failing):
        await many_ready_runs(database, 3)
        failing.add(1)

        answer = await api.post("/v1/runs:cancel", json={"all": True})

        assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
        assert await waiting(database) == 3

    async def test_idempotency_key_resumes_a_partial_bulk_request_then_replays(self, api, database, failing):
        await many_ready_runs(database, 9)
        failing.update((3, 5))
        body, headers = {"all": True, "limit": 8}, {"Idempotency-Key": "tonight"}

        answers = [await api.post("/v1/runs:cancel", json=body, headers=headers) for _ in range(4)]

        told = [answer.json() for answer in answers]
        assert [(one["changed"], one["is_partial"]) for one in told] == [(4, True), (6, True), (8, False), (8, False)]
        assert await waiting(database) == 1, "no more than the limit, of all tries together"
        assert [answer.headers.get("Idempotency-Replayed") for answer in answers] == [None, None, None, "true"]
        assert told[2] == told[3]
        other = await api.post("/v1/runs:cancel", json={"all": True}, headers=headers)
        assert (other.status_code, other.json()["code"]) == (422, "key_reused")

    async def test_bulk_request_out_of_time_reports_a_partial_result(self, api, database, failing, monkeypatch):
        monkeypatch.setattr("duly.api.routes.bulk._CHANGE_SECONDS", 0)
        await many_ready_runs(database, 5)
        headers = {"Idempotency-Key": "tonight"}

        changed = [(await api.post("/v1/runs:cancel", json={"all": True}, headers=headers)).json() for _ in range(3)]

        assert [(one["changed"], one["is_partial"]) for one in changed] == [(2, True), (4, True), (5, False)]

    async def test_jobs_go_on_one_by_one(self, api, monkeypatch):
        monkeypatch.setattr("duly.api.routes.bulk._CHANGE_SECONDS", 0)
        job_ids = await some_jobs(api, 3)
        headers = {"Idempotency-Key": "tonight"}

        told = [(await api.post("/v1/jobs:pause", json={"all": True}, headers=headers)).json() for _ in range(5)]

        assert [(one["matched"], one["changed"]) for one in told] == [(1, 1), (2, 2), (3, 3), (3, 3), (3, 3)]
        assert [one["is_partial"] for one in told][-2:] == [False, False]
        assert await statuses(api, job_ids) == ["paused"] * 3

    async def test_two_tries_under_one_key_are_not_done_side_by_side(self, api, database, monkeypatch):
        monkeypatch.setattr(bulk, "_BATCH", 2)
        await many_ready_runs(database, 6)
        body, headers = {"all": True}, {"Idempotency-Key": "tonight"}
        inner: list[Any] = []

        async def cancel(session, run_ids, reason):
            if not inner:  # The caller has given up waiting, and asks again.
                inner.append(None)
                inner[0] = await api.post("/v1/runs:cancel", json=body, headers=headers)
            return await cancel_live(session, run_ids, reason)

        monkeypatch.setattr("duly.api.routes.bulk.cancel_live", cancel)
        outer = await api.post("/v1/runs:cancel", json=body, headers=headers)

        assert (inner[0].status_code, inner[0].json()["changed"]) == (200, 6)
        assert (outer.status_code, outer.json()["code"]) == (409, "key_in_progress")
        assert (await api.post("/v1/runs:cancel", json=body, headers=headers)).json()["changed"] == 6


async def test_nothing_of_another_tenant_is_found(front, api, database):
    stranger = await front.stranger()
    [job_id], run_id = await some_jobs(api, 1), str(await a_ready_run(database))

    for path in ("/v1/jobs:pause", "/v1/runs:cancel"):
        assert (await ask(stranger, path, all=True))["matched"] == 0
    assert (await ask(stranger, "/v1/jobs:delete", ids=[job_id]))["changed"] == 0
    assert (await ask(stranger, "/v1/runs:cancel", ids=[run_id]))["changed"] == 0
    assert await statuses(api, [job_id]) == ["active"]
