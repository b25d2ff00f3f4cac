"""The reaper: a worker whose heart has stopped loses its runs, and nobody else does."""

from datetime import timedelta
from uuid import UUID

import asyncpg
import pytest

from duly.clock import Rng
from duly.domain.errors import WorkerExpired
from duly.domain.runs.outcome import Failed
from duly.domain.runs.retry import Retry
from duly.domain.runs.run import Run
from duly.domain.targets.target import WEBHOOK
from duly.log import Log
from duly.maintenance.reaper import STEP_SECONDS, Reaper
from duly.moves.workers.retire import retire
from duly.store.boxes import history, leased
from duly.store.connection.database import Database, Unavailable
from duly.store.retention import forget_expired_workers
from duly.store.tables import workers
from tests.builders import (
    LEASE,
    a_leased_run,
    a_ready_run,
    a_row,
    a_worker,
    boxes_of,
    claimed,
    counts,
    history_of,
    seconds,
    settled,
    staged,
)
from tests.clock import START

AT_ONCE = Retry(max_attempts=100, base_seconds=0, cap_seconds=0)
SAFE = LEASE * 2 / 3


@pytest.fixture
def reaper(database) -> Reaper:
    """One that has not looked yet."""
    return Reaper(database, rng=Rng(1), log=Log("test"))


async def die(reaper, clock) -> int:
    """Let every worker's heart stop for a lease, and the reaper see it. Gives the number of runs it moved."""
    await reaper.step()
    await clock.advance(LEASE)
    moved: int = await reaper.step()
    return moved


class TestExpiredWorkers:
    async def test_worker_with_heartbeats_is_never_reaped(self, database, clock, reaper):
        worker_id, run = await a_leased_run(database)
        for _ in range(20):
            await clock.advance(LEASE / 3)
            await workers.heartbeat(database, worker_id)
            assert await reaper.step() == 0

        assert await settled(database, worker_id, run) == []

    async def test_a_worker_that_has_not_beaten_for_a_lease_is_reaped(self, database, clock, reaper):
        worker_id, run = await a_leased_run(database)

        assert await die(reaper, clock) == 1

        assert reaper.reaped == 1
        assert await workers.heartbeat(database, worker_id) is None
        assert await boxes_of(database, run.run_id) == ["ready"]

    @pytest.mark.parametrize("last_beat", [0.0, 0.1, 0.2, STEP_SECONDS])
    async def test_a_death_is_noticed_about_half_a_second_after_the_lease_at_the_latest(
        self, database, clock, reaper, last_beat
    ):
        """Wherever between two looks the last beat fell; a look takes 10 ms here."""
        worker_id, _ = await a_leased_run(database)
        await reaper.step()
        await clock.advance(last_beat)
        await workers.heartbeat(database, worker_id)
        since_beat = STEP_SECONDS + 0.01 - last_beat
        await clock.advance(since_beat)
        while await reaper.step() == 0:
            await clock.advance(STEP_SECONDS + 0.01)
            since_beat += STEP_SECONDS + 0.01

        assert LEASE.total_seconds() <= since_beat <= LEASE.total_seconds() + 0.55

    async def test_a_reaper_that_has_just_started_waits_a_lease_of_its_own(self, database, clock, reaper):
        await a_leased_run(database)
        await clock.advance(timedelta(hours=1))

        assert await reaper.step() == 0
        await clock.advance(LEASE - seconds(0.001))
        assert await reaper.step() == 0
        await clock.advance(0.001)
        assert await reaper.step() == 1

    async def test_story_21_database_clock_step_forward_expires_no_worker(self, database, clock, reaper):
        worker_id, run = await a_leased_run(database)
        await reaper.step()

        await clock.step(3600)

        assert await reaper.step() == 0
        await clock.advance(LEASE / 3)
        await workers.heartbeat(database, worker_id)
        assert await reaper.step() == 0
        assert await settled(database, worker_id, run) == []

    async def test_story_21_a_step_back_does_not_keep_the_dead_alive(self, database, clock, reaper):
        await a_leased_run(database)
        await reaper.step()

        await clock.step(-600)
        await clock.advance(LEASE)

        assert await reaper.step() == 1

    async def test_story_21_database_clock_step_back_expires_no_worker_with_heartbeats(self, database, clock, reaper):
        worker_id, _ = await a_leased_run(database)
        await reaper.step()
        await clock.step(-600)
        for _ in range(6):
            await clock.advance(LEASE / 3)
            await workers.heartbeat(database, worker_id)

            assert await reaper.step() == 0

    async def test_heartbeat_between_the_read_and_the_expiry_keeps_the_worker_alive(self, database, clock):
        worker_id = await a_worker(database)
        [seen] = await workers.live(database)
        await clock.advance(LEASE)
        await workers.heartbeat(database, worker_id)

        assert await workers.expire(database, worker_id, seen.heartbeat) is False
        assert await workers.expire(database, worker_id, seen.heartbeat, clock_stepped=True) is False
        assert await workers.heartbeat(database, worker_id) is not None

    async def test_a_worker_is_reaped_once_however_many_reapers_there_are(self, database, clock, reaper):
        second = Reaper(database, rng=Rng(2), log=Log("test"))
        await a_leased_run(database)
        await second.step()
        await reaper.step()
        await clock.advance(LEASE)

        assert (await reaper.step(), await second.step()) == (1, 0)
        assert (reaper.reaped, second.reaped) == (1, 0)

    async def test_a_reaper_that_died_half_way_is_continued_by_another(self, database, clock, reaper):
        worker_id, run = await a_leased_run(database)
        await clock.advance(LEASE)
        [seen] = await workers.live(database)
        await workers.expire(database, worker_id, seen.heartbeat)
        assert await history.verify(database) == []

        assert await reaper.step() == 1
        assert await boxes_of(database, run.run_id) == ["ready"]

    async def test_a_worker_of_many_runs_is_cleared_in_one_step(self, database, clock, reaper):
        worker_id = await a_worker(database)
        await database.execute(
            "insert into duly.ready select gen_random_uuid(), gen_random_uuid(), $1, $1, null, 1, 1, 0, 5, 0, false, false,"
            " 'default', 'greet', null, null from generate_series(1, 1200)",
            START,
        )
        assert len(await claimed(database, worker_id, limit=2000)) == 1200

        assert await die(reaper, clock) == 1200

        assert await counts(database) == {"ready": 1200}

    async def test_reaper_notifies_workers_of_the_runs_that_it_reclaims(self, database, clock, reaper):
        await a_leased_run(database)
        heard: list[str] = []
        listener = await asyncpg.connect(database.url)
        await listener.add_listener("duly_ready", lambda *message: heard.append(message[-1]))

        await die(reaper, clock)

        await listener.fetch("select 1")  # What was sent before has come by now.
        assert heard == ["default"]
        await listener.close()


