"""Pages of jobs, runs and dead letters: by key, by filter, a tenant's own, whatever moves meanwhile."""

from uuid import UUID

import msgspec
import pytest

from duly.domain.errors import InvalidOption
from duly.domain.jobs import filter as filters
from duly.domain.jobs.filter import EVERYTHING
from duly.domain.jobs.job import Recurring
from duly.domain.runs.options import options_of
from duly.domain.runs.outcome import Failed, Succeeded
from duly.moves.cancel import cancel_job, cancel_run
from duly.moves.dead import discard
from duly.moves.schedules.edit import amend
from duly.moves.schedules.pause import pause
from duly.moves.settle import settle
from duly.moves.submit import submit, submit_recurring
from duly.store.boxes import runs
from duly.store.reads import lists
from tests.builders import (
    RNG,
    a_dead_run,
    a_key,
    a_leased_run,
    a_ready_run,
    a_retrying_run,
    a_schedule,
    a_submission,
    a_waiting_run,
    a_worker,
    an_active_schedule,
    claimed,
    dead_listed,
    ended,
    jobs_listed,
    runs_listed,
    seconds,
    settled,
    staged,
)
from tests.clock import START


def ids(rows, key="job_id") -> list[UUID]:
    return [row[key] for row in rows]


async def all_pages(read, database, text, fields, size, *, looks=lists.LOOKS, tenant=1):
    """Read a list to its end."""
    rows, after, pages = [], None, 0
    while True:
        page = await read(database, tenant, filters.parse(text, fields), size, after, looks)
        rows += page.rows
        pages += 1
        assert len(page.rows) <= size
        if page.after is None:
            return rows, pages
        after = page.after


async def a_tagged(database, *tags: str, **more) -> UUID:
    options = options_of(tags=tags)
    return (await submit_recurring(database, a_schedule(options=options, **more), key=a_key())).job_id


