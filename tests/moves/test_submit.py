"""Submit: what was acknowledged is durable, and asked again it is the same."""

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from duly.domain.errors import InvalidOption, InvalidPayload, InvalidSchedule, KeyBusy, KeyConflict, NameTaken
from duly.domain.runs.options import RunPolicy, options_of
from duly.domain.runs.payload import PAYLOAD_BYTES_MAX
from duly.domain.runs.retry import Retry
from duly.domain.triggers.errors import TriggerError
from duly.domain.workflows.workflow import Node, Workflow
from duly.moves.cancel import cancel_job
from duly.moves.schedules.edit import edit
from duly.moves.submit import submit, submit_many, submit_recurring
from duly.moves.workflows.workflows import submit_workflow
from duly.store.boxes import history, runs
from duly.store.boxes.options import encode
from duly.store.retention import Expiring, forget_expired, forget_payloads
from duly.store.tables import jobs
from duly.store.tenancy import tenants
from duly.store.tenancy.tenants import Limits
from tests.builders import (
    a_key,
    a_leased_run,
    a_ready_run,
    a_row,
    a_schedule,
    a_submission,
    a_worker,
    an_active_schedule,
    boxes_of,
    claimed,
    counts,
    seconds,
    settled,
    staged,
)
from tests.clock import START

INLINE_MAX = 1000

TOO_LONG = "k" * 1001


async def connect(database) -> asyncpg.Connection:
    """Give a connection of the caller's own."""
    return await asyncpg.connect(database.url, statement_cache_size=0)