async def refuse(database: Database, run_id: UUID) -> None:
    """Let the store refuse every record of one run."""
    await database.execute(f"alter table duly.attempts add constraint refused check (run_id <> '{run_id}') not valid")


class TestRejections:
    """One run that cannot be moved on costs neither the other runs of its worker nor the other workers."""

    @pytest.fixture
    async def bad_and_good(self, database, clock):
        """Two runs of a first worker, of which one is refused, and one of a second that died later."""
        first, bad = await a_leased_run(database)
        _, beside = await a_leased_run(database, first)
        second, good = await a_leased_run(database)
        await refuse(database, bad.run_id)
        for worker_id in (first, second):
            await database.execute("delete from duly.workers where worker_id = $1", worker_id)
            await workers.depart(database, worker_id)
            await clock.advance(0.001)
        yield bad, beside, good
        await database.execute("alter table duly.attempts drop constraint refused")

    async def test_refused_run_delays_no_other_run_and_no_other_worker(self, database, reaper, bad_and_good, caplog):
        bad, beside, good = bad_and_good

        assert await reaper.step() == 2

        assert await boxes_of(database, bad.run_id) == ["leased"]
        assert await boxes_of(database, beside.run_id) == ["ready"]
        assert await boxes_of(database, good.run_id) == ["ready"]
        [told] = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "reclaim_failed"]
        assert (told["runs"], told["first"]) == (1, bad.run_id)
        assert "refused" in told["error"]

    async def test_nor_does_one_that_cannot_go_back_unused(self, own_database, clock, caplog):
        database, worker_id = own_database, await a_worker(own_database)
        taken = [(await a_leased_run(database, worker_id, delay=4))[1] for _ in range(5)]
        started = (await a_leased_run(database, worker_id))[1]
        bad = taken[2]
        await database.execute(f"alter table duly.ready add constraint refused check (run_id <> '{bad.run_id}')")
        await database.execute("update duly.workers set safe_until = $1", START + seconds(1))
        reaper = Reaper(database, rng=Rng(1), log=Log("test"))

        assert await die(reaper, clock) == 5

        assert await counts(database) == {"ready": 5, "leased": 1}
        assert [await history_of(database, run.run_id) for run in taken] == [[]] * 5
        assert await history_of(database, started.run_id) == [(1, "lost", "retrying")]
        [told] = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "reclaim_failed"]
        assert (told["runs"], told["first"]) == (1, bad.run_id)

    async def test_refused_run_is_reclaimed_again_with_growing_delays(
        self, database, clock, reaper, bad_and_good, caplog
    ):
        for _ in range(4 * 60):
            await reaper.step()
            await clock.advance(0.25)

        told = [record.__dict__["fields"]["again_in"] for record in caplog.records]
        assert told == [0.5, 1, 2, 4, 8, 16, 32]

    async def test_refused_run_is_reclaimed_when_the_store_accepts_it(self, database, clock, reaper, bad_and_good):
        bad, *_ = bad_and_good
        await reaper.step()
        await database.execute("alter table duly.attempts drop constraint refused")
        assert await reaper.step() == 0
        await clock.advance(0.5)

        assert await reaper.step() == 1

        assert await boxes_of(database, bad.run_id) == ["ready"]
        await refuse(database, bad.run_id)

    async def test_another_fault_of_one_worker_holds_up_no_other_either(
        self, database, reaper, bad_and_good, monkeypatch
    ):
        bad, _, good = bad_and_good
        held_by = leased.held_by

        async def failing(database: Database, worker_id: UUID, limit: int) -> list[Run]:
            found = await held_by(database, worker_id, limit)
            if bad.run_id in {run.run_id for run in found}:
                raise RuntimeError("a fault of ours")
            return found

        monkeypatch.setattr(leased, "held_by", failing)

        assert await reaper.step() == 1
        assert await boxes_of(database, good.run_id) == ["ready"]

    async def test_reaper_defers_a_worker_without_a_response_and_serves_others_first(
        self, database, reaper, bad_and_good, monkeypatch
    ):
        bad, _, good = bad_and_good
        held_by = leased.held_by

        async def unanswered(database: Database, worker_id: UUID, limit: int) -> list[Run]:
            found = await held_by(database, worker_id, limit)
            if bad.run_id in {run.run_id for run in found}:
                raise Unavailable("somebody has locked it")
            return found

        monkeypatch.setattr(leased, "held_by", unanswered)
        with pytest.raises(Unavailable):
            await reaper.step()

        assert await reaper.step() == 1
        assert await boxes_of(database, good.run_id) == ["ready"]