class TestJobs:
    async def test_pages_follow_one_another_by_key_newest_first_without_gap_or_overlap(self, database, clock):
        made = []
        for _ in range(7):
            made.append((await an_active_schedule(database)).job_id)
            await clock.advance(1)
        first = await lists.jobs(database, 1, EVERYTHING, 3)
        await an_active_schedule(database)  # What comes in between shifts nothing.
        second = await lists.jobs(database, 1, EVERYTHING, 3, first.after)
        third = await lists.jobs(database, 1, EVERYTHING, 3, second.after)

        assert ids([*first.rows, *second.rows, *third.rows]) == made[::-1]
        assert third.after is None

    async def test_a_page_is_a_tenants_own(self, database):
        await an_active_schedule(database)

        assert await jobs_listed(database, tenant=2) == []

    async def test_each_field_chooses(self, database, clock):
        plain = (await an_active_schedule(database, name="report-daily", queue="mail")).job_id
        await clock.advance(1)
        tagged = await a_tagged(database, "new", "eu", name="report-hourly")
        await clock.advance(1)
        paused = (await an_active_schedule(database, name="cleanup")).job_id
        await pause(database, paused)
        gone = (await an_active_schedule(database)).job_id
        await cancel_job(database, gone)

        expected = {
            "state:active": [tagged, plain],
            "state:paused": [paused],
            "state:(paused,cancelled)": [gone, paused],
            "queue:mail": [plain],
            "name:report-daily": [plain],
            "name:report*": [tagged, plain],
            "name:nothing*": [],
            "tag:new": [tagged],
            "tag:new AND tag:eu": [tagged],
            "tag:new AND tag:us": [],
            "tag:(us,eu)": [tagged],
            "handler:greet AND queue:mail": [plain],
            "handler:other": [],
            "owner:code": [],
            "owner:api AND name:cleanup": [paused],
            f'created_at>"{(START + seconds(1)).isoformat()}"': [gone, paused],
            f'created_at<"{(START + seconds(1)).isoformat()}"': [plain],
            "next_run_at>2000-01-01": [tagged, plain],
            "next_run_at<2000-01-01": [],
            "queue:mail AND queue:default": [],
        }
        found = {text: ids(await jobs_listed(database, text)) for text in expected}

        assert {text: sorted(found[text]) for text in found} == {text: sorted(rows) for text, rows in expected.items()}
        assert found["state:active"] == [tagged, plain]

    async def test_tags_follow_an_edit_and_are_shown(self, database):
        job_id = await a_tagged(database, "old", "kept")
        assert (await jobs_listed(database))[0]["tags"] == ["old", "kept"]
        await amend(database, job_id, lambda job: _tagged(job, "kept", "new"))

        assert ids(await jobs_listed(database, "tag:old")) == []
        assert ids(await jobs_listed(database, "tag:new AND tag:kept")) == [job_id]
        assert await database.fetchval("select count(*) from duly.job_tags") == 2

    async def test_page_stops_at_its_scan_limit_and_returns_a_cursor(self, database):
        wanted = [(await an_active_schedule(database, queue="rare")).job_id]
        for _ in range(6):
            await an_active_schedule(database)
        wanted.append((await an_active_schedule(database, queue="rare")).job_id)

        rows, pages = await all_pages(lists.jobs, database, "queue:(rare,none)", filters.JOBS, 2, looks=3)

        assert sorted(ids(rows)) == sorted(wanted)
        assert pages >= 3

    @pytest.mark.parametrize("text", ["name:job*", "tag:t", "queue:default", "state:active", "handler:greet"])
    async def test_every_way_to_lead_to_jobs_pages_without_gap_or_overlap(self, database, text):
        made = [await a_tagged(database, "t", name=f"job-{number}") for number in range(7)]

        rows, _ = await all_pages(lists.jobs, database, text, filters.JOBS, 3)

        assert ids(rows) == sorted(made, reverse=True)

    async def test_the_beginning_of_many_names_is_read_by_key(self, database):
        made = [(await an_active_schedule(database, name=f"job-{number}")).job_id for number in range(7)]

        rows, _ = await all_pages(lists.jobs, database, "name:job*", filters.JOBS, 2, looks=3)

        assert ids(rows) == sorted(made, reverse=True)


def _tagged(job: Recurring, *tags: str) -> Recurring:
    return msgspec.structs.replace(job, options=options_of(tags=tags))


class TestJobsByNextFire:
    async def test_jobs_list_the_next_to_fire_first_and_ties_in_a_stable_order(self, database):
        late = (await an_active_schedule(database, anchor=START + seconds(300))).job_id
        same = sorted([(await an_active_schedule(database, anchor=START + seconds(60))).job_id for _ in range(3)])
        paused = await an_active_schedule(database, anchor=START + seconds(30))
        await pause(database, paused.job_id, "the server moves")

        for size in (1, 2, 10):
            rows, _ = await all_pages(lists.jobs_by_next, database, "", filters.JOBS, size, looks=lists.ORDERED_MAX)
            assert ids(rows) == [*same, late], "what will not fire has no place in the order"
            assert [row["next_run_at"] for row in rows] == [START + seconds(60)] * 3 + [START + seconds(300)]

    async def test_a_filter_holds_in_it(self, database):
        await a_tagged(database, "b")
        wanted = await a_tagged(database, "a", queue="mail")

        for text in ("tag:a", "queue:mail", "tag:a AND state:active"):
            rows, _ = await all_pages(lists.jobs_by_next, database, text, filters.JOBS, 1, looks=lists.ORDERED_MAX)
            assert ids(rows) == [wanted], text
        assert (await lists.jobs_by_next(database, 1, filters.parse("state:paused", filters.JOBS), 10)).rows == []

    async def test_sort_by_next_fire_of_too_many_jobs_is_refused_with_a_remedy(self, database):
        for _ in range(3):
            await an_active_schedule(database)

        assert len((await lists.jobs_by_next(database, 1, EVERYTHING, 10, most=3)).rows) == 3
        with pytest.raises(InvalidOption, match="up to 2 jobs, and there are more; sort by created or name"):
            await lists.jobs_by_next(database, 1, EVERYTHING, 10, most=2)

    async def test_jobs_of_others_are_neither_shown_nor_counted(self, database):
        await an_active_schedule(database)

        assert (await lists.jobs_by_next(database, 2, EVERYTHING, 10, most=1)).rows == []


