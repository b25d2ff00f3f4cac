"""The metrics of the whole installation, from its figures."""

from __future__ import annotations

from collections.abc import Iterator

from duly.api.metrics.definitions import Family, labelled, one
from duly.domain.diagnosis.figures import OBJECTIVE_SECONDS, OBJECTIVE_SHARE
from duly.domain.limits.pause import SCOPE_KINDS
from duly.domain.targets.circuit import State
from duly.store.reads.installation import Counts, DatabaseHealth, Engine, Installation
from duly.store.tables.destinations import Totals

_ALWAYS = ("succeeded", "failed")  # a counter that begins at its first event hides that event from a rate


def families(seen: Installation) -> Iterator[Family]:
    """Return every metric of an installation."""
    yield from _counted(seen.counts)
    yield one("duly_fire_skew_objective_seconds", OBJECTIVE_SECONDS)
    yield one("duly_fire_skew_objective_ratio", OBJECTIVE_SHARE)
    yield Family("duly_queue_depth", [((depth.queue, depth.lane), depth.runs) for depth in seen.depths])
    yield Family(
        "duly_queue_oldest_age_seconds",
        [((depth.queue, depth.lane), depth.oldest_age_seconds) for depth in seen.depths],
    )
    queues = {depth.queue for depth in seen.depths}
    yield labelled("duly_desired_workers", dict.fromkeys(queues, 0) | seen.desired_workers)
    yield Family("duly_queue_overloaded", [((str(tenant), queue), 1) for tenant, queue, _ in seen.overloads])
    yield Family(
        "duly_queue_overload_age_seconds", [((str(tenant), queue), age) for tenant, queue, age in seen.overloads]
    )
    yield Family("duly_pauses", [((kind,), seen.pauses.get(kind, 0)) for kind in SCOPE_KINDS])
    yield one("duly_staging_lag_seconds", seen.lag_seconds)
    yield from _engine(seen.engine)
    yield from _clocks(seen)
    yield from _destinations(seen.destinations)
    yield from _database(seen.database)
    yield labelled("duly_database_dead_rows", seen.dead_rows)
    yield one("duly_database_bytes", seen.bytes)


def _counted(counts: Counts) -> Iterator[Family]:
    queues = sorted(counts.queues.items())
    yield Family(
        "duly_runs_total",
        [
            ((queue, outcome), number)
            for queue, ended in queues
            for outcome, number in sorted((dict.fromkeys(_ALWAYS, 0) | ended.outcomes).items())
        ],
    )
    yield Family("duly_retries_total", [((queue,), ended.retries) for queue, ended in queues])
    yield Family("duly_dead_letters_total", [((queue,), ended.dead) for queue, ended in queues])
    yield Family(
        "duly_fire_skew_seconds",
        histograms=[((queue,), ended.delays, ended.delay_seconds) for queue, ended in queues],
    )
    yield one("duly_expired_runs_total", counts.expired)
    yield one("duly_fenced_outcomes_total", counts.fenced)
    yield Family("duly_run_duration_seconds", histograms=[((), counts.durations, counts.duration_seconds)])
    yield Family("duly_run_attempts", histograms=[((), counts.attempts, counts.attempts_total)])


def _engine(engine: Engine) -> Iterator[Family]:
    yield one("duly_schedulers", engine.schedulers)
    yield one("duly_workers", engine.workers)
    yield one("duly_stalled_workers", engine.stalled_workers)
    yield one("duly_shards_held", engine.shards_held)
    yield one("duly_shard_grants_total", engine.shard_grants)
    yield one("duly_lease_expiries_total", engine.lease_expiries)
    yield one("duly_leased_runs", engine.leased_runs)
    yield one("duly_unroutable_runs", engine.unroutable_runs)
    yield one("duly_dead_letters_waiting", engine.dead_letters)
    if engine.reaper_age_seconds is not None:
        yield one("duly_reaper_age_seconds", engine.reaper_age_seconds)


def _clocks(seen: Installation) -> Iterator[Family]:
    """Return the clocks; of several processes of a role on a host, the worst."""
    worst: dict[tuple[str, ...], float] = {}
    for role, host, seconds in seen.clocks:
        worst[role, host] = max(worst.get((role, host), 0.0), seconds, key=abs)
    yield Family("duly_clock_offset_seconds", sorted(worst.items()))
    yield one("duly_database_clock_set_back_seconds", seen.clock_set_back_seconds)


def _destinations(totals: Totals) -> Iterator[Family]:
    """Return the metrics of destinations, which name none of them: tenants choose their names."""
    yield Family("duly_destinations", [((state.value,), totals.states.get(state.value, 0)) for state in State])
    yield one("duly_webhooks_in_flight", totals.in_flight)
    yield one("duly_waiting_webhook_runs", totals.waiting_runs)
    yield labelled("duly_webhook_requests_total", {"healthy": totals.healthy, "failing": totals.failing})
    yield labelled("duly_webhook_retries_total", {"sent": totals.retries, "rejected": totals.rejected})


def _database(database: DatabaseHealth) -> Iterator[Family]:
    for name, value in (
        ("connections", database.connections),
        ("connections_max", database.connections_max),
        ("freeze_age_transactions", database.freeze_age),
        ("oldest_prepared_seconds", database.oldest_prepared_seconds),
        ("oldest_transaction_seconds", database.oldest_transaction_seconds),
        ("prepared_transactions", database.prepared_transactions),
        ("replica_lag_seconds", database.replica_lag_seconds),
        ("slot_retained_bytes", database.slot_retained_bytes),
        ("wal_bytes_total", database.wal_bytes),
    ):
        yield one(f"duly_database_{name}", value)
    yield labelled(
        "duly_database_xmin_age_transactions",
        {
            "transaction": database.xmin_transaction,
            "prepared": database.xmin_prepared,
            "slot": database.xmin_slot,
            "replica": database.xmin_replica,
        },
    )