class TestStory04UnknownLeases:
    async def test_a_claim_after_the_reaper_is_refused(self, database, clock, reaper):
        worker_id = await a_worker(database)
        await die(reaper, clock)
        await a_ready_run(database)

        with pytest.raises(WorkerExpired):
            await claimed(database, worker_id)

    async def test_a_lease_without_a_worker_is_swept_up_and_counts_as_lost(self, database, clock, reaper):
        worker_id, run = await a_leased_run(database)
        await database.execute("delete from duly.workers where worker_id = $1", worker_id)
        assert [row["broken"] for row in await history.verify(database)] == ["lease without a worker"]
        await clock.advance(1)

        assert await reaper.step() == 1

        assert await history_of(database, run.run_id) == [(1, "lost", "retrying")]
        assert await history.verify(database) == []

    async def test_a_worker_that_retires_holds_nothing(self, database):
        worker_id, run = await a_leased_run(database)
        assert await retire(database, worker_id, [run]) is False
        assert await settled(database, worker_id, run) == []

        assert await retire(database, worker_id, []) is True
        assert await workers.heartbeat(database, worker_id) is None
        assert await retire(database, worker_id, []) is False, "it has left before"

    async def test_retiring_worker_returns_leases_unknown_to_it_unused(self, database, clock, reaper):
        worker_id, known = await a_leased_run(database)
        _, unknown = await a_leased_run(database, worker_id)
        await settled(database, worker_id, known)

        assert await retire(database, worker_id, [known]) is True

        assert await history_of(database, unknown.run_id) == []
        assert (await a_row(database, "ready", unknown.run_id))["attempt"] == 0
        assert await history.verify(database) == []

    async def test_departures_are_forgotten_when_nothing_hangs_on_them(self, database, clock, reaper):
        worker_id, run = await a_leased_run(database)
        await reaper.step()
        await clock.advance(LEASE)
        [seen] = await workers.live(database)
        await workers.expire(database, worker_id, seen.heartbeat)
        await clock.advance(timedelta(days=2))
        await forget_expired_workers(database)
        assert await reaper.step() == 1, "its run is still moved on"

        await forget_expired_workers(database)

        assert await database.fetchval("select count(*) from duly.expired_workers") == 0
        assert await history_of(database, run.run_id) == [(1, "lost", "retrying")]


