"""Pairs of moves, statement by statement, in every order: one winner each, nothing lost, nothing doubled."""

import pytest

from duly.domain.errors import KeyConflict, Refused, Unsettled, WorkerExpired
from duly.domain.limits.pause import EVERYTHING
from duly.domain.runs.outcome import Failed, Succeeded
from duly.domain.runs.retry import Retry
from duly.domain.runs.run import HORIZON
from duly.moves.cancel import CancelAnswer, cancel_job, cancel_run, carry_out
from duly.moves.dead import discard, replay
from duly.moves.reclaim import reclaim
from duly.moves.schedules.change_one_shot import change_one_shot
from duly.moves.settle import Settled, hand_back, settle
from duly.moves.stage import BATCH_MAX
from duly.moves.submit import submit
from duly.moves.workers.retire import retire
from duly.store.boxes import runs, timers
from duly.store.connection.database import Database
from duly.store.tables import pauses as pauses
from duly.store.tables import shards, workers
from tests.builders import (
    LEASE,
    RNG,
    a_dead_run,
    a_leased_run,
    a_ready_run,
    a_scheduler,
    a_submission,
    a_waiting_run,
    a_worker,
    an_active_schedule,
    boxes_of,
    claimed,
    counts,
    history_of,
    hold,
    seconds,
    staged,
)
from tests.clock import START

AT_ONCE = Retry(max_attempts=100, base_seconds=0, cap_seconds=0)
STORIES: list[type] = []


def story(told: type) -> type:
    """Take a story up: `set_up` gives its two moves, `check` hears what they answered."""
    STORIES.append(told)
    return told


def settling(worker_id, run, outcome=None):
    """Give the settle of one run as a move."""
    ended = Settled(run, START, START, outcome or Succeeded())
    return lambda side: settle(side, worker_id, [ended], RNG)


