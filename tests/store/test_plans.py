"""A hot statement reads only what it takes, however much is stored: measured by the server's own counters.

No plan is read. Each call runs in a transaction, and the server tells how many rows it fetched of each table: a table read from
end to end, or a sort of the backlog, shows as the whole of it fetched. That holds on large tables, and on tables that were
empty when the statement was planned.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg
import psycopg
import pytest

from duly.store.boxes import awaited, history, leased, ready, runs, timers
from duly.store.boxes.awaited import RECEIVER
from duly.store.boxes.timers import DueFire
from duly.store.reads import explain, figures, system
from duly.store.tables import (
    applied,
    callbacks,
    concurrency_keys,
    declared,
    destinations,
    events,
    jobs,
    overloads,
    recovery,
    remote_workers,
    schedules,
    shards,
    workers,
    zones,
)
from tests.builders import a_key
from tests.clock import START
from tests.conftest import copy

ROWS = 4_000
BATCH = 100
WORKER = UUID(int=1)
SCHEDULER = UUID(int=2)
REMOTE = UUID(int=3)  # a worker over HTTP, of a tenant of its own
REMOTE_OF_THE_FIRST = UUID(int=4)
GROWING = (
    "timers",
    "blocked",
    "ready",
    "leased",
    "dead",
    "attempts%",
    "idempotency_keys",
    "payloads",
    "jobs",
    "backfills",
    "progress",
    "checkpoints",
    "subtasks",
    "events",
    "destination%",
    "concurrency_keys",
    "rate_limits",
    "awaited",
    "completion_callbacks",
)

FILL = f"""
insert into duly.timers (run_id, job_id, scheduled_at, due_at, generation, tenant, queue, handler, payload, shard)
select id, id, at, at, 1, 1, 'default', 'greet', '{{}}', n % 64
  from (select n, gen_random_uuid() as id, duly.clock_now() + (n - {ROWS // 2}) * interval '1 second' as at
          from generate_series(1, {ROWS}) as n) as made;
insert into duly.jobs (job_id, tenant, queue, handler, every_seconds, anchor_at, created_at, updated_at)
select gen_random_uuid(), 1, 'default', 'greet', 60, duly.clock_now(), duly.clock_now(), duly.clock_now()
  from generate_series(1, {ROWS // 10});
insert into duly.timers (job_id, scheduled_at, due_at, generation, tenant, queue, handler, shard, every_seconds)
select job_id, at, at, 1, 1, queue, handler, duly.shard_of(job_id), 60
  from (select job_id, queue, handler, anchor_at - interval '1 day' as at from duly.jobs) as made;
insert into duly.jobs (job_id, tenant, queue, handler, schedule, cohort, created_at, updated_at)
select gen_random_uuid(), 1, 'default', 'greet', '{{}}', n % 50, duly.clock_now(), duly.clock_now()
  from generate_series(1, {ROWS // 10}) as n;
insert into duly.timers (job_id, scheduled_at, due_at, generation, tenant, queue, handler, shard, cohort, last_run_id)
select job_id, at, at, 1, 1, queue, handler, row_number() over () % 60, cohort, gen_random_uuid()    -- Four shards have none.
  from (select *, created_at - interval '2 days' as at from duly.jobs) as made where cohort is not null;
insert into duly.backfills (backfill_id, job_id, tenant, shard, origin, state, from_at, to_at, cursor_at, rate, total, due_at,
                            requested_at)
select gen_random_uuid(), job_id, 1, duly.shard_of(job_id), 'schedule', case when random() < 0.005 then 'active' else 'done' end,
       at, at + interval '1 day', at, 1, 9, at, at
  from (select job_id, created_at as at from duly.jobs, generate_series(1, 5)) as made;
insert into duly.ready
select gen_random_uuid(), gen_random_uuid(), at, at, null, 1, 1, 0, 5, 0, false, false, queue, 'greet', '{{}}', null
  from (select duly.clock_now() as at, (array['default', 'mail'])[1 + n % 2] as queue
          from generate_series(1, {ROWS}) as n) as made;
insert into duly.ready
select gen_random_uuid(), gen_random_uuid(), at, at, null, 1, 2, 0, 5, 0, false, false, 'default', 'greet', '{{}}', null
  from (select duly.clock_now() as at from generate_series(1, {2 * BATCH})) as made;
insert into duly.ready
select gen_random_uuid(), gen_random_uuid(), at, at, null, 1, 3, 0, 5, 0, false, false, 'late', 'greet', '{{}}',
       '{{"expires_seconds": 1}}'
  from (select duly.clock_now() - interval '1 hour' as at from generate_series(1, {2 * BATCH})) as made;
insert into duly.leased
select gen_random_uuid(), gen_random_uuid(), at, at, null, 1, 1, 1, 5, 0, false, false, 'default', 'greet', '{{}}', null, n,
       (case when n % 4 = 0 then '{WORKER}' when n % 80 = 1 then '{REMOTE}' else gen_random_uuid()::text end)::uuid,
       at - interval '1 hour'
  from (select n, duly.clock_now() as at from generate_series(1, {ROWS}) as n) as made;
insert into duly.dead
select gen_random_uuid(), gen_random_uuid(), at, at, null, 1, 1, 5, 5, 0, false, false, 'default', 'greet', '{{}}', null,
       at, 'broken'
  from (select duly.clock_now() as at from generate_series(1, {ROWS // 10}) as n) as made;
insert into duly.idempotency_keys (tenant, key, job_id, body_hash, scheduled_at, expires_at)
select 1, 'key ' || n, gen_random_uuid(), '', at, at + interval '1 day'
  from (select n, duly.clock_now() as at from generate_series(1, {ROWS}) as n) as made;
insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, fence, tenant, attempt, outcome, became,
                           queue, handler, worker_id)
select gen_random_uuid(), gen_random_uuid(), at, at, at, n, 1, 1, outcome, 'succeeded', 'default', 'greet', '{WORKER}'
  from (select n, duly.clock_now() as at, (array['succeeded', 'failed'])[1 + n % 2]::duly.outcome as outcome
          from generate_series(1, {ROWS}) as n) as made;
insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, fence, tenant, attempt, outcome, became,
                           queue, handler, worker_id, detail)
select gen_random_uuid(), gen_random_uuid(), at, at, at, n, 1, 1, 'failed', 'dead', 'default', '@webhook', '{WORKER}',
       jsonb_build_object('to', 'https://' || n % 10 || '.example/in')
  from (select n, duly.clock_now() as at from generate_series(1, {ROWS}) as n) as made;
insert into duly.subtasks (parent, run_id, tenant, recorded_at)
select (case when n % 80 = 0 then '{WORKER}' else gen_random_uuid()::text end)::uuid, run_id, 1, duly.clock_now()
  from (select run_id, row_number() over () as n from duly.timers where run_id is not null) as made;
insert into duly.signals (worker_id, run_id, fence, kind, sent_at)
select gen_random_uuid(), run_id, 0, 'cancel', duly.clock_now()
  from ((select run_id from duly.timers where run_id is not null limit {BATCH // 2})
        union all (select run_id from duly.ready limit {BATCH // 2})) as left_over;
insert into duly.jobs (job_id, tenant, queue, handler, schedule, cohort, created_at, updated_at)
select gen_random_uuid(), 9, 'default', 'greet', format('{{"on_event": {{"type": "type %s"}}}}', n % 100)::jsonb, 1, at, at
  from (select n, duly.clock_now() as at from generate_series(1, {ROWS // 2}) as n) as made;
insert into duly.jobs (job_id, tenant, queue, handler, every_seconds, anchor_at, created_at, updated_at, state, failures)
select gen_random_uuid(), 1, 'default', 'greet', 60, at, at, at, 'paused', case when n % 400 = 0 then 3 else 0 end
  from (select n, duly.clock_now() as at from generate_series(1, {ROWS // 2}) as n) as made;
insert into duly.destinations
       (destination_id, tenant, origin, created_at, state_changed_at, half_at, counted_at, released_at, answers_at)
select gen_random_uuid(), 1, 'https://' || n || '.example', at, at, at, at, at, at
  from (select n, duly.clock_now() as at from generate_series(1, {ROWS}) as n) as made;
insert into duly.destination_shares (destination_id, worker_id, slots, in_flight, waiting)
select destination_id, gen_random_uuid(), 1, 1, 0 from duly.destinations;
insert into duly.blocked
select gen_random_uuid(), gen_random_uuid(), at, at, null, 1, 1, 0, 5, 0, false, false, 'default', '@webhook', '{{}}', null,
       'destination', 'https://' || n % 20 || '.example', at
  from (select n, duly.clock_now() as at from generate_series(1, {ROWS}) as n) as made;
with made as (
    insert into duly.leased
    select gen_random_uuid(), gen_random_uuid(), at, at, null, 1, 1, 1, 5, 0, false, false, 'default', 'greet', '{{}}', null,
           {ROWS} + n, '{RECEIVER}', at - interval '1 hour'
      from (select n, duly.clock_now() as at from generate_series(1, {BATCH} + 1) as n) as late returning run_id, fence, due_at)
insert into duly.awaited (run_id, fence, worker_id, started_at, deadline_at)
select run_id, fence, '{WORKER}', due_at,
       due_at + case when fence > {ROWS} + {BATCH} then 1 else -1 end * interval '1 hour' from made;
insert into duly.awaited (run_id, fence, worker_id, started_at, deadline_at)
select gen_random_uuid(), n, '{WORKER}', at, at + (n - {BATCH}) * interval '1 second'
  from (select n, duly.clock_now() as at from generate_series(1, {ROWS}) as n) as made;
insert into duly.completion_callbacks (callback_id, tenant, job_id, event, created_at)
select gen_random_uuid(), 1, (select job_id from duly.jobs where cohort is not null limit 1), '{{}}', duly.clock_now()
  from generate_series(1, {ROWS});
insert into duly.blocked
select gen_random_uuid(), gen_random_uuid(), at, at, null, 1, 7, 0, 5, 0, false, false, 'default', 'greet', '{{}}',
       (array[format('{{"concurrency": ["gate %1$s", 1]}}', n % 50),
              format('{{"concurrency": ["line %1$s", 1], "fifo": %2$s}}', n % 50, n),
              format('{{"rate": ["rate %1$s", 1, 1]}}', n % 10)])[kind]::jsonb,
       (array['concurrency', 'concurrency', 'rate'])[kind]::duly.wait,
       (array['gate ' || n % 50, 'line ' || n % 50, 'rate ' || n % 10])[kind], at
  from (select n, duly.clock_now() as at from generate_series(1, {ROWS // 2}) as n) as made, generate_series(1, 3) as kind;
insert into duly.concurrency_keys (tenant, key, slots, active)
select 7, kind || n, 1, 1 from generate_series(0, {ROWS // 2}) as n, unnest(array['gate ', 'line ', 'other ']) as kind;
insert into duly.rate_limits (tenant, key, per_second, burst, requested_per_second, requested_burst, next_at, look_at)
select 7, 'rate ' || n, 1, 1, 1, 1, at, case when n < 10 then at else at + interval '1 hour' end
  from (select n, duly.clock_now() as at from generate_series(0, {ROWS}) as n) as made;
insert into duly.timers (run_id, job_id, scheduled_at, due_at, generation, tenant, queue, handler, options, shard)
select id, id, at, at, 1, 7, 'default', 'greet', format('{{"concurrency": ["line %s", 1], "fifo": %s}}', n % 50, n)::jsonb, n % 64
  from (select n, gen_random_uuid() as id, duly.clock_now() + interval '1 day' as at
          from generate_series(1, {ROWS}) as n) as made;
insert into duly.events (tenant, digest, runs, received_at)
select 9, sha256(n::text::bytea), '{{}}', duly.clock_now() from generate_series(1, {ROWS}) as n;
"""
A_REMOTE = """
insert into duly.tenants (tenant, name, created_at) values ({tenant}, 'tenant {tenant}', duly.clock_now()) on conflict do nothing;
insert into duly.workers (worker_id, name, version, queues, handlers, slots, lease, started_at, until, safe_until, tenant)
select '{worker_id}', 'remote', '', array['default'], array['greet'], 1000, '1 hour', at, at + interval '1 hour',
       at + interval '1 hour', {tenant} from (select duly.clock_now() as at) as clock
on conflict do nothing;
"""
COUNTERS = """
select relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) as rows
  from pg_stat_xact_user_tables where schemaname = 'duly' and relname like any ($1)
"""
Arguments = Callable[[dict[str, Any]], tuple[Any, ...]]


def accounts(fires: list[DueFire]) -> tuple[list[Any], ...]:
    """Ask from where on the jobs of fires are accountable for what calendars took."""
    return (
        [fire.cohort for fire in fires],
        [fire.scheduled_at for fire in fires],
        [START - timedelta(days=9999)] * len(fires),
    )


def gates_named(kind: str) -> list[str]:
    """Give what the runs of fifty gates carry."""
    more = ', "fifo": 1' if kind == "line" else ""
    return [f'{{"concurrency": ["{kind} {number}", 1]{more}}}' for number in range(50)]


# Each hot statement, with what it is called with.
HOT: dict[str, tuple[str, Arguments]] = {
    "due fires": (timers.SQL["due_fires"], lambda s: (s["shards"], "5 seconds", BATCH // 50)),
    "due accounts": (
        timers.SQL["due_accounts"],
        lambda s: (s["shards"], "5 seconds", BATCH // 50, *accounts(s["fires"])),
    ),
    "stage": (
        timers.SQL["stage"],
        lambda s: (
            SCHEDULER,
            s["shards"],
            s["epochs"],
            "5 seconds",
            BATCH // 50,
            START,
            *answers(s["fires"]),
            [],
            None,
        ),
    ),
    "stage some": (
        timers.SQL["stage"],
        lambda s: (
            SCHEDULER,
            s["shards"][:1],
            s["epochs"][:1],
            "5 seconds",
            BATCH,
            START,
            *answers(s["fires"]),
            [],
            s["waiting"],
        ),
    ),
    "due timers": (timers.SQL["due"], lambda s: (s["shards"][0], "5 seconds", *timers.FIRST, BATCH // 50)),
    "pause": (schedules.SQL["pause"], lambda s: (s["cohort job"], 1, "", s["pending"], [START] * 9, False)),
    "skip next": (
        schedules.SQL["skip_next"],
        lambda s: (s["cohort job"], 1, s["pending"], START, 0, [START] * 9, "2026a", None),
    ),
    "schedules of a zone": (zones.SQL["page"], lambda s: (None, None, BATCH)),
    "timed by other data": (zones.SQL["timed_otherwise"], lambda s: (BATCH,)),
    "note overloads": (overloads.SQL["record"], lambda s: ("60 seconds", 2_000)),
    "note staging": (recovery.SQL["record_staging"], lambda s: ("1 hour", WORKER)),
    "shards": (shards.SQL["lease"], lambda s: (SCHEDULER, "scheduler", "0", "1 hour", "2026a", None, None)),
    "take an event": (events.SQL["take_event"], lambda s: (9, "/shop", a_key(), "type 7", "{}", None)),
    "trigger": (schedules.SQL["trigger"], lambda s: (s["cohort job"], a_key(), None, False, False)),
    "backfills of a tenant": (
        schedules.SQL["backfills_of_tenant"],
        lambda s: (1, START + timedelta(days=99), WORKER, BATCH),
    ),
    "lane": (schedules.SQL["lane_work"], lambda s: (s["shards"], BATCH)),
    "claim": (ready.SQL["claim"], lambda s: (WORKER, ["default"], [1], ["greet"], BATCH)),
    "claim from three queues": (
        ready.SQL["claim"],
        lambda s: (WORKER, ["default", "mail", "idle"], [5, 1, 1], ["greet"], BATCH),
    ),
    "report on destinations": (
        destinations.SQL["report"],
        lambda s: (WORKER, 9, s["fresh"], [1] * 9, s["origins"], *([[0] * 9] * 3), [0.0] * 9, *([[1] * 9] * 8), 0.5),
    ),
    "forget destinations": (destinations.SQL["forget"], lambda s: (timedelta(seconds=-1), BATCH)),
    "forget no destinations": (destinations.SQL["forget"], lambda s: (timedelta(days=400), BATCH)),
    "destinations that need a look": (destinations.SQL["watched"], lambda s: (None, None, BATCH)),
    "more destinations that need a look": (destinations.SQL["watched"], lambda s: (1, "https://5", BATCH)),
    "release what waits for destinations": (
        destinations.SQL["release"],
        lambda s: (s["destinations"], s["released"], [BATCH] * len(s["destinations"])),
    ),
    "leave gates": (
        "select duly.release($1, $2::text[]::jsonb[], 1, null)",
        lambda s: ([7] * 50, gates_named("concurrency")),
    ),
    "leave lines": ("select duly.release($1, $2::text[]::jsonb[], 1, null)", lambda s: ([7] * 50, gates_named("line"))),
    "look for waiters at a free place": (history.SQL["release_waiting"], lambda s: (BATCH,)),
    "give turns at rates": (concurrency_keys.SQL["reserve"], lambda s: (BATCH,)),
    "limit a key": (concurrency_keys.SQL["limit_concurrency_key"], lambda s: (7, "gate 7", 3, None, None)),
    "a page of keys": (concurrency_keys.SQL["page"], lambda s: (7, "gate 4", 5, 10)),
    "a key": (concurrency_keys.SQL["find"], lambda s: (7, "gate 7", 1, 10)),
    "a page of destinations": (destinations.SQL["page"], lambda s: (1, "https://5", 1)),
    "what failed at a destination": (
        destinations.SQL["page_failures"],
        lambda s: (1, "https://7.example", None, None, None, BATCH // 50),
    ),
    "what failed at a destination before": (
        destinations.SQL["page_failures"],
        lambda s: (1, "https://7.example", START + timedelta(days=99), WORKER, 1, BATCH // 50),
    ),
    "claim all": (ready.SQL["claim_all"], lambda s: (WORKER, ["default"], [1], ["greet"], BATCH)),
    "claim all of three queues": (
        ready.SQL["claim_all"],
        lambda s: (WORKER, ["mail", "default", "reports"], [1, 1, 1], ["greet"], BATCH),
    ),
    "claim all of one queue": (ready.SQL["claim_all"], lambda s: (WORKER, ["own"], [1], ["greet"], BATCH)),
    "idle claim of all": (ready.SQL["claim_all"], lambda s: (WORKER, ["idle"], [1], ["greet"], BATCH)),
    "idle claim": (ready.SQL["claim"], lambda s: (WORKER, ["idle"], [1], ["greet"], BATCH)),
    "finish": (
        leased.SQL["finish"],
        lambda s: (WORKER, s["slots"], s["fences"], *[[START.timestamp()] * s["held"]] * 2, [None] * s["held"]),
    ),
    "settle": (
        leased.SQL["settle"],
        lambda s: (
            WORKER,
            s["runs"],
            s["fences"],
            [START] * s["held"],
            [START] * s["held"],
            (["failed"] * s["held"]),
            ["retrying", "dead", "cancelled", "retrying"] * (s["held"] // 4),
            ["1 second", "0", "0", "1 hour"] * (s["held"] // 4),
            [0] * s["held"],
            [False] * s["held"],
            *([[None] * s["held"]] * 3),
            [None, None, None, '{"snoozes": 1}'] * (s["held"] // 4),
            "5 seconds",
        ),
    ),
    "hand back": (leased.SQL["hand_back"], lambda s: (WORKER, s["runs"], s["fences"])),
    "hand over to receivers": (
        awaited.SQL["put"],
        lambda s: (WORKER, s["runs"], s["fences"], [START] * s["held"], ["1 day"] * s["held"]),
    ),
    "what a receiver has": (
        awaited.SQL["find"],
        lambda s: (s["runs"][0], s["fences"][0]) if s["runs"] else (WORKER, 1),
    ),
    "receivers past their deadline": (awaited.SQL["overdue"], lambda s: (BATCH,)),
    "deadlines that say nothing": (awaited.SQL["forget"], lambda s: (2 * BATCH,)),
    "cancel what receivers have": (awaited.SQL["cancel_awaited"], lambda s: (s["open"], "not needed")),
    "put off a deadline": (
        awaited.SQL["extend"],
        lambda s: (s["in time"], ROWS + BATCH + 1, "1 hour"),
    ),
    "what an attempt came to": (awaited.SQL["ended"], lambda s: (s["settled"], s["settled fence"])),
    "who is to be told": (callbacks.SQL["pending"], lambda s: (WORKER, BATCH)),
    "tell a job": (callbacks.SQL["deliver"], lambda s: (s["telling"],)),
    "was it me": (leased.SQL["already_settled"], lambda s: (WORKER, s["runs"], s["fences"])),
    "what a worker holds": (leased.SQL["held_by"], lambda s: (WORKER, 1, UUID(int=0))),
    "what a worker holds, as it is shown": (workers.SQL["held_runs"], lambda s: (WORKER, BATCH)),
    "how much each worker holds": (workers.SQL["held_counts"], lambda s: (BATCH,)),
    "what waits of a tenant": (figures.SQL["waiting"], lambda s: (1, BATCH)),
    "what waits of a small tenant": (figures.SQL["waiting"], lambda s: (2, BATCH)),
    "how many are dead": (figures.SQL["dead"], lambda s: (1, BATCH)),
    "schedules that kept failing": (figures.SQL["paused"], lambda s: (1, BATCH)),
    "what fires next": (figures.SQL["upcoming"], lambda s: (1, START + timedelta(days=99), BATCH // 50)),
    "days of a job": (figures.SQL["days_of_job"], lambda s: (s["job"], 1, START, UUID(int=0), BATCH)),
    "cancel": (runs.SQL["cancel"], lambda s: (s["waiting"], "not needed")),
    "signal": (runs.SQL["signal"], lambda s: (s["runs"], "cancel")),
    "carry out": (runs.SQL["carry_out"], lambda s: ()),
    "look": (runs.SQL["look"], lambda s: (WORKER,)),
    "replay": (runs.SQL["replay"], lambda s: (s["dead"], ["1 hour"] * len(s["dead"]), "5 seconds")),
    "expire": (runs.SQL["expire"], lambda s: (BATCH,)),
    "discard": (runs.SQL["discard"], lambda s: (s["dead"],)),
    "find a run": (runs.SQL["find_live"], lambda s: (s["runs"][0] if s["runs"] else WORKER,)),
    "find its attempts": (runs.SQL["find_attempts"], lambda s: (s["settled"],)),
    "what surrounds a run": (explain.SQL["around"], lambda s: (s["waiting"][0] if s["waiting"] else WORKER,)),
    "how many come before a run": (
        explain.SQL["beyond"],
        lambda s: (s["waiting"][0] if s["waiting"] else WORKER, BATCH),
    ),
    "how many wait at a gate before a run": (
        explain.SQL["key_position"],
        lambda s: (1, "g", s["waiting"][0] if s["waiting"] else WORKER, BATCH),
    ),
    "how many wait at a rate before a run": (
        explain.SQL["rate_position"],
        lambda s: (1, "g", s["waiting"][0] if s["waiting"] else WORKER, BATCH),
    ),
    "how many wait in line before a run": (
        explain.SQL["fifo_position"],
        lambda s: (1, "g", s["waiting"][0] if s["waiting"] else WORKER, BATCH),
    ),
    "what no worker can run": (system.SQL["unroutable"], lambda s: (5, BATCH // 5, 20)),
    "append log lines": (
        runs.SQL["append_logs"],
        lambda s: (
            *(WORKER, s["runs"], s["fences"], [1] * len(s["runs"]), [1] * len(s["runs"]), [START] * len(s["runs"])),
            *(["info"] * len(s["runs"]), ["x"] * len(s["runs"]), [None] * len(s["runs"]), True),
        ),
    ),
    "runs of a job that wait and leave no gate": (jobs.SQL["waiting_outside"], lambda s: (s["job"], BATCH)),
    "runs of a job that wait": (jobs.SQL["waiting_runs"], lambda s: (s["job"], BATCH)),
    "runs of a job in hands": (jobs.SQL["leased_runs"], lambda s: (s["job"],)),
    "find a job": (jobs.SQL["find"], lambda s: (s["job"],)),
    "cancel a schedule": (jobs.SQL["cancel_schedule"], lambda s: (s["cohort job"], s["pending"], None)),
    "submit": (
        jobs.SQL["submit"],
        lambda s: (
            1,
            a_key(),
            ["greet"] * BATCH,
            ["{}"] * BATCH,
            ["default"] * BATCH,
            [5] * BATCH,
            [None] * BATCH,
            ["0", "1 hour"] * (BATCH // 2),
            [None] * BATCH,
            None,
            "5 seconds",
        ),
    ),
    "progress": (
        runs.SQL["save_progress"],
        lambda s: (
            (s["runs"][0], s["fences"][0], WORKER, 1.0, 2.0, "half")
            if s["held"]
            else (WORKER, 1, WORKER, 1.0, None, "half")
        ),
    ),
    "progress of many": (
        runs.SQL["save_progresses"],
        lambda s: (
            WORKER,
            s["runs"],
            s["fences"],
            [1.0] * s["held"],
            [None] * s["held"],
            ["half"] * s["held"],
        ),
    ),
    "is it over": (runs.SQL["is_over"], lambda s: (s["settled"],)),
    "subtasks that have not ended": (runs.SQL["live_subtasks"], lambda s: (WORKER, UUID(int=0), BATCH)),
    "submit a subtask": (
        jobs.SQL["submit_checked"],
        lambda s: (
            1,
            a_key(),
            "greet",
            "{}",
            "default",
            5,
            None,
            None,
            f'{{"parent": "{s["waiting"][0]}"}}' if s["waiting"] else None,
            "5 seconds",
        ),
    ),
    "forget keys": (history.SQL["forget_keys"], lambda s: (BATCH,)),
    "claim over HTTP": (remote_workers.SQL["claim"], lambda s: (REMOTE, 1, BATCH)),
    "claim over HTTP by the first tenant": (remote_workers.SQL["claim"], lambda s: (REMOTE_OF_THE_FIRST, 1, BATCH)),
    "foresee": (remote_workers.SQL["foresee"], lambda s: (REMOTE, 2)),
    "foresee for the first tenant": (remote_workers.SQL["foresee"], lambda s: (REMOTE_OF_THE_FIRST, 1)),
    "renew": (remote_workers.SQL["renew"], lambda s: (REMOTE, s["lent"], s["lent fences"], 1)),
    "what is lent": (remote_workers.SQL["held"], lambda s: (REMOTE, s["lent"], s["lent fences"])),
    "settle over HTTP": (
        leased.SQL["settle"],
        lambda s: (
            REMOTE,
            s["lent"],
            s["lent fences"],
            *([[START] * len(s["lent"])] * 2),
            ["failed"] * len(s["lent"]),
            ["retrying"] * len(s["lent"]),
            ["1 second"] * len(s["lent"]),
            [0] * len(s["lent"]),
            [False] * len(s["lent"]),
            *([[None] * len(s["lent"])] * 4),
            "5 seconds",
        ),
    ),
    "hand back over HTTP": (leased.SQL["hand_back"], lambda s: (REMOTE, s["lent"], s["lent fences"])),
    "refuse": (
        remote_workers.SQL["refuse"],
        lambda s: (REMOTE, s["lent"], s["lent fences"], ["failed"] * len(s["lent"])),
    ),
    "log lines": (
        remote_workers.SQL["append_logs"],
        lambda s: (s["lent"][0] if s["lent"] else REMOTE, 1, REMOTE, ["info"], ["x"], [None], 9),
    ),
    "retire": (workers.SQL["retire"], lambda s: (WORKER, s["runs"], s["fences"])),
    "what a file asks for": (applied.SQL["standing"], lambda s: (1, "billing", [f"app:{n}" for n in range(BATCH)])),
    "what is declared": (declared.SQL["standing"], lambda s: (1, "app:app", [f"app:{n}" for n in range(BATCH)])),
    "beat": (workers.SQL["heartbeat"], lambda s: (WORKER,)),
    "checkpoint": (
        runs.SQL["save_checkpoint"],
        lambda s: (s["runs"][0], s["fences"][0], WORKER, "1") if s["held"] else (WORKER, 1, WORKER, "1"),
    ),
}


def answers(fires: list[DueFire]) -> tuple[list[Any], ...]:
    """Lay out an answer for each fire: it runs, and the next one is in an hour."""
    fires = sorted(fires, key=lambda fire: fire.key)
    keys, cohorts = [fire.key for fire in fires], [fire.cohort for fire in fires]
    each = len(fires)
    moments = [fire.scheduled_at for fire in fires]
    return (
        keys,
        cohorts,
        moments,
        [1] * each,
        [START + timedelta(hours=1)] * each,
        [0] * each,
        [None] * each,
        [None] * each,
    )


ANSWER_NOTHING = {
    "days of a job",
    "note staging",
    "look for waiters at a free place",
    "what a file asks for",
    "idle claim",
    "idle claim of all",
    "claim all of one queue",
    "was it me",
    "what is declared",
    "timed by other data",
    "runs of a job that wait",
    "runs of a job that wait and leave no gate",
    "runs of a job in hands",
}
# The rows of a worker are found by its index, and then one by one: all of them are looked at.
WHOLE_WORKER = {
    "what a worker holds": ROWS // 4,
    "what a worker holds, as it is shown": ROWS // 4,
    "retire": ROWS * 3 // 4,
    "runs of a job in hands": ROWS,
}


async def connect(url: str) -> asyncpg.Connection:
    """Connect so that spans can be written as text, and every statement here stays prepared."""
    connection = await asyncpg.connect(url, statement_cache_size=2 * len(HOT))
    await connection.set_type_codec("interval", schema="pg_catalog", encoder=str, decoder=str, format="text")
    return connection


async def sample(connection: asyncpg.Connection) -> dict[str, Any]:
    """Choose what the statements are called with."""
    await connection.fetch(
        workers.SQL["register"], WORKER, "worker", "0", ["default"], ["greet"], 10, "1 hour", [], [], "{}", None, None
    )
    for worker_id, tenant in ((REMOTE, 2), (REMOTE_OF_THE_FIRST, 1)):
        await connection.execute(A_REMOTE.format(worker_id=worker_id, tenant=tenant))
    lent = await connection.fetch("select run_id, fence from duly.leased where worker_id = $1 limit $2", REMOTE, BATCH)
    held = await connection.fetch(
        "select * from duly.lease_shards($1, 'scheduler', '0', '1 hour', null, null, null)", SCHEDULER
    )
    mine = await connection.fetch(
        "select ctid, fence, run_id from duly.leased where worker_id = $1 order by run_id limit $2", WORKER, BATCH
    )
    waiting = await connection.fetch("(select run_id from duly.timers where run_id is not null limit 50)")
    waiting += await connection.fetch("select run_id from duly.ready limit 50")
    dead = await connection.fetch("select run_id from duly.dead limit $1", BATCH)
    taken_on = await connection.fetch("select run_id from duly.leased where worker_id = $1 limit $2", RECEIVER, BATCH)
    record = await connection.fetchrow("select run_id, fence from duly.attempts limit 1")
    fires = await connection.fetch(timers.SQL["due_fires"], [row["shard"] for row in held], "5 seconds", BATCH)
    parked = await connection.fetch(
        "select destination_id, released_at from duly.destinations where origin = 'https://7.example'"
    )
    pending = await connection.fetchrow("select job_id, scheduled_at from duly.timers where cohort is not null limit 1")
    return {
        "shards": [row["shard"] for row in held],
        "epochs": [row["epoch"] for row in held],
        "slots": [row["ctid"] for row in mine],
        "fences": [row["fence"] for row in mine],
        "runs": [row["run_id"] for row in mine],
        "held": len(mine),
        "lent": [row["run_id"] for row in lent],
        "lent fences": [row["fence"] for row in lent],
        "waiting": [row["run_id"] for row in waiting],
        "dead": [row["run_id"] for row in dead],
        "fresh": [UUID(int=number) for number in range(101, 110)],
        "origins": [f"https://{number}.example" for number in range(1, 10)],
        "destinations": [row["destination_id"] for row in parked],
        "released": [row["released_at"] for row in parked],
        "open": [row["run_id"] for row in taken_on],
        "in time": await connection.fetchval("select run_id from duly.leased where fence = $1", ROWS + BATCH + 1)
        or WORKER,
        "telling": await connection.fetchval("select callback_id from duly.completion_callbacks limit 1") or WORKER,
        "settled": record["run_id"] if record else WORKER,
        "settled fence": record["fence"] if record else 1,
        "fires": [DueFire(*row) for row in fires],
        "cohort job": pending["job_id"] if pending else WORKER,
        "pending": pending["scheduled_at"] if pending else START,
        "job": await connection.fetchval("select job_id from duly.jobs where cohort is null limit 1") or WORKER,
    }


async def call(connection: asyncpg.Connection, name: str, values: dict[str, Any]) -> tuple[int, dict[str, int]]:
    """Run one statement and undo it. Gives the rows it answered with, and the rows it fetched of each table that grows."""
    query, arguments = HOT[name]
    transaction = connection.transaction()
    await transaction.start()
    try:
        before = {row["relname"]: row["rows"] for row in await connection.fetch(COUNTERS, GROWING)}
        answered = await connection.fetch(query, *arguments(values))
        after = {row["relname"]: row["rows"] for row in await connection.fetch(COUNTERS, GROWING)}
    finally:
        await transaction.rollback()
    return len(answered), {table: rows - before[table] for table, rows in after.items()}


def too_much(name: str, touched: dict[str, int]) -> dict[str, int]:
    """Name the tables of which more was fetched than a few times the batch."""
    limit = WHOLE_WORKER.get(name, 0) + 4 * BATCH
    return {table: rows for table, rows in touched.items() if rows > limit}


@pytest.fixture(scope="module")
def large(postgres, template):
    """A database with much in every table, and statistics that know it."""
    copy(postgres, "test_large", template)
    with psycopg.connect(postgres.url("test_large"), autocommit=True) as connection:
        connection.execute(FILL)
        connection.execute("analyze")
    yield postgres.url("test_large")
    postgres.drop_database("test_large")


@pytest.fixture(scope="module")
async def chosen(large):
    """A connection to it, and what the statements are called with there: each call is undone, so that they can share both."""
    connection = await connect(large)
    yield connection, await sample(connection)
    await connection.close()


@pytest.mark.parametrize("name", HOT)
async def test_on_large_tables(chosen, name):
    connection, values = chosen
    for _ in range(7):  # From the sixth call on, a plan that does not know the arguments is used.
        answered, touched = await call(connection, name, values)
        assert answered > 0 or name in ANSWER_NOTHING
        assert too_much(name, touched) == {}


async def test_finish_statement_settles_all_held_runs(chosen):
    connection, values = chosen
    query, arguments = HOT["finish"]
    transaction = connection.transaction()
    await transaction.start()
    [(is_all, *_)] = await connection.fetch(query, *arguments(values))
    await transaction.rollback()

    assert is_all
    assert values["held"] > 0


async def test_on_tables_that_were_empty_when_the_statement_was_planned(own_database_url):
    connection = await connect(own_database_url)
    try:
        values = await sample(connection)
        for _ in range(7):
            for name in HOT:
                await call(connection, name, values)
        await connection.execute(FILL)

        values = await sample(connection)
        found = {name: too_much(name, (await call(connection, name, values))[1]) for name in HOT}
        assert {name: tables for name, tables in found.items() if tables} == {}
    finally:
        await connection.close()


# Next fires that are staged ahead of their moment, each behind a run of which nothing is left.
AHEAD = """
truncate duly.timers;
insert into duly.timers (job_id, scheduled_at, due_at, generation, tenant, queue, handler, shard, every_seconds, last_run_id)
select job_id, at, at, 1, 1, 'default', 'greet', duly.shard_of(job_id), 60, gen_random_uuid()
  from (select gen_random_uuid() as job_id, duly.clock_now() + interval '2 seconds' as at from generate_series(1, 300)) as made
"""


@pytest.mark.parametrize("is_filled", [True, False], ids=["on large tables", "planned on empty tables"])
async def test_fires_staged_ahead_look_for_the_run_before_by_its_id(large, own_database_url, is_filled):
    connection = await connect(large if is_filled else own_database_url)
    try:
        values = await sample(connection)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(AHEAD)
        for _ in range(7):
            await call(connection, "stage", values)
        if not is_filled:
            await connection.execute(FILL)
            await connection.execute(AHEAD)
        _, touched = await call(connection, "stage", await sample(connection))
        assert touched["timers"] > 0
        assert too_much("stage", touched) == {}
        await transaction.rollback()
    finally:
        await connection.close()


LOOKS = """
select pg_stat_get_xact_numscans('duly.blocked_of_tenant'::regclass) + pg_stat_get_xact_numscans('duly.blocked_pkey'::regclass)
"""


@pytest.mark.parametrize("behind", ["ahead", "due"])
async def test_each_fire_looks_once_for_the_run_before(own_database_url, behind):
    connection = await connect(own_database_url)
    try:
        values = await sample(connection)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(AHEAD)
        if behind == "due":
            await connection.execute(
                "update duly.timers set scheduled_at = duly.clock_now(), due_at = duly.clock_now()"
            )
        before = await connection.fetchval(LOOKS)
        query, arguments = HOT["stage"]
        [answer] = await connection.fetch(query, *arguments(values))
        assert answer["staged"] > 0
        assert await connection.fetchval(LOOKS) - before == answer["staged"]
        await transaction.rollback()
    finally:
        await connection.close()


TIMERS_READ = "select pg_stat_get_xact_tuples_returned('duly.timers_by_due'::regclass)"
IN_TURN = """
insert into duly.timers (job_id, scheduled_at, due_at, generation, tenant, queue, handler, shard, every_seconds)
select gen_random_uuid(), at, at, 1, 1, 'default', 'greet', number % 64, 60
  from (select number, duly.clock_now() + number * interval '1 microsecond' as at from generate_series(0, 6399) as number) as made
"""


async def test_stage_does_not_rescan_rows_that_its_batch_has_taken(own_database_url):
    connection = await connect(own_database_url)
    try:
        values = await sample(connection)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(IN_TURN)
        before = await connection.fetchval(TIMERS_READ)
        query, arguments = HOT["stage"]
        scheduler, shards, epochs, horizon, _, *rest = arguments(values)
        [answer] = await connection.fetch(query, scheduler, shards, epochs, horizon, 50, *rest)
        assert answer["staged"] == 3_200
        assert await connection.fetchval(TIMERS_READ) - before <= 3_200 + 4 * 64
        await transaction.rollback()
    finally:
        await connection.close()


ENTRIES_READ = "select pg_stat_get_xact_tuples_returned('duly.ready_claimable'::regclass)"
IN_A_ROW = """
insert into duly.ready
select gen_random_uuid(), gen_random_uuid(), at, at, null, 1, 1, 0, 5, 0, false, false, 'own', 'greet', '{}', null
  from (select duly.clock_now() - n * interval '1 millisecond' as at from generate_series(1, 3000) as n) as made
"""
TAKE = """
delete from duly.ready where ctid = any (array(select ctid from duly.ready where queue = 'own' order by due_at limit 2000))
"""


async def test_claim_scans_recently_taken_entries_only_once(own_database_url):
    connection, watcher = await connect(own_database_url), await connect(own_database_url)
    try:
        await sample(connection)
        await connection.execute(IN_A_ROW)
        await watcher.execute(
            "begin isolation level repeatable read; select from duly.tenants"
        )  # To it, nothing is gone.
        await connection.execute(TAKE)
        transaction = connection.transaction()
        await transaction.start()
        before = await connection.fetchval(ENTRIES_READ)
        claimed = await connection.fetch(ready.SQL["claim"], WORKER, ["own"], [1], ["greet"], BATCH)
        assert len(claimed) == BATCH
        assert await connection.fetchval(ENTRIES_READ) - before <= 2000 + 4 * BATCH
        await transaction.rollback()
        await watcher.execute("rollback")
    finally:
        await connection.close()
        await watcher.close()


async def test_claim_of_all_reads_what_it_takes_and_no_more(large):
    connection = await connect(large)
    try:
        values = await sample(connection)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(IN_A_ROW.replace("3000", str(BATCH)))
        for _ in range(7):
            answered, touched = await call(connection, "claim all of one queue", values)
            assert answered == BATCH
            assert touched["ready"] <= 4 * BATCH
        await transaction.rollback()
    finally:
        await connection.close()


HELD = "insert into duly.pauses (tenant, queue, reason, paused_by, paused_at) values ($1, $2, 'stop', 'a test', duly.clock_now())"


@pytest.mark.parametrize(
    ("tenant", "queue", "rows"),
    [(None, None, 0), (None, "mail", 4 * BATCH), (2, None, 4 * BATCH), (1, "mail", 4 * BATCH)],
    ids=["everything", "a queue", "another tenant", "a tenant's share of a queue"],
)
async def test_a_claim_under_a_hold_walks_over_nothing_that_is_held(large, tenant, queue, rows):
    connection = await connect(large)
    try:
        values = await sample(connection)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(HELD, tenant, queue)
        for _ in range(7):
            answered, touched = await call(connection, "claim from three queues", values)
            assert (answered > 0) == (rows > 0)
            assert touched.get("ready", 0) <= rows
        await transaction.rollback()
    finally:
        await connection.close()


CROWD = """
insert into duly.ready
select gen_random_uuid(), gen_random_uuid(), at, at, null, 1, tenant, 0, priority, 0, false, false, 'default', 'greet', '{}',
       null
  from (select duly.clock_now() - n * interval '1 millisecond' as at, 100 + n % 500 as tenant, n / 500 % 3 as priority
          from generate_series(1, 6000) as n) as made
"""


@pytest.mark.parametrize("is_limited", [False, True], ids=["", "under a limit"])
async def test_claim_among_many_tenants_reads_a_bounded_number_of_rows(large, is_limited):
    connection = await connect(large)
    try:
        values = await sample(connection)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(CROWD)
        if is_limited:
            await connection.execute("insert into duly.limits (slots, set_by, set_at) values (100000, 'a test', now())")
        for _ in range(7):
            answered, touched = await call(connection, "claim from three queues", values)
            assert answered == BATCH
            # One step for each of 200 lines; then each row that is taken is looked at, counted out by rank, and taken.
            assert touched.get("ready", 0) <= 2 * BATCH + 8 * BATCH
            assert touched.get("leased", 0) <= (ROWS + 4 * BATCH if is_limited else 4 * BATCH)
        await transaction.rollback()
    finally:
        await connection.close()
