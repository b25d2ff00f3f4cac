"""Jobs and runs in bulk: by a filter, by their ids or all of them, counted first, page by page, and only one's own."""

from uuid import uuid4

import pytest

from duly.moves import in_bulk
from duly.store import runs
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
    async def test_those_that_fit_are_counted_paused_resumed_and_ended(self, api):
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

    async def test_those_that_are_named_are_changed_and_what_cannot_be_is_told(self, api):
        [job_id], nobody = await some_jobs(api, 1), str(uuid4())

        done = await ask(api, "/v1/jobs:pause", ids=[job_id, nobody, job_id])

        assert (done["matched"], done["changed"]) == (2, 1)
        [refused] = done["refused"]
        assert refused["id"] == nobody
        assert "no job" in refused["why"]

    async def test_a_limit_leaves_the_rest_for_the_next_request(self, api):
        job_ids = await some_jobs(api, 5)
        first = await ask(api, "/v1/jobs:pause", filter="queue:mail", limit=3)
        then = await ask(api, "/v1/jobs:pause", filter="queue:mail", limit=3, page_token=first["next_page_token"])

        assert (first["changed"], then["changed"], then["next_page_token"]) == (3, 2, None)
        assert await statuses(api, job_ids) == ["paused"] * 5

    async def test_what_stands_so_already_is_not_counted_as_changed(self, api):
        [job_id] = await some_jobs(api, 1)
        await ask(api, "/v1/jobs:pause", ids=[job_id])

        assert (await ask(api, "/v1/jobs:pause", ids=[job_id]))["changed"] == 0


class TestRuns:
    async def test_those_that_have_not_ended_are_cancelled(self, api, database):
        dead = await a_dead_run(database)
        waiting = [await a_ready_run(database) for _ in range(3)]

        counted = await ask(api, "/v1/runs:cancel", filter=f"queue:{QUEUE}", dry_run=True)
        done = await ask(api, "/v1/runs:cancel", filter=f"queue:{QUEUE}")

        assert (counted["matched"], done["matched"], done["changed"]) == (3, 3, 3)
        assert [await state_of(database, run_id) for run_id in waiting] == ["cancelled"] * 3
        assert await state_of(database, dead) == "dead"

    async def test_of_one_that_runs_the_worker_is_asked(self, api, database):
        worker_id, run = await a_leased_run(database)

        assert (await ask(api, "/v1/runs:cancel", ids=[str(run.run_id)]))["changed"] == 1
        assert [signal.run_id for signal in (await runs.look(database, worker_id)).signals] == [run.run_id]

    async def test_dead_ones_are_replayed(self, api, database):
        dead = [await a_dead_run(database) for _ in range(2)]
        alive = await a_ready_run(database)

        done = await ask(api, "/v1/runs:replay", ids=[*map(str, dead), str(alive), str(uuid4())])

        assert (done["matched"], done["changed"]) == (3, 2)
        assert {await state_of(database, run_id) for run_id in dead} == {"retrying"}

    async def test_a_pace_goes_on_with_the_next_request(self, api, database):
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
async def test_which_are_meant_must_be_said_once(api, path, body):
    answer = await api.post(path, json=body)

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_filter")


async def test_more_than_a_batch_is_taken_in_batches(api, database, monkeypatch):
    monkeypatch.setattr(in_bulk, "_BATCH", 2)
    for _ in range(5):
        await a_ready_run(database)

    assert (await ask(api, "/v1/runs:cancel", all=True))["changed"] == 5


async def test_nothing_of_another_tenant_is_found(front, api, database):
    stranger = await front.stranger()
    [job_id], run_id = await some_jobs(api, 1), str(await a_ready_run(database))

    for path in ("/v1/jobs:pause", "/v1/runs:cancel"):
        assert (await ask(stranger, path, all=True))["matched"] == 0
    assert (await ask(stranger, "/v1/jobs:delete", ids=[job_id]))["changed"] == 0
    assert (await ask(stranger, "/v1/runs:cancel", ids=[run_id]))["changed"] == 0
    assert await statuses(api, [job_id]) == ["active"]