class TestOneShot:
    async def test_run_due_now_is_ready_at_once(self, database):
        submitted = await submit(database, a_submission(), key="k")

        assert await boxes_of(database, submitted.job_id) == ["ready"]
        assert submitted.scheduled_at == START
        assert submitted.replayed is False

    @pytest.mark.parametrize(("delay", "box"), [(0, "ready"), (5, "ready"), (5.001, "timers"), (86_400, "timers")])
    async def test_submitted_run_due_within_the_horizon_is_ready_and_a_later_one_waits(self, database, delay, box):
        submitted = await submit(database, a_submission(delay=delay), key="k")

        assert await boxes_of(database, submitted.job_id) == [box]
        assert submitted.scheduled_at == START + seconds(delay)

    async def test_a_moment_given_is_kept_as_it_is(self, database):
        at = START + timedelta(days=400, microseconds=1)

        submitted = await submit(database, a_submission(at=at), key="k")

        row = await a_row(database, "timers", submitted.job_id)
        assert (submitted.scheduled_at, row["scheduled_at"], row["due_at"]) == (at, at, at)

    async def test_a_moment_a_little_in_the_past_is_run_now(self, database):
        submitted = await submit(database, a_submission(at=START - seconds(59)), key="k")

        assert await boxes_of(database, submitted.job_id) == ["ready"]

    async def test_a_moment_in_the_past_beyond_grace_is_refused_and_nothing_is_left(self, database):
        with pytest.raises(InvalidSchedule, match=r"is in the past: the database's clock says 2026-11-02T09:00:00"):
            await submit(database, a_submission(at=START - seconds(61)), key="k")

        assert await counts(database) == {}
        assert (await submit(database, a_submission(), key="k")).replayed is False

    async def test_a_negative_delay_is_refused(self, database):
        with pytest.raises(InvalidSchedule, match="is negative"):
            await submit(database, a_submission(delay=-1), key="k")

    @pytest.mark.parametrize("priority", [-1, 10])
    async def test_a_priority_outside_its_range_is_refused(self, database, priority):
        with pytest.raises(InvalidOption, match=f"priority {priority} is outside 0"):
            await submit(database, a_submission(priority=priority), key="k")

    @pytest.mark.parametrize(
        "options",
        [
            "[]",
            '"retry"',
            '{"retry": 5}',
            '{"retry": {"max_attempts": "5"}}',
            '{"retry": {"max_attempts": 0}}',
            '{"retry": {"base_seconds": "1"}}',
            '{"timeout_seconds": "soon"}',
            '{"trace": 1}',
            '{"concurrency": ["customer-7", 0]}',
            '{"concurrency": [7, 1]}',
            '{"concurrency": ["customer-7", 1, 2]}',
            '{"concurrency": "customer-7"}',
            '{"retry": {"base_seconds": 1e300, "cap_seconds": 1e300}}',
            '{"retry": {"base_seconds": -1}}',
            '{"timeout_seconds": 1e400}',
            '{"replays": 1}',
            '{"attempts_before": -9}',
            '{"expires_at": 1e12}',
            '{"expires_at": -1}',
            '{"expires_at": "soon"}',
            '{"rate": ["mail", 1e-14, 1]}',
            '{"rate": ["mail", 1e-320, 1]}',
            '{"rate": ["", 1, 1]}',
            '{"rate": [7, 1, 1]}',
            f'{{"rate": ["{TOO_LONG}", 1, 1]}}',
            f'{{"concurrency": ["{TOO_LONG}", 1]}}',
        ],
    )
    async def test_options_that_no_worker_can_read_are_refused_on_submit(self, database, options):
        with pytest.raises(InvalidOption, match="are none we know"):
            await database.fetch("select duly.submit('greet', options => $1::text::jsonb)", options)

    @pytest.mark.parametrize("when", ["at => '20000-01-01'", "delay => '20000 years'"])
    async def test_a_moment_that_no_calendar_of_ours_reaches_is_refused(self, database, when):
        with pytest.raises(InvalidSchedule, match="more than a hundred years ahead"):
            await database.fetch(f"select duly.submit('greet', {when})")

    @pytest.mark.parametrize(
        "names", ["''", "null", f"'{TOO_LONG}'", "'greet', queue => ''", f"'greet', queue => '{TOO_LONG}'"]
    )
    async def test_a_job_without_names_that_an_index_can_hold_is_refused(self, database, names):
        with pytest.raises(InvalidOption, match="needs the name of a handler"):
            await database.fetch(f"select duly.submit({names})")

    @pytest.mark.parametrize("names", [{"queue": TOO_LONG}, {"queue": ""}, {"handler": TOO_LONG}, {"handler": ""}])
    async def test_invalid_handler_or_queue_name_is_refused_by_the_other_moves(self, database, names):
        one, recurring = replace(a_submission(), **names), replace(a_schedule(), **names)
        known = await an_active_schedule(database)
        doors = (
            lambda: submit_many(database, [a_submission(), one], key="many"),
            lambda: submit_recurring(database, recurring, key="schedule"),
            lambda: edit(database, known.job_id, recurring),
            lambda: submit_workflow(database, 1, "flow", Workflow("nightly", (Node("a", one),))),
        )
        before = await counts(database)

        for enter in doors:
            with pytest.raises(InvalidOption, match="needs the name of a handler"):
                await enter()

        assert await counts(database) == before

    async def test_options_as_we_write_them_ourselves_are_taken(self, database):
        said: dict[str, Any] = {"timeout_seconds": 30.0, "concurrency": ("customer-7", 3)}
        retry = Retry(max_attempts=1000, base_seconds=0.5, cap_seconds=9.0)

        run_id = await database.fetchval(
            "select duly.submit('greet', options => $1::text::jsonb)", encode(options_of(retry=retry, **said))
        )

        await staged(database)
        [run] = await claimed(database, await a_worker(database))
        assert (run.run_id, run.policy) == (run_id, RunPolicy(retry, **said, own=True))

    async def test_a_one_shot_is_its_own_job(self, database):
        run_id = await a_ready_run(database)

        assert (await a_row(database, "ready", run_id))["job_id"] == run_id
        assert await jobs.find(database, run_id) is None