async def stage(side, holder, epochs, *, horizon=HORIZON, batch=BATCH_MAX):
    """Stage without the look at cohorts, of which there is none in these stories: that leaves a twentieth of the orders."""
    return await timers.stage(side, holder, epochs, horizon, max(1, batch // max(1, len(epochs))))


def claiming(worker_id, limit=10):
    """Give a claim as a move."""
    return lambda side: claimed(side, worker_id, limit=limit)


def reaping(worker_id, beat=0):
    """Give the work of a reaper that has found this worker dead as a move."""

    async def reap(side: Database) -> int:
        if not await workers.expire(side, worker_id, beat):
            return 0
        moved = [len((await reclaim(side, gone, RNG)).moved) for gone in await workers.expired_workers(side)]
        return sum(moved)

    return reap


@story
class ClaimAndClaim:
    orders = 6

    async def set_up(self, database):
        self.runs = {await a_ready_run(database) for _ in range(3)}
        return claiming(await a_worker(database), limit=2), claiming(await a_worker(database), limit=2)

    async def check(self, database, left, right):
        taken = [run.run_id for run in (*left, *right)]
        assert len(taken) == len(set(taken)), "a run is in one worker's hands"
        assert set(taken) == self.runs, "nobody waits for the other, nor misses what the other left"
        assert {run.fence for run in left}.isdisjoint(run.fence for run in right)
        assert await counts(database) == {"leased": 3}


def changing(run_id):
    """Give a change of a one-shot's payload and moment as a move."""
    changed = a_submission(payload='{"n": 2}')
    return lambda side: change_one_shot(side, 1, run_id, 1, changed)


@story
class ChangeOneShotAndClaim:
    async def set_up(self, database):
        self.run_id = await a_ready_run(database, payload='{"n": 1}')
        return changing(self.run_id), claiming(await a_worker(database))

    async def check(self, database, left, right):
        taken = [(run.run_id, run.payload, run.generation) for run in right]
        if left and not isinstance(left, Refused | Unsettled):
            assert taken in ([], [(self.run_id, '{"n": 2}', 2)]), "what was changed is not run as it was"
        else:
            assert taken == [(self.run_id, '{"n": 1}', 1)], "what is held is not changed"
        assert await counts(database) == ({"leased": 1} if taken else {"ready": 1})


@story
class ChangeOneShotAndStage:
    async def set_up(self, database):
        self.run_id = await a_waiting_run(database, payload='{"n": 1}', delay=6)
        await database.clock.advance(1)
        holder, epochs = await a_scheduler(database)
        return changing(self.run_id), lambda side: stage(side, holder, epochs)

    async def check(self, database, left, right):
        [row] = await database.fetch("select payload::text, generation from duly.ready where run_id = $1", self.run_id)
        assert tuple(row) == (('{"n": 2}', 2) if left else ('{"n": 1}', 1))
        assert await counts(database) == {"ready": 1}


class OfEverything:
    """Two runs are ready, and somebody stops everything or lets it go on."""

    async def set_up(self, database):
        for _ in range(2):
            await a_ready_run(database)
        self.worker_id = await a_worker(database)
        return await self.moves(database)

    def blocker(self):
        """Give the hold of everything, without the hint and the look that follow it: that leaves a tenth of the orders."""
        return lambda side: pauses.pause_scope(side, EVERYTHING, "stop", "somebody")

    async def moves(self, database):
        raise NotImplementedError


@story
class ScopePauseAndClaim(OfEverything):
    async def moves(self, database):
        return self.blocker(), claiming(self.worker_id)

    async def check(self, database, held, taken):
        assert held == "paused"
        assert len(taken) in (0, 2), "all or nothing: one statement reads the holds once"
        assert await counts(database) == ({"leased": 2} if taken else {"ready": 2})
        assert await claimed(database, self.worker_id) == [], "from the answer on nothing is claimed"


@story
class LiftAndClaim(OfEverything):
    async def moves(self, database):
        await self.blocker()(database)
        return lambda side: pauses.resume_scope(side, EVERYTHING), claiming(self.worker_id)

    async def check(self, database, lifted, taken):
        assert lifted
        assert len(taken) + len(await claimed(database, self.worker_id)) == 2, "nothing is lost"


@story
class HoldAndHandBack(OfEverything):
    async def moves(self, database):
        taken = await claimed(database, self.worker_id)
        return self.blocker(), lambda side: hand_back(side, self.worker_id, taken)

    async def check(self, database, held, back):
        assert len(back) == 2
        assert await claimed(database, self.worker_id) == []
        assert await counts(database) == {"ready": 2}


@story
class ScopePauseAndTheSamePause(OfEverything):
    async def moves(self, database):
        return self.blocker(), self.blocker()

    async def check(self, database, left, right):
        assert {left, right} == {"paused", "already"}
        assert await database.fetchval("select count(*) from duly.pauses") == 1


@story
class ScopePauseAndResume(OfEverything):
    async def moves(self, database):
        return self.blocker(), lambda side: pauses.resume_scope(side, EVERYTHING)

    async def check(self, database, held, lifted):
        assert held == "paused"
        left = await database.fetchval("select count(*) from duly.pauses")
        assert left == (0 if lifted else 1)


@story
class SettleAndReclaim:
    outcome: Succeeded | Failed = Succeeded()

    async def set_up(self, database):
        self.worker_id, self.run = await a_leased_run(database, retry=AT_ONCE)
        await database.clock.advance(LEASE)
        return settling(self.worker_id, self.run, self.outcome), reaping(self.worker_id)

    async def check(self, database, refused, reclaimed):
        outcomes = [outcome for _, outcome, _ in await history_of(database, self.run.run_id)]
        if refused:
            assert (outcomes, reclaimed) == (["fenced", "lost"], 1)
            assert await boxes_of(database, self.run.run_id) == ["ready"]
        else:
            assert reclaimed == 0
            assert outcomes == ["failed" if isinstance(self.outcome, Failed) else "succeeded"]


@story
class FailureAndReclaim(SettleAndReclaim):
    outcome = Failed("broken")


@story
class SettleAndHandBack:
    async def set_up(self, database):
        worker_id, self.run = await a_leased_run(database)
        return settling(worker_id, self.run), lambda side: hand_back(side, worker_id, [self.run])

    async def check(self, database, refused, back):
        if back:
            assert refused == [self.run]
            assert await boxes_of(database, self.run.run_id) == ["ready"]
        else:
            assert refused == []
            assert await boxes_of(database, self.run.run_id) == []


@story
class HandBackAndReclaim:
    """A worker that slept past its lease gives back what is being taken from it."""

    async def set_up(self, database):
        worker_id, self.run = await a_leased_run(database, retry=AT_ONCE)
        await database.clock.advance(LEASE)
        return lambda side: hand_back(side, worker_id, [self.run]), reaping(worker_id)

    async def check(self, database, back, reclaimed):
        assert len(back) + reclaimed == 1, "one of them has moved it"
        assert await boxes_of(database, self.run.run_id) == ["ready"]
        assert await history_of(database, self.run.run_id) == ([(1, "lost", "retrying")] if reclaimed else [])


@story
class SettleAndTheSameSettle:
    """The answer was lost while the statement was still running, and the worker asks again."""

    async def set_up(self, database):
        worker_id, self.run = await a_leased_run(database)
        return settling(worker_id, self.run), settling(worker_id, self.run)

    async def check(self, database, left, right):
        assert (left, right) == ([], [])
        assert await history_of(database, self.run.run_id) == [(1, "succeeded", "succeeded")]


@story
class ReclaimAndReclaim:
    async def set_up(self, database):
        worker_id, self.run = await a_leased_run(database, retry=AT_ONCE)
        await database.clock.advance(LEASE)
        return reaping(worker_id), reaping(worker_id)

    async def check(self, database, left, right):
        assert left + right == 1
        assert await history_of(database, self.run.run_id) == [(1, "lost", "retrying")]


@story
class ExpireAndClaim:
    async def set_up(self, database):
        self.worker_id = await a_worker(database)
        self.run_id = await a_ready_run(database, retry=AT_ONCE)
        await database.clock.advance(LEASE - seconds(1))
        return claiming(self.worker_id), lambda side: workers.expire(side, self.worker_id, 0, clock_stepped=True)

    async def check(self, database, taken, expired):
        assert expired is True
        if isinstance(taken, WorkerExpired):
            assert await boxes_of(database, self.run_id) == ["ready"]
            return
        assert [run.run_id for run in taken] == [self.run_id]
        [gone] = await workers.expired_workers(database)
        [found] = (await reclaim(database, gone, RNG)).moved
        assert found.run_id == self.run_id, "the reaper finds what was claimed before it struck"
        assert await boxes_of(database, self.run_id) == ["ready"]


@story
class RetireAndClaim:
    """A worker leaves while a claim is under way whose answer it will not hear."""

    async def set_up(self, database):
        self.worker_id = await a_worker(database)
        self.run_id = await a_ready_run(database)
        return claiming(self.worker_id), lambda side: retire(side, self.worker_id, [])

    async def check(self, database, taken, left):
        assert left is True
        assert isinstance(taken, WorkerExpired) or [run.run_id for run in taken] == [self.run_id]
        assert await boxes_of(database, self.run_id) == ["ready"], "whatever was claimed is back"
        assert await history_of(database, self.run_id) == []


@story
class RetireAndSettle:
    """It leaves while the last outcome is being written: before that it may not."""

    async def set_up(self, database):
        self.worker_id, self.run = await a_leased_run(database)
        return settling(self.worker_id, self.run), lambda side: retire(side, self.worker_id, [self.run])

    async def check(self, database, refused, left):
        assert refused == []
        assert await history_of(database, self.run.run_id) == [(1, "succeeded", "succeeded")]
        assert left is not (await workers.heartbeat(database, self.worker_id) is not None)


@story
class ExpireAndBeat:
    async def set_up(self, database):
        self.worker_id = await a_worker(database)
        await database.clock.advance(LEASE)
        return lambda side: workers.heartbeat(side, self.worker_id), lambda side: workers.expire(
            side, self.worker_id, 0
        )

    async def check(self, database, beaten, expired):
        assert (beaten is None) is expired, "either it lives and knows it, or it is dead and knows it"


@story
class BeatAndClaim:
    """A claim holds the row its leases hang on, and yet hinders no heartbeat."""

    orders = 6

    async def set_up(self, database):
        worker_id = await a_worker(database)
        self.run_id = await a_ready_run(database)
        return claiming(worker_id), lambda side: workers.heartbeat(side, worker_id)

    async def check(self, database, taken, beaten):
        assert [run.run_id for run in taken] == [self.run_id]
        assert beaten is not None


@story
class StageAndStage:
    """Two processes that believe to be the same holder: the delete alone decides."""

    orders = 6

    async def set_up(self, database):
        self.waiting = {await a_waiting_run(database, delay=6) for _ in range(3)}
        self.schedule = await an_active_schedule(database, every=60, anchor=START + seconds(2))
        await database.clock.advance(1)
        holder, epochs = await a_scheduler(database)
        return lambda side: stage(side, holder, epochs), lambda side: stage(side, holder, epochs)

    async def check(self, database, left, right):
        assert left.count + right.count == 4
        assert await counts(database) == {"ready": 4, "timers": 1}


@story
class StageAndStageInSmallBatches:
    """What one of them has in hand, the other passes over."""

    async def set_up(self, database):
        for _ in range(3):
            await a_waiting_run(database, delay=6)
        await database.execute("update duly.timers set shard = 7")
        await database.clock.advance(1)
        holder, epochs = await a_scheduler(database)
        return lambda side: stage(side, holder, epochs, batch=64), lambda side: stage(side, holder, epochs, batch=64)

    async def check(self, database, left, right):
        assert (left.count, right.count) == (1, 1)
        assert await counts(database) == {"ready": 2, "timers": 1}


@story
class StageAndCancelOfItsSchedule:
    async def set_up(self, database):
        self.schedule = await an_active_schedule(database, every=60, anchor=START)
        holder, epochs = await a_scheduler(database)
        return lambda side: stage(side, holder, epochs), lambda side: cancel_job(side, self.schedule.job_id)

    async def check(self, database, _, cancelled):
        assert cancelled is CancelAnswer.CANCELLED
        assert await counts(database) == {}, "neither a next fire nor a staged run is left"


@story
class StageAndCancelOfItsRun:
    async def set_up(self, database):
        self.run_id = await a_waiting_run(database, delay=6)
        await database.clock.advance(1)
        holder, epochs = await a_scheduler(database)
        return lambda side: stage(side, holder, epochs), lambda side: cancel_run(side, self.run_id)

    async def check(self, database, _, cancelled):
        assert cancelled is CancelAnswer.CANCELLED
        assert await boxes_of(database, self.run_id) == []
        assert await history_of(database, self.run_id) == [(0, "cancelled", "cancelled")]


@story
class StageAndTakeOver:
    async def set_up(self, database):
        self.runs = [await a_waiting_run(database, delay=10) for _ in range(3)]
        old, epochs = await a_scheduler(database)
        await database.clock.advance(1.5)
        new = RNG.uuid()

        async def take_over(side):
            await shards.release(side, old)
            return await stage(side, new, await hold(side, new), horizon=seconds(60))

        return lambda side: stage(side, old, epochs, horizon=seconds(60)), take_over

    async def check(self, database, left, right):
        assert left.count + right.count == 3, "no slot is lost at a change of hands, and none is fired twice"
        assert await counts(database) == {"ready": 3}


@story
class CancelAndClaim:
    async def set_up(self, database):
        self.run_id = await a_ready_run(database)
        self.worker_id = await a_worker(database)
        return lambda side: cancel_run(side, self.run_id), claiming(self.worker_id)

    async def check(self, database, cancelled, taken):
        if taken:
            assert cancelled is CancelAnswer.REQUESTED
            assert [signal.run_id for signal in (await runs.look(database, self.worker_id)).signals] == [self.run_id]
        else:
            assert cancelled is CancelAnswer.CANCELLED
            assert await boxes_of(database, self.run_id) == []


@story
class CancelAndRetry:
    async def set_up(self, database):
        worker_id, self.run = await a_leased_run(database, retry=AT_ONCE)
        return lambda side: cancel_run(side, self.run.run_id), settling(worker_id, self.run, Failed("broken"))

    async def check(self, database, cancelled, refused):
        assert refused == []
        assert cancelled in (CancelAnswer.CANCELLED, CancelAnswer.REQUESTED, CancelAnswer.TOO_LATE)
        await carry_out(database)
        assert await boxes_of(database, self.run.run_id) == [], "once a cancel was answered, no attempt follows"
        assert "cancelled" in {became for _, _, became in await history_of(database, self.run.run_id)}


@story
class CancelAndSuccess:
    async def set_up(self, database):
        worker_id, self.run = await a_leased_run(database)
        return lambda side: cancel_run(side, self.run.run_id), settling(worker_id, self.run)

    async def check(self, database, cancelled, refused):
        assert refused == []
        assert cancelled in (CancelAnswer.REQUESTED, CancelAnswer.TOO_LATE)
        assert await history_of(database, self.run.run_id) == [(1, "succeeded", "succeeded")]
        assert await cancel_run(database, self.run.run_id) is CancelAnswer.TOO_LATE


@story
class CancelAndHandBack:
    async def set_up(self, database):
        worker_id, self.run = await a_leased_run(database)
        return lambda side: cancel_run(side, self.run.run_id), lambda side: hand_back(side, worker_id, [self.run])

    async def check(self, database, cancelled, back):
        assert len(back) == 1
        assert cancelled in (CancelAnswer.CANCELLED, CancelAnswer.REQUESTED, CancelAnswer.TOO_LATE)
        await carry_out(database)
        assert await boxes_of(database, self.run.run_id) == []
        assert await history_of(database, self.run.run_id) == [(0, "cancelled", "cancelled")]


class CancelAndDeath:
    """A run is cancelled whose worker is gone, so that nobody will hear the signal. The two steps of the reaper are two stories:
    one would have three thousand orders."""

    async def set_up(self, database):
        self.worker_id, self.run = await a_leased_run(database, retry=AT_ONCE)
        await database.clock.advance(LEASE)
        return lambda side: cancel_run(side, self.run.run_id), await self.reaper(database)

    async def reaper(self, database):
        raise NotImplementedError

    async def pauses(self, database, cancelled):
        """Whatever was answered, the run comes to its end, and once."""
        assert cancelled in (CancelAnswer.CANCELLED, CancelAnswer.REQUESTED)
        await carry_out(database)
        assert await boxes_of(database, self.run.run_id) == [], "once a cancel was answered, no attempt follows"
        assert [became for _, _, became in await history_of(database, self.run.run_id)].count("cancelled") == 1


@story
class CancelAndExpire(CancelAndDeath):
    async def reaper(self, database):
        return lambda side: workers.expire(side, self.worker_id, 0)

    async def check(self, database, cancelled, expired):
        assert expired is True
        [gone] = await workers.expired_workers(database)
        [moved] = (await reclaim(database, gone, RNG)).moved
        assert moved.run_id == self.run.run_id, "a signal in its hands keeps no run there"
        await self.pauses(database, cancelled)


@story
class CancelAndReclaim(CancelAndDeath):
    async def reaper(self, database):
        assert await workers.expire(database, self.worker_id, 0)
        [gone] = await workers.expired_workers(database)
        return lambda side: reclaim(side, gone, RNG)

    async def check(self, database, cancelled, reclaimed):
        assert [run.run_id for run in reclaimed.moved] == [self.run.run_id]
        await self.pauses(database, cancelled)


@story
class CancelAndCancel:
    async def set_up(self, database):
        self.run_id = await a_waiting_run(database)
        return lambda side: cancel_run(side, self.run_id), lambda side: cancel_run(side, self.run_id)

    async def check(self, database, left, right):
        assert {left, right} == {CancelAnswer.CANCELLED, CancelAnswer.TOO_LATE}
        assert await history_of(database, self.run_id) == [(0, "cancelled", "cancelled")]


class CarryOut:
    """A cancel is carried out of which its worker never heard; meanwhile the run moves on."""

    async def leave_signal(self, database, worker_id, run):
        self.run = run
        await database.execute(
            "insert into duly.signals values ($1, $2, $3, 'cancel', duly.clock_now())",
            worker_id,
            run.run_id,
            run.fence,
        )


@story
class CarryOutAndClaim(CarryOut):
    async def set_up(self, database):
        worker_id, run = await a_leased_run(database)
        await hand_back(database, worker_id, [run])
        await self.leave_signal(database, worker_id, run)
        self.second = await a_worker(database)
        return carry_out, claiming(self.second)

    async def check(self, database, carried_out, taken):
        assert carried_out == 1
        if taken:
            assert [signal.run_id for signal in (await runs.look(database, self.second)).signals] == [self.run.run_id]
        else:
            assert await boxes_of(database, self.run.run_id) == []


@story
class CarryOutAndStage(CarryOut):
    async def set_up(self, database):
        worker_id, run = await a_leased_run(database)
        await settle(database, worker_id, [Settled(run, START, START, Failed("broken", retry_after=seconds(6)))], RNG)
        await self.leave_signal(database, worker_id, run)
        await database.clock.advance(1)
        holder, epochs = await a_scheduler(database)
        return carry_out, lambda side: stage(side, holder, epochs)

    async def check(self, database, carried_out, _):
        assert carried_out == 1
        assert await boxes_of(database, self.run.run_id) == [], "though it was in no box when it was looked for"


@story
class CarryOutAndCarryOut(CarryOut):
    async def set_up(self, database):
        worker_id, run = await a_leased_run(database)
        await hand_back(database, worker_id, [run])
        await self.leave_signal(database, worker_id, run)
        return carry_out, carry_out

    async def check(self, database, left, right):
        assert left + right == 1
        assert await history_of(database, self.run.run_id) == [(0, "cancelled", "cancelled")]


@story
class CarryOutAndReplay(CarryOut):
    """The cancel came too late for the life that has ended, and is none of the next one."""

    async def set_up(self, database):
        worker_id, run = await a_leased_run(database)
        await settle(database, worker_id, [Settled(run, START, START, Failed("broken", retryable=False))], RNG)
        await self.leave_signal(database, worker_id, run)
        return carry_out, lambda side: replay(side, [run.run_id])

    async def check(self, database, _, replayed):
        assert replayed == [self.run.run_id]
        assert await boxes_of(database, self.run.run_id) == ["ready"]
        assert await carry_out(database) == 0


@story
class SubmitAndTheSameSubmit:
    async def set_up(self, database):
        asked = a_submission(payload='{"n": 1}')
        return lambda side: submit(side, asked, key="k"), lambda side: submit(side, asked, key="k")

    async def check(self, database, left, right):
        assert left.job_id == right.job_id
        assert sorted([left.replayed, right.replayed]) == [False, True]
        assert await counts(database) == {"ready": 1}


@story
class SubmitAndAnotherUnderItsKey:
    async def set_up(self, database):
        one, other = a_submission(payload='{"n": 1}'), a_submission(payload='{"n": 2}')
        return lambda side: submit(side, one, key="k"), lambda side: submit(side, other, key="k")

    async def check(self, database, left, right):
        assert [type(answer) for answer in (left, right)].count(KeyConflict) == 1
        assert await counts(database) == {"ready": 1}


@story
class SubmitAndStage:
    """What falls due within the horizon of a stage that has begun already is left to the next one, and not lost."""

    async def set_up(self, database):
        self.holder, self.epochs = await a_scheduler(database)
        return lambda side: submit(side, a_submission(delay=6), key="k"), self.stage

    async def stage(self, side):
        return await stage(side, self.holder, self.epochs, horizon=seconds(10))

    async def check(self, database, made, staged_now):
        assert await boxes_of(database, made.job_id) == (["ready"] if staged_now.count else ["timers"])
        assert (await self.stage(database)).count == 1 - staged_now.count
        assert await counts(database) == {"ready": 1}


@story
class SubmitAndCancelOfTheSame:
    """It is asked again, because no answer came, while somebody cancels it: it is not made a second time."""

    async def set_up(self, database):
        asked = a_submission()
        self.run_id = (await submit(database, asked, key="k")).job_id
        return lambda side: submit(side, asked, key="k"), lambda side: cancel_run(side, self.run_id)

    async def check(self, database, again, cancelled):
        assert (again.job_id, again.replayed) == (self.run_id, True)
        assert cancelled is CancelAnswer.CANCELLED
        assert await counts(database) == {}
        assert await history_of(database, self.run_id) == [(0, "cancelled", "cancelled")]


@story
class HoldAndHold:
    async def set_up(self, database):
        self.one, self.other = RNG.uuid(), RNG.uuid()
        await hold(database, self.one)
        return lambda side: hold(side, self.one), lambda side: hold(side, self.other)

    async def check(self, database, left, right):
        current = dict(await database.fetch("select shard, epoch from duly.shards"))
        valid = [{shard for shard, epoch in held.items() if current[shard] == epoch} for held in (left, right)]
        assert not valid[0] & valid[1], "an epoch is good for one holder"
        for scheduler_id in (self.one, self.other):
            await hold(database, scheduler_id)
        held = [await hold(database, self.one), await hold(database, self.other)]
        assert [len(epochs) for epochs in held] == [32, 32]
        assert not held[0].keys() & held[1].keys()


@story
class ReplayAndReplay:
    async def set_up(self, database):
        self.run_id = await a_dead_run(database)
        return lambda side: replay(side, [self.run_id]), lambda side: replay(side, [self.run_id])

    async def check(self, database, left, right):
        assert sorted([left, right]) == [[], [self.run_id]]
        assert await boxes_of(database, self.run_id) == ["ready"]


@story
class ReplayAndDiscard:
    async def set_up(self, database):
        self.run_id = await a_dead_run(database)
        return lambda side: replay(side, [self.run_id]), lambda side: discard(side, [self.run_id])

    async def check(self, database, replayed, discarded):
        assert sorted([replayed, discarded]) == [[], [self.run_id]]
        assert await boxes_of(database, self.run_id) == (["ready"] if replayed else [])


@story
class ReplayAndCancel:
    """A dead run has ended, so a cancel comes too late for it; one that comes after the replay takes it."""

    async def set_up(self, database):
        self.run_id = await a_dead_run(database)
        return lambda side: replay(side, [self.run_id]), lambda side: cancel_run(side, self.run_id)

    async def check(self, database, replayed, cancelled):
        assert replayed == [self.run_id]
        assert cancelled in (CancelAnswer.CANCELLED, CancelAnswer.TOO_LATE)
        assert await carry_out(database) == 0, "no signal is left that would strike the next attempt"
        assert await boxes_of(database, self.run_id) == ([] if cancelled is CancelAnswer.CANCELLED else ["ready"])


@story
class CheckpointAndReclaim:
    """A worker that slept past its lease saves while its run goes to another."""

    async def set_up(self, database):
        self.stale_id, self.run = await a_leased_run(database, retry=AT_ONCE)
        await database.clock.advance(LEASE)
        self.awake = await a_worker(database)

        async def go_on(side):
            await reaping(self.stale_id)(side)
            [again] = await claimed(side, self.awake)
            assert await runs.save_checkpoint(side, again.run_id, again.fence, self.awake, '"fresh"')

        return lambda side: runs.save_checkpoint(side, self.run.run_id, self.run.fence, self.stale_id, '"stale"'), go_on

    async def check(self, database, saved, gone_on):
        assert gone_on is None
        assert await runs.checkpoints(database, [self.run.run_id]) == {self.run.run_id: '"fresh"'}


@story
class TwoRunsLeaveOneKey:
    async def set_up(self, database):
        self.waiting = [await a_ready_run(database, concurrency=("customer-7", 2)) for _ in range(5)]
        await staged(database)
        worker_id = await a_worker(database)
        one, other = await claimed(database, worker_id)
        return settling(worker_id, one), settling(worker_id, other)

    async def check(self, database, left, right):
        assert await counts(database) == {"blocked": 1, "ready": 2}


@story
class TwoRunsArriveAtOneSlot:
    async def set_up(self, database):
        schedulers = [RNG.uuid(), RNG.uuid()]
        held = [await hold(database, scheduler_id) for scheduler_id in (*schedulers, *schedulers)][2:]
        for epochs in held:
            run_id = await a_ready_run(database, concurrency=("customer-7", 1))
            await database.execute("update duly.timers set shard = $2 where run_id = $1", run_id, min(epochs))
        one, other = zip(schedulers, held, strict=True)
        return lambda side: stage(side, *one), lambda side: stage(side, *other)

    async def check(self, database, left, right):
        assert (left.count, right.count) == (1, 1)
        assert await counts(database) == {"blocked": 1, "ready": 1}


@story
class OneComesWhileTheLastOneLeaves:
    async def set_up(self, database):
        await a_ready_run(database, concurrency=("customer-7", 1))
        await staged(database)
        worker_id, inside = await self.inside(database)
        self.comer = await a_ready_run(database, concurrency=("customer-7", 1))
        holder, epochs = await a_scheduler(database)
        return settling(worker_id, inside), lambda side: stage(side, holder, epochs)

    async def inside(self, database):
        worker_id = await a_worker(database)
        [run] = await claimed(database, worker_id)
        return worker_id, run

    async def check(self, database, refused, _):
        assert refused == []
        assert await boxes_of(database, self.comer) == ["ready"]


@story
class WaitingRunIsCancelledWhileItsSlotFrees:
    async def set_up(self, database):
        made = [
            await a_ready_run(database, concurrency=("customer-7", 1), at=START - seconds(9 - age)) for age in range(3)
        ]
        await staged(database)
        worker_id = await a_worker(database)
        [inside] = await claimed(database, worker_id)
        self.waiting = made[1:]
        return settling(worker_id, inside), lambda side: cancel_run(side, self.waiting[0])

    async def check(self, database, refused, cancelled):
        assert (refused, cancelled) == ([], CancelAnswer.CANCELLED)
        assert await boxes_of(database, self.waiting[0]) == []
        assert await boxes_of(database, self.waiting[1]) == ["ready"]


def both_claims(stories):
    """Tell each story, and those of a claim once more with that of a worker that was idle."""
    plain = [pytest.param(story, "claim", id=story.__name__) for story in stories]
    idle = [
        pytest.param(story, "claim_all", id=f"{story.__name__} when idle")
        for story in stories
        if "Claim" in story.__name__
    ]
    return pytest.mark.parametrize(("story", "way_to_claim"), plain + idle, indirect=["way_to_claim"])


@both_claims(STORIES)
@pytest.mark.usefixtures("way_to_claim")
async def test_in_every_order_there_is_one_winner(story, every_order):
    number = await every_order(story)

    assert number >= 4
    assert number == getattr(story, "orders", number), "nobody waits for the other, so every order is possible"
