"""Frozen: a scheduler that stood still for long, and knows nothing of it when it goes on."""

import time

import pytest

from duly.bench.chaos import checker
from duly.scheduler.service import LEASE
from tests.end_to_end import figures
from tests.end_to_end.aftermath import calm_down, gathered, verified
from tests.end_to_end.house import House, a_house, sleep_until, wait_until

FROZEN_SECONDS = LEASE.total_seconds() * 6
RUNS = 500
DELAY_SECONDS = 3.0

# Writes down how much each stage took, and whether none of the epochs it was called with held at that moment.
WITNESS = """
create table public.stages (holder uuid, is_stale boolean, staged integer, at timestamptz default clock_timestamp());
alter function duly.stage rename to stage_as_it_was;
create function duly.stage(uuid, smallint[], bigint[], interval, integer, timestamptz, bigint[], bigint[], timestamptz[],
                              integer[], timestamptz[], integer[], jsonb[], jsonb[], uuid[], uuid[])
returns table (staged integer, next_due_at timestamptz, read_at timestamptz) language plpgsql as $$
declare
    v_stale boolean := not exists (
        select from unnest($2, $3) as held(shard, epoch) join duly.shards using (shard)
         where shards.epoch = held.epoch and shards.holder = $1);
begin
    return query with done as (
        select * from duly.stage_as_it_was($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)),
    noted as (insert into public.stages (holder, is_stale, staged) select $1, v_stale, done.staged from done)
    select * from done;
end $$;
"""


@pytest.mark.timeout(200)
def test_frozen_scheduler_that_resumes_stages_nothing_and_delays_nothing(tmp_path):
    with a_house(tmp_path) as house:
        house.execute(WITNESS)
        for name in ("scheduler0", "scheduler1"):
            house.start_scheduler(name)
        house.start_worker("worker0")
        house.start("client", "client", house.ledger, RUNS, FROZEN_SECONDS - 4)
        began = freeze(house)
        end = time.time()
        assert house.processes["client"].wait(60) == 0, house.last_words("client")
        calm_down(house)
        evidence, broken, stale = gathered(house), verified(house), stale_stages(house)
        assert house.ask("select count(*) from public.stages where staged > 0")[0][0] > 0, (
            "the witness sees what is staged"
        )
    # It looks before it stages, and mostly knows by then that others hold its shards.
    assert set(stale) <= {0}, "a stale epoch stages nothing"
    assert checker.findings(evidence) == []
    assert broken == []
    assert max(figures.latenesses(evidence, began, end - DELAY_SECONDS)) <= DELAY_SECONDS


def freeze(house: House) -> float:
    """Freeze a scheduler for long, and let it go on where there is something for it to stage. Returns when it began."""
    began = time.time()
    wait_until(lambda: shares(house) == {"scheduler0": 32, "scheduler1": 32}, 30, what="even shares")
    frozen_at = house.freeze("scheduler0")
    wait_until(lambda: shares(house) == {"scheduler1": 64}, 30, what="a successor", pause=0.2)
    sleep_until(frozen_at + FROZEN_SECONDS)
    leave_it_something_to_stage(house)
    wait_until(lambda: shares(house) == {"scheduler0": 32, "scheduler1": 32}, 30, what="even shares again")
    return began


def leave_it_something_to_stage(house: House) -> None:
    """Let it go on while its successor stands still, shorter than a lease: what has come within the horizon is there to take."""
    sleep_until(house.freeze("scheduler1") + LEASE.total_seconds() / 2)
    house.thaw("scheduler0")
    sleep_until(time.time() + LEASE.total_seconds() / 8)
    house.thaw("scheduler1")


def shares(house: House) -> dict[str, int]:
    """Count the shards of each scheduler that lives."""
    return dict(
        house.ask(
            "select name, count(*) from duly.shards join duly.schedulers on scheduler_id = holder"
            " where until > clock_timestamp() group by name"
        )
    )


def stale_stages(house: House) -> list[int]:
    """Tell how much each stage took that was called with epochs of before."""
    return [staged for (staged,) in house.ask("select staged from public.stages where is_stale")]