class TestPayload:
    async def test_a_small_payload_travels_in_the_row(self, database):
        run_id = await a_ready_run(database, payload='{"to": "a@b.example"}')

        row = await a_row(database, "ready", run_id)
        assert (row["payload"], row["payload_stored"]) == ('{"to": "a@b.example"}', False)

    async def test_large_payload_is_stored_separately_and_found_by_reference(self, database):
        body = '"' + "x" * 5000 + '"'

        _, run = await a_leased_run(database, payload=body)

        assert (run.payload, run.payload_stored) == (None, True)
        assert await runs.payloads(database, [(run.job_id, run.generation)]) == {(run.job_id, 1): body}

    async def test_a_payload_at_the_limit_is_taken_and_one_byte_more_is_refused(self, database):
        await a_ready_run(database, payload='"' + "x" * (PAYLOAD_BYTES_MAX - 2) + '"')

        with pytest.raises(InvalidPayload, match=f"payload has {PAYLOAD_BYTES_MAX + 1} bytes; the limit"):
            await a_ready_run(database, payload='"' + "x" * (PAYLOAD_BYTES_MAX - 1) + '"')

    async def test_the_payload_of_a_run_that_still_lives_is_never_forgotten(self, database, clock):
        worker_id, ended = await a_leased_run(database, payload='"' + "x" * INLINE_MAX * 2 + '"')
        alive = await a_ready_run(database, payload='"' + "y" * INLINE_MAX * 2 + '"')
        await settled(database, worker_id, ended)
        await clock.advance(timedelta(days=8))

        await forget_payloads(database, timedelta(days=7), timedelta(days=90), 100)

        assert set(await runs.payloads(database, [(ended.job_id, 1), (alive, 1)])) == {(alive, 1)}


