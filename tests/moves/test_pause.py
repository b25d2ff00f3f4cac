"""Hold and lift: what is held is not claimed, is kept, and goes on as if nobody had come by."""

import pytest

from duly.domain.errors import InvalidOption, Refused
from duly.domain.limits.pause import EVERYTHING, SCOPES_MAX, TENANT_SCOPES_MAX, Pause, Scope
from duly.moves.admin.pause import Change, PauseAnswer, pause_scope, resume_scope
from duly.moves.settle import hand_back
from duly.moves.submit import submit
from duly.store.boxes import history, runs
from duly.store.tables import pauses
from tests.builders import (
    BOTH_CLAIMS,
    a_key,
    a_leased_run,
    a_ready_run,
    a_row,
    a_submission,
    a_worker,
    an_active_schedule,
    boxes_of,
    claimed,
    counts,
    history_of,
    settled,
    staged,
)
from tests.clock import START

pytestmark = [BOTH_CLAIMS, pytest.mark.usefixtures("way_to_claim")]

QUEUES = ["default", "mail"]


async def held(database, scope: Scope = EVERYTHING) -> PauseAnswer:
    return (await pause_scope(database, scope, reason="the provider is down", paused_by="a person")).answer


async def a_run_of(database, tenant: int, queue: str = "default"):
    return (await submit(database, a_submission(queue=queue), key=a_key(), tenant=tenant)).job_id


async def everything_claimed(database) -> set[tuple[int, str]]:
    """Claim all there is. Gives the tenants and queues it was of."""
    worker_id = await a_worker(database, queues=QUEUES)
    return {(run.tenant, run.queue) for run in await claimed(database, worker_id, queues=QUEUES)}


ALL = {(1, "default"), (1, "mail"), (2, "default"), (2, "mail")}


@pytest.mark.parametrize(
    ("scopes", "open_ones"),
    [
        ([], ALL),
        ([EVERYTHING], set()),
        ([Scope(queue="mail")], {(1, "default"), (2, "default")}),
        ([Scope(tenant=2)], {(1, "default"), (1, "mail")}),
        ([Scope(2, "mail")], ALL - {(2, "mail")}),
        ([Scope(2, "mail"), Scope(1, "default")], {(1, "mail"), (2, "default")}),
        ([Scope(2), Scope(queue="mail")], {(1, "default")}),
        ([Scope(3), Scope(queue="night"), Scope(1, "night")], ALL),
    ],
    ids=lambda value: " and ".join(map(str, value)) if isinstance(value, list) else "",
)
async def test_pause_stops_claims_of_its_scope_and_of_no_other(database, scopes, open_ones):
    for tenant, queue in ALL:
        await a_run_of(database, tenant, queue)
    for scope in scopes:
        await held(database, scope)

    assert await everything_claimed(database) == open_ones
    assert await counts(database) == {
        box: number for box, number in (("ready", 4 - len(open_ones)), ("leased", len(open_ones))) if number
    }

    for scope in scopes:
        await resume_scope(database, scope)
    assert await everything_claimed(database) == ALL - open_ones


async def test_a_queue_that_is_held_takes_no_share_from_the_others(database):
    for _ in range(4):
        await a_ready_run(database, queue="mail")
        await a_ready_run(database)
    worker_id = await a_worker(database, queues=QUEUES)
    await held(database, Scope(queue="mail"))

    assert len(await claimed(database, worker_id, limit=4, queues=QUEUES)) == 4


async def test_a_claim_of_a_held_queue_draws_no_fence(database):
    await a_ready_run(database)
    worker_id = await a_worker(database)
    await held(database)
    before = await database.fetchval("select last_value from duly.fences")

    assert await claimed(database, worker_id) == []

    assert await database.fetchval("select last_value from duly.fences") == before


async def test_run_of_another_tenant_behind_a_paused_backlog_is_claimed(database, clock):
    for _ in range(20):
        await a_run_of(database, 2)
    await clock.advance(1)
    behind = await a_run_of(database, 1)
    await held(database, Scope(tenant=2))

    [run] = await claimed(database, await a_worker(database), limit=1)

    assert run.run_id == behind


async def test_leased_run_ends_normally_during_a_pause(database):
    worker_id, run = await a_leased_run(database)
    await held(database)

    assert await settled(database, worker_id, run) == []
    assert await history_of(database, run.run_id) == [(1, "succeeded", "succeeded")]


async def test_run_handed_back_during_a_pause_waits_with_its_attempt_unused(database):
    worker_id, run = await a_leased_run(database)
    await held(database)
    await hand_back(database, worker_id, [run])
    assert await claimed(database, worker_id) == []
    assert (await a_row(database, "ready", run.run_id))["attempt"] == 0

    await resume_scope(database, EVERYTHING)

    [again] = await claimed(database, worker_id)
    assert (again.run_id, again.attempt) == (run.run_id, 1)
    assert again.fence > run.fence
    assert await history_of(database, run.run_id) == []


