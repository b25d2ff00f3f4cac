"""The bank of mutants: each breaks one promise in one place, and a named test or the simulation must notice.

A mutant says what is wrong, in which definition, and which piece of syntax becomes which other; an empty one leaves the old one
out. `anchors.py` finds the place.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.mutants.anchors import AnchorError, Edit, find_in_python, find_in_sql

SOURCE = Path(__file__).parents[2] / "src" / "duly"
SIMULATION = "simulation"


class Mutant(msgspec.Struct, frozen=True):
    """A change of one place: `old` becomes `new` in the definition `at`."""

    name: str
    at: str
    old: str
    new: str
    killed_by: str = SIMULATION

    def find(self, source: Path = SOURCE) -> Edit:
        """Find its place. Raises AnchorError, which names it, unless there is exactly one."""
        find = find_in_sql if isinstance(self, Sql) else find_in_python
        try:
            return find(source, self.at, self.old, self.new)
        except AnchorError as error:
            raise AnchorError(f'mutant "{self.name}": {error}') from None


class Python(Mutant, frozen=True):
    """A change of an expression, or of statements in a row."""


class Sql(Mutant, frozen=True):
    """A change of a sequence of tokens."""


def killed_by(test: str, *mutants: Mutant) -> list[Mutant]:
    """Name a test, class or file of tests that must notice these mutants."""
    return [msgspec.structs.replace(mutant, killed_by=test) for mutant in mutants]


BANK = [
    # Secrets in files.
    *killed_by(
        "tests/cli/test_settings.py",
        Python(
            "a flag that is handed on leaves the file of its setting",
            "hand_on",
            "os.environ.pop(PREFIX + name.upper() + IN_FILE, None)",
            "",
        ),
        Python("a variable wins silently over the file beside it", "_from_environment", "files.get(name)", "False"),
    ),
    # Leases and fences.
    *killed_by(
        "tests/moves/test_settle.py",
        Sql("a finish ignores the fence", "finish", "and leased.fence = held.fence", ""),
        Sql("a settle ignores the fence", "settle", "and leased.fence = held.fence", ""),
        Sql("any worker may finish a run", "finish", "and (leased.worker_id = p_worker_id) is true", ""),
        Sql("a finish reports missing runs as done", "finish", "count(*) = cardinality(p_tids)", "count(*) >= 0"),
        Sql("a retry drops the cancel of its run", "is_cancelling", "worker_id = p_worker_id", "false"),
    ),
    *killed_by(
        "tests/store/test_redaction.py",
        Sql(
            "history keeps a redacted payload whole",
            "redact_attempt",
            "duly.redacted(new.payload, new.options->'redact')",
            "new.payload",
        ),
        Sql("one tenant's rules hide another's values", "rules_above", "or redactions.tenant = p_tenant", "or true"),
    ),
    *killed_by(
        "tests/moves/test_claim.py",
        Sql("sessions draw fences in blocks", "fences", "cache 1", "cache 1000"),
        Sql("a run may be leased twice", "leased_by_run", "unique", ""),
    ),
    Python(
        "the host's name identifies the worker",
        "Worker._identity",
        "self._rng.uuid()",
        "Rng(len(self._options.name)).uuid()",
    ),
    Python(
        "a lease is never in doubt",
        "WorkerLease.is_safe",
        "self._clock.monotonic() < self.safe_until",
        "self.safe_until > 0",
    ),
    Sql(
        "the safe moment follows the clock back",
        "heartbeat",
        "greatest(safe_until, duly.clock_now() + lease * 2 / 3)",
        "duly.clock_now() + lease * 2 / 3",
    ),
    Sql(
        "a worker retires while it holds runs",
        "retire",
        "and not exists (select from duly.leased where leased.worker_id = p_worker_id)",
        "",
    ),
    Python(
        "a worker keeps leases it does not know",
        "Claiming.return_unknown_leases",
        "[run for run in hanging if self._held_runs.find(run.run_id, run.fence) is None]",
        "[]",
    ),
    Python(
        "the reaper trusts the database's clock alone",
        "Reaper._expire_if_dead",
        "self._database.clock.monotonic() - since < row.lease.total_seconds()",
        "self._database.clock.monotonic() < since",
    ),
    Python(
        "no run of a lost worker counts as started",
        "_was_not_started",
        "run.due_at > worker.safe_until",
        "run.due_at <= worker.safe_until",
    ),
    *killed_by(
        "tests/maintenance/test_reaper.py",
        Sql("a claim does not lock its worker", "claim", "for key share", ""),
        Sql("the reaper expires a worker that has renewed", "expire", "heartbeat = $2", "heartbeat >= $2"),
        Python(
            "one run that is refused keeps all others of its worker",
            "give_back",
            "await _halved(runs, lambda batch: leased.hand_back(database, worker_id, batch), alone)",
            "(await leased.hand_back(database, worker_id, runs), {})",
        ),
    ),
    *killed_by(
        "tests/worker/test_stall.py",
        Python(
            "a stalled worker's runs go back while they may start",
            "Stall._may_give_back",
            "now > self._allowed_until + MARGIN_SECONDS",
            "True",
        ),
        Python("a run that was handed back starts", "Executor._may_start", "not self.is_revoked(attempt.run)", "True"),
        Python(
            "a claim answered after a stall is believed",
            "Claiming._receive",
            "stalls != self._worker_lease.stalls",
            "False",
        ),
    ),
    *killed_by(
        "tests/moves/test_stall.py",
        Sql(
            "a late stall report hands back started runs",
            "stall",
            "v_safe_until is distinct from p_safe_until",
            "false",
        ),
        Sql(
            "a due run that has not started reads running",
            "is_unstarted",
            "p_run_id = any (workers.unstarted)",
            "false",
        ),
    ),
    *killed_by(
        "tests/worker/test_heartbeat.py",
        Python(
            "the worker's clock runs past its lease",
            "WorkerLease.now",
            "min(self._clock.now(), self.due_until)",
            "self._clock.now()",
        ),
    ),
    *killed_by(
        "tests/worker/test_isolated.py",
        Python(
            "an isolated run starts without a lease", "IsolatedRuns._is_wanted", "self._worker_lease.is_safe", "True"
        ),
    ),
    # Outcomes and retries.
    Python(
        "an unanswered settle counts as written",
        "Outbox._settle_until_answered",
        "self._log.warning('settle_unanswered', runs=len(ended), tries=tries, error=str(error))",
        "return []",
    ),
    Python(
        "a repeated settle ignores its own record",
        "settle._refused",
        "await leased.already_settled(database, worker_id, [(item.run.run_id, item.run.fence) for item in missing])",
        "set()",
    ),
    Sql(
        "a hand-back uses up the attempt",
        "hand_back",
        "insert into duly.ready ({run}) select {run: attempt = attempt - 1}",
        "insert into duly.ready ({run}) select {run}",
    ),
    Sql("a claim does not raise the attempt", "claim", "attempt + 1", "greatest(attempt, 1)"),
    Python("no run is poison", "NAMED_LOSSES_MAX", "2", "99"),
    Python("retries come in waves", "Retry.drawn", "ceiling * (1 - self.jitter_part * (1 - chance))", "ceiling"),
    Python(
        "an expired run starts",
        "Executor.expired",
        "expires_at.timestamp() > self._clock.now()",
        "expires_at.timestamp() > 0",
    ),
    *killed_by(
        "tests/moves/test_replay.py",
        Python(
            "a replay has no attempts left",
            "_attempt_of_this_life",
            "run.attempt - run.history.attempts_before",
            "run.attempt",
        ),
    ),
    *killed_by(
        "tests/worker/test_outbox.py",
        Python(
            "an interrupted flush forgets its outcomes",
            "Outbox.flush",
            "self._waiting.extendleft(reversed(self._flushing))",
            "",
        ),
    ),
    # Occurrences, misfires, overlap.
    Sql(
        "an occurrence is named after the clock",
        "stage",
        "coalesce(moment.run_at, fire.scheduled_at), 'schedule')",
        "v_now, 'schedule')",
    ),
    Sql(
        "the next fire counts from now",
        "stage",
        "fire.scheduled_at + make_interval(secs => (late.count + 1) * fire.every_seconds::double precision)",
        "v_now + make_interval(secs => fire.every_seconds::double precision)",
    ),
    Sql("a misfire forgets what it skipped", "stage", "cohort is null and missed > 1", "missed > 100000"),
    Sql(
        "a stale epoch stages",
        "stage",
        "and shards.epoch = held.epoch and shards.holder = p_holder"
        " where exists (select from duly.schedulers where scheduler_id = p_holder and until > v_now)",
        "",
    ),
    Python("a scheduler keeps shards it could not renew", "Scheduler.renew", "self._epochs = {}\nraise", "raise"),
    Sql("a shard is granted under the same epoch", "lease_shards", "epoch = epoch + 1", "epoch = epoch"),
    *killed_by(
        "tests/schedules/test_firing.py",
        Python(
            "a cohort's next fire counts from now", "plan_fire", "arm(schedule, scheduled_at)", "arm(schedule, now)"
        ),
        Sql("a limited schedule never ends", "stage", "runs_left - runs::integer", "runs_left"),
    ),
    *killed_by(
        "tests/schedules/test_overlap.py",
        Sql(
            "runs of a schedule overlap",
            "stage",
            "overlap is null and last_run_id is not null and due_at <= v_now and",
            "false and",
        ),
        Sql(
            "an overlap buffer has no end",
            "release",
            "exists (select from unnest(v_waiting_max) as waiting_max where waiting_max is not null)",
            "false",
        ),
        Sql(
            "a run loses its slot between attempts",
            "settle",
            "duly.keeps_slot(options) then options || '{\"has_slot\": true}'",
            "false then options",
        ),
    ),
    *killed_by(
        "tests/schedules/test_fixed_delay.py",
        Sql("the end of a run arms a paused schedule", "rearm", "elsif v_job.state = 'active' then", "else"),
    ),
    *killed_by(
        "tests/interleavings/test_schedules.py",
        Sql("an edit overwrites a newer one", "edit", "v_job.generation <> p_generation", "false"),
        Sql(
            "an edit passes over what a worker holds ahead",
            "is_coming_run_held",
            "leased.run_id = any (v_others) and leased.attempt = 1",
            "false",
        ),
        Sql(
            "a spent schedule completes before its last run",
            "complete",
            "not exists (select from duly.coming_runs(last.job_id, last.previous_scheduled_at, p_now - interval '4 seconds'))",
            "true",
        ),
    ),
    *killed_by(
        "tests/schedules/test_backfill.py",
        Sql("two schedulers backfill the same stretch", "backfill", "backfills.cursor_at = new.seen", "true"),
    ),
    *killed_by(
        "tests/schedules/test_edit.py",
        Sql(
            "an edit fires an occurrence again",
            "edit",
            "p_first_at is not null and v_floor > coalesce(p_floor, '-infinity')",
            "false",
        ),
    ),
    *killed_by(
        "tests/schedules/test_retry_on_conflict.py",
        Sql("a calendar arms a job by its former rule", "retime", "and timers.generation = new.generation", ""),
    ),
    *killed_by(
        "tests/schedules/test_upcoming.py",
        Sql("a recalled run is ready for the next claim", "hand_back", "'recall', ''", "'dependency', ''"),
        Sql(
            "a schedule completes when its last run is staged",
            "stage",
            "where not is_last or (runs and due_at > v_now)",
            "where not is_last",
        ),
        Sql("an abandoned recall keeps its run", "put_back", "blocked.blocked_at < v_now - p_age", "false"),
    ),
    *killed_by(
        "tests/worker/test_recall.py",
        Python(
            "a worker starts a recalled run",
            "Engine._is_recalled",
            "(run.run_id, run.fence) in self._recalled",
            "False",
        ),
    ),
    *killed_by(
        "tests/schedules/test_zones.py",
        Sql(
            "schedulers with different zone data share the shards",
            "lease_shards",
            "v_tzdb is null or tzdb = v_tzdb",
            "true",
        ),
        Python(
            "a local time fires twice after a zone change",
            "_dealt_with",
            "max(last.scheduled_at, moment_of(new.trigger.zone.first_instant(local)))",
            "last.scheduled_at",
        ),
    ),
    *killed_by(
        "tests/moves/test_declare.py",
        Python("an older version restores its schedule", "_decide_between", "mine in standing.definitions", "False"),
        Python(
            "a deployment resumes what a person paused",
            "declare._restore",
            "standing.has_leased_run",
            "standing.state == 'paused'",
        ),
    ),
    # Time.
    Python("the wheel rounds down", "Wheel.insert", "ceil(due * _TICKS_PER_SECOND)", "int(due * _TICKS_PER_SECOND)"),
    Python("a run starts half a second early", "Claiming._receive", "due > now", "due > now + 0.5"),
    Python("clocks do not drift", "clock._DRIFT", "0.001", "0.0"),
    *killed_by(
        "tests/worker/test_clock.py",
        Python(
            "a step back of the database's clock goes unnoticed",
            "SystemClock._keep",
            "better and offset < _aged(better[0], received) - _CONTRADICTION_SECONDS",
            "False",
        ),
    ),
    *killed_by(
        "tests/store/test_database.py",
        Python(
            "a deadlock reaches the caller",
            "CONFLICTS",
            "(asyncpg.SerializationError, asyncpg.DeadlockDetectedError)",
            "(asyncpg.SerializationError,)",
        ),
    ),
    *killed_by(
        "tests/store/test_pool.py",
        Python(
            "a connection to a standby is kept",
            "pool._is_sound",
            "isinstance(error, asyncpg.ReadOnlySQLTransactionError)",
            "False",
        ),
    ),
    *killed_by(
        "tests/store/test_hosts.py",
        Python("a silent host hides the others", "Hosts._first_of_all", "STAGGER_SECONDS if left else None", "None"),
    ),
    # Idempotency and cancel.
    Sql("an idempotency key protects nothing", "submit_one", "idempotency_keys.expires_at <= v_now", "true"),
    Sql(
        "a schedule's idempotency key protects nothing",
        "submit_schedule",
        "idempotency_keys.expires_at <= v_now",
        "true",
    ),
    Sql("a used key takes another body", "use_key", "v_key.body_hash <> p_hash", "false"),
    *killed_by(
        "tests/api/test_dispatch.py",
        Python(
            "a used key over HTTP takes another body",
            "KeyedRequest._replayed",
            "kept.body_hash != self._digest",
            "False",
        ),
    ),
    *killed_by(
        "tests/worker/test_cancel.py",
        Python("a claimed run ignores an earlier cancel", "Engine._heed_late", "run.fence", "0"),
        Python("a stopping worker hears no cancel", "Engine._look", "True", "not self._ended.is_set()"),
    ),
    *killed_by(
        "tests/interleavings/test_pairs.py",
        Sql("a worker retires beside its own claim", "retire", "for update", ""),
        Sql("a cancel misses a run on the move", "carry_out", "exit when", "exit when true or"),
        Sql("a cancel follows a run into its replay", "replay", "signals.run_id = risen.run_id", "false"),
    ),
    # Order, fairness, limits, pauses.
    *killed_by(
        "tests/moves/test_order.py",
        Sql(
            "a tenant's share grows with its backlog",
            "plan_claim",
            "min(tenant_weight) / sum(min(tenant_weight))",
            "count(*) / sum(count(*))",
        ),
        Sql(
            "low priorities starve",
            "plan_claim",
            "0.1::double precision * parts.part / parts.subqueues as share",
            "0.0::double precision as share",
        ),
        Sql(
            "runs ahead of their moment delay due ones",
            "choose",
            "v_is_due := true; v_requested := array(select subqueue from unnest(v_subqueues) as subqueue"
            " where subqueue.due_at <= p_now);",
            "v_is_due := false; v_requested := v_subqueues;",
        ),
        Sql(
            "every claim starts with the first tenant",
            "subqueues",
            "p_tenant is null and exists (select from duly.claim_positions)",
            "false",
        ),
    ),
    *killed_by(
        "tests/moves/test_limit.py",
        Sql("concurrent claims exceed a limit", "lock_limits", "for update", ""),
        Sql("a worker that was idle ignores limits", "claim_all", "or exists (select from duly.limits)", ""),
    ),
    *killed_by(
        "tests/worker/test_slots.py",
        Python(
            "an old backlog passes newer runs",
            "Slots.queue",
            "now + moved",
            "rank",
        ),
    ),
    *killed_by(
        "tests/api/test_shedding.py",
        Sql("an overload delays every tenant", "is_postponed", "p_overloaded ? (p_tenant || '/' || p_queue)", "true"),
    ),
    *killed_by(
        "tests/moves/test_pause.py",
        Sql("a claim takes from a paused queue", "claim", "pauses.tenant is null", "false"),
        Sql("a worker that was idle ignores pauses", "claim_all", "or exists (select from duly.pauses)", ""),
        Sql("a claim takes from a paused tenant", "subqueues", "pauses.tenant = seen.tenant", "false"),
    ),
    *killed_by(
        "tests/worker/test_pauses.py",
        Python("a worker starts paused runs", "Engine._look_once", "self._executor.pauses = self._watch.pauses", ""),
    ),
    # Concurrency keys, rate limits.
    Sql("a concurrency key admits every run", "release", "limit requested.free", "limit 1000"),
    Sql("a run keeps its slot after its end", "release", "row.active - u.left_slots as active", "row.active as active"),
    Sql(
        "the next of a FIFO key starts beside the former",
        "release",
        "requested.free > 0 and requested.has_fifo_waiting",
        "requested.has_fifo_waiting",
    ),
    Sql(
        "two starts use one reservation",
        "reserve_one",
        "v_owed + taken.number / v_bucket.per_second",
        "v_owed + greatest(taken.number - 1, 0) / v_bucket.per_second",
    ),
    *killed_by(
        "tests/moves/test_concurrency_keys.py",
        Sql("a run passes a full concurrency key", "release", "number between 1 and room", "number >= 1"),
    ),
    *killed_by(
        "tests/moves/test_lines.py",
        Sql(
            "a FIFO key ignores runs that are still timers",
            "release",
            "where (select true from duly.timers",
            "where true or (select true from duly.timers",
        ),
    ),
    *killed_by(
        "tests/moves/test_rates.py",
        Sql(
            "a rate limit forgets its starts",
            "reserve_one",
            "least(v_owed + v_given / v_bucket.per_second, c_owed)",
            "v_owed",
        ),
    ),
    # Dependencies, workflows, callbacks.
    Sql(
        "a dependency is met by the first of several",
        "open_dependents",
        "and waits = 0 and unmet is null",
        "and unmet is null",
    ),
    Python(
        "a replay of a node forgets the nodes behind it",
        "workflows._replay",
        "sorted(covered_by(graph.edges, node))",
        "[node]",
    ),
    Sql(
        "a callback's time is up before its deadline",
        "overdue",
        "awaited.deadline_at <= v_now",
        "awaited.deadline_at <= v_now + interval '2 seconds'",
    ),
    *killed_by(
        "tests/interleavings/test_inside.py",
        Sql(
            "two ends open one dependency without a lock",
            "advance_dependents",
            "order by child for no key update",
            "order by child",
        ),
    ),
    *killed_by(
        "tests/moves/test_workflows.py",
        Sql("a node starts before all its parents ended", "advance", "greatest(child.waits - parents.ended, 0)", "0"),
        Sql("a node runs though its parent failed", "advance", "not duly.holds_for(edge.on_end, ended.state)", "false"),
    ),
    *killed_by(
        "tests/api/test_long_jobs.py",
        Sql(
            "a run of another tenant gets subtasks",
            "record_subtasks",
            "box.tenant is distinct from p_tenant",
            "box.tenant is null",
        ),
    ),
    # Rows that the database refuses, runs that no worker can take.
    *killed_by(
        "tests/moves/test_stage.py",
        Python(
            "a refused timer blocks its half",
            "_moved_until_refused",
            "if refused:\n    return count, True",
            "return count, refused",
        ),
    ),
    *killed_by(
        "tests/moves/test_unroutable.py",
        Sql(
            "routable runs are set aside",
            "mark_unroutable",
            "front.handler not in (select unnest(known.handlers) from known)",
            "true",
        ),
    ),
    Sql("a claim leaves routable runs aside", "claim", "v_has_unroutable and v_open is not null", "false"),
    *killed_by(
        "tests/worker/test_executor.py",
        Python(
            "a run without a thread starts after its hand-back",
            "Executor._in_thread",
            "self._queued.pop(attempt.name, None) is None",
            "False",
        ),
    ),
    *killed_by(
        "tests/store/test_tail.py",
        Sql("a late commit is missing from the event stream", "ended_since", "attempts.xid = any (p_open)", "false"),
    ),
    # Tenants, and workers over HTTP.
    *killed_by(
        "tests/security/test_tenants_in_sql.py",
        Sql("every tenant's rows are ours", "is_ours", "coalesce(p_tenant = duly.current_tenant(), false)", "true"),
        Sql("another tenant's runs are ours", "our_runs", "and duly.is_ours(leased.tenant)", ""),
    ),
    *killed_by(
        "tests/security/test_row_security.py",
        Sql("a table has no row security", "payloads", "using (duly.owns(job_id))", "using (true)"),
    ),
    *killed_by(
        "tests/security/test_tenants_of_workers.py",
        Sql("any tenant may use a worker over HTTP", "api_claim", "and duly.is_ours(workers.tenant)", ""),
        Sql(
            "a worker over HTTP claims every tenant's runs",
            "api_claim",
            "duly.subqueues(v_open, v_worker.tenant,",
            "duly.subqueues(v_open, null,",
        ),
    ),
    *killed_by(
        "tests/api/test_worker.py",
        Sql(
            "a worker over HTTP holds more runs than slots",
            "api_claim",
            "v_worker.slots - (select count(*) from duly.leased where leased.worker_id = p_worker_id)",
            "v_worker.slots",
        ),
        Sql(
            "a renewal hands back an unanswered claim",
            "api_renew",
            "p_answered >= workers.claim_number",
            "p_answered >= workers.claim_number - 1",
        ),
        Python(
            "a repeated outcome over HTTP is refused",
            "take_back",
            "await leased.already_settled(database, worker_id, missing) if missing else set()",
            "set()",
        ),
    ),
    # Secrets, targets, calls that leave.
    *killed_by(
        "tests/api/test_targets.py",
        Python(
            "a secret follows its job to another origin",
            "_goes_where",
            "_about_new(carrier, tenant) == _about(before, tenant)",
            "True",
        ),
        Python("the API takes any command", "admitted", "self.check(job.options.policy.target)", ""),
        Python(
            "a plan shows a secret",
            "manifest_diff._changes",
            "_shown_parts(field, before.get(field), after.get(field), rules)",
            "(before.get(field), after.get(field))",
        ),
    ),
    *killed_by(
        "tests/domain/test_sealed_options.py",
        Python(
            "a sealed secret opens in another place",
            "_Place.about",
            "[*where, self.kind, self.name.lower() if self.kind == 'headers' else self.name]",
            "[self.kind]",
        ),
    ),
    *killed_by(
        "tests/security/test_addresses.py",
        Python(
            "an IPv4 address inside an IPv6 one is public",
            "is_public",
            "inner is not None and not is_public(inner)",
            "False",
        ),
        Python("a reserved address is public", "is_public", "not _is_in(address, _IPV4_RESERVED)", "True"),
    ),
    *killed_by(
        "tests/security/test_hostile_urls.py",
        Python(
            "one public address of a name is enough",
            "Guard._check",
            "self._egress.allows(address, port)",
            "address != addresses[0] or self._egress.allows(address, port)",
        ),
        Python("an allowed network is open on every port", "Allowance.covers", "self.port in (None, port)", "True"),
    ),
    *killed_by(
        "tests/security/test_slow_servers.py",
        Python(
            "a connection may reach another peer",
            "_check_peer",
            "peer != str(address) and read_address(peer) != address",
            "False",
        ),
    ),
    *killed_by(
        "tests/security/test_response_bytes.py",
        Python("an ambiguous response is read", "Connection._refusal", "coding.lower() != 'chunked'", "False"),
        Python("bytes behind a response belong to the next", "Connection.on_message_begin", "self.hang_up()", "None"),
    ),
    *killed_by(
        "tests/security/test_signatures.py",
        Python(
            "the timestamp is not signed",
            "signing._signed",
            "b'%s.%s.%s' % (message_id.encode(), timestamp.encode(), body)",
            "b'%s.%s' % (message_id.encode(), body)",
        ),
        Python("a webhook from the future is taken", "_check_age", "abs(now - at)", "now - at"),
    ),
    *killed_by(
        "tests/worker/targets/test_webhook.py",
        Python("a refused webhook is retried", "is_ailing", "status in RETRIED or status >= 500", "status >= 300"),
    ),
    Python(
        "a destination gets one request too many",
        "Share._has_slot",
        "self.in_flight < self.slots",
        "self.in_flight <= self.slots",
    ),
    Python(
        "retries exceed the budget of a destination",
        "Share.spend_retry",
        "self._retry_credit < 1 - _ROUNDING",
        "self._retry_credit < -1_000",
    ),
    *killed_by(
        "tests/end_to_end/api/test_replica.py",
        Python(
            "a replica of another installation is read",
            "Replica._problem_of_replica",
            "found.installation != ours.installation",
            "False",
        ),
        Python("a replica counts as recent", "Replica._problem_of_replica", "position <= found.position", "True"),
    ),
    *killed_by(
        "tests/flow/test_restored.py",
        Sql("fences of a restored database start where they were", "hold_restored", "+ 100000000000", ""),
        Sql(
            "leases outlive a restore",
            "hold_restored",
            "update duly.leased set fence = held.raised,",
            "update duly.leased set fence = held.fence,",
        ),
        Sql("the reaper takes runs in flight before a decision", "hold_restored", "timestamptz 'infinity'", "v_now"),
        Sql(
            "the decision ends a pause that is not the restore's",
            "let_go_restored",
            "and paused_by = 'duly restore'",
            "",
        ),
    ),
    *killed_by(
        "tests/cli/test_backup.py",
        Python("a damaged dump is restored", "read_backup", "digest_of(file) != manifest.sha256", "False"),
        Python("an edited manifest is believed", "backup_folder._decoded", "not is_whole", "False"),
        Python(
            "a database that is not empty is restored into",
            "restore._check",
            "target.has_schema and not replace",
            "False",
        ),
    ),
    *killed_by(
        "tests/moves/test_archive.py",
        Sql(
            "a partition is dropped with rows that came after its export",
            "drop_archived",
            "if v_is_new or",
            "if false or",
        ),
        Sql(
            "a scheduler without the archive drops what is not archived",
            "drop_partition",
            "p_only_empty or exists (select from duly.history_limits where archived_at is not null)",
            "p_only_empty",
        ),
        Sql(
            "archives under a legal hold are deleted",
            "delete_archives",
            "and not exists (select from duly.legal_holds where legal_holds.tenant = any (old.tenants))",
            "",
        ),
        Python("a file is not compared with what it should have", "export.check", "found != (rows, checksum)", "False"),
        Python(
            "an archive is believed that was verified a while ago",
            "Exporter._check_again",
            "await asyncio.to_thread(check_record, self._files, found)",
            "pass",
        ),
    ),
    *killed_by(
        "tests/api/test_archived_runs.py",
        Python("any tenant reads archived runs", "_condition", '("tenant = ?", tenant)', '("? is not null", tenant)'),
    ),
    *killed_by(
        "tests/scheduler/test_canary.py",
        Sql("the shards of a canary are shared", "lease_shards", "and every.shard = any (shards)", ""),
        Sql(
            "a scheduler of a drained host keeps its shards",
            "lease_shards",
            "drained_hosts.host = schedulers.host",
            "false",
        ),
    ),
    *killed_by(
        "tests/store/test_two_versions.py",
        Python("a migration takes away what older processes use", "broken", "before[0] - after[0] | required", "set()"),
        Python("a migration keeps its locks", "held_at_most", "asyncio.timeout(seconds)", "asyncio.timeout(None)"),
    ),
    *killed_by(
        "tests/moves/test_cells.py",
        Sql("a departure looks at each box once", "depart", "exit when v_rest = '{}'", "exit when true"),
        Sql(
            "runs of a leaving tenant are claimed",
            "subqueues",
            "and not exists (select from duly.absent_tenants where absent_tenants.tenant = seen.tenant)",
            "",
        ),
        Sql("a leaving tenant is added to", "check_presence", "perform duly.refuse_absent(v_absent)", "perform 1"),
        Sql("a tenant arrives under lower fences", "raise_sequence", "v_last <= p_above", "false"),
        Sql(
            "history that arrives is new to readers",
            "put_rows",
            "and attname = 'xid' then '$2'",
            "and attname = 'xid' then 'pg_current_xact_id()'",
        ),
        Sql("a tenant arrives twice", "begin_arrival", "return false", "null"),
        Python("a tenant leaves while its runs are under way", "Held.is_clear", "not self.runs", "True"),
        Python("a tenant leaves its region", "_check_fit", "to_cell.region != from_cell.region", "False"),
    ),
]