class TestKey:
    async def test_the_same_key_and_body_answer_the_same_and_insert_nothing(self, database, clock):
        first = await submit(database, a_submission(delay=60), key="k")
        await clock.advance(10)

        second = await submit(database, a_submission(delay=60), key="k")

        assert (second.job_id, second.scheduled_at, second.replayed) == (first.job_id, first.scheduled_at, True)
        assert await counts(database) == {"timers": 1}

    async def test_story_10_submit_repeated_after_the_run_finished_does_not_rerun_it(self, database):
        worker_id = await a_worker(database)
        submitted = await submit(database, a_submission(), key="k")
        [run] = await claimed(database, worker_id)
        await settled(database, worker_id, run)

        assert (await submit(database, a_submission(), key="k")).job_id == submitted.job_id
        assert await counts(database) == {}

    async def test_another_body_under_the_same_key_is_a_conflict_that_names_the_job(self, database):
        first = await submit(database, a_submission(payload='{"a": 1}'), key="k")

        with pytest.raises(KeyConflict, match=str(first.job_id)):
            await submit(database, a_submission(payload='{"a": 2}'), key="k")

        assert await counts(database) == {"ready": 1}

    @pytest.mark.parametrize("other", [{"queue": "mail"}, {"priority": 4}, {"delay": 1}, {"handler": "leave"}])
    async def test_everything_about_a_job_belongs_to_its_body(self, database, other):
        await submit(database, a_submission(), key="k")

        with pytest.raises(KeyConflict):
            await submit(database, a_submission(**other), key="k")

    async def test_the_callers_time_zone_does_not_change_the_body(self, database):
        at = START + timedelta(days=2)
        await submit(database, a_submission(at=at, delay=None), key="k")
        elsewhere = await connect(database)

        try:
            async with elsewhere.transaction():  # Behind a pooler a setting of a session would outlive it.
                await elsewhere.execute("set local timezone = 'Asia/Kathmandu'; set local intervalstyle = 'iso_8601'")
                assert (await submit(elsewhere, a_submission(at=at), key="k")).replayed is True
        finally:
            await elsewhere.close()

    async def test_a_key_belongs_to_one_tenant(self, database):
        first = await submit(database, a_submission(), key="k", tenant=1)
        second = await submit(database, a_submission(), key="k", tenant=2)

        assert first.job_id != second.job_id

    async def test_a_key_can_be_used_again_once_it_has_expired(self, database, clock):
        first = await submit(database, a_submission(), key="k")
        await clock.advance(timedelta(hours=24))

        second = await submit(database, a_submission(payload='{"other": true}'), key="k")

        assert second.job_id != first.job_id
        assert second.replayed is False
        assert await counts(database) == {"ready": 2}

    async def test_an_expired_key_names_a_new_job_although_the_first_one_still_waits_for_the_same_moment(
        self, database, clock
    ):
        at = START + timedelta(days=30)
        first = await submit(database, a_submission(at=at), key="k")
        await clock.advance(timedelta(hours=24))

        second = await submit(database, a_submission(at=at), key="k")

        assert second.job_id != first.job_id
        assert await counts(database) == {"timers": 2}

    async def test_keys_are_forgotten_when_they_have_expired_and_not_before(self, database, clock):
        await submit(database, a_submission(), key="k")
        await clock.advance(timedelta(hours=23))
        await forget_expired(database, Expiring.KEYS, 10)
        assert (await submit(database, a_submission(), key="k")).replayed is True
        await clock.advance(timedelta(hours=2))

        await forget_expired(database, Expiring.KEYS, 10)

        assert await database.fetchval("select count(*) from duly.idempotency_keys") == 0

    async def test_story_10_a_colliding_key_waits_for_the_other_transaction_and_answers_the_same(self, database):
        caller = await connect(database)
        transaction = caller.transaction()
        await transaction.start()
        first = await submit(caller, a_submission(), key="k")
        asking = asyncio.create_task(submit(database, a_submission(), key="k"))
        await asyncio.sleep(0.1)
        assert not asking.done()

        await transaction.commit()

        second = await asking
        assert (second.job_id, second.replayed) == (first.job_id, True)
        assert await counts(database) == {"ready": 1}
        await caller.close()

    async def test_story_10_a_colliding_key_takes_over_when_the_other_transaction_rolls_back(self, database):
        caller = await connect(database)
        transaction = caller.transaction()
        await transaction.start()
        await submit(caller, a_submission(payload='{"a": 1}'), key="k")
        asking = asyncio.create_task(submit(database, a_submission(payload='{"a": 2}'), key="k"))
        await asyncio.sleep(0.1)

        await transaction.rollback()

        assert (await asking).replayed is False
        assert await counts(database) == {"ready": 1}
        await caller.close()

    async def test_story_10_a_colliding_key_does_not_wait_for_ever(self, database):
        caller = await connect(database)
        transaction = caller.transaction()
        await transaction.start()
        await submit(caller, a_submission(), key="k")

        with pytest.raises(KeyBusy, match="try again"):
            await submit(database, a_submission(), key="k")

        await transaction.rollback()
        await caller.close()


class TestMany:
    async def test_many_come_back_in_the_order_they_were_given(self, database):
        asked = [a_submission(payload=f'{{"n": {n}}}', delay=n % 10) for n in range(50)]

        submitted = await submit_many(database, asked, key="batch")

        assert [item.scheduled_at for item in submitted] == [START + seconds(n % 10) for n in range(50)]
        assert len({item.job_id for item in submitted}) == 50
        assert await counts(database) == {"ready": 30, "timers": 20}

    async def test_the_same_batch_under_the_same_key_answers_the_same(self, database, clock):
        asked = [a_submission(delay=n) for n in range(3)]
        first = await submit_many(database, asked, key="batch")
        await clock.advance(1)

        second = await submit_many(database, asked, key="batch")

        assert [item.job_id for item in second] == [item.job_id for item in first]
        assert all(item.replayed for item in second)
        assert await counts(database) == {"ready": 3}

    async def test_a_batch_that_differs_in_one_job_is_a_conflict(self, database):
        await submit_many(database, [a_submission(), a_submission()], key="batch")

        with pytest.raises(KeyConflict):
            await submit_many(database, [a_submission(), a_submission(priority=1)], key="batch")

    async def test_invalid_job_refuses_the_whole_batch(self, database):
        with pytest.raises(InvalidSchedule):
            await submit_many(database, [a_submission(), a_submission(delay=-5)], key="batch")

        assert await counts(database) == {}

    async def test_none_is_none(self, database):
        assert await submit_many(database, [], key="batch") == []


