"""Note: a change and its row are one transaction, and what nobody is named for is not noted."""

import pytest

from duly.domain.errors import KeyConflict
from duly.domain.tenancy.audit import Action, Subject, local_actor
from duly.moves.admin.api_keys import revoke_key
from duly.moves.admin.audit import record
from duly.moves.cancel import cancel_job, cancel_tree
from duly.moves.dead import replay
from duly.moves.schedules.pause import pause, resume
from duly.moves.submit import submit
from tests.builders import a_dead_run, a_key, a_ready_run, a_submission, an_active_schedule

ROOT = local_actor("root")


async def recorded(database):
    return [tuple(row) for row in await database.fetch("select action, actor, count from duly.audit order by action")]


async def test_moves_of_the_engine_leave_no_audit_entry(database):
    job_id = (await an_active_schedule(database)).job_id
    await pause(database, job_id)

    assert await recorded(database) == []


async def test_audit_records_each_change_once_and_no_call_that_changes_nothing(database):
    named = database.acting_as(ROOT)
    job_id = (await an_active_schedule(database)).job_id
    for move in (pause, pause, resume, resume, cancel_job, cancel_job):
        await move(named, job_id)

    assert await recorded(database) == [
        ("job.cancelled", "local:root", 1),
        ("job.paused", "local:root", 1),
        ("job.resumed", "local:root", 1),
    ]


async def test_submit_repeated_under_its_idempotency_key_adds_a_single_audit_entry(database):
    named, key = database.acting_as(ROOT), a_key()
    await submit(named, a_submission(), key=key)
    await submit(named, a_submission(), key=key)
    with pytest.raises(KeyConflict):
        await submit(named, a_submission(payload='{"other": 1}'), key=key)

    assert await recorded(database) == [("job.created", "local:root", 1)]


async def test_a_run_is_cancelled_with_its_subtasks_as_one(database):
    await cancel_tree(database.acting_as(ROOT), await a_ready_run(database))

    assert await recorded(database) == [("run.cancelled", "local:root", 1)]


async def test_many_at_once_are_one_row_with_their_count(database):
    dead = [await a_dead_run(database) for _ in range(3)]
    await replay(database.acting_as(ROOT), dead)

    assert await recorded(database) == [("dead.replayed", "local:root", 3)]


async def test_a_note_apart_from_its_change_is_a_mistake(database):
    with pytest.raises(AssertionError, match=r"job\.paused must be audited in the transaction"):
        await record(database.acting_as(ROOT), 1, Action.JOB_PAUSED, Subject("job"))


async def test_failed_change_leaves_neither_effect_nor_audit_entry(database, monkeypatch):
    await database.execute(
        "insert into duly.api_keys (key_id, tenant, name, secret_hash, scopes, created_at)"
        " values ('aaaaaaaaaa', 1, 'ci', sha256('x'), '{admin}', duly.clock_now())"
    )

    async def fails(*arguments, **detail):
        await record(*arguments, **detail)
        raise OSError("the process dies here")

    monkeypatch.setattr("duly.moves.admin.api_keys.record", fails)
    with pytest.raises(Exception, match="dies here"):
        await revoke_key(database.acting_as(ROOT), "aaaaaaaaaa")

    assert await recorded(database) == []
    assert await database.fetchval("select revoked_at from duly.api_keys") is None