class TestStory08Poison:
    async def test_run_due_after_the_last_safe_moment_is_returned_unused(self, database, clock, reaper):
        worker_id = await a_worker(database)
        due, ahead = await a_ready_run(database), await a_ready_run(database, delay=4)
        await clock.advance(LEASE - SAFE - seconds(2))
        assert len(await claimed(database, worker_id)) == 2
        await database.execute(
            "update duly.leased set due_at = $1 where run_id = $2", START + SAFE + seconds(0.001), ahead
        )
        await database.execute("update duly.leased set due_at = $1 where run_id = $2", START + SAFE, due)

        await die(reaper, clock)

        assert await history_of(database, due) == [(1, "lost", "retrying")]
        assert await history_of(database, ahead) == []
        row = await a_row(database, "ready", ahead)
        assert (row["attempt"], row["suspect"], row["losses"]) == (0, False, 0)

    async def test_runs_lost_together_become_suspects_without_a_loss(self, database, clock, reaper):
        worker_id = await a_worker(database)
        innocent = [await a_ready_run(database, retry=AT_ONCE) for _ in range(3)]
        await claimed(database, worker_id)

        await die(reaper, clock)

        for run_id in innocent:
            row = await a_row(database, "ready", run_id)
            assert (row["attempt"], row["suspect"], row["losses"]) == (1, True, 0)

    async def test_unannounced_suspect_returns_to_its_queue_with_its_attempt_unused(self, database, clock, reaper):
        worker_id = await a_worker(database)
        run_id = await a_ready_run(database, retry=AT_ONCE)
        await claimed(database, worker_id)
        await die(reaper, clock)
        await claimed(database, await a_worker(database))

        await die(reaper, clock)

        assert await history_of(database, run_id) == [(1, "lost", "retrying")]
        assert (await a_row(database, "ready", run_id))["attempt"] == 1

    async def test_webhook_run_is_never_announced_and_counts_as_started(self, database, clock, reaper):
        run_id = await a_ready_run(database, retry=AT_ONCE)
        await claimed(database, await a_worker(database))
        await die(reaper, clock)
        await claimed(database, await a_worker(database))
        await database.execute("update duly.leased set handler = $1", WEBHOOK)

        await die(reaper, clock)

        assert await history_of(database, run_id) == [(1, "lost", "retrying"), (2, "lost", "retrying")]
        assert (await a_row(database, "ready", run_id))["losses"] == 0

    async def lose_alone(self, database, clock, reaper, run_id: UUID) -> None:
        """Let a worker announce the run, start it alone, and die of it."""
        worker_id = await a_worker(database)
        [run] = [run for run in await claimed(database, worker_id) if run.run_id == run_id]
        assert await workers.announce(database, worker_id, [run])
        await die(reaper, clock)

    async def test_three_losses_in_all_bury_it_as_poison(self, database, clock, reaper):
        run_id = await a_ready_run(database, retry=AT_ONCE)
        await claimed(database, await a_worker(database))
        await die(reaper, clock)
        await self.lose_alone(database, clock, reaper, run_id)
        assert (await a_row(database, "ready", run_id))["losses"] == 1

        await self.lose_alone(database, clock, reaper, run_id)

        dead = await a_row(database, "dead", run_id)
        assert (dead["reason"], dead["losses"], dead["attempt"]) == ("poison", 2, 3)
        assert [outcome for _, outcome, _ in await history_of(database, run_id)] == ["lost"] * 3

    async def test_runs_leased_together_with_a_poison_run_are_never_buried(self, database, clock, reaper):
        poison = await a_ready_run(database, retry=AT_ONCE, priority=0)
        beside = [await a_ready_run(database, retry=AT_ONCE) for _ in range(5)]
        await claimed(database, await a_worker(database))
        await die(reaper, clock)
        for _ in range(2):
            await self.lose_alone(database, clock, reaper, poison)

        assert await boxes_of(database, poison) == ["dead"]
        for run_id in beside:
            assert await boxes_of(database, run_id) == ["ready"]
            assert [outcome for _, outcome, _ in await history_of(database, run_id)] == ["lost"]

    async def test_suspect_that_ended_and_was_retracted_is_not_blamed_for_a_later_loss(self, database, clock, reaper):
        worker_id, run = await a_leased_run(database, retry=AT_ONCE)
        await workers.announce(database, worker_id, [run])
        await workers.retract(database, worker_id, [run])

        await die(reaper, clock)

        assert (await a_row(database, "ready", run.run_id))["losses"] == 0

    async def test_a_name_given_under_an_earlier_lease_does_not_blame_the_run(self, database, clock, reaper):
        run_id = await a_ready_run(database, retry=AT_ONCE)
        await claimed(database, await a_worker(database))
        await die(reaper, clock)
        worker_id = await a_worker(database)
        [announced] = await claimed(database, worker_id)
        await workers.announce(database, worker_id, [announced])
        await settled(database, worker_id, announced, Failed("broken"))
        [again] = await claimed(database, worker_id)
        assert again.fence > announced.fence

        await die(reaper, clock)

        assert await history_of(database, run_id) == [
            (1, "lost", "retrying"),
            (2, "failed", "retrying"),
            (3, "lost", "retrying"),
        ]
        assert (await a_row(database, "ready", run_id))["losses"] == 0

    async def test_suspects_are_announced_and_taken_back_together(self, database, clock, reaper):
        worker_id = await a_worker(database)
        for _ in range(3):
            await a_ready_run(database, retry=AT_ONCE)
        first, second, third = await claimed(database, worker_id)
        await workers.announce(database, worker_id, [first])
        await workers.announce(database, worker_id, [second, third])
        await workers.retract(database, worker_id, [first, third])

        await die(reaper, clock)

        losses = {run.run_id: (await a_row(database, "ready", run.run_id))["losses"] for run in (first, second, third)}
        assert losses == {first.run_id: 0, second.run_id: 1, third.run_id: 0}

    async def test_a_worker_without_a_lease_announces_nothing(self, database, clock):
        worker_id, run = await a_leased_run(database)
        await clock.advance(LEASE)

        assert await workers.announce(database, worker_id, [run]) is False

    async def test_lost_run_obeys_its_retry_policy_and_starts_within_lease_plus_2_seconds(
        self, database, clock, reaper
    ):
        _, run = await a_leased_run(database, retry=AT_ONCE)
        await die(reaper, clock)
        await staged(database)

        [again] = await claimed(database, await a_worker(database))

        assert (again.run_id, again.attempt) == (run.run_id, 2)
        assert again.due_at - START <= LEASE + seconds(2)


