"""One-shots that follow others: released by the end of the last of them, or skipped, with a reason that names the job."""

from uuid import UUID

import pytest

from duly.domain.errors import InvalidOption, KeyConflict
from duly.domain.runs.outcome import Cancelled, Failed, Succeeded
from duly.domain.runs.retry import Retry
from duly.domain.runs.run import HORIZON
from duly.moves.cancel import cancel_run
from duly.moves.claim import claim
from duly.moves.dead import discard, replay
from duly.moves.settle import settle
from duly.moves.submit import submit, submit_many
from duly.moves.waiting import check_dependents, expire
from duly.store.boxes import history
from duly.store.reads import explain
from duly.store.tables import jobs
from tests.builders import (
    HANDLER,
    QUEUE,
    RNG,
    a_dead_run,
    a_key,
    a_ready_run,
    a_submission,
    a_waiting_run,
    a_worker,
    an_active_schedule,
    boxes_of,
    counts,
    ended,
    found_run,
    history_of,
    seconds,
    staged,
)
from tests.graphs import FAILS, a_workflow, whole

LEFT_OVER = ("dependencies", "dependents", "ended_dependencies", "dependency_checks")


@pytest.fixture(autouse=True)
async def is_whole(database):
    """Whatever a story does, nothing is broken at its end."""
    yield
    assert await history.verify(database) == []
    assert await database.fetchval("select count(*) from duly.ended_dependencies") == 0


async def nothing_is_left_over(database):
    await check_dependents(database)
    for table in LEFT_OVER:
        assert await database.fetchval(f"select count(*) from duly.{table}") == 0, table


async def finished(database, worker_id, outcome=None, *run_ids):
    """Claim what is ready, and end those runs, in one settle."""
    held = await claim(database, worker_id, [QUEUE], [HANDLER], 1000)
    chosen = [run for run in held if not run_ids or run.run_id in run_ids]
    await settle(database, worker_id, [ended(database, run, outcome or Succeeded()) for run in chosen], RNG)
    return {run.run_id: run for run in held}


async def test_dependent_run_waits_for_its_dependency_to_end(database):
    worker_id = await a_worker(database)
    first = await a_ready_run(database)
    second = await a_ready_run(database, depends_on=[first])
    assert await boxes_of(database, second) == ["blocked"]
    assert await check_dependents(database) == 1
    assert await boxes_of(database, second) == ["blocked"]

    await finished(database, worker_id)

    assert await boxes_of(database, second) == ["ready"]
    await nothing_is_left_over(database)
    await finished(database, worker_id)
    assert (await found_run(database, second))["state"] == "succeeded"
    assert (await found_run(database, second))["depends_on"] == ((str(first), "success"),)


async def test_dependent_run_waits_for_the_last_of_many_dependencies(database):
    worker_id = await a_worker(database)
    parents = [await a_ready_run(database) for _ in range(100)]
    child = await a_ready_run(database, depends_on=parents)
    held = await finished(database, worker_id, None, *parents[:99])
    assert await boxes_of(database, child) == ["blocked"]

    await settle(database, worker_id, [ended(database, held[parents[99]], Succeeded())], RNG)

    assert await boxes_of(database, child) == ["ready"]


@pytest.mark.parametrize(
    ("on", "outcome", "box"),
    [
        ("success", Succeeded(), ["ready"]),
        ("failure", Succeeded(), []),
        ("always", Succeeded(), ["ready"]),
        ("success", FAILS, []),
        ("failure", FAILS, ["ready"]),
        ("always", FAILS, ["ready"]),
        ("success", Cancelled(), []),
        ("failure", Cancelled(), ["ready"]),
    ],
)
@pytest.mark.parametrize("is_late", [False, True])
async def test_dependency_condition_decides_whether_the_run_starts(database, on, outcome, box, is_late):
    worker_id = await a_worker(database)
    parent = await a_ready_run(database, retry=Retry(max_attempts=1))
    if is_late:
        await finished(database, worker_id, outcome)
    child = await a_ready_run(database, depends_on=[(parent, on)])
    if is_late:
        await check_dependents(database)
    else:
        await finished(database, worker_id, outcome)

    assert await boxes_of(database, child) == box
    if not box:
        found = await found_run(database, child)
        assert found["state"] == "skipped"
        assert str(parent) in found["reason"]
        assert f"on its {on}" in found["reason"]
    await nothing_is_left_over(database)


async def test_a_skip_is_heard_by_those_behind_it(database):
    worker_id = await a_worker(database)
    first = await a_ready_run(database, retry=Retry(max_attempts=1))
    second = await a_ready_run(database, depends_on=[first])
    third = await a_ready_run(database, depends_on=[second])
    in_the_end = await a_ready_run(database, depends_on=[(third, "always")])

    await finished(database, worker_id, FAILS)
    while await check_dependents(database):
        pass

    assert [(await found_run(database, run))["state"] for run in (second, third)] == ["skipped", "skipped"]
    assert str(second) in (await found_run(database, third))["reason"]
    assert await boxes_of(database, in_the_end) == ["ready"]
    await nothing_is_left_over(database)


