"""The ledger of our own observations: every commit as the database answered it, every execution as its handler knew it.

Nothing here is read from Duly's tables. Each event is held at once against what must never be; the first breach ends the seed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import msgspec

from duly.domain.limits.pause import Scope
from duly.domain.runs.options import RunOptions
from duly.domain.runs.retry import BASE_SECONDS_DEFAULT, MAX_ATTEMPTS_DEFAULT, Policy
from duly.domain.workflows.workflow import Workflow
from duly.moves.cancel import CancelAnswer
from duly.scheduler.service import LEASE as SHARD_LEASE
from duly.store.boxes.awaited import RECEIVER
from duly.store.boxes.options import decode
from tests.simulation.server import START

if TYPE_CHECKING:
    from tests.simulation.world import Process, World

_EARLY_TOLERANCE = timedelta(microseconds=2)
# Monotonic clocks of two processes drift apart by at most this share.
DRIFT_MAX = 0.002
_CRASHES_MAX = 3
CAP_SECONDS = 4.0
HOLD_SECONDS = 1.0
_AGAIN = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)


class Script(msgspec.Struct):
    """What a job's attempts shall do, and what its options allow: carried in the payload, so that we need not ask Duly."""

    acts: list[str]
    most: int = MAX_ATTEMPTS_DEFAULT
    base: float = BASE_SECONDS_DEFAULT
    concurrency: tuple[str, int] | None = None
    pad: str = ""
    policy: Policy = "exponential"
    delays: tuple[float, ...] = ()

    def ceiling_after(self, number: int) -> float:
        """Compute the longest gap after an attempt, by the policy's definition, in seconds."""
        match self.policy:
            case "linear":
                return min(CAP_SECONDS, self.base * number)
            case "fixed":
                return self.base
            case "list":
                return self.delays[min(number, len(self.delays)) - 1]
        return min(CAP_SECONDS, self.base * 2.0 ** (number - 1))


class Lease(msgspec.Struct):
    """A run in a worker's hands."""

    worker_id: UUID
    fence: int
    tid: tuple[int, int]  # of its row when it was claimed
    attempt: int
    claimed_at: float
    tenant: int
    queue: str


class Execution(msgspec.Struct):
    """One call of a handler, as the handler itself saw it."""

    run_id: UUID
    attempt: int
    fence: int
    worker_id: UUID | None
    process: Any
    started_at: float
    script: Script
    ended_as: str | None = None
    told: str | None = None  # what its receiver has said of it since, over the API


class Seen(msgspec.Struct):
    """A worker, by its registration and beats."""

    lease: timedelta
    beaten_at: float
    has_departed: bool = False


class Created(msgspec.Struct):
    """A one-shot that was committed, as it was asked for; `number` counts them in the order of their commits."""

    run_id: UUID
    due_at: datetime
    number: int
    tenant: int
    queue: str
    options: RunOptions
    at: float


class Violation(msgspec.Struct):
    """A broken promise, and whom it concerns."""

    promise: str
    about: list[str]