class TestCallersTransaction:
    async def test_a_rollback_leaves_nothing(self, database):
        caller = await connect(database)
        transaction = caller.transaction()
        await transaction.start()
        await submit(caller, a_submission(payload='"' + "x" * 5000 + '"'), key="one")
        await submit(caller, a_submission(delay=60), key="later")
        await submit_recurring(caller, a_schedule(), key="recurring")

        await transaction.rollback()

        for table in ("idempotency_keys", "payloads", "jobs", "timers", "ready", "attempts"):
            assert await database.fetchval(f"select count(*) from duly.{table}") == 0, table
        await caller.close()

    async def test_story_23_submit_left_open_blocks_no_other_and_starts_on_commit(self, database, clock):
        caller = await connect(database)
        transaction = caller.transaction()
        await transaction.start()
        submitted = await submit(caller, a_submission(delay=30), key="k")
        other = await submit(database, a_submission(delay=30), key="other")
        await clock.advance(60)

        assert (await staged(database)).count == 1
        assert await boxes_of(database, other.job_id) == ["ready"]
        await transaction.commit()

        assert (await staged(database)).count == 1, "a row that commits late, with an old due moment, is found"
        assert await boxes_of(database, submitted.job_id) == ["ready"]
        await caller.close()

    async def test_a_submit_from_plain_sql_is_the_same_move(self, database):
        caller = await connect(database)
        call = "select duly.submit('greet', '{\"n\": 1}', queue => 'mail', key => 'k', delay => '10 minutes')"

        job_id = await caller.fetchval(call)

        assert await caller.fetchval(call) == job_id
        row = await a_row(database, "timers", job_id)
        assert (row["handler"], row["queue"], row["due_at"]) == ("greet", "mail", START + seconds(600))
        await caller.close()


def nested(levels: int) -> str:
    """Write an object that is nested so deep."""
    return '{"a":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"