async def test_the_outcome_of_a_reaped_worker_is_refused_although_its_attempt_is_recorded_as_lost(
    database, clock, reaper
):
    worker_id, run = await a_leased_run(database, retry=AT_ONCE)
    await die(reaper, clock)

    assert await settled(database, worker_id, run) == [run]

    assert await history_of(database, run.run_id) == [(1, "fenced", "running"), (1, "lost", "retrying")]
    assert await boxes_of(database, run.run_id) == ["ready"]


async def test_story_04_a_claim_holds_the_reaper_back_until_its_leases_can_be_seen(database, clock, reaper):
    worker_id = await a_worker(database)
    await a_ready_run(database, retry=AT_ONCE)
    await reaper.step()
    claimer = await asyncpg.connect(database.url)
    transaction = claimer.transaction()
    await transaction.start()
    await claimer.fetch("select * from duly.claim($1, array['default'], '{}', array['greet'], 10)", worker_id)
    await clock.advance(LEASE)
    [seen] = await workers.live(database)
    impatient = await asyncpg.connect(database.url)
    await impatient.execute("set lock_timeout = '100ms'")

    with pytest.raises(asyncpg.LockNotAvailableError):
        await impatient.fetch(workers.SQL["expire"], worker_id, seen.heartbeat, False)
    await transaction.commit()

    assert await reaper.step() == 1
    assert await leased.orphans(database) == []
    assert await history.verify(database) == []
    await claimer.close()
    await impatient.close()