class TestRuns:
    async def test_runs_of_every_box_are_listed_last_scheduled_first(self, database, clock):
        worker_id = await a_worker(database)
        _, done = await a_leased_run(database, worker_id)
        await settled(database, worker_id, done)
        await clock.advance(1)
        dead = await a_dead_run(database, worker_id)
        await clock.advance(1)
        retrying = await a_retrying_run(database, worker_id, after=600)
        await clock.advance(1)
        gone = await a_waiting_run(database)
        await cancel_run(database, gone)
        _, running = await a_leased_run(database, worker_id)
        await clock.advance(1)
        ready = await a_ready_run(database)
        waiting = await a_waiting_run(database, delay=3600)
        blocked = await a_waiting_run(database, delay=6, concurrency=("g", 1))
        await a_waiting_run(database, delay=5.5, concurrency=("g", 1))
        await clock.advance(7)
        await staged(database)

        listed = await runs_listed(database)

        assert [row["run_id"] for row in listed] == sorted((row["run_id"] for row in listed), reverse=True)
        states = {row["run_id"]: row["state"] for row in listed}
        assert states[done.run_id] == "succeeded"
        assert states[dead] == "dead"
        assert states[retrying] == "retrying"
        assert states[gone] == "cancelled"
        assert states[running.run_id] == "running"
        assert states[ready] == "ready"
        assert states[waiting] == "scheduled"
        assert states[blocked] == "blocked"
        assert len(states) == len(listed) == 9
        for state in set(states.values()):
            expected = [run_id for run_id, found in states.items() if found == state]
            assert ids(await runs_listed(database, f"state:{state}"), "run_id") == expected

    async def test_pages_follow_one_another_through_all_boxes(self, database, clock):
        worker_id = await a_worker(database)
        made = []
        for number in range(9):
            _, run = await a_leased_run(database, worker_id)
            if number % 3:
                await settled(database, worker_id, run, Succeeded() if number % 2 else Failed("no", retryable=False))
            made.append(run.run_id)
            await clock.advance(1)

        rows, pages = await all_pages(lists.runs, database, "", filters.RUNS, 2)

        assert ids(rows, "run_id") == made[::-1]
        assert pages == 5

    async def test_a_run_that_moves_between_two_pages_is_not_seen_twice(self, database, clock):
        worker_id = await a_worker(database)
        held = []
        for _ in range(4):
            held.append((await a_leased_run(database, worker_id))[1])
            await clock.advance(1)
        first = await lists.runs(database, 1, EVERYTHING, 2)
        await settle(database, worker_id, [ended(database, run, Succeeded()) for run in held], RNG)
        second = await lists.runs(database, 1, EVERYTHING, 2, first.after)

        assert ids([*first.rows, *second.rows], "run_id") == [run.run_id for run in held[::-1]]
        assert [row["state"] for row in second.rows] == ["succeeded", "succeeded"]

    async def test_a_page_is_a_tenants_own_and_filtered(self, database):
        wanted = await a_ready_run(database, queue="mail", tags=["new"])
        other = await a_ready_run(database)

        assert await runs_listed(database, tenant=2) == []
        assert ids(await runs_listed(database, "queue:mail"), "run_id") == [wanted]
        assert ids(await runs_listed(database, "tag:new"), "run_id") == [wanted]
        assert ids(await runs_listed(database, "tag:(old,new)"), "run_id") == [wanted]
        assert ids(await runs_listed(database, f"job_id:{other}"), "run_id") == [other]
        assert await runs_listed(database, f"job_id:{RNG.uuid()}") == []
        assert await runs_listed(database, f"job_id:{other}", tenant=2) == []
        assert await runs_listed(database, "handler:other") == []

    async def test_the_runs_of_a_schedule_are_found_by_its_job(self, database, clock):
        job_id = (await an_active_schedule(database, every=60, anchor=START)).job_id
        await an_active_schedule(database, every=60, anchor=START)
        worker_id = await a_worker(database)
        await staged(database)
        for run in await claimed(database, worker_id):
            await settled(database, worker_id, run)
        await clock.advance(60)
        await staged(database)

        listed = await runs_listed(database, f"job_id:{job_id}")

        assert [(row["scheduled_at"], row["state"]) for row in listed] == [
            (START + seconds(60), "ready"),
            (START, "succeeded"),
        ]
        rows, pages = await all_pages(lists.runs, database, f"job_id:{job_id}", filters.RUNS, 1)
        assert (rows, pages) == (listed, 3)
        assert await runs_listed(database, f"job_id:{job_id}", tenant=2) == []

    async def test_moments_choose(self, database, clock):
        worker_id, run = await a_leased_run(database)
        await clock.advance(1)
        await settled(database, worker_id, run)
        later = await a_waiting_run(database, delay=3600)
        after = (START + seconds(1800)).isoformat()

        assert ids(await runs_listed(database, f'scheduled_at>"{after}"'), "run_id") == [later]
        assert ids(await runs_listed(database, f'scheduled_at<"{after}"'), "run_id") == [run.run_id]
        assert ids(await runs_listed(database, f'due_at>"{after}"'), "run_id") == [later]
        assert ids(await runs_listed(database, f'finished_at<"{after}"'), "run_id") == [run.run_id]
        assert await runs_listed(database, f'finished_at<="{START.isoformat()}"') == []

    async def test_run_skipped_and_backfilled_is_listed_once(self, database):
        worker_id, run = await a_leased_run(database)
        await settled(database, worker_id, run)
        await database.execute(
            "insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became,"
            " queue, handler) select run_id, job_id, scheduled_at, due_at, finished_at, tenant, 0, 'skipped', 'skipped',"
            " queue, handler from duly.attempts"
        )

        assert [row["state"] for row in await runs_listed(database)] == ["succeeded"]

    async def test_page_stops_at_its_scan_limit_and_returns_a_cursor(self, database):
        wanted = await a_ready_run(database, queue="rare")
        for _ in range(6):
            await a_ready_run(database)

        rows, pages = await all_pages(lists.runs, database, "queue:rare", filters.RUNS, 2, looks=3)

        assert ids(rows, "run_id") == [wanted]
        assert pages == 3


