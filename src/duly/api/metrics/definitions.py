"""Every metric: its name, type, labels, and meaning, which processes export it, and how to aggregate it over them.

The reference is generated from this table, and a process can export no metric that is not in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from duly.domain.diagnosis.figures import ATTEMPT_BOUNDS, CALL_BOUNDS, DELAY_BOUNDS, DURATION_BOUNDS

Kind = Literal["counter", "gauge", "histogram", "info"]
Scope = Literal["installation", "process", "api", "scheduler", "worker"]
INSTALLATION: Scope = "installation"


class Metric(msgspec.Struct, frozen=True):
    """A metric. Of the installation, all ports have the same value; others cover one process of a role, or of any."""

    name: str
    kind: Kind
    scope: Scope
    meaning: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    together: Literal["sum", "max", "min"] = "sum"

    @property
    def aggregation(self) -> str:
        """Return how values of several processes become one."""
        return "max" if self.scope == INSTALLATION else self.together


class Family(msgspec.Struct, frozen=True):
    """The values of a metric: by the values of its labels a number, or the counts of its buckets with their sum."""

    name: str
    samples: Sequence[tuple[tuple[str, ...], float]] = ()
    histograms: Sequence[tuple[tuple[str, ...], list[int], float]] = ()


def one(name: str, value: float) -> Family:
    """Return a metric without labels."""
    return Family(name, [((), value)])


def labelled(name: str, values: dict[str, float] | dict[str, int]) -> Family:
    """Return a metric with one label."""
    return Family(name, [((label,), value) for label, value in sorted(values.items())])


METRICS = (
    # ------------------------------------------------------------------------------------------------ the installation
    Metric(
        "duly_clock_offset_seconds",
        "gauge",
        "installation",
        "Lead of a host's clock over the database's, measured by a process there.",
        ("role", "host"),
    ),
    Metric("duly_database_bytes", "gauge", "installation", "Size of the database on disk, without write-ahead log."),
    Metric(
        "duly_database_clock_set_back_seconds",
        "gauge",
        "installation",
        "Seconds by which the database's clock was set back; schedules do not fire while it is not 0.",
    ),
    Metric("duly_database_connections", "gauge", "installation", "Connections to the server, of all programs."),
    Metric("duly_database_connections_max", "gauge", "installation", "Connections that the server permits."),
    Metric(
        "duly_database_dead_rows",
        "gauge",
        "installation",
        "Dead rows that wait for vacuum, of the tables that runs pass through.",
        ("table",),
    ),
    Metric(
        "duly_database_freeze_age_transactions",
        "gauge",
        "installation",
        "Age of the oldest unfrozen row of all databases of the server, which stops before 2^31.",
    ),
    Metric("duly_database_oldest_prepared_seconds", "gauge", "installation", "Age of the oldest prepared transaction."),
    Metric("duly_database_oldest_transaction_seconds", "gauge", "installation", "Age of the oldest open transaction."),
    Metric("duly_database_prepared_transactions", "gauge", "installation", "Prepared transactions."),
    Metric("duly_database_replica_lag_seconds", "gauge", "installation", "Replay lag of the slowest replica."),
    Metric(
        "duly_database_slot_retained_bytes",
        "gauge",
        "installation",
        "Write-ahead log that an inactive replication slot retains.",
    ),
    Metric("duly_database_wal_bytes_total", "counter", "installation", "Write-ahead log written."),
    Metric(
        "duly_database_xmin_age_transactions",
        "gauge",
        "installation",
        "Transactions since the oldest one that vacuum must keep dead rows for, by what holds it back.",
        ("holder",),
    ),
    Metric("duly_dead_letters_total", "counter", "installation", "Runs that became dead letters.", ("queue",)),
    Metric("duly_dead_letters_waiting", "gauge", "installation", "Dead letters, counted up to 100,000."),
    Metric(
        "duly_desired_workers",
        "gauge",
        "installation",
        "Workers that keep up with a queue and its next peak.",
        ("queue",),
    ),
    Metric(
        "duly_destinations", "gauge", "installation", "Destinations of webhooks, by circuit breaker state.", ("state",)
    ),
    Metric("duly_expired_runs_total", "counter", "installation", "Runs that expired before they started."),
    Metric("duly_fenced_outcomes_total", "counter", "installation", "Outcomes refused because the lease was lost."),
    Metric(
        "duly_fire_skew_objective_ratio",
        "gauge",
        "installation",
        "The objective: this share of starts is within `duly_fire_skew_objective_seconds`.",
    ),
    Metric("duly_fire_skew_objective_seconds", "gauge", "installation", "The objective: start delay that is in time."),
    Metric(
        "duly_fire_skew_seconds",
        "histogram",
        "installation",
        "Start delay of attempts after they were due, without runs that had to wait.",
        ("queue",),
        DELAY_BOUNDS,
    ),
    Metric("duly_lease_expiries_total", "counter", "installation", "Workers whose lease ran out."),
    Metric("duly_leased_runs", "gauge", "installation", "Runs that workers hold, counted up to 100,000."),
    Metric("duly_pauses", "gauge", "installation", "Pauses, by scope.", ("scope",)),
    Metric(
        "duly_queue_depth",
        "gauge",
        "installation",
        "Runs that are ready; 100,000 are counted in all.",
        ("queue", "lane"),
    ),
    Metric(
        "duly_queue_oldest_age_seconds",
        "gauge",
        "installation",
        "Age of the oldest ready run since it was due.",
        ("queue", "lane"),
    ),
    Metric(
        "duly_queue_overload_age_seconds",
        "gauge",
        "installation",
        "Age of the oldest due run of a tenant in a queue in which it is overloaded.",
        ("tenant", "queue"),
    ),
    Metric(
        "duly_queue_overloaded",
        "gauge",
        "installation",
        "1 while the oldest due run of a tenant in a queue is older than the queue's limit.",
        ("tenant", "queue"),
    ),
    Metric(
        "duly_reaper_age_seconds", "gauge", "installation", "Seconds since any scheduler last looked for lost workers."
    ),
    Metric(
        "duly_retries_total", "counter", "installation", "Attempts that failed and are followed by another.", ("queue",)
    ),
    Metric(
        "duly_run_attempts",
        "histogram",
        "installation",
        "Attempts per run, of runs that are over.",
        (),
        ATTEMPT_BOUNDS,
    ),
    Metric("duly_run_duration_seconds", "histogram", "installation", "Duration of attempts.", (), DURATION_BOUNDS),
    Metric("duly_runs_total", "counter", "installation", "Attempts that ended, by outcome.", ("queue", "outcome")),
    Metric("duly_schedulers", "gauge", "installation", "Live schedulers."),
    Metric(
        "duly_shard_grants_total", "counter", "installation", "Shards given to a scheduler: takeovers and rebalancing."
    ),
    Metric("duly_shards_held", "gauge", "installation", "Shards that live schedulers hold, of 64."),
    Metric("duly_staging_lag_seconds", "gauge", "installation", "Seconds by which staging is behind."),
    Metric(
        "duly_stalled_workers",
        "gauge",
        "installation",
        "Live workers that start nothing because a handler blocks them.",
    ),
    Metric(
        "duly_unroutable_runs",
        "gauge",
        "installation",
        "Ready runs whose handler no live worker has, counted up to 100,000.",
    ),
    Metric(
        "duly_waiting_webhook_runs",
        "gauge",
        "installation",
        "Runs that wait for a destination, counted up to 100,000.",
    ),
    Metric(
        "duly_webhook_requests_total",
        "counter",
        "installation",
        "Webhooks that ended, by health of the destination.",
        ("class",),
    ),
    Metric(
        "duly_webhook_retries_total",
        "counter",
        "installation",
        "Retries of webhooks: sent, or delayed because there were too many.",
        ("class",),
    ),
    Metric("duly_webhooks_in_flight", "gauge", "installation", "Webhooks in flight, as reported by workers."),
    Metric("duly_workers", "gauge", "installation", "Live workers."),
    # ---------------------------------------------------------------------------------------------------- each process
    Metric(
        "duly_build_info",
        "info",
        "process",
        "1, with the version of Duly and of Python.",
        ("version", "python"),
        together="max",
    ),
    Metric(
        "duly_database_up",
        "gauge",
        "process",
        "1 if this process could read the figures of the installation and write to the database.",
        together="min",
    ),
    Metric(
        "duly_figures_age_seconds",
        "gauge",
        "process",
        "Age of the figures of the installation; they are read every 5 seconds.",
        together="max",
    ),
    # --------------------------------------------------------------------------------------------------------- the API
    Metric(
        "duly_api_list_reads_total",
        "counter",
        "api",
        "Reads of lists and figures, by the server that answered; with `read_url`.",
        ("server",),
    ),
    Metric(
        "duly_api_replica_age_seconds",
        "gauge",
        "api",
        "Age of the read replica's data, at most; with `read_url`.",
        together="max",
    ),
    Metric(
        "duly_api_replica_used",
        "gauge",
        "api",
        "1 while lists and figures are read from the replica; with `read_url`.",
        together="min",
    ),
    Metric(
        "duly_api_request_duration_seconds",
        "histogram",
        "api",
        "Duration of requests until their response, by operation.",
        ("operation",),
        CALL_BOUNDS,
    ),
    Metric(
        "duly_api_requests_total",
        "counter",
        "api",
        "Requests, by operation and class of status.",
        ("operation", "status"),
    ),
    Metric(
        "duly_api_shed_submissions_total",
        "counter",
        "api",
        "Submits refused because the tenant is overloaded in the queue.",
        ("tenant", "queue"),
    ),
    # ------------------------------------------------------------------------------------------------------ schedulers
    Metric(
        "duly_scheduler_lag_seconds", "gauge", "scheduler", "Seconds by which its staging is behind.", together="max"
    ),
    Metric(
        "duly_scheduler_round_age_seconds",
        "gauge",
        "scheduler",
        "Seconds since each loop last ended a round.",
        ("loop",),
        together="max",
    ),
    Metric("duly_scheduler_runs_backfilled_total", "counter", "scheduler", "Missed runs that it has created."),
    Metric("duly_scheduler_runs_staged_total", "counter", "scheduler", "Runs that it has staged."),
    Metric("duly_scheduler_shards_held", "gauge", "scheduler", "Shards that it holds."),
    Metric("duly_scheduler_tick_age_seconds", "gauge", "scheduler", "Seconds since it last staged.", together="max"),
    Metric(
        "duly_scheduler_tick_duration_seconds",
        "histogram",
        "scheduler",
        "Duration of a tick: looking for due fires, and staging them.",
        (),
        CALL_BOUNDS,
    ),
    # --------------------------------------------------------------------------------------------------------- workers
    Metric(
        "duly_worker_claim_duration_seconds",
        "histogram",
        "worker",
        "Duration of claims. Its count is the number of claims.",
        (),
        CALL_BOUNDS,
    ),
    Metric("duly_worker_lives_total", "counter", "worker", "How often it has registered."),
    Metric(
        "duly_worker_loop_age_seconds",
        "gauge",
        "worker",
        "Seconds since the engine last looked at what is due.",
        together="max",
    ),
    Metric("duly_worker_outcomes_fenced_total", "counter", "worker", "Outcomes refused because the lease was lost."),
    Metric("duly_worker_outcomes_settled_total", "counter", "worker", "Outcomes that the database has taken."),
    Metric("duly_worker_runs_claimed_total", "counter", "worker", "Runs that it has claimed."),
    Metric("duly_worker_runs_deferred_total", "counter", "worker", "Runs that wait elsewhere since they started here."),
    Metric("duly_worker_runs_ended_total", "counter", "worker", "Attempts that ended here, by outcome.", ("outcome",)),
    Metric("duly_worker_runs_held", "gauge", "worker", "Runs that it holds."),
    Metric("duly_worker_runs_running", "gauge", "worker", "Runs that are being executed."),
    Metric("duly_worker_runs_started_total", "counter", "worker", "Runs that it has started."),
    Metric("duly_worker_runs_waiting", "gauge", "worker", "Runs that are due and wait for a slot."),
    Metric(
        "duly_worker_settle_duration_seconds",
        "histogram",
        "worker",
        "Duration of settles, each of a batch of outcomes.",
        (),
        CALL_BOUNDS,
    ),
    Metric("duly_worker_slots", "gauge", "worker", "How many runs may run at once, by pool.", ("pool",)),
    Metric(
        "duly_worker_start_delay_seconds",
        "histogram",
        "worker",
        "Start delay of attempts that ended here, without runs that had to wait.",
        (),
        DELAY_BOUNDS,
    ),
    Metric(
        "duly_worker_webhook_duration_seconds",
        "histogram",
        "worker",
        "Duration of webhooks, by class of the response: 2xx to 5xx, timeout, or unreachable.",
        ("class",),
        CALL_BOUNDS,
    ),
)
BY_NAME = {metric.name: metric for metric in METRICS}
