"""Tenants: their names, their states, and what each may have."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from duly.domain.errors import NameTaken, NotFound, QuotaReached, TenantSuspended
from duly.moves.cancel import cancel_job, cancel_run
from duly.moves.submit import submit, submit_many, submit_recurring
from duly.moves.trigger import trigger
from duly.store.connection.session import Sessions
from duly.store.tenancy import tenants
from duly.store.tenancy.tenants import Limits
from tests.builders import a_key, a_ready_run, a_schedule, a_submission, a_waiting_run, counts, staged


@pytest.fixture
async def sessions(database):
    async with Sessions(database, size_max=8) as opened:
        yield opened


async def in_session(sessions, move, *arguments, **more):
    """Make one move as tenant 1."""
    async with sessions.open(1) as session:
        return await move(session, *arguments, **more)


async def test_there_is_always_the_default(database):
    found = await tenants.find(database, 1)

    assert found is not None
    assert (found.name, found.state, found.limits) == ("default", "active", Limits())


async def test_tenant_is_created_with_its_limits(database):
    limits = Limits(10, 20, 3.0, 5, 2, timedelta(minutes=1))
    made = await tenants.create(database, "other", limits)

    assert made.tenant > 1
    assert await tenants.find(database, made.tenant) == made
    assert made.limits == limits
    assert [row.name for row in await tenants.page(database, None, 10)] == ["default", "other"]
    assert [row.name for row in await tenants.page(database, 1, 10)] == ["other"]


async def test_a_name_is_given_once(database):
    made = await tenants.create(database, "other", Limits())
    await tenants.suspend(database, made.tenant)

    with pytest.raises(NameTaken, match="a tenant named 'other' exists"):
        await tenants.create(database, "other", Limits())


async def test_unknown_tenant_cannot_be_changed(database):
    for change in (
        tenants.suspend(database, 9),
        tenants.resume(database, 9),
        tenants.set_limits(database, 9, Limits()),
    ):
        with pytest.raises(NotFound, match="no tenant 9"):
            await change


async def test_suspended_tenant_submits_nothing_until_resumed(database, sessions):
    await tenants.suspend(database, 1)
    for move in (
        in_session(sessions, submit, a_submission(), key=a_key()),
        in_session(sessions, submit_many, [a_submission()], key=a_key()),
        in_session(sessions, submit_recurring, a_schedule(), key=a_key()),
    ):
        with pytest.raises(TenantSuspended, match="tenant default is suspended"):
            await move
    assert await counts(database) == {}

    await tenants.resume(database, 1)
    await in_session(sessions, submit, a_submission(), key=a_key())
    assert await counts(database) == {"ready": 1}


async def test_suspended_tenant_can_still_cancel_its_runs(database, sessions):
    run_id = await a_ready_run(database)
    await tenants.suspend(database, 1)

    await in_session(sessions, cancel_run, run_id)

    assert await counts(database) == {}


class TestSchedules:
    async def test_there_are_as_many_as_may_be_and_no_more(self, database, sessions):
        await tenants.set_limits(database, 1, Limits(schedules_max=2))
        first = await in_session(sessions, submit_recurring, a_schedule(), key=a_key())
        await in_session(sessions, submit_recurring, a_schedule(), key="second")

        with pytest.raises(
            QuotaReached, match="tenant default has 2 schedules, and may have no more; end some, or raise"
        ):
            await in_session(sessions, submit_recurring, a_schedule(), key=a_key())
        assert (await in_session(sessions, submit_recurring, a_schedule(), key="second")).replayed

        await in_session(sessions, cancel_job, first.job_id)
        await in_session(sessions, submit_recurring, a_schedule(), key=a_key())
        assert await counts(database) == {"timers": 2}

    async def test_many_at_once_are_not_one_too_many(self, database, sessions):
        await tenants.set_limits(database, 1, Limits(schedules_max=3))

        made = await asyncio.gather(
            *(in_session(sessions, submit_recurring, a_schedule(), key=a_key()) for _ in range(8)),
            return_exceptions=True,
        )

        assert sum(1 for one in made if isinstance(one, QuotaReached)) == 5
        assert await counts(database) == {"timers": 3}

    async def test_runs_are_not_counted(self, database, sessions):
        await tenants.set_limits(database, 1, Limits(schedules_max=0))

        await in_session(sessions, submit, a_submission(), key=a_key())

        assert await counts(database) == {"ready": 1}


class TestReady:
    async def test_quota_uses_the_last_count_of_waiting_runs(self, database, sessions):
        await tenants.set_limits(database, 1, Limits(ready_max=3))
        await a_ready_run(database)
        await a_waiting_run(database)
        assert await tenants.count_usage(database) == 1
        await in_session(sessions, submit, a_submission(), key="third")
        assert await tenants.count_usage(database) == 1

        with pytest.raises(QuotaReached, match="tenant default would have 4 runs that wait, and may have 3"):
            await in_session(sessions, submit, a_submission(), key=a_key())
        with pytest.raises(QuotaReached):
            await in_session(sessions, submit_many, [a_submission()], key=a_key())
        assert (await in_session(sessions, submit, a_submission(), key="third")).replayed
        assert await counts(database) == {"ready": 2, "timers": 1}

    async def test_a_batch_is_counted_whole(self, database, sessions):
        await tenants.set_limits(database, 1, Limits(ready_max=3))

        with pytest.raises(QuotaReached):
            await in_session(sessions, submit_many, [a_submission()] * 4, key=a_key())
        await in_session(sessions, submit_many, [a_submission()] * 3, key=a_key())

        assert await counts(database) == {"ready": 3}

    async def test_a_run_on_request_counts_and_the_next_fire_of_a_schedule_does_not(self, database, sessions):
        await tenants.set_limits(database, 1, Limits(ready_max=1))
        job = await in_session(sessions, submit_recurring, a_schedule(), key=a_key())
        await tenants.count_usage(database)
        await in_session(sessions, trigger, job.job_id, key=a_key())
        await tenants.count_usage(database)

        with pytest.raises(QuotaReached):
            await in_session(sessions, trigger, job.job_id, key=a_key())

    async def test_the_engine_is_not_held_up(self, database, clock):
        await tenants.set_limits(database, 1, Limits(ready_max=0, schedules_max=0))
        await submit_recurring(database, a_schedule(), key=a_key())
        await tenants.count_usage(database)
        await clock.advance(60)

        await staged(database)

        assert await counts(database) == {"ready": 1, "timers": 1}

    async def test_without_a_limit_nothing_is_counted_or_kept(self, database):
        await tenants.set_limits(database, 1, Limits(ready_max=3))
        await tenants.count_usage(database)
        await tenants.set_limits(database, 1, msgspec.structs.replace(Limits(), schedules_max=1))

        assert await tenants.count_usage(database) == 0
        assert await database.fetch("select * from duly.tenant_usage") == []
