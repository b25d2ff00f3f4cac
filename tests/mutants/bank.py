"""The bank of mutants: each a line that somebody, somewhere, once wrote. `killed_by` names what must notice:
the simulation, or a test, a class or a file of tests."""

from __future__ import annotations

from pathlib import Path

import msgspec

SIMULATION = "simulation"
FOUND = "tests/simulation/test_found.py"
REAPED = "tests/maintenance/test_reaper.py"
DECLARATION = "src/duly/domain/declaration.py"
DECLARED = "tests/moves/test_declare.py"
BOXES = "src/duly/store/migrations/0001_boxes.sql"
ORDERED = "tests/moves/test_order.py"
LIMITED = "tests/moves/test_limit.py"
HELD = "tests/moves/test_hold.py"
HELD_BY_WORKERS = "tests/worker/test_holds.py"
LINES = "tests/moves/test_lines.py"
RATES = "tests/moves/test_rates.py"
BLACKOUTS = "tests/schedules/test_blackouts.py"
SET_ASIDE = "tests/moves/test_aside.py"
ASIDE_PLANS = "tests/store/test_aside_plans.py"
FIRING = "tests/schedules/test_firing.py"
OVERLAP = "tests/schedules/test_overlap.py"
DELAY = "tests/schedules/test_fixed_delay.py"
EDIT = "tests/schedules/test_edit.py"
OVERTAKEN = "tests/schedules/test_overtaken.py"
ZONE_CHANGE = "src/duly/domain/triggers/zone_change.py"
ZONED = "tests/schedules/test_zones.py"
PAIRS_OF_SCHEDULES = "tests/interleavings/test_schedules.py"
OVER_HTTP = "tests/api/test_worker.py"
OVER_HTTP_APART = "tests/api/test_worker_tenants.py"
ADDRESSES = "src/duly/outbound/addresses.py"
GUARDED = "tests/outbound/test_guard.py"
TRANSPORT = "src/duly/outbound/transport.py"
CONNECTION = "src/duly/outbound/connection.py"
CONNECTED = "tests/outbound/test_connection.py"
TRANSPORTED = "tests/outbound/test_transport.py"
SIGNING = "src/duly/outbound/signing.py"
SIGNED = "tests/outbound/test_signing.py"
AROUND = "src/duly/moves/stage_around.py"
REFUSED = "tests/moves/test_stage.py::TestRefused"


def sql(name: str) -> str:
    """Name the file of functions in which a mutant stands."""
    return f"src/duly/store/functions/{name}.sql"


class Mutant(msgspec.Struct, frozen=True):
    """One change of one line."""

    name: str
    file: str
    old: str
    new: str
    killed_by: str = SIMULATION
    function: str = ""  # the SQL function in which it stands, where it stands in several
    in_setup: bool = False  # what must notice does so before a test begins, and that is how it should be

    def apply(self, root: Path) -> None:
        """Change the file under `root`. The old text must stand there exactly once."""
        path = root / self.file
        text = path.read_text()
        begin, end = self._place(text)
        found = text.count(self.old, begin, end)
        assert found == 1, f"{self.name}: found {found} times in {self.file} {self.function}: {self.old!r}"
        path.write_text(text[:begin] + text[begin:end].replace(self.old, self.new) + text[end:])

    def _place(self, text: str) -> tuple[int, int]:
        if not self.function:
            return 0, len(text)
        begin = text.index(f"function duly.{self.function}(")
        return begin, text.index("$$;", begin)


