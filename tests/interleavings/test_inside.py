"""Pairs of moves, stepped inside the functions that do them: between any two of their statements the other may come.

Each statement of a function sees what was committed before it began. There are too many orders to try them all, so it is those in
which the two are interrupted twice at most, or once where that is still too many; `make proof` tries those with three.
"""

import re

import asyncpg
import pytest

from duly.domain.runs.outcome import Succeeded
from duly.moves.cancel import CancelAnswer, cancel_run
from duly.moves.settle import hand_back
from duly.store.boxes import history
from duly.store.connection.database import Database
from tests.builders import BOXES, LEASE, a_leased_run, boxes_of, history_of
from tests.clock import START
from tests.conftest import EMPTY, copy
from tests.interleavings import test_concurrency_keys, test_dependents, test_pairs, test_schedules
from tests.interleavings.inside import FewTurns, InnerSide, put_steps, with_steps
from tests.interleavings.stepper import run

TURNS_MAX = 2
TURNS_MAX_OF_PROOF = 3
TURNS_MAX_OF_MANY = 1  # where two would be more than sixty orders
STEPPED = "stepped_inside"
# The moves, and what they call on their way that reads and writes on its own account.
MOVES = re.split(
    r"\s+",
    """claim claim_all stage settle finish hand_back retire leave release cancel carry_out
submit_one submit_many pause edit withdraw take_next_fire cancel_schedule
check_dependents add_dependencies open_dependents""",
)
# Where a run stands, or the record of its end; or the next fire of its schedule covers its moment again.
LOST = """
select run_id from unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) as known(run_id, job_id, scheduled_at)
 where not exists (select from duly.attempts where attempts.run_id = known.run_id
                      and became not in ('retrying', 'dead') and outcome <> 'fenced')
   and not exists (select from duly.timers where timers.job_id = known.job_id and timers.run_id is null
                      and timers.scheduled_at <= known.scheduled_at)
"""
PLACES = " union all ".join(
    f"select run_id, job_id, scheduled_at from duly.{box} where run_id is not null" for box in BOXES
)


class HandBackAndReclaim:
    """A worker that slept past its lease gives back what it has not begun, as the reaper takes it."""

    async def set_up(self, database):
        worker_id, self.run = await a_leased_run(database, retry=test_pairs.AT_ONCE)
        await database.clock.advance(LEASE)
        return lambda side: hand_back(side, worker_id, [self.run]), test_pairs.reaping(worker_id)

    async def check(self, database, back, reclaimed):
        assert len(back) + reclaimed == 1
        assert await boxes_of(database, self.run.run_id) == ["ready"]
        assert len(await history_of(database, self.run.run_id)) == reclaimed


class SettleAndCancel:
    """Of a run that is done: it has one end, whoever comes first."""

    async def set_up(self, database):
        worker_id, self.run = await a_leased_run(database)
        settling = test_pairs.settling(worker_id, self.run, Succeeded())
        return settling, lambda side: cancel_run(side, self.run.run_id)

    async def check(self, database, refused, answer):
        assert refused == []
        assert answer in (CancelAnswer.REQUESTED, CancelAnswer.TOO_LATE)
        assert await history_of(database, self.run.run_id) == [(1, "succeeded", "succeeded")]


STORIES = (
    test_pairs.ScopePauseAndClaim,
    test_pairs.CancelAndClaim,
    test_pairs.ExpireAndClaim,
    test_pairs.RetireAndClaim,
    test_pairs.SettleAndReclaim,
    test_pairs.FailureAndReclaim,
    test_pairs.ReclaimAndReclaim,
    test_pairs.CancelAndRetry,
    test_pairs.StageAndCancelOfItsRun,
    test_pairs.SubmitAndTheSameSubmit,
    test_pairs.SubmitAndAnotherUnderItsKey,
    test_dependents.SubmittedAsItsParentSettles,
    test_dependents.TwoParentsSettled,
    HandBackAndReclaim,
    SettleAndCancel,
)
LONG_STORIES = (
    test_pairs.ClaimAndClaim,
    test_pairs.StageAndStage,
    test_pairs.StageAndCancelOfItsSchedule,
    test_pairs.TwoRunsLeaveOneKey,
    test_pairs.TwoRunsArriveAtOneSlot,
    test_pairs.OneComesWhileTheLastOneLeaves,
    test_pairs.WaitingRunIsCancelledWhileItsSlotFrees,
    test_concurrency_keys.EarlierRunArrivesWhileTheActiveOneLeaves,
    test_schedules.PauseAndStage,
    test_schedules.EditOfTheTimingAndStage,
    test_schedules.PauseAndClaim,
    test_schedules.EditAndClaim,
    test_dependents.CheckedAsItsParentSettles,
    test_dependents.CheckedTwice,
)