class TestPlainSql:
    """Whoever calls `duly.submit` has no door of ours before it: what is wrong is said in a sentence, with a remedy."""

    @pytest.mark.parametrize(
        ("asked", "said", "remedy"),
        [
            ("'{}', at => 'infinity'", "infinity is more than a hundred years ahead", "within a hundred years"),
            ("'{}', at => '-infinity'", "at -infinity is in the past", "Give a later time"),
            ("'{}', at => '294276-12-31'", "294276-12-31 00:00:00+00 is more than a hundred", "within a hundred years"),
            ("'{}', at => '2026-11-02 08:58'", "at 2026-11-02 08:58:00+00 is in the past", "Give a later time"),
            ("'{}', delay => '178000000 years'", "more than a hundred years ahead", "within a hundred years"),
            ("'{}', delay => '-1 second'", "delay -00:00:01 is negative", "0 or more"),
            ("'{}', at => '2027-01-01', delay => '1 hour'", "at and delay are both given", "Give at for a moment, or"),
            ("'{}', priority => 100000", "priority 100000 is outside 0 (first) to 9 (last)", "Leave it out"),
            ("'{}', priority => null", "priority is null", "leave it out"),
            ("'{}', tenant => null", "tenant is null", "leave it out"),
            ("'{}', tenant => 99999", "no tenant 99999", "`duly tenants` lists them"),
            ("'{}', key => ''", "a key of 0 bytes is none: it has 1 to 1000", "Leave it out"),
            ("'{}', key => repeat('k', 1001)", "a key of 1001 bytes is none: it has 1 to 1000", "Leave it out"),
            ("'{}', queue => null", "a job needs the name of a handler and of a queue", "Give both"),
            ("""'{}', options => '{"trace": 1}'""", 'options {"trace": 1} are none we know', "Known are retry, "),
            (f"""'{{}}', options => '{{"target": {nested(64)}}}'""", "options are nested deeper than 64", "Flatten it"),
            ("null", "payload is null", "leave it out"),
            ("'null'", "payload is of type null and not an object", 'such as {"customer": 7}'),
            ("'7'", "payload is of type number and not an object", 'such as {"customer": 7}'),
            ("'[1]'", "payload is of type array and not an object", 'such as {"customer": 7}'),
            (f"'{nested(65)}'", "payload is nested deeper than 64 levels, or with", "Flatten it"),
            (f"'{nested(3000)}'", "payload is nested deeper than 64 levels, or with", "Flatten it"),
            (
                f"""'{{"a": -{"9" * 4301}}}'""",
                "payload is nested deeper than 64 levels, or with a number of",
                "as a text",
            ),
            ("jsonb_build_object('a', repeat('x', 300000))", "payload has 300009 bytes", "The limit is 262144."),
        ],
        ids=lambda text: text[:60],
    )
    async def test_sql_submit_refuses_bad_values_with_a_message_and_a_remedy(self, database, asked, said, remedy):
        caller = await connect(database)

        with pytest.raises(asyncpg.PostgresError) as refused:
            await caller.execute(f"select duly.submit('greet', {asked})")

        await caller.close()
        assert refused.value.sqlstate.startswith("DU")
        assert said in str(refused.value)
        assert remedy in str(refused.value.hint)
        assert await counts(database) == {}
        assert await database.fetchval("select count(*) from duly.idempotency_keys") == 0

    async def test_another_job_under_a_key_is_refused_with_a_remedy(self, database):
        caller = await connect(database)
        await caller.execute("select duly.submit('greet', key => 'k')")

        with pytest.raises(asyncpg.PostgresError, match="key 'k' was used for another job") as refused:
            await caller.execute("select duly.submit('leave', key => 'k')")

        await caller.close()
        assert refused.value.hint == "Use another key, or send the same job again."

    @pytest.mark.parametrize("payload", [nested(64), f'{{"a": [{nested(62)}, 1]}}', f'{{"a": {"9" * 4300}}}'])
    async def test_payload_that_every_worker_can_read_is_accepted(self, database, payload):
        await database.fetch("select duly.submit('greet', $1::text::jsonb)", payload)

        assert await counts(database) == {"ready": 1}

    async def test_a_moment_that_has_passed_since_is_answered_the_same(self, database, clock):
        call = "select duly.submit('greet', at => '2026-11-02 09:10+00', key => 'k')"
        first = await database.fetchval(call)
        await clock.advance(7200)

        assert await database.fetchval(call) == first

    async def test_a_tenant_that_is_there_may_submit(self, database):
        tenant = (await tenants.create(database, "another", Limits())).tenant

        await database.fetch("select duly.submit('greet', tenant => $1)", tenant)

        assert await counts(database) == {"ready": 1}