async def test_a_retry_is_no_end(database, clock):
    worker_id = await a_worker(database)
    parent = await a_ready_run(database, retry=Retry(max_attempts=2, base_seconds=1))
    child = await a_ready_run(database, depends_on=[parent])
    await finished(database, worker_id, Failed("not yet"))
    assert await check_dependents(database) == 1
    assert await boxes_of(database, child) == ["blocked"]

    await clock.advance(5)
    await staged(database)
    await finished(database, worker_id)

    assert await boxes_of(database, child) == ["ready"]


@pytest.mark.parametrize("step", [0.6, 30, 600])
async def test_a_check_does_not_wait_for_a_clock_that_was_set_back(database, clock, step):
    worker_id = await a_worker(database)
    parent = await a_ready_run(database)
    await finished(database, worker_id)
    child = await a_ready_run(database, depends_on=[parent])

    await clock.step(-step)

    assert await check_dependents(database) == 1
    assert await history_of(database, child) == []
    assert await boxes_of(database, child) in (["ready"], ["timers"])  # it is no earlier than it was asked for
    await nothing_is_left_over(database)


async def test_dependency_recheck_waits_for_its_moment(database, clock):
    parent = await a_ready_run(database)
    await a_ready_run(database, depends_on=[parent])
    async with database.transaction() as moving:
        await moving.execute("select from duly.ready where run_id = $1 for update", parent)
        assert await check_dependents(database) == 1

        assert await check_dependents(database) == 0
        await clock.advance(0.1)
        assert await check_dependents(database) == 1
        await clock.step(-30)
        assert await check_dependents(database) == 1
        assert await check_dependents(database) == 0


async def test_replay_of_a_dead_dependency_changes_nothing(database):
    worker_id = await a_worker(database)
    parent = await a_ready_run(database, retry=Retry(max_attempts=1))
    child = await a_ready_run(database, depends_on=[(parent, "failure")])
    await finished(database, worker_id, FAILS)
    assert await boxes_of(database, child) == ["ready"]

    await replay(database, [parent])
    await finished(database, worker_id)

    assert len(await history_of(database, child)) == 1


async def test_dependency_dead_or_discarded_when_named_counts_as_failed(database):
    dead, gone = await a_dead_run(database), await a_dead_run(database)
    await discard(database, [gone])
    child = await a_ready_run(database, depends_on=[(dead, "failure"), (gone, "failure")])

    await check_dependents(database)

    assert await boxes_of(database, child) == ["ready"]


async def test_a_parent_that_waits_and_is_cancelled_or_expires_tells_too(database, clock):
    cancelled = await a_waiting_run(database)
    expiring = await a_waiting_run(database, expires_at=clock.at + seconds(70))
    child = await a_ready_run(database, depends_on=[(cancelled, "failure"), (expiring, "failure")])

    await cancel_run(database, cancelled)
    await clock.advance(80)
    await expire(database)

    assert await boxes_of(database, child) == ["ready"]


@pytest.mark.parametrize("ending", ["cancelled", "expired"])
async def test_a_child_that_ends_while_it_waits_leaves_nothing(database, clock, ending):
    parent = await a_waiting_run(database)
    more = {"expires_at": clock.at + seconds(5)} if ending == "expired" else {}
    child = await a_ready_run(database, depends_on=[parent], **more)
    behind = await a_ready_run(database, depends_on=[(child, "always")])
    await check_dependents(database)

    if ending == "cancelled":
        await cancel_run(database, child)
    else:
        await clock.advance(10)
        await expire(database)

    assert (await found_run(database, child))["state"] == ending
    assert await boxes_of(database, behind) == ["ready"]
    assert await history.verify(database) == []
    await check_dependents(database)
    await nothing_is_left_over(database)


async def test_dependent_with_a_delay_key_or_rate_passes_through_timers(database, clock):
    worker_id = await a_worker(database)
    parent = await a_ready_run(database)
    later = await a_ready_run(database, depends_on=[parent], delay=60)
    gated = await a_ready_run(database, depends_on=[parent], concurrency=("one", 1))
    paced = await a_ready_run(database, depends_on=[parent], rate=("mail", 10.0, 1))

    await finished(database, worker_id)

    assert [await boxes_of(database, run) for run in (later, gated, paced)] == [["timers"]] * 3
    await staged(database)
    assert await boxes_of(database, gated) == ["ready"]