BANK = [
    # Leases and fences.
    Mutant(
        "finish does not ask for the fence",
        sql("settle"),
        "where leased.ctid = held.place and leased.fence = held.fence and",
        "where leased.ctid = held.place and",
        "tests/moves/test_settle.py::TestFence",
    ),
    Mutant(
        "settle does not ask for the fence",
        sql("settle"),
        "where leased.run_id = held.run_id and leased.fence = held.fence and",
        "where leased.run_id = held.run_id and",
        "tests/moves/test_settle.py::TestUnknownCommit",
    ),
    Mutant(
        "anybody may finish anybody's run",
        sql("settle"),
        "leased.ctid = held.place and leased.fence = held.fence and (leased.worker_id = p_worker_id) is true",
        "leased.ctid = held.place and leased.fence = held.fence",
        "tests/moves/test_settle.py",
    ),
    Mutant(
        "fences are handed out in blocks, one for each session",
        BOXES,
        "create sequence duly.fences cache 1;",
        "create sequence duly.fences cache 1000;",
        "tests/moves/test_claim.py",
    ),
    Mutant(
        "one run may be leased twice",
        BOXES,
        "create unique index leased_by_run on",
        "create index leased_by_run on",
        "tests/moves/test_claim.py",
    ),
    Mutant(
        "a claim does not hold its worker's row",
        sql("claim"),
        "workers.until > v_now for key share;",
        "workers.until > v_now;",
        REAPED,
    ),
    Mutant(
        "the host's name is the worker's identity",
        "src/duly/worker/service.py",
        "            self._rng.uuid(),\n",
        "            Rng(len(self._options.name)).uuid(),\n",
    ),
    Mutant(
        "the lease is never in doubt",
        "src/duly/worker/lifeline.py",
        "return self._clock.monotonic() < self.safe_until",
        "return self.safe_until > 0",
    ),
    Mutant(
        "a refused claim ends a life whose heart beats",
        "src/duly/worker/claiming.py",
        "            if not self._lifeline.is_safe:\n                self._on_expired()\n            return []",
        "            self._on_expired()\n            return []",
        FOUND,
    ),
    Mutant(
        "the safe moment follows the clock back",
        "src/duly/store/sql/workers.sql",
        "safe_until = greatest(safe_until, duly.clock_now() + lease * 2 / 3)",
        "safe_until = duly.clock_now() + lease * 2 / 3",
    ),
    Mutant(
        "the worker starts what the store takes for unstarted",
        "src/duly/worker/lifeline.py",
        "return min(self._clock.now(), self.due_until)",
        "return self._clock.now()",
        "tests/worker/test_pulse.py",
    ),
    Mutant(
        "the reaper trusts the database's clock alone",
        "src/duly/maintenance/reaper.py",
        "if self._database.clock.monotonic() - since < row.lease.total_seconds():",
        "if self._database.clock.monotonic() < since:",
    ),
    Mutant(
        "the reaper reaps whoever it saw, beaten or not",
        "src/duly/store/sql/workers.sql",
        "where worker_id = $1 and beat = $2 and",
        "where worker_id = $1 and beat >= $2 and",
        REAPED,
    ),
    Mutant(
        "everything of a dead worker counts as unstarted",
        "src/duly/moves/reclaim.py",
        "return run.due_at > worker.safe_until or",
        "return run.due_at <= worker.safe_until or",
    ),
    Mutant(
        "a worker may leave while it holds runs",
        sql("reclaim"),
        "where worker_id = p_worker_id and not exists (select from duly.leased where leased.worker_id = p_worker_id);",
        "where worker_id = p_worker_id;",
    ),
    Mutant(
        "a worker leaves without waiting for its own claim",
        sql("reclaim"),
        "where worker_id = p_worker_id for update;",
        "where worker_id = p_worker_id;",
        "tests/interleavings/test_pairs.py",
    ),
    Mutant(
        "leases of which the worker does not know stay with it",
        "src/duly/worker/claiming.py",
        "unknown = [run for run in hanging if self._hands.find(run.run_id, run.fence) is None]",
        "unknown: list[Run] = []",
    ),
    # Holds.
    Mutant(
        "a claim takes from a queue that is held",
        sql("claim"),
        "where not exists (select from duly.holds where holds.tenant is null and",
        "where not exists (select from duly.holds where false and",
        HELD,
    ),
    Mutant(
        "a hold of one queue stops every queue",
        sql("claim"),
        "holds.tenant is null and coalesce(holds.queue, asked.queue) = asked.queue)",
        "holds.tenant is null)",
        HELD,
    ),
    Mutant(
        "a claim takes from a tenant that is held",
        sql("lines"),
        "where not exists (select from duly.holds where holds.tenant = seen.tenant and",
        "where not exists (select from duly.holds where false and",
        HELD,
    ),
    Mutant(
        "a hold of a tenant's share of a queue stops the tenant",
        sql("lines"),
        "where holds.tenant = seen.tenant and coalesce(holds.queue, seen.queue) = seen.queue)",
        "where holds.tenant = seen.tenant)",
        HELD,
    ),
    # Who is claimed first, and limits.
    Mutant(
        "a tenant has the share of its rows",
        sql("lines"),
        "* min(tenant_weight) / sum(min(tenant_weight)) over (partition by number) as share",
        "* count(*) / sum(count(*)) over (partition by number) as share",
        ORDERED,
    ),
    Mutant(
        "no priority has a floor",
        sql("lines"),
        "0.1::double precision * parts.part / parts.lines as share,",
        "0.0::double precision * parts.part / parts.lines as share,",
        ORDERED,
    ),
    Mutant(
        "what is ahead is taken before what is due",
        sql("claim"),
        "    v_is_due := true;\n    v_asked := array(select line from unnest(v_lines) as line where line.due_at <= p_now);",
        "    v_is_due := false;\n    v_asked := v_lines;",
        ORDERED,
    ),
    Mutant(
        "what a line cannot give is given to nobody",
        sql("claim"),
        "for round in 1 .. 4 loop",
        "for round in 1 .. 1 loop",
        ORDERED,
    ),
    Mutant(
        "a second round takes what the first has taken",
        sql("claim"),
        "limit line.quota offset line.taken for update",
        "limit line.quota for update",
        ORDERED,
    ),
    Mutant(
        "every claim begins with the first tenant",
        sql("lines"),
        "if p_tenant is null and exists (select from duly.turns) then",
        "if false then",
        ORDERED,
    ),
    Mutant(
        "a claim under a limit does not lock it",
        sql("lines"),
        "order by coalesce(limits.tenant, 0), coalesce(limits.queue, '') for update;",
        "order by coalesce(limits.tenant, 0), coalesce(limits.queue, '');",
        f"{LIMITED}::test_many_who_claim_at_once_never_exceed_it",
    ),
    Mutant(
        "a limit counts what is ready ahead",
        sql("claim"),
        "as line where not line.is_limited);",
        "as line);",
        LIMITED,
    ),
    Mutant(
        "an old backlog passes what came before it",
        "src/duly/worker/slots.py",
        "turn = now + min(_RANK_SECONDS, max(-_RANK_SECONDS, (rank - now) / _RANK_SCALE))",
        "turn = rank",
        "tests/worker/test_slots.py",
    ),
    Mutant(
        "a lift takes other holds along",
        "src/duly/store/sql/holds.sql",
        "delete from duly.holds where tenant is not distinct from $1 and queue is not distinct from $2",
        "delete from duly.holds where coalesce(tenant = $1, true) and coalesce(queue = $2, true)",
        HELD,
    ),
    Mutant(
        "what is held counts as waiting in vain",
        "src/duly/store/sql/overview.sql",
        "and not exists (select from duly.holds where",
        "and not exists (select from duly.holds where false and",
        HELD,
    ),
    Mutant(
        "a worker keeps in its wheel what is held",
        "src/duly/worker/engine.py",
        "            self._keep_back(self._watch.holds)\n",
        "            pass\n",
        HELD_BY_WORKERS,
    ),
    Mutant(
        "a worker starts what it holds although that is held",
        "src/duly/worker/engine.py",
        "        self._executor.holds = self._watch.holds\n",
        "",
        HELD_BY_WORKERS,
    ),
    Mutant(
        "a worker acts on old news",
        "src/duly/worker/watch.py",
        "self._clock.monotonic() - self._looked_at <= FRESH_SECONDS",
        "self._looked_at > float('-inf')",
        HELD_BY_WORKERS,
    ),
    Mutant(
        "an answer that came late overrules one that was asked for later",
        "src/duly/worker/watch.py",
        "if sent_at >= self._looked_at:",
        "if sent_at > float('-inf'):",
        "tests/worker/test_watch.py",
    ),
    Mutant(
        "a worker believes its older news and not the claim",
        "src/duly/worker/claiming.py",
        "if any(map(self._watch.holds.cover, claimed)):",
        "if not claimed:",
        HELD_BY_WORKERS,
    ),
    # Outcomes.
    Mutant(
        "an outcome counts as written before the store has answered",
        "src/duly/worker/outbox.py",
        'self._log.warning("settle_unanswered", runs=len(ended), tries=tries, error=str(error))',
        "return []",
    ),
    Mutant(
        "a settle asked again does not look for its own record",
        "src/duly/moves/settle.py",
        "ours = await leased.already_settled(database, worker_id, [(item.run.run_id, item.run.fence) for item in missing])",
        "ours: set[Handle] = set()",
    ),
    Mutant(
        "a loss told twice is recorded twice",
        "src/duly/moves/settle.py",
        'not in ours and item.outcome != "lost"]',
        "not in ours]",
        FOUND,
    ),
    Mutant(
        "a hand-back uses up the attempt",
        sql("reclaim"),
        "scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt - 1, priority, losses,",
        "scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses,",
    ),
    Mutant(
        "a claim does not raise the attempt",
        sql("claim"),
        "generation, tenant, attempt + 1, priority, losses,",
        "generation, tenant, greatest(attempt, 1), priority, losses,",
    ),
    Mutant(
        "a name given under an earlier lease blames the run",
        "src/duly/store/workers.py",
        "return name_of(run) in self.named",
        'return str(run.run_id) in " ".join(self.named)',
        REAPED,
    ),
    Mutant(
        "one named loss is poison",
        "src/duly/domain/lifecycle.py",
        "NAMED_LOSSES_MAX = 2",
        "NAMED_LOSSES_MAX = 1",
    ),
    Mutant(
        "nothing is poison",
        "src/duly/domain/lifecycle.py",
        "NAMED_LOSSES_MAX = 2",
        "NAMED_LOSSES_MAX = 99",
    ),
    Mutant(
        "retries come in waves",
        "src/duly/domain/retry.py",
        "return ceiling * (1 - self.jitter_part * (1 - chance))",
        "return ceiling",
    ),
    Mutant(
        "a replay gives no new set of attempts",
        "src/duly/domain/lifecycle.py",
        "return run.attempt - policy.attempts_before",
        "return run.attempt",
        "tests/moves/test_replay.py",
    ),
    Mutant(
        "a worker forgets when a run expires",
        "src/duly/worker/executor.py",
        "if expires_at is None or expires_at.timestamp() > self._clock.now():",
        "if expires_at is None or expires_at.timestamp() > 0:",
    ),
    Mutant(
        "a probe of an ailing destination uses up an attempt",
        "src/duly/domain/lifecycle.py",
        "if outcome.probe and policy.probes < PROBES_MAX:",
        "if outcome.probe and policy.probes < 0:",
    ),
    Mutant(
        "linear gaps begin with the second",
        "src/duly/domain/retry.py",
        "return min(self.cap_seconds, self.base_seconds * attempt, _SECONDS_MAX)",
        "return min(self.cap_seconds, self.base_seconds * (attempt + 1), _SECONDS_MAX)",
    ),
    Mutant(
        "what is too old is tried again",
        "src/duly/domain/lifecycle.py",
        "if starts_at - since > age_max:",
        "if starts_at - since > 100 * age_max:",
    ),
    # Schedules.
    Mutant(
        "an occurrence is named after the moment it was noticed",
        sql("stage"),
        "duly.occurrence_id(fire.job_id, coalesce(moment.run_at, fire.scheduled_at), 'schedule') as new_run_id",
        "duly.occurrence_id(fire.job_id, v_now, 'schedule') as new_run_id",
    ),
    Mutant(
        "the next fire counts from now",
        sql("stage"),
        "then fire.scheduled_at + make_interval(secs => (late.count + 1) * fire.every_seconds::double precision)",
        "then v_now + make_interval(secs => fire.every_seconds::double precision)",
    ),
    Mutant(
        "a misfire forgets what it skipped",
        sql("stage"),
        "from fires where cohort is null and missed > 1",
        "from fires where cohort is null and missed > 100000",
    ),
    Mutant(
        "a stale epoch stages",
        sql("stage"),
        "join duly.shards on shards.shard = held.shard and shards.epoch = held.epoch and shards.holder = p_holder\n"
        "                     where exists (select from duly.schedulers where scheduler_id = p_holder and until > v_now));",
        "join duly.shards on shards.shard = held.shard);",
    ),
    Mutant(
        "a scheduler keeps its shards when it could not renew them",
        "src/duly/scheduler/service.py",
        "            self._epochs = {}\n            raise\n",
        "            raise\n",
    ),
    Mutant(
        "a shard changes hands under the same epoch",
        sql("shards"),
        "set holder = p_scheduler_id, epoch = epoch + 1 where",
        "set holder = p_scheduler_id, epoch = epoch where",
    ),
    Mutant(
        "an overlap is not looked for",
        sql("stage"),
        "overlap is null and last_run_id is not null and due_at <= v_now and (",
        "false and (",
        OVERLAP,
    ),
    Mutant(
        "the next fire of a cohort is armed from now",
        "src/duly/domain/triggers/planning.py",
        "next_at, next_window = arm(schedule, scheduled_at) or (None, 0)",
        "next_at, next_window = arm(schedule, now) or (None, 0)",
        FIRING,
    ),
    Mutant(
        "runs that are left are not counted",
        sql("stage"),
        "runs_left - runs::integer, grace_seconds",
        "runs_left, grace_seconds",
        FIRING,
    ),
    Mutant(
        "lateness is judged anew when a fire is staged",
        sql("stage"),
        "= duly.fire_key(timers.cohort, timers.scheduled_at, duly.is_late(timers.due_at, timers.grace_seconds, p_read_at))",
        "= duly.fire_key(timers.cohort, timers.scheduled_at, duly.is_late(timers.due_at, timers.grace_seconds, v_now))",
        FIRING,
    ),
    Mutant(
        "an answer is taken for any cohort with its key",
        sql("stage"),
        "keys.list)]\n                                = timers.cohort))",
        "keys.list)]\n                                is not null))",
        FIRING,
    ),
    Mutant(
        "jitter is forgotten after the first fire",
        sql("stage"),
        "case when jitter is null then next_at else next_at + duly.jitter_delay(jitter, job_id, next_at, p_windows[answer]) end,",
        "next_at,",
        FIRING,
    ),
    Mutant(
        "a job tells of what calendars took before it was made",
        sql("next_fire"),
        "then coalesce(cut.count, 1) else skip.count end",
        "then skip.count else skip.count end",
        BLACKOUTS,
    ),
    Mutant(
        "a job that is timed anew is accountable as before",
        sql("next_fire"),
        "set timed_at = duly.clock_now() where",
        "set timed_at = timed_at where",
        BLACKOUTS,
    ),
    Mutant(
        "a queue has no end",
        sql("release"),
        "if exists (select from unnest(v_waiting_max) as waiting_max where waiting_max is not null) then",
        "if false then",
        OVERLAP,
    ),
    Mutant(
        "a run gives its place away between two attempts",
        sql("settle"),
        "case when duly.keeps_place(options) then options || '{\"held\": true}' else options end as carried",
        "options as carried",
        OVERLAP,
    ),
    Mutant(
        "the end of a run arms a paused schedule",
        sql("next_fire"),
        "elsif v_job.state = 'active' then",
        "else",
        DELAY,
    ),
    Mutant(
        "a replay moves the schedule",
        sql("settle"),
        "options - array['held', 'rearm']",
        "options - 'held'",
        DELAY,
    ),
    Mutant(
        "an edit does not look whether somebody else was faster",
        sql("change_schedule"),
        "if v_job.generation <> p_generation or v_timer.scheduled_at <> p_seen or v_kept_at > p_read_at then",
        "if v_timer.scheduled_at <> p_seen or v_kept_at > p_read_at then",
        PAIRS_OF_SCHEDULES,
    ),
    Mutant(
        "an edit does not look whether the schedule has moved on",
        sql("change_schedule"),
        "if v_job.generation <> p_generation or v_timer.scheduled_at <> p_seen or v_kept_at > p_read_at then",
        "if v_job.generation <> p_generation or v_kept_at > p_read_at then",
        EDIT,
    ),
    Mutant(
        "an edit does not look whether its calendars have changed",
        sql("change_schedule"),
        "if v_job.generation <> p_generation or v_timer.scheduled_at <> p_seen or v_kept_at > p_read_at then",
        "if v_job.generation <> p_generation or v_timer.scheduled_at <> p_seen then",
        OVERTAKEN,
    ),
    Mutant(
        "a calendar arms a job by the rule it had before",
        sql("next_fire"),
        "(timers.scheduled_at = new.seen and timers.generation = new.generation) is true",
        "(timers.scheduled_at = new.seen) is true",
        OVERTAKEN,
    ),
    Mutant(
        "what is left out is counted by the rule it had before",
        sql("change_schedule"),
        "    if v_timer.generation <> p_generation then",
        "    if false then",
        OVERTAKEN,
    ),
    Mutant(
        "an edit arms what is beyond recall",
        sql("change_schedule"),
        "if p_first_at is not null and v_floor > coalesce(p_floor, '-infinity') then",
        "if false then",
        EDIT,
    ),
    Mutant(
        "what comes before the last that is beyond recall is taken back",
        sql("next_fire"),
        "where scheduled_at > coalesce(v_floor, '-infinity') order by",
        "order by",
        "tests/schedules/test_pause.py",
    ),
    Mutant(
        "a pause does not look whether the schedule has moved on",
        sql("change_schedule"),
        "if v_state = 'paused' or v_timer.scheduled_at <> p_seen or v_timer.generation <> p_generation then",
        "if v_state = 'paused' or v_timer.generation <> p_generation then",
        PAIRS_OF_SCHEDULES,
    ),
    Mutant(
        "two schedulers make the same stretch",
        sql("backfill"),
        "and backfills.cursor_at = new.seen and",
        "and",
        PAIRS_OF_SCHEDULES,
    ),
    # Time.
    Mutant(
        "the wheel rounds down",
        "src/duly/worker/wheel.py",
        "tick = ceil(due * _TICKS_PER_SECOND)",
        "tick = int(due * _TICKS_PER_SECOND)",
    ),
    Mutant(
        "what is nearly due is started at once",
        "src/duly/worker/claiming.py",
        "            if due > now:\n",
        "            if due > now + 0.5:\n",
    ),
    Mutant(
        "clocks do not drift",
        "src/duly/clock.py",
        "_DRIFT = 0.001",
        "_DRIFT = 0.0",
    ),
    Mutant(
        "a reading of the database's clock is good for ever",
        "src/duly/clock.py",
        "_WINDOW_SECONDS = 10.0",
        "_WINDOW_SECONDS = 1e9",
        "tests/worker/test_clock.py",
    ),
    Mutant(
        "a new connection tells the time of the server before it",
        "src/duly/store/database.py",
        "            self.clock.start_over(await connection.fetchval(_CLOCK))\n",
        "            self.clock.observe(await connection.fetchval(_CLOCK))\n",
        "tests/store/test_database.py",
    ),
    Mutant(
        "a step back of the database's clock goes unnoticed",
        "src/duly/clock.py",
        "if better and offset < _aged(better[0], received) - _CONTRADICTION_SECONDS:",
        "if False:",
        "tests/worker/test_clock.py",
    ),
    Mutant(
        "a run that came late has waited in line since it was due",
        "src/duly/worker/slots.py",
        "max(due, now)))",
        "due))",
        "tests/worker/test_slots.py",
    ),
    Mutant(
        "the last record is the one with the latest moment",
        "src/duly/store/runs.py",
        'if attempt["became"] in _ENDED] or accepted)[-1]',
        'if attempt["became"] in ()] or accepted)[-1]',
        FOUND,
    ),
    # Submit, cancel, gates.
    Mutant(
        "a key protects nothing",
        sql("submit"),
        "where keys.expires_at <= v_now;",
        "where true;",
        function="submit_one_v2",
    ),
    Mutant(
        "the key of many protects nothing",
        sql("submit"),
        "where keys.expires_at <= v_now;",
        "where true;",
        function="submit_v1",
    ),
    Mutant(
        "any body goes under a used key",
        sql("submit"),
        "if v_key.body_hash <> v_hash then",
        "if false then",
        function="submit_one_v2",
    ),
    Mutant(
        "a schedule's key protects nothing",
        sql("schedule"),
        "where keys.expires_at <= v_now;",
        "where true;",
    ),
    Mutant(
        "a cancel of a run in a worker's hands is forgotten when it is tried again",
        sql("settle"),
        "select exists (select from duly.signals where worker_id = p_worker_id and",
        "select exists (select from duly.signals where false and worker_id = p_worker_id and",
        "tests/moves/test_settle.py",
    ),
    Mutant(
        "a worker forgets a cancel it has only read",
        "src/duly/worker/engine.py",
        "        for signal in signals:\n            self._heed(signal)\n",
        "        for signal in signals:\n            self._heed(signal)\n"
        "            await runs.drop_signals(self._database, self.worker_id, [signal])\n",
        FOUND,
    ),
    Mutant(
        "a worker starts what it was told to stop before it knew of it",
        "src/duly/worker/engine.py",
        "            if (signal := self._signalled.get((run.run_id, run.fence))) is not None:\n",
        "            if (signal := self._signalled.get((run.run_id, 0))) is not None:\n",
        "tests/worker/test_cancel.py",
    ),
    Mutant(
        "an outcome does not wait for the progress that is being written",
        "src/duly/worker/desk.py",
        "        return name in self._progress or name in self._showing\n",
        "        return name in self._progress\n",
        "tests/worker/test_desk.py",
    ),
    Mutant(
        "a run of another tenant may have subtasks",
        sql("subtasks"),
        "     where place.tenant is distinct from p_tenant limit 1;\n",
        "     where place.tenant is null limit 1;\n",
        "tests/api/test_long_jobs.py",
    ),
    Mutant(
        "a cancel is carried out some time after it was looked for",
        "src/duly/moves/cancel.py",
        "    return len(await runs.carry_out(database))\n",
        "    stale = await database.fetch('select run_id from duly.signals')\n"
        "    await runs.cancel(database, [row[0] for row in stale], 'cancelled')\n"
        "    return len(await runs.carry_out(database))\n",
        "tests/interleavings/test_pairs.py",
    ),
    Mutant(
        "a cancel is carried out on what stands still alone",
        sql("cancel"),
        "        exit when not exists (select from duly.timers where run_id = any (v_run_ids) and run_id is not null)\n",
        "        exit when true or not exists (select from duly.timers where run_id = any (v_run_ids) and run_id is not null)\n",
        "tests/interleavings/test_pairs.py",
    ),
    Mutant(
        "a cancel follows a run into its next life",
        sql("replay"),
        "delete from duly.signals using risen where signals.run_id = risen.run_id),",
        "delete from duly.signals using risen where signals.run_id = risen.run_id and false),",
        "tests/interleavings/test_pairs.py",
    ),
    Mutant(
        "a gate lets everyone in",
        sql("release"),
        "order by due_at, run_id limit asked.free for update skip locked",
        "order by due_at, run_id limit 1000 for update skip locked",
    ),
    Mutant(
        "what an outcome made ready waits for the poll",
        "src/duly/worker/engine.py",
        "        if any(_leads_on(item) for item in settled):\n            self._claiming.wake()\n",
        "",
        FOUND,
    ),
    Mutant(
        "whoever leaves a gate keeps the place",
        sql("release"),
        "row.active - u.left_gate as active, line.stands",
        "row.active as active, line.stands",
    ),
    Mutant(
        "whoever comes to a full gate passes",
        sql("release"),
        "where number between 1 and room)",
        "where number >= 1)",
        "tests/moves/test_gates.py",
    ),
    Mutant(
        "a line does not look for who is still on the way",
        sql("release"),
        "where (select true from duly.timers",
        "where true or (select true from duly.timers",
        LINES,
    ),
    Mutant(
        "a line goes by moments alone",
        sql("release"),
        "order by due_at, duly.line_of(options), run_id limit 1) as first",
        "order by due_at, run_id limit 1) as first",
        LINES,
    ),
    Mutant(
        "a run of a line gives its place away while it waits for its receiver",
        sql("release"),
        "case when options ? 'fifo' and not options ? 'overlap' then options || '{\"overlap\": [\"fifo\"]}' else options end",
        "options",
        LINES,
    ),
    Mutant(
        "what has waited for its place or its receiver is late",
        sql("options"),
        "select p_options || '{\"waited\": true}'",
        "select p_options",
        "tests/store/test_figures.py",
    ),
    Mutant(
        "who is cancelled in a line is not looked behind",
        sql("cancel"),
        "when options ? 'fifo' then options || '{\"outside\": true}' else options - 'gate' end",
        "else options - 'gate' end",
        LINES,
        function="cancel_v1",
    ),
    Mutant(
        "what is handed back keeps its turn",
        sql("reclaim"),
        "from back where not cancelled and not coalesce(options ? 'rate', false)",
        "from back where not cancelled",
        RATES,
    ),
    Mutant(
        "a rate forgets what it has given",
        sql("rates"),
        "v_owed := least(v_owed + v_given / v_pace.per_second, c_owed);",
        "v_owed := v_owed;",
        RATES,
    ),
    Mutant(
        "a burst comes again and again",
        sql("rates"),
        "greatest(v_owed + taken.number / v_pace.per_second - v_burst, 0)",
        "greatest(v_owed + taken.number / v_pace.per_second - v_burst - 0.2, 0)",
        RATES,
    ),
    Mutant(
        "turns that nobody takes are given all the same",
        sql("rates"),
        "and ready.due_at < p_now - interval '1 second')",
        "and ready.due_at < p_now - interval '1 day')",
        RATES,
    ),
    Mutant(
        "a rate stands still until the moment comes again from which the clock was set back",
        sql("rates"),
        "v_pace.next_at := p_now + (v_pace.next_at - v_pace.reckoned_at);",
        "null;",
        RATES,
    ),
    Mutant(
        "turns stay where the clock was set back from",
        sql("rates"),
        "if duly.untake_turns_v1(p_tenant, p_key, c_turns, p_now) >= c_turns then",
        "if false then",
        RATES,
    ),
    Mutant(
        "a step back that is waited for gives turns again",
        sql("rates"),
        "select interval '3 seconds'",
        "select interval '0.1 seconds'",
        RATES,
    ),
    Mutant(
        "a worker waits for a turn that the clock was set back from",
        "src/duly/worker/engine.py",
        "TURN_AHEAD_SECONDS_MAX = 2.0",
        "TURN_AHEAD_SECONDS_MAX = 2e9",
        "tests/worker/test_turns.py",
    ),
    Mutant(
        "a deadlock is the caller's to deal with",
        "src/duly/store/database.py",
        "AGAIN = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)",
        "AGAIN = (asyncpg.SerializationError,)",
        "tests/store/test_database.py",
    ),
    Mutant(
        "the next of a line enters beside the former",
        sql("release"),
        "where asked.free > 0 and asked.stands)",
        "where asked.stands)",
    ),
    Mutant(
        "a limit that was set for a key counts one too many",
        sql("release"),
        "coalesce((select limits.places from duly.gate_limits",
        "coalesce((select limits.places + 1 from duly.gate_limits",
    ),
    Mutant(
        "two turns are one",
        sql("rates"),
        "greatest(v_owed + taken.number / v_pace.per_second - v_burst, 0)",
        "greatest(v_owed + greatest(taken.number - 1, 0) / v_pace.per_second - v_burst, 0)",
    ),
    Mutant(
        "what follows several is let go by the first",
        sql("follow"),
        "where child = any (p_children) and waits = 0 and unmet is null);",
        "where child = any (p_children) and unmet is null);",
    ),
    # Workflows.
    Mutant(
        "a replay of a node forgets those behind it",
        "src/duly/moves/workflows.py",
        "covered = sorted(covered_by(graph.edges, node))",
        "covered = [node]",
    ),
    # Destinations.
    Mutant(
        "a destination is sent one request too many",
        "src/duly/worker/targets/share.py",
        "not is_barred and self.in_flight < self.places",
        "not is_barred and self.in_flight <= self.places",
    ),
    Mutant(
        "retries are sent whether or not they are paid for",
        "src/duly/worker/targets/share.py",
        "if self._retry_credit < 1 - _ROUNDING:",
        "if self._retry_credit < -1_000:",
    ),
    Mutant(
        "a receiver's time is up before its deadline",
        sql("await"),
        "where awaited.deadline_at <= v_now order by",
        "where awaited.deadline_at <= v_now + interval '2 seconds' order by",
        function="overdue_v1",
    ),
    # Schedules declared in code.
    Mutant(
        "declared: an older version puts its schedule back",
        DECLARATION,
        "    if mine in standing.definitions:\n",
        "    if False:\n",
        DECLARED,
    ),
    Mutant(
        "declared: a removal cut short is nobody's",
        DECLARATION,
        "if standing.removed_at or standing.is_held else",
        "if standing.removed_at else",
        DECLARED,
    ),
    Mutant(
        "declared: a change does not ask for the version it saw",
        "src/duly/moves/edit.py",
        "if seen.generation != version:",
        "if False:",
        DECLARED,
    ),
    Mutant(
        "declared: the return of the code resumes what a person has paused",
        "src/duly/moves/declare.py",
        "if standing.is_held:",
        'if standing.state == "paused":',
        DECLARED,
    ),
    Mutant(
        "declared: a worker that died goes on declaring",
        "src/duly/store/sql/declared.sql",
        "where workers.until > duly.clock_now()",
        "",
        DECLARED,
    ),
    # Time zone data.
    Mutant(
        "zones: whoever is there has a share, whatever its version",
        sql("shards"),
        "v_tzdb is null or tzdb = v_tzdb",
        "true",
        ZONED,
    ),
    Mutant(
        "zones: the newer comes into force while the older lives",
        sql("zones"),
        "if exists (select from duly.schedulers where until > v_now and tzdb is distinct from p_version) then",
        "if false then",
        ZONED,
    ),
    Mutant(
        "zones: what is yet to be timed anew is staged",
        "src/duly/moves/stage.py",
        "if schedule is None or self._waits(fire.cohort, schedule):",
        "if schedule is None:",
        ZONED,
    ),
    Mutant(
        "zones: what is of the new version already is timed anew once more",
        "src/duly/moves/zones.py",
        "if one.tzdb is None and one.cohort == cohort:",
        "if False:",
        ZONED,
    ),
    Mutant(
        "zones: a local time that has fired fires again",
        ZONE_CHANGE,
        "return max(last.scheduled_at, moment_of(new.trigger.zone.first_instant(local)))",
        "return last.scheduled_at",
        ZONED,
    ),
    Mutant("zones: there is one pass", sql("zones"), "elsif v_data.is_last_pass then", "elsif true then", ZONED),
    Mutant(
        "zones: what another version has timed is not marked",
        sql("zones"),
        "zone_data.version <> p_tzdb",
        "false",
        ZONED,
    ),
    Mutant(
        "overlap: one that was just asked to stop loses its place",
        sql("reclaim"),
        "signals.sent_at <= v_now - p_stop",
        "true",
        OVERLAP,
    ),
    Mutant(
        "overlap: one that nobody replaces loses its place",
        sql("reclaim"),
        "exists (select from duly.blocked where blocked.tenant = leased.tenant and blocked.gate = leased.options->'gate'->>0)",
        "true",
        OVERLAP,
    ),
    Mutant(
        "a claim over HTTP takes what is not due yet",
        sql("remote_workers"),
        "v_worker.handlers, false, not v_crowd,",
        "v_worker.handlers, true, not v_crowd,",
        f"{OVER_HTTP}::TestClaim::test_a_later_run_of_a_high_priority_does_not_hide_what_is_due",
    ),
    Mutant(
        "a worker over HTTP is anybody's",
        sql("remote_workers"),
        "workers.tenant is not null and duly.is_ours(workers.tenant) for no key update",
        "workers.tenant is not null for no key update",
        f"{OVER_HTTP_APART}::TestAtTheDoor::test_another_tenants_worker_is_as_unknown_as_one_that_never_was",
    ),
    Mutant(
        "a worker over HTTP is given every tenant's runs",
        sql("remote_workers"),
        "duly.lines_v1(v_open, v_worker.tenant,",
        "duly.lines_v1(v_open, null,",
        f"{OVER_HTTP_APART}::TestAtTheDoor::test_a_worker_is_given_the_runs_of_its_tenant_alone",
    ),
    Mutant(
        "a worker over HTTP holds more than it has slots",
        sql("remote_workers"),
        "v_worker.slots - (select count(*) from duly.leased where leased.worker_id = p_worker_id)",
        "v_worker.slots",
        f"{OVER_HTTP}::TestClaim::test_no_more_than_the_limit_and_never_more_than_it_has_slots",
    ),
    Mutant(
        "suspects come together over HTTP",
        sql("remote_workers"),
        "where not found.suspect or found.number = 1",
        "where true",
        f"{OVER_HTTP}::TestDeath::test_its_runs_are_tried_again_as_suspects_one_at_a_time",
    ),
    Mutant(
        "a secret goes wherever the job leads now",
        "src/duly/domain/target_secrets.py",
        "return target.url == standing.url",
        "return True",
        "tests/api/test_targets.py::TestChanges::test_a_secret_does_not_follow_to_another_origin",
    ),
    Mutant(
        "the API takes any program",
        "src/duly/api/definitions.py",
        "    allowed.check(target)\n",
        "",
        "tests/api/test_targets.py::test_what_cannot_be_or_is_not_allowed_is_refused_by_each_way_in",
    ),
    Mutant(
        "a plan shows a secret that is to be another",
        "src/duly/domain/manifest_diff.py",
        "Difference(field, *shown_parts(field, before.get(field), after.get(field)))",
        "Difference(field, before.get(field), after.get(field))",
        "tests/api/test_targets.py::TestFiles::test_a_plan_says_that_a_secret_is_another_and_not_which",
    ),
    Mutant(
        "a suspect over HTTP is not named",
        sql("remote_workers"),
        "named = coalesce((select array_agg(held.run_id || '/' || v_fence) from held where held.suspect), workers.named)",
        "named = workers.named",
        f"{OVER_HTTP}::TestDeath::test_a_run_that_kills_its_workers_is_buried",
    ),
    Mutant(
        "a renewal takes back a claim whose answer is on its way",
        sql("remote_workers"),
        "when p_answered >= workers.claim_number then",
        "when p_answered >= workers.claim_number - 1 then",
        f"{OVER_HTTP}::TestRenew::test_a_claim_whose_answer_is_on_its_way_stays",
    ),
    Mutant(
        "an outcome over HTTP that is asked again is refused",
        "src/duly/moves/take_back.py",
        "before = await leased.already_settled(database, worker_id, missing) if missing else set()",
        "before: set[Handle] = set()",
        f"{OVER_HTTP}::TestSettle::test_asked_again_after_a_lost_answer_it_answers_the_same",
    ),
    Mutant(
        "an IPv4 address inside an IPv6 one is not judged",
        ADDRESSES,
        "if inner is not None and not is_public(inner):",
        "if False:",
        "tests/outbound/test_addresses.py::test_what_is_not_everybodys_is_not_public",
    ),
    Mutant(
        "the library alone says what is public",
        ADDRESSES,
        "return address.is_global and not _is_in(address, _IPV4_RESERVED)",
        "return address.is_global",
        "tests/outbound/test_addresses.py::test_what_is_not_everybodys_is_not_public",
    ),
    Mutant(
        "one public address of a name is enough",
        "src/duly/outbound/guard.py",
        "for address in addresses:",
        "for address in addresses[:1]:",
        f"{GUARDED}::test_a_public_address_beside_a_hostile_one_does_not_help",
    ),
    Mutant(
        "the allow-list opens every port",
        "src/duly/outbound/egress.py",
        "and self.port in (None, port)",
        "",
        f"{GUARDED}::test_private_networks_open_exactly_as_far_as_the_operator_says",
    ),
    Mutant(
        "nobody looks whom a connection has reached",
        TRANSPORT,
        "if peer is None or (peer != str(address) and read_address(peer) != address):",
        "if peer is None:",
        f"{TRANSPORTED}::test_a_connection_that_leads_elsewhere_is_not_spoken_to",
    ),
    Mutant(
        "what an answer is coded with is not looked at",
        CONNECTION,
        'if version not in _VERSIONS or coding.lower() != "chunked":',
        "if version not in _VERSIONS:",
        f"{CONNECTED}::test_an_answer_that_can_be_read_in_two_ways_is_none",
    ),
    Mutant(
        "what follows an answer is left for the next",
        CONNECTION,
        """        if self._asked is None:
            self.hang_up()

    def on_header""",
        """        if self._asked is None:
            return

    def on_header""",
        f"{CONNECTED}::test_what_follows_an_answer_ends_the_connection",
    ),
    Mutant(
        "a connection is kept although its request was not read",
        CONNECTION,
        "self._is_lasting = is_sent and self._has_body",
        "self._is_lasting = self._has_body",
        f"{CONNECTED}::test_an_answer_before_the_whole_request_was_read_counts_and_ends_the_connection",
    ),
    Mutant(
        "trailers and the ends of chunks count for nothing",
        CONNECTION,
        "if self._received > (_RECEIVED_BYTES_MAX if self._has_head else HEADERS_BYTES_MAX):",
        "if False:",
        f"{CONNECTED}::test_endless_trailers_and_chunk_extensions_are_no_answer",
    ),
    Mutant(
        "the timestamp is not signed",
        SIGNING,
        'return b"%s.%s.%s" % (message_id.encode(), timestamp.encode(), body)',
        'return b"%s.%s" % (message_id.encode(), body)',
        f"{SIGNED}::test_a_fresh_timestamp_on_an_old_signature_is_refused",
    ),
    Mutant(
        "a webhook from the future is taken",
        "src/duly/webhooks.py",
        "if abs(now - at) > tolerance:",
        "if now - at > tolerance:",
        f"{SIGNED}::test_what_is_old_or_ahead_is_refused_at_five_minutes",
    ),
    Mutant(
        "a webhook that was refused for good is tried again",
        "src/duly/domain/webhook_answer.py",
        "return status in RETRIED or status >= 500",
        "return status >= 300",
        "tests/worker/targets/test_webhook.py::test_everything_else_is_final",
    ),
    # What nobody knows.
    Mutant(
        "what is known is set aside as well",
        sql("aside"),
        "front.handler not in (select unnest(known.handlers) from known)",
        "true",
        SET_ASIDE,
    ),
    Mutant(
        "a dead worker still knows its handlers",
        sql("aside"),
        "select workers.handlers from duly.workers where workers.until > v_now and",
        "select workers.handlers from duly.workers where",
        SET_ASIDE,
    ),
    Mutant(
        "lines are looked into of queues that nobody serves",
        sql("aside"),
        "if exists (select from duly.workers where workers.until > v_now and v_head.queue = any (workers.queues)",
        "if exists (select from duly.workers where workers.until > v_now",
        SET_ASIDE,
    ),
    Mutant("a few are a crowd", sql("aside"), "then p_more else p_crowd end", "then p_more else p_more end", SET_ASIDE),
    Mutant(
        "a crowd of another tenant makes a few enough",
        sql("aside"),
        "                                       and ready.tenant = v_head.tenant) then p_more",
        "                                       ) then p_more",
        SET_ASIDE,
    ),
    Mutant(
        "a claim leaves aside what its worker knows",
        sql("claim"),
        "if v_aside and v_open is not null then",
        "if false then",
    ),
    Mutant(
        "a claim over HTTP brings back every tenant's runs",
        sql("remote_workers"),
        "v_worker.handlers, v_worker.tenant, greatest(100",
        "v_worker.handlers, null, greatest(100",
        SET_ASIDE,
    ),
    Mutant(
        "a worker over HTTP does not see what stands aside",
        sql("remote_workers"),
        "return 0;                                      -- The claim puts it in line.",
        "return null;",
        SET_ASIDE,
    ),
    Mutant(
        "the newest is brought back first",
        sql("aside"),
        "order by ready.due_at limit greatest(1,",
        "order by ready.due_at desc limit greatest(1,",
        SET_ASIDE,
    ),
    Mutant(
        "maintenance brings back what only the dead knew",
        sql("aside"),
        "where workers.until > duly.clock_now() and (v_kinds = c_kinds",
        "where (v_kinds = c_kinds",
        SET_ASIDE,
    ),
    Mutant(
        "a claim walks over what stands aside",
        sql("claim"),
        "where not ready.is_aside and ready.queue = (v_lines[1]).queue",
        "where ready.queue = (v_lines[1]).queue",
        ASIDE_PLANS,
    ),
    Mutant(
        "lines are found among what stands aside",
        sql("lines"),
        "where not ready.is_aside and ready.queue = wanted.queue",
        "where ready.queue = wanted.queue",
        ASIDE_PLANS,
    ),
    Mutant(
        "what stands aside is young for ever",
        sql("overload"),
        "(select * from asides limit p_lines) as head",
        "(select * from asides limit 0) as head",
        "tests/store/test_overloads.py",
    ),
    Mutant(
        "each look for a crowd begins with the first line",
        "src/duly/maintenance/service.py",
        "moved, self._next_line = await set_aside(",
        "moved, _ = await set_aside(",
        "tests/maintenance/test_service.py::TestAside",
    ),
    Mutant(
        "what is refused is staged again at once",
        AROUND,
        "        left_out = [*self.left_out.ids(self.database.clock.monotonic()), *more]",
        "        left_out = [*more]",
        REFUSED,
    ),
    Mutant(
        "what cannot be staged is searched for in one half alone",
        AROUND,
        "            suspects = suspects[len(tried) :]",
        "            break",
        REFUSED,
    ),
    Mutant(
        "what was refused is tried again as often as ever",
        AROUND,
        "pause = min(AGAIN_SECONDS_MAX, 2 * self._pauses.get(id_, AGAIN_SECONDS / 2))",
        "pause = AGAIN_SECONDS",
        REFUSED,
    ),
    Mutant(
        "a rate may be as slow as one likes",
        sql("rates"),
        "greatest(coalesce(v_limit.per_second, v_pace.asked_per_second), duly.rate_min())",
        "coalesce(v_limit.per_second, v_pace.asked_per_second)",
        REFUSED,
    ),
    Mutant(
        "a name may be as long as one likes",
        sql("options"),
        "select octet_length(p_value) between 1 and 1000",
        "select octet_length(p_value) >= 1",
        "tests/moves/test_submit.py",
    ),
    Mutant(
        "what stands aside is not asked for by its handler",
        sql("aside"),
        "and ready.handler = known.handler",
        "and ready.handler || '' = known.handler",
        ASIDE_PLANS,
        function="stands_aside",
    ),
    Mutant(
        "a backlog is cancelled in one go",
        "src/duly/moves/cancel.py",
        "await jobs.waiting_runs(database, job_id, _BATCH)",
        "await jobs.waiting_runs(database, job_id, 10**6)",
        "tests/moves/test_cancel.py",
    ),
    Mutant(
        "whoever changes a table waits for it as long as it takes",
        "src/duly/store/migrate.py",
        "lock_timeout = '200ms'",
        "lock_timeout = 0",
        "tests/store/test_migrations.py::test_a_table_that_somebody_holds_is_let_go_and_asked_for_again",
    ),
    # What keeps a run from being started, and what keeps a worker from ending.
    Mutant(
        "an expiry is read as it stands",
        "src/duly/domain/expiry.py",
        "min(max(seconds, 0.0), _SECONDS_MAX)",
        "seconds",
        "tests/domain/test_expiry.py",
    ),
    Mutant(
        "an error before the handler is called ends a task in silence",
        "src/duly/worker/executor.py",
        "            ended = self._unprepared(kind, run, error, context)\n        self._end(ended)",
        "            return\n        self._end(ended)",
        "tests/worker/test_executor.py::test_a_run_that_cannot_even_be_prepared_has_failed_with_that_error",
    ),
    Mutant(
        "an error before the handler is called ends a thread in silence",
        "src/duly/worker/executor.py",
        "            ended = self._unprepared(kind, run, error, context)\n        self._contexts",
        "            return\n        self._contexts",
        "tests/worker/test_executor.py::test_a_run_that_cannot_even_be_prepared_has_failed_with_that_error",
    ),
    Mutant(
        "what was handed back for want of a thread is run by the next",
        "src/duly/worker/executor.py",
        "        if self._in_line.pop((run.run_id, run.fence), None) is None:\n",
        "        if False:\n",
        "tests/worker/test_executor.py::test_what_was_handed_back_for_want_of_a_thread_is_not_run_by_the_next_one",
    ),
    Mutant(
        "what a thread has taken is handed back as well",
        "src/duly/worker/executor.py",
        "            if self._in_line.pop(name, None) is not None:\n",
        "            if True:\n",
        "tests/worker/test_executor.py::test_what_another_thread_has_taken_already_is_not_handed_back",
    ),
    Mutant(
        "what has no thread is kept",
        "src/duly/worker/engine.py",
        "            self._put_off([Ended(kind, run, None) for kind, run in without_thread])\n",
        "            pass\n",
        "tests/worker/test_executor.py::test_a_worker_short_of_threads_hands_its_runs_back_unused_and_runs_them_when_it_can",
    ),
    Mutant(
        "what could not be started is claimed again at once",
        "src/duly/worker/engine.py",
        "        await self._until(self._gone.is_set, seconds)\n",
        "        await asyncio.sleep(0)\n",
        "tests/worker/test_apart.py::test_runs_for_which_no_child_can_be_started_are_handed_back_unused",
    ),
    Mutant(
        "the slot of what could not be started is never free again",
        "src/duly/worker/engine.py",
        "        for kind in kinds:\n            self._slots.release(kind)\n",
        "",
        "tests/worker/test_apart.py::test_runs_for_which_no_child_can_be_started_are_handed_back_unused",
    ),
    Mutant(
        "what waited for a child is started without a lease",
        "src/duly/worker/apart.py",
        "return self._lifeline.is_safe and not self._executor.holds.cover(run)",
        "return not self._executor.holds.cover(run)",
        "tests/worker/test_apart.py::test_what_waited_for_a_child_past_its_lease_is_not_started",
    ),
    Mutant(
        "suspects that could not be announced are kept",
        "src/duly/worker/apart.py",
        "            self._on_unable(unstarted)\n            return\n        if is_announced",
        "            return\n        if is_announced",
        "tests/worker/test_apart.py::test_suspects_whose_announcement_fails_are_not_kept",
    ),
    Mutant(
        "a child that cannot be started is an attempt",
        "src/duly/worker/crew.py",
        '            raise NoChild(f"none could be started: {error!r}") from error\n',
        "            raise\n",
        "tests/worker/test_apart.py::test_runs_for_which_no_child_can_be_started_are_handed_back_unused",
    ),
    Mutant(
        "a hand-back that is not answered holds up the wheel",
        "src/duly/worker/engine.py",
        "                self._give_up_what_is_stuck()\n",
        "                self._give_up_what_is_stuck()\n                await (self._giving_up or asyncio.sleep(0))\n",
        "tests/worker/test_service.py::test_a_hand_back_that_is_not_answered_delays_no_fire",
    ),
    Mutant(
        "each run that is stuck asks for a connection of its own",
        "src/duly/worker/engine.py",
        "        if self._giving_up is not None and not self._giving_up.done():\n",
        "        if False:\n",
        "tests/worker/test_service.py::test_while_a_hand_back_is_not_answered_others_that_are_stuck_stay_in_line",
    ),
    Mutant(
        "a hand-back that failed is not looked for",
        "src/duly/worker/engine.py",
        "error=repr(error))\n                self._claiming.doubt()\n",
        "error=repr(error))\n",
        "tests/worker/test_service.py::test_a_hand_back_that_fails_in_an_unknown_way_is_made_up_for",
    ),
    Mutant(
        "a worker that stops hears no cancel",
        "src/duly/worker/engine.py",
        'also while what runs may end."""\n        while True:\n',
        'also while what runs may end."""\n        while not self._gone.is_set():\n',
        "tests/worker/test_cancel.py::test_a_cancel_reaches_what_runs_while_its_worker_stops",
    ),
    Mutant(
        "a worker that stops writes no logs",
        "src/duly/worker/engine.py",
        "        shown_at = self._clock.monotonic()\n        while True:\n",
        "        shown_at = self._clock.monotonic()\n        while not self._gone.is_set():\n",
        "tests/worker/test_service.py::test_what_a_handler_says_while_its_worker_stops_is_written_at_once",
    ),
    Mutant(
        "a worker that stopped waits for its threads",
        "src/duly/worker/service.py",
        "                self._leave_what_runs()  # While",
        "                # While",
        "tests/worker/test_service.py::test_who_can_end_the_process_is_told_of_a_handler_that_nobody_can_stop",
    ),
    Mutant(
        "every worker that stops is cut off",
        "src/duly/worker/service.py",
        "any(executor.is_busy for executor in self._executors)",
        "self._executors",
        "tests/worker/test_service.py::test_who_can_end_the_process_is_not_told_when_all_have_ended",
    ),
    Mutant(
        "a stopped worker outlives its handlers",
        "src/duly/cli/worker.py",
        "        on_left_running=end_now,\n",
        "",
        "tests/cli/test_worker.py::test_a_worker_that_is_stopped_ends_though_its_handler_does_not",
    ),
    Mutant(
        "a stopped worker waits for threads of others",
        "src/duly/cli/worker.py",
        "    end_within(_TIDY_SECONDS)\n",
        "",
        "tests/cli/test_worker.py::test_a_worker_that_is_stopped_ends_though_its_handler_does_not",
    ),
    Mutant(
        "a pulse that cannot be started is not tried again",
        "src/duly/worker/lifeline.py",
        "            except Exception as error:  # noqa: BLE001 - no process",
        "            except LookupError as error:  # noqa: BLE001 - no process",
        "tests/worker/test_pulse.py::test_a_pulse_for_which_there_is_no_process_is_tried_again",
    ),
    Mutant(
        "a handler's own attempts do not hold after a loss",
        "src/duly/worker/claiming.py",
        "if run.attempt > 1 and run.options is None and",
        "if False and",
        "tests/worker/test_handler_options.py::TestLosses",
    ),
    Mutant(
        "what was forgiven counts against what a handler allows",
        "src/duly/domain/lifecycle.py",
        "if _attempt_of_this_life(run, policy) <= policy.retry.max_attempts:",
        "if run.attempt <= policy.retry.max_attempts:",
        "tests/worker/test_handler_options.py::TestLosses",
    ),
    Mutant(
        "what was skipped is buried as if it had made an attempt",
        sql("settle"),
        "case when held.outcome = 'skipped' then leased.attempt - 1 else leased.attempt end as attempt",
        "leased.attempt",
        "tests/worker/test_handler_options.py::TestLosses",
    ),
    Mutant(
        "a connection to a standby is kept",
        "src/duly/store/pool.py",
        "if isinstance(error, asyncpg.ReadOnlySQLTransactionError):",
        "if False:",
        "tests/store/test_pool.py",
    ),
    Mutant(
        "a server that takes no writes is an error of ours",
        "src/duly/store/database.py",
        "if isinstance(error, asyncpg.ReadOnlySQLTransactionError):",
        "if False:",
        "tests/store/test_database.py::TestAnswers",
    ),
    Mutant(
        "the API keeps its connections to a standby",
        "src/duly/store/session.py",
        "if isinstance(_failure(error), ReadOnly) and not self._begin.startswith(_READ_ONLY):",
        "if False:",
        "tests/store/test_session.py",
    ),
    Mutant(
        "a write where one only looks costs the connection",
        "src/duly/store/session.py",
        "if isinstance(_failure(error), ReadOnly) and not self._begin.startswith(_READ_ONLY):",
        "if isinstance(_failure(error), ReadOnly):",
        "tests/store/test_session.py",
    ),
    Mutant(
        "a run that cannot be reclaimed is asked for at every step",
        "src/duly/maintenance/reaper.py",
        "seconds = min(_PUT_OFF_SECONDS * 2**tries, _PUT_OFF_SECONDS_MAX)",
        "seconds = 0.0",
        "tests/maintenance/test_reaper.py::TestWhatIsRefused",
    ),
    Mutant(
        "what one worker has left holds up the others",
        "src/duly/maintenance/reaper.py",
        "            self._try_later(gone, error)\n        else:",
        "            raise\n        else:",
        "tests/maintenance/test_reaper.py::TestWhatIsRefused",
    ),
    Mutant(
        "outcomes wait for a connection behind everything else",
        "src/duly/worker/service.py",
        "settling = database.beside(SETTLING_CONNECTIONS_MAX)",
        "settling = database",
        "tests/worker/test_service.py::test_an_outcome_is_settled_while_every_other_connection_of_the_worker_is_taken",
    ),
    Mutant(
        "an outcome that comes when its life is over is put where nobody looks",
        "src/duly/worker/engine.py",
        "        if self.outbox.is_done:\n",
        "        if False:\n",
        "tests/worker/test_leases.py::test_an_outcome_that_waits_for_its_progress_outlives_its_life",
    ),
    Mutant(
        "an outcome that is refused is offered as often as can be",
        "src/duly/worker/outbox.py",
        "delays.append(min(REFUSED_SECONDS * 2**refusals, REFUSED_SECONDS_MAX))",
        "delays.append(0.05)",
        "tests/worker/test_outbox.py",
    ),
    Mutant(
        "the belt sees only the first of what hangs on us",
        "src/duly/worker/claiming.py",
        "while len(page) == BELT_BATCH:",
        "while False:",
        "tests/worker/test_leases.py::test_what_hangs_on_us_is_found_behind_all_that_we_hold",
    ),
    Mutant(
        "one line that is refused takes a thousand along",
        "src/duly/worker/desk.py",
        "            await self._append(lines[:middle])\n",
        "",
        "tests/worker/test_desk.py::test_one_line_that_is_refused_costs_no_other",
    ),
    Mutant(
        "all workers come back from an outage at once",
        "src/duly/worker/pacing.py",
        "return seconds_max * rng.uniform()",
        "return seconds_max / 2",
        "tests/worker/test_pacing.py",
    ),
    Mutant(
        "a worker asks again at a fixed pace",
        "src/duly/worker/engine.py",
        "await self._clock.sleep(again(self._rng))",
        "await self._clock.sleep(0.3)",
        "tests/worker/test_leases.py::test_a_worker_asks_a_database_that_is_away_again_at_no_fixed_pace",
    ),
    Mutant(
        "a pulse asks again at a fixed pace",
        "src/duly/worker/pulse.py",
        "await asyncio.sleep(again(rng))",
        "await asyncio.sleep(0.3)",
        "tests/worker/test_pulse.py::test_it_asks_a_database_that_is_away_again_at_no_fixed_pace",
    ),
    Mutant(
        "a snooze of no time is called as fast as can be",
        "src/duly/domain/lifecycle.py",
        "WaitFor(max(outcome.delay, SNOOZE_LEAST), carried=_forgiven(policy))",
        "WaitFor(outcome.delay, carried=_forgiven(policy))",
        "tests/domain/test_lifecycle.py",
    ),
    Mutant(
        "a rule that snoozes for no time hammers",
        "src/duly/domain/lifecycle.py",
        "WaitFor(max(rule.delay, SNOOZE_LEAST), carried=carried)",
        "WaitFor(rule.delay, carried=carried)",
        "tests/domain/test_lifecycle.py",
    ),
    Mutant(
        "a line's fields are passed on however large",
        "src/duly/worker/context.py",
        "if len(written) <= room else",
        "if True else",
        "tests/worker/test_crew.py::test_a_line_too_large_to_be_said_is_cut_and_fails_neither_the_handler_nor_the_child",
    ),
    Mutant(
        "of a child's log only the messages count",
        "src/duly/worker/child.py",
        "self._bytes += len(text) + (len(msgspec.json.encode(more)) if more else 0)",
        "self._bytes += len(text)",
        "tests/worker/test_crew.py::test_a_line_too_large_to_be_said_is_cut_and_fails_neither_the_handler_nor_the_child",
    ),
    Mutant(
        "who follows two that end at once is opened without its lock",
        sql("follow"),
        "perform from duly.followings where child = any (v_children) order by child for no key update;",
        "perform from duly.followings where child = any (v_children) order by child;",
        killed_by="tests/interleavings/test_inside.py",
        function="follow_on_v1",
    ),
]