class TestSchedule:
    async def test_a_schedule_has_one_next_fire_at_the_next_whole_second(self, database, clock):
        await clock.advance(0.25)

        submitted = await an_active_schedule(database, every=60)

        assert submitted.scheduled_at == START + seconds(1)
        assert await counts(database) == {"timers": 1}

    @pytest.mark.parametrize(
        ("anchor", "first"),
        [
            (timedelta(), timedelta()),
            (timedelta(seconds=7), timedelta(seconds=7)),
            (timedelta(seconds=-1), timedelta(seconds=59)),
            (timedelta(seconds=-60), timedelta()),
            (timedelta(days=-400, seconds=1), timedelta(seconds=1)),
        ],
    )
    async def test_occurrences_count_from_the_anchor_and_none_precedes_the_job(self, database, anchor, first):
        submitted = await an_active_schedule(database, every=60, anchor=START + anchor)

        assert submitted.scheduled_at - START == first

    async def test_the_same_key_and_body_answer_the_same_schedule(self, database, clock):
        first = await submit_recurring(database, a_schedule(name="nightly"), key="k")
        await clock.advance(5)

        second = await submit_recurring(database, a_schedule(name="nightly"), key="k")

        assert (second.job_id, second.scheduled_at, second.replayed) == (first.job_id, first.scheduled_at, True)
        assert await counts(database) == {"timers": 1}

    @pytest.mark.parametrize(
        "trigger",
        [
            {"type": "at", "at": "2026-11-02T09:10:00Z"},
            {"type": "text", "text": "in 10 minutes"},
            {"type": "cron", "expr": "H * * * *"},
        ],
        ids=lambda trigger: trigger["type"],
    )
    async def test_repeated_submit_gets_the_same_response_after_its_moment_passed(self, database, clock, trigger):
        job = a_schedule(trigger=trigger)
        first = await submit_recurring(database, job, key="k")
        await clock.advance(7200)

        second = await submit_recurring(database, job, key="k")

        assert (second.job_id, second.scheduled_at, second.replayed) == (first.job_id, first.scheduled_at, True)
        assert second.schedule.trigger.canonical == first.schedule.trigger.canonical
        assert await counts(database) == {"timers": 1}
        if trigger["type"] == "at":
            with pytest.raises(TriggerError, match="in the past"):
                await submit_recurring(database, job, key="another")

    async def test_another_schedule_under_the_same_key_is_a_conflict(self, database):
        await submit_recurring(database, a_schedule(every=60), key="k")

        with pytest.raises(KeyConflict):
            await submit_recurring(database, a_schedule(every=61), key="k")

    async def test_a_name_is_taken_until_its_schedule_is_cancelled(self, database):
        first = await an_active_schedule(database, name="night(ly)")
        with pytest.raises(NameTaken, match=r"a schedule named 'night\(ly\)' exists; .* cancel that one first"):
            await an_active_schedule(database, name="night(ly)")

        await cancel_job(database, first.job_id)

        second = await an_active_schedule(database, name="night(ly)")
        assert second.job_id != first.job_id
        assert await history.verify(database) == []

    async def test_a_large_payload_reaches_each_run_by_reference(self, database):
        body = '"' + "x" * 5000 + '"'
        submitted = await an_active_schedule(database, payload=body)

        await staged(database)

        [row] = await database.fetch("select * from duly.ready")
        assert (row["payload"], row["payload_stored"]) == (None, True)
        assert await runs.payloads(database, [(row["job_id"], row["generation"])]) == {(submitted.job_id, 1): body}

    async def test_a_payload_over_the_limit_is_refused(self, database):
        with pytest.raises(InvalidPayload):
            await an_active_schedule(database, payload='"' + "x" * PAYLOAD_BYTES_MAX + '"')

        assert await database.fetchval("select count(*) from duly.jobs") == 0

    @pytest.mark.parametrize("every", [0.4, 0, -60, 69 * 366 * 86_400, 10**13])
    async def test_a_period_that_cannot_be_kept_is_refused(self, database, every):
        with pytest.raises(TriggerError, match="every 'PT"):
            await an_active_schedule(database, every=every)

    async def test_a_priority_outside_its_range_is_refused(self, database):
        with pytest.raises(InvalidOption, match="priority 10 is outside 0"):
            await an_active_schedule(database, priority=10)

    async def test_a_key_serves_a_one_shot_or_a_schedule_not_both(self, database):
        key = a_key()
        await submit(database, a_submission(), key=key)

        with pytest.raises(KeyConflict):
            await submit_recurring(database, a_schedule(), key=key)