class Ledger:
    """The independent record of one seed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.violation: Violation | None = None
        self.created: dict[UUID, Created] = {}
        self.by_key: dict[str, list[UUID]] = {}
        self.acknowledged: set[UUID] = set()
        self.schedules: dict[UUID, dict[str, Any]] = {}
        self.workflows: dict[UUID, Workflow] = {}  # acknowledged, as they were asked for
        self.cancelled_workflows: set[UUID] = set()
        self.excused_nodes: set[tuple[UUID, str]] = set()  # Somebody let them run, whatever their edges say.
        self.leases: dict[UUID, Lease] = {}
        self.fences: dict[UUID, int] = {}
        self.final: dict[UUID, str] = {}
        self.ends: Counter[UUID] = Counter()  # how often a run has come to a final state: once, unless it was replayed
        self.ended_as: dict[UUID, set[str]] = defaultdict(set)  # every end that it ever had, dead among them
        self.attempts_ended: dict[UUID, int] = {}
        self.waits_since: dict[UUID, float] = {}  # since when it waits, or has waited before its attempt
        self.dead: dict[UUID, int] = {}
        self.executions: dict[UUID, list[Execution]] = defaultdict(list)
        self.by_fence: dict[tuple[UUID, int], Execution] = {}
        self.accepted: dict[tuple[UUID, int], str] = {}
        self.settled_by_holder: set[tuple[UUID, int]] = set()
        self.earliest: dict[UUID, datetime] = {}
        self.attempts_before: dict[UUID, int] = defaultdict(int)
        self.forgiven: dict[UUID, int] = defaultdict(int)  # attempts of this life that do not count: snoozes, probes
        self.announced: dict[tuple[UUID, UUID], int] = {}
        self.named_losses: dict[UUID, int] = defaultdict(int)
        self.crashes: dict[UUID, int] = defaultdict(int)
        self.signals: set[tuple[UUID, UUID, int]] = set()  # worker, run, fence
        self.signalled_at_fence: dict[UUID, int] = {}
        self.called_ended: set[UUID] = set()  # by an answer, before we had heard of it
        self.cancelled_at_fence: dict[UUID, int] = {}  # acknowledged as `requested`
        self.workers: dict[UUID, Seen] = {}
        self.epochs: dict[int, tuple[int, UUID | None]] = {}
        self.scheduler_until: dict[UUID, datetime] = {}
        self.jitters: list[float] = []
        self.held_since: dict[Scope, float] = {}  # from when a hold was answered to when its lift was asked for
        self.paused_at: dict[
            UUID, datetime
        ] = {}  # schedules of which no worker held a coming run when they were paused

    def violate(self, promise: str, *about: object) -> None:
        """Note a broken promise; only the first counts."""
        if self.violation is None:
            self.violation = Violation(promise, [str(item) for item in about])

    def running(self) -> list[Execution]:
        """List the executions that go on at this moment."""
        return [item for items in self.executions.values() for item in items if item.ended_as is None]

    def note_end(self, run_id: UUID, state: str) -> None:
        """A run came to a final state, or was buried."""
        if state == "dead":
            self.dead[run_id] = self.attempts_ended[run_id]
        else:
            self.final[run_id] = state
            self.ends[run_id] += 1
        self.ended_as[run_id].add(state)
        for part in self._world.parts:
            part.on_end(run_id, state, self._world.database_now())

    def reopen(self, run_id: UUID, at: datetime) -> None:
        """A run that had ended is to be done again; its attempts are counted from here."""
        self.final.pop(run_id, None)
        self.dead.pop(run_id, None)
        self.attempts_before[run_id] = self.attempts_ended.get(run_id, 0)
        self.forgiven[run_id] = self.named_losses[run_id] = self.crashes[run_id] = 0
        self.cancelled_at_fence.pop(run_id, None)
        self.signalled_at_fence.pop(run_id, None)
        self.earliest[run_id] = at
        self.waits_since[run_id] = self._world.now

    def note_cancel(self, run_id: UUID, answer: CancelAnswer) -> None:
        """Hold the answer to a cancel against what we know."""
        if answer is CancelAnswer.CANCELLED and self.final.get(run_id) != "cancelled":
            self.violate("a run is called cancelled that is not", run_id)
        elif answer is CancelAnswer.REQUESTED and run_id in self.signalled_at_fence:
            self.cancelled_at_fence[run_id] = self.signalled_at_fence[run_id]
        elif answer is CancelAnswer.TOO_LATE and not self.ended_as[run_id]:
            self.called_ended.add(run_id)

    def learn(self) -> None:
        """Hear of ends that no answer tells, because they follow from others within the database; parts say what may end so."""
        for part in self._world.parts:
            part.learn()
        for run_id in self.called_ended:
            if not self.ended_as[run_id]:
                self.violate("a run is called ended that is not", run_id)
        self.called_ended.clear()

    # ----------------------------------------------------------------------------------------------- what handlers saw

    def _check_holds(self, run_id: UUID) -> None:
        """Nothing starts a second after a hold was answered: of those that cover every queue, as a handler knows not its own."""
        if not self._world.plan.lets_workers_look:
            return
        for scope, since in self.held_since.items():
            if scope.queue is None and self._world.now - since > HOLD_SECONDS:
                self.violate("a run was started that is held", run_id, str(scope), self._world.now - since)

    def start(self, process: Process, run: Any, script: Script) -> Execution:
        """A handler was called."""
        lease = self.leases.get(run.id)
        holder = lease.worker_id if lease else None
        execution = Execution(run.id, run.attempt, run.fence, holder, process, self._world.now, script)
        earlier = self.executions[run.id]
        if lease is None or lease.fence != run.fence:
            self.violate("a run was started whose lease was lost", run.id, process.name, run.fence)
        paused_at = self.paused_at.get(
            getattr(run, "job_id", run.id)
        )  # A request names its run alone: those are one-shots.
        if paused_at is not None and run.attempt == 1 and run.scheduled_at > paused_at:
            self.violate("a fire of a paused schedule was started", run.id, run.job_id, run.scheduled_at, paused_at)
        for other in earlier:
            if other.attempt >= run.attempt:
                self.violate("an attempt number was started again", run.id, run.attempt, other.attempt)
            if other.ended_as is None and other.worker_id and not self.has_departed(other.worker_id):
                self.violate("two executions overlap though the first lease had not expired", run.id)
        self._check_holds(run.id)
        if run.id in self.final:
            self.violate("a run was started after its end", run.id, self.final[run.id])
        if run.id in self.cancelled_at_fence and run.fence > self.cancelled_at_fence[run.id]:
            self.violate("a new attempt began after its cancellation was acknowledged", run.id)
        if self._number_in_this_life(run.id, run.attempt) > script.most:
            self.violate("more attempts than allowed", run.id, run.attempt, script.most)
        self._check_concurrency_key(script.concurrency)
        self._check_not_early(process, run, lease.claimed_at if lease else self._world.now)
        for part in self._world.parts:
            part.on_start(execution, run)
        earlier.append(execution)
        self.by_fence[run.id, run.fence] = execution
        return execution

    def _number_in_this_life(self, run_id: UUID, attempt: int) -> int:
        return attempt - self.attempts_before[run_id] - self.forgiven[run_id]

    def _check_concurrency_key(self, concurrency: tuple[str, int] | None) -> None:
        """Of those who hold a live lease, no more may run than the gate has places; the one that starts is not counted yet."""
        blocker = [
            item
            for item in self.running()
            if concurrency and item.script.concurrency == concurrency and self.pauses(item)
        ]
        if concurrency and len(blocker) >= concurrency[1]:
            self.violate("more runs at once than their gate has places", *(item.run_id for item in blocker))

    def pauses(self, execution: Execution) -> bool:
        """Say whether an execution goes on under a lease that stands."""
        lease = self.leases.get(execution.run_id)
        return lease is not None and lease.fence == execution.fence

    def has_departed(self, worker_id: UUID | None) -> bool:
        """Say whether a worker is gone, with its lease, whatever its process may still do."""
        return worker_id is not None and self.workers[worker_id].has_departed

    def _check_not_early(self, process: Process, run: Any, claimed_at: float) -> None:
        offset = max(self._world.clock_offset, process.clock.offset_since(claimed_at))
        clock = START + timedelta(seconds=self._world.now + offset) + _EARLY_TOLERANCE
        due = max(run.due_at, self.earliest.get(run.id, run.due_at))
        if clock < due:
            self.violate("a run was started early", run.id, f"by {due - clock}")

    def on_crash(self, run_id: UUID) -> None:
        """A handler took its process down. Three times in a row are the most that a run may do so."""
        self.crashes[run_id] += 1
        if self.crashes[run_id] > _CRASHES_MAX:
            self.violate("a poisonous run was started again and again", run_id)

    def on_death(self, process: Process) -> None:
        """A process died: whatever it was executing has ended with it."""
        for execution in self.running():
            if execution.process is process:
                execution.ended_as = "died"

    # -------------------------------------------------------------------------------------------- what processes sent

    def on_sent(self, process: Process, name: str) -> None:
        """A process sent a statement."""
        if name == "timers.stage" and process.renewal_failed and not process.sends_again:
            self.violate("a scheduler stages although it could not renew its lease", process.name)
        process.sends_again = False

    def on_failed(self, process: Process, name: str, error: Exception) -> None:
        """A process learnt that a statement failed. What the server has rolled back, the driver's side sends again by itself."""
        process.sends_again = name == "timers.stage" and isinstance(error, _AGAIN)
        if name == "shards.lease" and not isinstance(error, _AGAIN):
            process.renewal_failed = True  # Of several in a row of the others we do not know which is the last.

    # -------------------------------------------------------------------------------------- what the database committed

    def on_statement(self, process: Process, name: str, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        """A statement was committed, whether or not its answer arrives."""
        handle = getattr(self, f"_on_{name.replace('.', '_')}", None)
        if handle is not None:
            handle(process, args, rows, at)
        for part in self._world.parts:
            part.on_statement(process, name, args, rows, at)

    def _on_jobs_submit_one(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        self._note_submit([*args[:2], *([value] for value in args[2:9])], rows, at)

    def _on_jobs_submit(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        self._note_submit(args, rows, at)

    def _note_submit(self, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        tenant, key, _, _, queues, _, moments, delays, options = args[:9]
        ids = [row["job_id"] for row in rows]
        if self.by_key.setdefault(key, ids) != ids:
            self.violate("one key gave two answers", key, *ids, *self.by_key[key])
        for row, moment, delay, queue, text in zip(rows, moments, delays, queues, options, strict=True):
            if row["job_id"] not in self.created:
                due, number = moment or at + (delay or timedelta()), len(self.created)
                asked = decode(text)
                self.created[row["job_id"]] = Created(row["job_id"], due, number, tenant, queue, asked, self._world.now)
                self.earliest[row["job_id"]] = due
                self.waits_since[row["job_id"]] = self._world.now
                if row["replayed"]:
                    self.violate("a key that was never used is called used", key)
            elif not row["replayed"]:
                self.violate("a key was used twice", key, row["job_id"])

    def _on_jobs_submit_schedule(self, _: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        [row] = rows
        if self.by_key.setdefault(args[1], [row["job_id"]]) != [row["job_id"]]:
            self.violate("one key gave two answers", args[1])
        timing = {"every": timedelta(seconds=args[14] or 0), "anchor": args[15], "is_cron": args[13] is not None}
        if timing["is_cron"]:
            fields = msgspec.json.decode(args[12])["trigger"]["expr"].split()
            timing["every"] = timedelta(seconds=int(fields[0].removeprefix("*/")))
        self.schedules.setdefault(row["job_id"], {**timing, "first": row["scheduled_at"], "at": at})

    def _on_jobs_cancel_schedule(self, _: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        for row in rows:
            self.schedules[row["job_id"]]["cancelled"] = at

    def _on_timers_stage(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        holder, held = args[0], zip(args[1], args[2], strict=True)
        valid = at < self.scheduler_until.get(holder, START) and any(
            self.epochs.get(shard) == (epoch, holder) for shard, epoch in held
        )
        if rows[0][0] and not valid:
            self.violate("a scheduler without a valid epoch staged something", process.name)

    def _on_shards_lease(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        holder: UUID = args[0]
        process.renewal_failed = False
        self.scheduler_until[holder] = at + SHARD_LEASE
        for shard, (epoch, before) in self.epochs.items():
            if before == holder:
                self.epochs[shard] = (epoch, None)
        for row in rows:
            epoch, before = self.epochs.get(row["shard"], (0, None))
            if row["epoch"] < epoch or (row["epoch"] == epoch and before not in (None, holder)):
                self.violate("an epoch was granted twice", row["shard"], row["epoch"], holder)
            self.epochs[row["shard"]] = (row["epoch"], holder)

    def _on_ready_claim(self, _: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        worker_id: UUID = args[0]
        for row in rows:
            run_id, fence = row["run_id"], row["fence"]
            if run_id in self.leases:
                self.violate("two live leases on a run", run_id, self.leases[run_id].worker_id, worker_id)
            if fence <= self.fences.get(run_id, 0):
                self.violate("a fence did not rise", run_id, fence, self.fences[run_id])
            if run_id in self.final or run_id in self.dead:
                self.violate("a run that has ended was claimed", run_id)
            if self.workers[worker_id].has_departed:
                self.violate("a departed worker claimed a run", run_id, worker_id)
            self.leases[run_id] = Lease(
                worker_id, fence, row["tid"], row["attempt"], self._world.now, row["tenant"], row["queue"]
            )
            self.fences[run_id] = fence

    def _on_leased_finish(self, _: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        [(is_all, run_ids, fences)] = rows
        for run_id, fence in self._paused_at(args[1], args[2]) if is_all else zip(run_ids, fences, strict=True):
            self._accept(args[0], run_id, fence, "succeeded", "succeeded")
            self.settled_by_holder.add((run_id, fence))

    def _paused_at(self, slots: Sequence[tuple[int, int]], fences: Sequence[int]) -> Iterator[tuple[UUID, int]]:
        """Say which runs were claimed into these places under these fences, and are held still."""
        held = {(lease.tid, lease.fence): run_id for run_id, lease in self.leases.items()}
        for handle in zip(slots, fences, strict=True):
            if handle in held:
                yield held[handle], handle[1]
            else:
                self.violate("a success is said to be taken of a lease that nobody has", *handle)

    def _on_leased_settle(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        said = {
            (run_id, fence): (outcome, became, delay, reason, outcome == "snoozed" or '"probes"' in (carried or ""))
            for run_id, fence, outcome, became, delay, reason, carried in zip(
                args[1], args[2], args[5], args[6], args[7], args[10], args[13], strict=True
            )
        }
        for row in rows:
            run_id, fence = row[0], row[1]
            unknown = ("?", "?", timedelta(), "", False)
            outcome, became, delay, reason, is_forgiven = said.get((run_id, fence), unknown)
            if became == "retrying" and (args[0], run_id, fence) in self.signals:
                became = "cancelled"  # Somebody asked for it, so it is not tried again.
            self._accept(args[0], run_id, fence, outcome, became, reason or "")
            if process.role.name.startswith("worker"):
                self.settled_by_holder.add((run_id, fence))
            if outcome in ("failed", "timed_out") and became == "retrying":
                self._check_backoff(run_id, fence, delay)
            if became == "retrying":
                self.earliest[run_id] = at + delay
                self.waits_since[run_id] = self._world.now
                self.forgiven[run_id] += is_forgiven

    def _check_backoff(self, run_id: UUID, fence: int, delay: timedelta) -> None:
        """A retry waits no longer than its policy says, and not always the same part of it."""
        execution = self.by_fence.get((run_id, fence))
        if execution is None:
            return  # It was never started, and that has been noted.
        number = self._number_in_this_life(run_id, execution.attempt)
        ceiling = timedelta(seconds=execution.script.ceiling_after(number))
        if not timedelta() <= delay <= ceiling:
            self.violate("a retry waits longer than its policy says", run_id, delay, ceiling)
        elif ceiling:
            self.jitters.append(delay / ceiling)

    def _accept(self, worker_id: UUID, run_id: UUID, fence: int, outcome: str, became: str, reason: str = "") -> None:
        """The outcome of an attempt was accepted: it must be the lease's, and what the handler saw."""
        lease = self.leases.pop(run_id, None)
        if lease is None or lease.fence != fence or lease.worker_id != worker_id:
            self.violate("an outcome was accepted without a lease", run_id, fence, worker_id, lease)
            return
        if (run_id, fence) in self.accepted:
            self.violate("two outcomes were accepted for one attempt", run_id, fence)
        if outcome != "skipped":  # That was no attempt.
            self.accepted[run_id, fence] = outcome
            self.attempts_ended[run_id] = lease.attempt
        execution = self.by_fence.get((run_id, fence))
        self._check_truth(run_id, fence, outcome, execution)
        if outcome == "lost":
            self._count_loss(worker_id, run_id, fence, execution, reason, became)
        else:
            self.crashes[run_id] = self.named_losses[run_id] = 0
        if became != "retrying":
            if run_id in self.final:
                self.violate("a run ended twice", run_id, self.final[run_id], became)
            self.note_end(run_id, became)

    def _check_truth(self, run_id: UUID, fence: int, outcome: str, execution: Execution | None) -> None:
        ended = execution.ended_as if execution else "unstarted"
        if execution and execution.told and outcome in ("succeeded", "failed"):
            ended = execution.told
        lawful: dict[str, set[str | None]] = {
            "succeeded": {"succeeded"},
            "failed": {"failed", "interrupted"},
            "timed_out": {"interrupted", "awaited"},
            "snoozed": {"snoozed"},
            "cancelled": {"interrupted", "unstarted", "cancelled", "awaited"},
            "skipped": {"unstarted"},
            "lost": {None, "died", "crashed", "unstarted", "awaited", *_ENDINGS},
        }
        if ended not in lawful.get(outcome, set()):
            self.violate("an outcome was recorded that is not what happened", run_id, fence, outcome, ended)

    def _count_loss(
        self, worker_id: UUID, run_id: UUID, fence: int, execution: Execution | None, reason: str, became: str
    ) -> None:
        crashed_child = execution is not None and execution.ended_as == "crashed"
        worker = self.workers.get(worker_id)
        if (worker is None or not worker.has_departed) and not crashed_child:
            self.violate("a run was called lost though its worker had not departed", run_id, worker_id)
        if "alone" in reason or became == "dead":
            self.named_losses[run_id] += "alone" in reason or reason == "poison"
            if "alone" in reason and execution is None and self.announced.get((worker_id, run_id)) != fence:
                self.violate("a run that was not announced is blamed for the death of its worker", run_id)
        if reason == "poison" and self.named_losses[run_id] < 2:
            self.violate("a run was buried as poison after a single named loss", run_id)

    def _on_leased_hand_back(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        for row in rows:
            run_id, fence = row[0], row[1]
            lease = self.leases.pop(run_id, None)
            if lease is None or lease.fence != fence or lease.worker_id != args[0]:
                self.violate("a run was handed back without a lease", run_id, fence, lease)
            if (run_id, fence) in self.by_fence:
                self.violate("a run that had been started was handed back as if it had not", run_id, fence)
            if (args[0], run_id, fence) in self.signals:
                self._end(run_id, "cancelled")
            elif (created := self.created.get(run_id)) and created.options.policy.rate:
                self.earliest[run_id] = (
                    created.due_at
                )  # Who has had a turn was due, though the clock be set back since.

    def _on_leased_await_destination(
        self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime
    ) -> None:
        self._on_leased_hand_back(process, args, rows, at)
        for row in rows:
            self.waits_since[row[0]] = self._world.now

    def _on_awaited_put(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        for row in rows:
            lease = self.leases.get(row[0])
            if lease is None or lease.fence != row[1] or lease.worker_id != args[0]:
                self.violate("a run was put into its receiver's hands without a lease", row[0], row[1], lease)
            elif (args[0], row[0], row[1]) in self.signals:
                self._accept(args[0], row[0], row[1], "cancelled", "cancelled")  # Somebody asked for it.
            else:
                lease.worker_id = RECEIVER

    def _on_awaited_cancel_awaited(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        for row in rows:
            if lease := self.leases.get(row[0]):
                self._accept(RECEIVER, row[0], lease.fence, "cancelled", "cancelled")
            else:
                self.violate("a run was cancelled in its receiver's hands that was not there", row[0])

    def _on_leased_record_fenced(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        for run_id, fence in zip(args[1], args[7], strict=True):
            if (run_id, fence) in self.settled_by_holder:
                self.violate("an attempt is recorded both accepted and fenced", run_id, fence)
            elif run_id in self.leases and self.leases[run_id].fence == fence:
                self.violate("an outcome was refused though its lease stands", run_id, fence)

    def _on_runs_cancel(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        for row in rows:
            self._end(row[0], "cancelled")

    def _on_runs_expire(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        for row in rows:
            self._end(row[0], "expired")

    def _on_runs_discard(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        for row in rows:
            self.dead.pop(row[0], None)
            self._end(row[0], "cancelled")

    def _end(self, run_id: UUID, state: str) -> None:
        if run_id in self.final or run_id in self.leases:
            self.violate("a run ended that was not waiting", run_id, state)
        self.note_end(run_id, state)

    def _on_schedules_pause(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        job_id, settles = args[0], args[5]
        if rows[0][0] == "paused" and not settles:
            self.paused_at[job_id] = at

    def _on_schedules_resume(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        if rows[0][0] == "active":
            self.paused_at.pop(args[0], None)

    def _on_runs_signal(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        for row in rows:
            if row[0] not in self.leases:
                self.violate("a signal was left for a run that nobody holds", row[0])
            else:
                lease = self.leases[row[0]]
                self.signals.add((lease.worker_id, row[0], lease.fence))
                self.signalled_at_fence[row[0]] = lease.fence

    def _on_runs_drop_signals(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        heeded = zip(args[1], args[2], args[3], strict=True)
        self.signals -= {(args[0], run_id, fence) for run_id, fence, what in heeded if what == "cancel"}

    def _on_runs_carry_out(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        answers = {row[0]: row[1] for row in rows}
        held = {(lease.worker_id, run_id, lease.fence) for run_id, lease in self.leases.items()}
        self.signals = {signal for signal in self.signals if signal in held or signal[1] not in answers}
        # What comes too late changes nothing, and may be of a life before the last replay.
        heeded = {run_id for run_id, answer in answers.items() if answer != "too_late"}
        if unasked := heeded - self.signalled_at_fence.keys():
            self.violate("a cancel was carried out that nobody asked for", *unasked)
        cancelled = [row for row in rows if row[1] == "cancelled"]
        awaited = [
            row for row in cancelled if row[0] in self.leases
        ]  # It went to its receiver before the signal was left.
        self._on_awaited_cancel_awaited(process, args, awaited, at)
        self._on_runs_cancel(process, args, [row for row in cancelled if row not in awaited], at)
        self._on_runs_signal(process, args, [row for row in rows if row[1] == "cancelling"], at)

    def _on_runs_replay(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        delays = dict(zip(args[0], args[1], strict=True))
        for row in rows:
            run_id = row[0]
            if run_id not in self.dead:
                self.violate("a run was replayed that was not dead", run_id)
                continue
            self.reopen(run_id, at + delays.get(run_id, timedelta()))

    def _on_workers_register(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        if rows:
            self.workers[args[0]] = Seen(args[6], self._world.now)

    def _on_workers_heartbeat(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        if rows:
            self.workers[args[0]].beaten_at = self._world.now

    def _on_workers_announce(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        for run_id, fence in (name.split("/") for name in args[1] if rows):
            self.announced[args[0], UUID(run_id)] = int(fence)

    def _on_workers_expire(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        for row in rows:
            worker = self.workers[row[0]]
            worker.has_departed = True
            silent = self._world.now - worker.beaten_at
            if silent < worker.lease.total_seconds() * (1 - DRIFT_MAX):
                self.violate("a worker was reaped within its lease", row[0], f"{silent:.3f} s after its beat")

    def _on_workers_retire(self, process: Process, args: Sequence[Any], rows: list[Any], at: datetime) -> None:
        for has_left, run_ids, fences in rows:
            self._on_leased_hand_back(process, args, list(zip(run_ids, fences, strict=True)), at)
            self.workers[args[0]].has_departed |= has_left
            held = [run_id for run_id, lease in self.leases.items() if lease.worker_id == args[0]]
            if has_left and held:
                self.violate("a worker left while it held runs", *held)


_ENDINGS = ("succeeded", "failed", "interrupted", "snoozed", "cancelled")