class TestDead:
    async def test_dead_runs_list_newest_first_and_page_by_key(self, database, clock):
        worker_id = await a_worker(database)
        made = []
        for _ in range(5):
            made.append(await a_dead_run(database, worker_id))
            made.append(await a_dead_run(database, worker_id))  # In the same moment.
            await clock.advance(1)

        rows, _ = await all_pages(lists.dead, database, "", filters.DEAD, 3)

        assert ids(rows, "run_id") == [row["run_id"] for row in sorted(rows, key=_place, reverse=True)]
        assert sorted(ids(rows, "run_id")) == sorted(made)

    async def test_each_field_chooses(self, database, clock):
        worker_id = await a_worker(database, queues=("default", "mail"))
        plain = await a_dead_run(database, worker_id)
        await clock.advance(1)
        other = await a_dead_run(database, worker_id, tags=["new"])

        assert ids(await dead_listed(database, "tag:new"), "run_id") == [other]
        assert ids(await dead_listed(database, "reason:bro*"), "run_id") == [other, plain]
        assert ids(await dead_listed(database, "reason:broken AND handler:greet"), "run_id") == [other, plain]
        assert ids(await dead_listed(database, f"job_id:{plain}"), "run_id") == [plain]
        assert ids(await dead_listed(database, f'buried_at>"{START.isoformat()}"'), "run_id") == [other]
        assert ids(await dead_listed(database, f'buried_at<="{START.isoformat()}"'), "run_id") == [plain]
        assert await dead_listed(database, "queue:mail") == []
        assert await dead_listed(database, tenant=2) == []