@pytest.fixture(scope="module")
async def stepped(postgres, template):
    """A database whose moves have steps in them, and what holds the keys of these."""
    copy(postgres, STEPPED, template)
    keeper = await asyncpg.connect(postgres.url(STEPPED))
    steps = await put_steps(keeper, f"^({'|'.join(MOVES)})$")
    assert steps.keys() == set(MOVES)
    assert all(steps.values())
    yield keeper
    await keeper.close()
    postgres.drop_database(STEPPED)


@pytest.fixture
async def stepped_database(stepped, postgres, clock):
    """The same, open."""
    async with Database(postgres.url(STEPPED), size_max=4, clock=clock) as opened:
        clock.moves(opened)
        yield opened


@pytest.fixture
async def sides(stepped, stepped_database, clock):
    """Two connections."""
    left, right = (InnerSide(name, stepped_database.url, stepped, clock=clock) for name in ("left", "right"))
    await left.connect()
    await right.connect()
    yield left, right
    await left.connection.close()
    await right.connection.close()


@pytest.fixture
def few_turns(stepped, sides, stepped_database, clock):
    """Run a story in every order of few turns; gives how many there were."""

    async def all_orders(story, turns_max) -> int:
        choices: list[str] | None = []
        number = 0
        while choices is not None:
            order = FewTurns(choices, turns_max)
            await one_order(story(), order)
            number += 1
            choices = order.following()
        return number

    async def one_order(story, order) -> None:
        await stepped_database.execute(EMPTY)
        clock.at = START
        moves = await story.set_up(stepped_database)
        known = await stepped_database.fetch(PLACES)
        left, right = sides
        for side, move in zip(sides, moves, strict=True):
            await side.take_keys()
            side.start(move)
        try:
            answers = await run(order, left, right, stepped_database)
            await stepped.execute("select pg_advisory_unlock_all()")
            await conserved(known)
            assert await history.verify(stepped_database) == []
            await story.check(stepped_database, *answers)
        except AssertionError as error:
            error.add_note(f"in the order: {order}")
            raise

    async def conserved(known) -> None:
        live = {row["run_id"] for row in await stepped_database.fetch(PLACES)}
        gone = [row for row in known if row["run_id"] not in live]
        columns = ([row[name] for row in gone] for name in ("run_id", "job_id", "scheduled_at"))
        assert await stepped_database.fetch(LOST, *columns) == []

    return all_orders


@test_pairs.both_claims(STORIES)
@pytest.mark.usefixtures("way_to_claim")
async def test_interleaved_moves_have_one_winner_between_any_two_statements(story, few_turns):
    assert await few_turns(story, TURNS_MAX) > 8


@test_pairs.both_claims(LONG_STORIES)
@pytest.mark.usefixtures("way_to_claim")
async def test_interleaved_long_moves_have_one_winner_between_any_two_statements(story, few_turns):
    assert await few_turns(story, TURNS_MAX_OF_MANY) > 10


@pytest.mark.proof
@pytest.mark.timeout(1200)
@test_pairs.both_claims([*STORIES, *LONG_STORIES])
@pytest.mark.usefixtures("way_to_claim")
async def test_with_a_turn_more(story, few_turns):
    assert await few_turns(story, TURNS_MAX_OF_PROOF) > 10


def test_step_precedes_each_statement_that_reads_or_writes():
    definition = """CREATE FUNCTION duly.f() AS $function$
    declare v_now timestamptz := duly.clock_now();
    begin
        v_now := case when true then duly.a() else duly.b() end;   -- not duly; here
        if exists (select from duly.c) then
            perform duly.d('; begin');
        elsif false then
            raise notice 'nothing';
        end if;
        for v_row in select * from duly.e loop
            delete from duly.g;
            if not found or duly.h() then
                return;
            end if;
        end loop;
        case v_row when 1 then update duly.i set j = 1; else null; end case;
        return query select case when 1 = 2 then 3 end from duly.k;
    end $function$"""

    after = [part.split(maxsplit=2)[:2] for part in with_steps(definition).split("perform duly.test_step(); ")[1:]]

    assert after == [
        ["v_now", ":="],
        ["if", "exists"],
        ["perform", "duly.d(';"],
        ["for", "v_row"],
        ["delete", "from"],
        ["update", "duly.i"],
        ["return", "query"],
    ]