async def test_many_are_submitted_at_once_and_some_follow(database):
    worker_id = await a_worker(database)
    parent = await a_ready_run(database)
    key, jobs = (
        a_key(),
        [a_submission(), a_submission(depends_on=[parent]), a_submission(depends_on=[parent], payload='{"a": 1}')],
    )
    made = await submit_many(database, jobs, key=key)
    assert await counts(database) == {"ready": 2, "blocked": 2}
    assert [one.job_id for one in await submit_many(database, jobs, key=key)] == [one.job_id for one in made]

    await finished(database, worker_id)

    assert await counts(database) == {"ready": 2}


async def test_repeated_submit_replays_unless_its_dependencies_differ(database):
    first, second = await a_ready_run(database), await a_ready_run(database)
    key = a_key()
    made = await submit(database, a_submission(depends_on=[first]), key=key)
    again = await submit(database, a_submission(depends_on=[first]), key=key)
    assert (again.job_id, again.replayed) == (made.job_id, True)
    with pytest.raises(KeyConflict):
        await submit(database, a_submission(depends_on=[second]), key=key)


async def test_dependent_run_carries_a_large_stored_payload(database):
    worker_id = await a_worker(database)
    parent = await a_ready_run(database)
    child = await a_ready_run(database, depends_on=[parent], payload='{"text": "' + "x" * 5000 + '"}')
    await finished(database, worker_id)
    [run] = await claim(database, worker_id, [QUEUE], [HANDLER], 10)
    assert (run.run_id, run.payload_stored) == (child, True)


async def test_unknown_dependency_is_refused(database):
    unknown = UUID(int=7)
    with pytest.raises(InvalidOption, match=f"names job {unknown}, of which nothing is known"):
        await a_ready_run(database, depends_on=[unknown])
    assert await counts(database) == {}


async def test_a_schedule_is_refused_with_the_remedy(database):
    schedule = await an_active_schedule(database)
    with pytest.raises(InvalidOption, match=r"is a schedule .* on_end"):
        await a_ready_run(database, depends_on=[schedule.job_id])


async def test_another_tenants_job_is_unknown(database):
    theirs = (await submit(database, a_submission(), key=a_key(), tenant=2)).job_id
    with pytest.raises(InvalidOption, match="nothing is known"):
        await a_ready_run(database, depends_on=[theirs])


BROKEN = (
    '"all"',
    "[]",
    '[["x", "success"]]',
    '[["{0}", "maybe"]]',
    '[["{0}"]]',
    '[["{0}", "always"], ["{0}", "success"]]',
)


@pytest.mark.parametrize("depends_on", BROKEN)
async def test_malformed_depends_on_option_is_refused(database, depends_on):
    options = '{"depends_on": ' + depends_on.replace("{0}", str(await a_ready_run(database))) + "}"
    many = list(jobs.submit_arguments(1, a_key(), [a_submission()], None, HORIZON))
    many[8] = [options]

    with pytest.raises(InvalidOption, match="1 to 100 jobs"):
        await database.fetch("select duly.submit('greet', options => $1::text::jsonb)", options)
    with pytest.raises(InvalidOption, match="1 to 100 jobs"):
        await database.fetch(jobs.SQL["submit"], *many)


async def test_more_than_a_settle_sees_to_are_left_to_maintenance(database):
    worker_id = await a_worker(database)
    parent = await a_ready_run(database)
    await submit_many(database, [a_submission(depends_on=[parent]) for _ in range(1100)], key=a_key())
    await database.execute("delete from duly.dependency_checks")

    await finished(database, worker_id)

    assert await counts(database) == {"ready": 1000, "blocked": 100}
    assert await history.verify(database) == []
    assert await check_dependents(database) == 100
    assert await counts(database) == {"ready": 1100}
    await nothing_is_left_over(database)


async def test_a_node_of_a_workflow_can_be_followed(database):
    workflow_id = await a_workflow(database, "a b:a")
    worker_id = await a_worker(database)
    node = next(each["run_id"] for each in (await whole(database, workflow_id))["nodes"] if each["name"] == "b")
    plain = await a_ready_run(database)
    child = await a_ready_run(database, depends_on=[(node, "success"), plain])
    held = await claim(database, worker_id, [QUEUE], [HANDLER], 10)
    assert len(held) == 2

    # In one settle: the workflow goes on from its node's end first, and what that skips is heard with the rest.
    ends = [ended(database, run, Succeeded() if run.run_id == plain else FAILS) for run in held]
    await settle(database, worker_id, ends, RNG)

    found = await found_run(database, child)
    assert (found["state"], str(node) in found["reason"]) == ("skipped", True)
    await nothing_is_left_over(database)


async def test_an_explanation_names_the_jobs(database):
    first, second = await a_ready_run(database), await a_waiting_run(database)
    child = await a_ready_run(database, depends_on=[first, second])

    told = await explain.run(database, 1, child)

    assert told is not None
    assert told.blocker is not None
    assert told.blocker.code == "dependency"
    assert str(first) in told.blocker.text
    assert str(second) in str(told.blocker.resolved_by)