def _place(row):
    return row["buried_at"], row["run_id"]


class TestMarks:
    MARKS = options_of(tags=("new",), request_id="request-7", traceparent=f"00-{'a' * 32}-{'b' * 16}-01")

    async def a_marked(self, database, **more) -> UUID:
        job = a_submission(**more)
        marked = type(job)(job.handler, job.payload, job.queue, job.priority, job.at, job.delay, self.MARKS)
        return (await submit(database, marked, key=a_key())).job_id

    def told(self, found) -> tuple:
        return tuple(found["tags"]), found["request_id"], found["traceparent"]

    @property
    def expected(self) -> tuple:
        return self.MARKS.metadata.tags, self.MARKS.metadata.request_id, self.MARKS.metadata.traceparent

    async def test_they_are_read_with_the_run_in_every_box_and_after_its_end(self, database, clock):
        waiting, ready = await self.a_marked(database, delay=60), await self.a_marked(database)
        worker_id = await a_worker(database)
        assert self.told(await runs.find(database, waiting)) == self.expected
        assert self.told(await runs.find(database, ready)) == self.expected

        [run] = await claimed(database, worker_id)
        assert self.told(await runs.find(database, ready)) == self.expected
        await settled(database, worker_id, run)
        await cancel_run(database, waiting)

        for run_id in (ready, waiting):
            assert self.told(await runs.find(database, run_id)) == self.expected
        assert ids(await runs_listed(database, "tag:new"), "run_id") == [waiting, ready]
        assert [self.told(row) for row in await runs_listed(database)] == [self.expected] * 2

    async def test_dead_run_and_its_record_keep_the_metadata(self, database):
        worker_id = await a_worker(database)
        run_id = await self.a_marked(database)
        [run] = await claimed(database, worker_id)
        await settled(database, worker_id, run, Failed("broken", retryable=False))
        assert self.told((await dead_listed(database))[0]) == self.expected

        await discard(database, [run_id])

        assert self.told(await runs.find(database, run_id)) == self.expected

    async def test_marks_leave_how_it_is_run_to_the_handler(self, database):
        await self.a_marked(database)
        [run] = await claimed(database, await a_worker(database))

        assert not run.policy.own
        assert (run.metadata.tags, run.metadata.request_id) == self.expected[:2]

    async def test_another_request_for_the_same_job_under_the_same_key_is_the_same(self, database):
        key, job = a_key(), a_submission()
        asked = [job, *(msgspec.structs.replace(job, options=options_of(request_id=who)) for who in ("a", "b"))]

        answers = [await submit(database, one, key=key) for one in asked]

        assert {answer.job_id for answer in answers} == {answers[0].job_id}
        assert [answer.replayed for answer in answers] == [False, True, True]

    @pytest.mark.parametrize(
        "options",
        [
            '{"tags": "new"}',
            '{"tags": [7]}',
            '{"tags": [""]}',
            '{"tags": ["' + "x" * 201 + '"]}',
            '{"tags": [' + ", ".join(f'"{number}"' for number in range(33)) + "]}",
            '{"request_id": 7}',
            '{"traceparent": ""}',
        ],
    )
    async def test_the_database_refuses_marks_that_are_none(self, database, options):
        with pytest.raises(InvalidOption, match="none we know"):
            await database.fetch("select duly.submit('greet', options => $1::text::jsonb)", options)