async def test_schedules_are_staged_during_a_pause_and_their_runs_are_kept(database, clock):
    await an_active_schedule(database, every=60, anchor=START)
    await held(database)
    for _ in range(3):
        await staged(database)
        await clock.advance(60)

    assert await claimed(database, await a_worker(database)) == []
    assert (await counts(database))["ready"] == 3
    assert await database.fetchval("select count(*) from duly.attempts") == 0, "nothing is skipped for it"

    await resume_scope(database, EVERYTHING)
    due = sorted(run.due_at for run in await claimed(database, await a_worker(database)))
    assert len(due) == 3
    assert due[-1] < clock.at, "it is as late as it is"
    assert await history.verify(database) == []


class TestAnswers:
    async def test_pause_shows_its_author_time_and_reason(self, database):
        changed = await pause_scope(database, Scope(2, "mail"), reason="the provider is down", paused_by="a person")

        known = Pause(Scope(2, "mail"), "the provider is down", "a person", START)
        assert changed == Change(PauseAnswer.PAUSED, [known])
        assert await pauses.standing(database) == [known]

    async def test_repeated_pause_keeps_its_first_reason(self, database, clock):
        await held(database)
        await clock.advance(5)

        changed = await pause_scope(database, EVERYTHING, reason="another", paused_by="another")

        assert changed.answer is PauseAnswer.ALREADY
        assert [(known.reason, known.paused_at) for known in changed.remaining] == [("the provider is down", START)]

    async def test_a_lift_takes_this_very_hold_away_and_names_those_that_are_left(self, database):
        for scope in (EVERYTHING, Scope(queue="mail"), Scope(2, "mail"), Scope(queue="night")):
            await held(database, scope)

        changed = await resume_scope(database, Scope(queue="mail"))

        assert changed.answer is PauseAnswer.RESUMED
        assert [known.scope for known in changed.remaining] == [EVERYTHING, Scope(2, "mail")]

    async def test_resume_of_a_scope_that_is_not_paused_changes_nothing(self, database):
        await held(database, Scope(queue="mail"))

        assert (await resume_scope(database, EVERYTHING)).answer is PauseAnswer.NOT_PAUSED
        assert (await resume_scope(database, Scope(2, "mail"))).answer is PauseAnswer.NOT_PAUSED
        assert len(await pauses.standing(database)) == 1

    async def test_worker_reads_all_pauses_with_its_signals(self, database):
        worker_id, run = await a_leased_run(database)
        await runs.signal(database, [run.run_id], "cancel")
        await held(database, Scope(queue="mail"))
        await held(database, Scope(tenant=2))

        news = await runs.look(database, worker_id)

        assert [signal.run_id for signal in news.signals] == [run.run_id]
        assert not news.pauses.cover(run)
        await held(database, Scope(1, "default"))
        assert (await runs.look(database, worker_id)).pauses.cover(run)


class TestRefusals:
    @pytest.mark.parametrize("tenant", [0, -1, 2**31])
    async def test_a_number_that_is_no_tenants(self, database, tenant):
        with pytest.raises(InvalidOption, match=f"tenant {tenant} is not the number of a tenant"):
            await held(database, Scope(tenant=tenant))

    @pytest.mark.parametrize("queue", ["", "a\nb", "x" * 201])
    async def test_a_name_that_is_no_queues(self, database, queue):
        with pytest.raises(InvalidOption, match=r"queue .* is not a name"):
            await held(database, Scope(queue=queue))
        with pytest.raises(InvalidOption, match=r"queue .* is not a name"):
            await resume_scope(database, Scope(queue=queue))

    async def test_a_reason_that_is_none(self, database):
        with pytest.raises(InvalidOption, match="reason '' is not one"):
            await pause_scope(database, EVERYTHING, reason="", paused_by="a person")

        assert await pauses.standing(database) == []

    async def test_pause_beyond_the_maximum_is_refused(self, database):
        await database.execute(
            "insert into duly.pauses select null, 'q' || n, '', '', duly.clock_now() from generate_series(1, $1::int) as n",
            SCOPES_MAX,
        )

        with pytest.raises(Refused, match=f"^queue mail cannot be paused: {SCOPES_MAX} pauses"):
            await held(database, Scope(queue="mail"))

        assert await held(database, Scope(queue="q1")) is PauseAnswer.ALREADY, "what is held is not one too many"
        assert await held(database, Scope(tenant=1)) is PauseAnswer.PAUSED, "a tenant has room of its own"
        await resume_scope(database, Scope(queue="q1"))
        assert await held(database) is PauseAnswer.PAUSED

    async def test_a_tenant_has_its_own_number_of_holds(self, database):
        for number in range(TENANT_SCOPES_MAX):
            await held(database, Scope(7, f"q{number}"))

        with pytest.raises(Refused, match=f"^queue mail of tenant 7 cannot be paused: {TENANT_SCOPES_MAX} pauses"):
            await held(database, Scope(7, "mail"))
        assert await held(database, Scope(8, "mail")) is PauseAnswer.PAUSED
        assert await held(database) is PauseAnswer.PAUSED


async def test_schema_refuses_a_pause_of_an_invalid_scope(database):
    run_id = await a_ready_run(database)
    for tenant, queue in ((0, None), (None, "")):
        with pytest.raises(Exception, match="violates check constraint"):
            await database.execute("insert into duly.pauses values ($1, $2, '', '', duly.clock_now())", tenant, queue)
    assert await boxes_of(database, run_id) == ["ready"]
