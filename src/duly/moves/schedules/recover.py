"""Recovery: hold the fires missed while no scheduler staged, take a person's decision, and carry it out.

See docs/decisions/0027-load-shedding-and-recovery.md. The schedulers carry it out, each for its shards and in batches; the
runs go through the backfill lane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from uuid import UUID

import msgspec

from duly.clock import Rng
from duly.domain.errors import InvalidOption, Refused
from duly.domain.jobs.recovery import RATE_MAX, Rule, Verdict, choice_for, decide
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.tenancy.audit import Action, Subject
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.schedule.planning import Skip
from duly.domain.triggers.schedule.timing import read_calendars, schedule_of
from duly.log import Log
from duly.moves.admin.audit import audited, record
from duly.store.connection import hints
from duly.store.connection.database import Database
from duly.store.tables import recovery as store
from duly.store.tables.recovery import APPROVED, LIVE, OPEN, Decided, HeldSpan, Recovery, Standing

BATCH_MAX = 500
UNDER_WAY_MAX = 250  # spans of a scheduler that are created at once, so that others in the lane go on
RULES_MAX = 1_000
_RULES_RECORDED_MAX = 10
_TAKEN_OVER_MAX = 100_000
_LOOKED_AT = 2_000  # timers of each shard that are searched for late ones
_FINEST = timedelta(microseconds=1)
_NOTHING = "no recovery is open; `duly recover` shows the last one"


async def record_staging(database: Database, after: timedelta | None, rng: Rng, log: Log) -> Standing | None:
    """Record that we stage; after too long without any scheduler, that opens a recovery. Returns the open one."""
    standing = await store.record_staging(database, after, rng.uuid())
    if standing is not None and standing.is_new:
        log.warning("recovery_opened", recovery_id=standing.recovery_id, remedy="duly recover")
    return standing


async def defer_missed(database: Database, holder: UUID, epochs: Mapping[int, int]) -> int:
    """Hold the missed fires of plain intervals, until there are no more; those of cohorts are held where they are planned."""
    count = 0
    while some := await store.defer_late(database, holder, epochs, _LOOKED_AT):
        count += some
    return count


async def carry_out(database: Database, standing: Standing, shards: Sequence[int], log: Log) -> None:
    """Do the next part of the decision, for the held shards; and close the recovery when nothing is left of it."""
    await store.drop(database, shards, BATCH_MAX)  # also of an earlier one that a second outage has ended
    if standing.state == APPROVED:
        await _decide_some(database, standing, shards, log)
    ended = await store.close(database, standing.recovery_id)
    if ended is not None:
        log.warning("recovery_ended", recovery_id=standing.recovery_id, state=ended)


async def _decide_some(database: Database, standing: Standing, shards: Sequence[int], log: Log) -> None:
    under_way = await store.under_way(database, standing.recovery_id, shards, UNDER_WAY_MAX)
    held = await store.held(database, standing.recovery_id, shards, UNDER_WAY_MAX - under_way)
    if held:
        await store.decide(database, standing.recovery_id, [_decided(one, standing, log) for one in held])


def _decided(held: HeldSpan, standing: Standing, log: Log) -> Decided:
    choice = choice_for(standing.rules, held.tenant, held.job_id)
    try:
        schedule = schedule_of(held.schedule, held.every_seconds, held.anchor_at, read_calendars(held.calendars))
        verdict = decide(schedule, held.from_at, held.to_at, standing.opened_at, choice)
    except TriggerError as error:
        log.error("missed_unreadable", job_id=held.job_id, error=str(error))
        verdict = Verdict(None, 0, (Skip("skipped_misfire", held.from_at, held.to_at - _FINEST, held.total),))
    start, end = verdict.created or (None, None)
    return Decided(held.backfill_id, start, end, verdict.count, verdict.skips)


async def check_approval(database: Database, rules: Sequence[Rule] | None, rate: float | None) -> None:
    """Check these rules and this rate without changing anything. Raises what `approve` raises."""
    _check(rules, rate)
    found = await _live(database)
    if found is not None:
        _check_rules(found, rules)
    elif not await store.stretches(database, None, 1):
        raise Refused(_NOTHING)
    elif rules:
        raise Refused("running catch-ups accept a new rate only")


@audited
async def approve(
    database: Database, rng: Rng, log: Log, *, rules: Sequence[Rule] | None, rate: float | None, by: str
) -> None:
    """Approve the recovery; of one under way, or of catch-ups by policy, the rate may be changed.

    Raises InvalidOption; Refused where there is nothing to approve.
    """
    _check(rules, rate)
    found = await _live(database)
    if found is None:
        found = await _taken_over(database, rng, by)
        if rules:
            raise Refused(
                f"recovery {found.recovery_id} has taken over running catch-ups, which accept a new rate only"
            )
    _check_rules(found, rules)
    if not await store.approve(database, found.recovery_id, rules or None, rate, by):
        raise Refused(f"recovery {found.recovery_id} has ended or is being dismissed; `duly recover` shows its state")
    await _let_go(database, found)
    subject = Subject("recovery", str(found.recovery_id))
    reported = [msgspec.to_builtins(rule) for rule in (rules or ())[:_RULES_RECORDED_MAX]] or None
    await record(database, TENANT_DEFAULT, Action.RECOVERY_APPROVED, subject, rate=rate, rules=reported)
    log.warning("recovery_approved", recovery_id=found.recovery_id, by=by, rate=rate, rules=len(rules or ()))


@audited
async def dismiss(database: Database, rng: Rng, log: Log, *, by: str) -> None:
    """Leave out everything missed that is not created yet, with a record. Raises Refused where there is none."""
    found = await _live(database) or await _taken_over(database, rng, by)
    if not await store.dismiss(database, found.recovery_id, by):
        raise Refused(f"recovery {found.recovery_id} has ended or is being dismissed; `duly recover` shows its state")
    await _let_go(database, found)
    await record(database, TENANT_DEFAULT, Action.RECOVERY_DISMISSED, Subject("recovery", str(found.recovery_id)))
    log.warning("recovery_dismissed", recovery_id=found.recovery_id, by=by)


async def _let_go(database: Database, found: Recovery) -> None:
    """Let a restored database go on, in the transaction of the decision."""
    if found.backup_at is not None and await store.let_go_restored(database, found.recovery_id):
        await hints.send_pauses_changed(database)


async def _live(database: Database) -> Recovery | None:
    found = await store.last(database)
    return found if found is not None and found.state in LIVE else None


async def _taken_over(database: Database, rng: Rng, by: str) -> Recovery:
    await store.take_over(database, rng.uuid(), by, _TAKEN_OVER_MAX)
    found = await _live(database)
    if found is None:
        raise Refused(_NOTHING)
    return found


def _check_rules(found: Recovery, rules: Sequence[Rule] | None) -> None:
    if rules and found.state != OPEN:
        raise Refused(
            f"recovery {found.recovery_id} is {found.state}: it accepts rules while it is open, later a new rate only"
        )


def _check(rules: Sequence[Rule] | None, rate: float | None) -> None:
    if rate is not None and not 0 < rate <= RATE_MAX:
        raise InvalidOption(f"rate {rate!r} is not above 0 and at most {RATE_MAX:g} runs a second")
    if rules is not None and len(rules) > RULES_MAX:
        raise InvalidOption(
            f"{len(rules)} rules are too many; the limit is {RULES_MAX}. Choose for whole tenants, or for all"
        )
