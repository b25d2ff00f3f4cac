"""The processes: Duly's own services as they are, their ports to the world replaced; and the clients and people around them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

import duly.clock
from duly.domain.errors import InvalidSchedule, KeyConflict, NotFound, Unsettled
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.limits.pause import Scope
from duly.domain.runs.options import NO_OPTIONS, RunOptions
from duly.domain.runs.outcome import Cancelled, Failed, Lost, Outcome, Snoozed, TimedOut
from duly.domain.runs.retry import Retry
from duly.domain.runs.run import TENANT_DEFAULT, Run
from duly.domain.triggers.schedule.timing import every_shape
from duly.domain.workflows.workflow import Edge, Node, Workflow
from duly.maintenance.service import Maintenance
from duly.moves.admin.pause import pause_scope, resume_scope
from duly.moves.cancel import cancel_job, cancel_run
from duly.moves.dead import discard, replay
from duly.moves.schedules.pause import pause, resume, skip_next
from duly.moves.submit import submit, submit_many, submit_recurring
from duly.moves.unroutable import UnroutableLimits
from duly.moves.workflows.workflows import submit_workflow
from duly.scheduler.service import Scheduler
from duly.store.connection.database import Unavailable
from duly.store.tables import pauses
from duly.worker import claim, service
from duly.worker.context import NonRetryable, RunContext, Snooze
from duly.worker.execute.attempt import succeeded
from duly.worker.handlers import Handler, Registry
from duly.worker.heartbeat.lease import WorkerLease
from duly.worker.heartbeat.process import HEARTBEATS_PER_LEASE, SAFE_SHARE
from duly.worker.service import Worker, WorkerOptions
from tests.builders import jobs_listed
from tests.simulation.ledger import CAP_SECONDS, Script
from tests.simulation.world import Role

if TYPE_CHECKING:
    from random import Random

    from tests.simulation.world import Process, World

QUEUES = ("mail", "reports")
HANDLER = "act"
LONG_LEASES = 4
_RETRY_SECONDS = 0.3
_UNROUTABLE = UnroutableLimits(runs=3, runs_more=2, looks=6)


def this_process() -> Process:
    """Give the simulated process that is running."""
    process: Process = asyncio.get_running_loop().process  # type: ignore[attr-defined]
    return process


@contextmanager
def simulated_ports() -> Iterator[None]:
    """Replace the doors through which Duly reaches the world: time, connections, its child processes."""

    async def no_hints(_: object) -> None:
        """The poll is the truth."""

    def database(*_: object, **__: object) -> Any:
        process = this_process()
        opened = process.database()
        process.clock = opened.clock  # type: ignore[assignment]
        return opened

    ports: list[tuple[Any, str, Any]] = [
        (duly.clock, "time", SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())),
        (service, "Database", database),
        (service, "WorkerLease", SimulatedLease),
        (service, "ProcessPool", SimulatedCrew),
        (claim.Claiming, "listen", no_hints),
        (Scheduler, "_listen", no_hints),
    ]
    before = [(place, name, getattr(place, name)) for place, name, _ in ports]
    for place, name, port in ports:
        setattr(place, name, port)
    try:
        yield
    finally:
        for place, name, port in before:
            setattr(place, name, port)


# ---------------------------------------------------------------------------------------------------------- the services


class SchedulerMain:
    """Starts schedulers, and twins that take another one's identity for their own."""

    def __init__(self, scheduler_id: UUID | None = None) -> None:
        self._scheduler_id = scheduler_id

    def __call__(self, process: Process) -> Coroutine[Any, Any, None]:
        """Run a scheduler."""
        return self._run(process)

    async def _run(self, process: Process) -> None:
        scheduler = Scheduler(process.database(), name="host", rng=process.rng, log=process.log("scheduler"))
        if self._scheduler_id is not None:
            scheduler.scheduler_id = self._scheduler_id
        process.worker_id = scheduler.scheduler_id
        process.stop = scheduler.stop
        await scheduler.run()

    def twin(self, process: Process) -> SchedulerMain:
        """Give the main of a second process with the same identity."""
        return SchedulerMain(process.worker_id if isinstance(process.worker_id, UUID) else None)


async def maintenance_main(process: Process) -> None:
    """Run the real maintenance, with its reaper and its vacuum."""
    maintenance = Maintenance(
        process.database(), rng=process.rng, log=process.log("maintenance"), unroutable=_UNROUTABLE
    )
    process.stop = maintenance.stop
    await maintenance.run()


async def worker_main(process: Process, handler: str = HANDLER) -> None:
    """Run the real worker, life after life; it knows one handler."""
    plan = process.world.plan
    options = WorkerOptions(
        name="host",
        queues=QUEUES,
        slots=plan.slots,
        threads=0,
        lease=timedelta(seconds=plan.lease_seconds),
        grace_seconds=2.0,
        app_path="simulated:app" if plan.with_children else None,
    )
    registry = Registry()
    registry.add(Handler(act, name=handler))
    targets = next((found for part in process.world.parts if (found := part.targets(process))), None)
    worker = Worker("simulated", registry, options, rng=process.rng, log=process.log("worker"), targets=targets)
    process.stop = worker.stop
    await worker._run_lives(asyncio.get_running_loop())


class SimulatedLease(WorkerLease):
    """The real lease; its heartbeat is a loop of its own in our process, as the real one is a process of its own."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._ended = asyncio.Event()

    async def _keep_renewing(self) -> None:
        process, loop = this_process(), asyncio.get_running_loop()
        heartbeat = process.spawn(
            renew_for_ever(process, self._config, lambda message: loop.call_soon(self._take, message))
        )
        await self._ended.wait()
        heartbeat.get_loop().kill()  # type: ignore[attr-defined]

    def _take(self, message: dict[str, object]) -> None:
        if self._heed(message):
            self._ended.set()

    async def stop(self) -> None:
        self._ended.set()
        await super().stop()


async def renew_for_ever(process: Process, config: dict[str, Any], say: Callable[[dict[str, object]], object]) -> None:
    """Beat as `worker/heartbeat/process.py` does."""
    database = process.database()
    while True:
        sent = database.clock.monotonic()
        try:
            async with asyncio.timeout(config["lease"] / 3):
                row = await database.fetchrow(config["statement"], UUID(config["worker_id"]))
        except Exception as error:
            say({"error": repr(error)})
            await database.clock.sleep(_RETRY_SECONDS)
            continue
        if row is None:
            say({"lost": True})
            return
        say({"safe_until": sent + config["lease"] * SAFE_SHARE, "due_until": row["safe_until"].timestamp()})
        await database.clock.sleep(config["lease"] / HEARTBEATS_PER_LEASE)


class SimulatedCrew:
    """Child processes: one that crashes takes nobody with it."""

    def __init__(self, *_: object) -> None:
        self._busy: dict[tuple[UUID, int], asyncio.Task[Any]] = {}
        self._cancelled: set[tuple[UUID, int]] = set()

    async def run(
        self,
        run: Run,
        saved: str | None,
        timeout: float | None,
        on_message: Any,
        may_wait: Callable[[], bool],
        may_start: Callable[[], float | None],
    ) -> tuple[Outcome, bool] | None:
        """Run one attempt."""
        if (started := may_start()) is None:
            return None
        name = (run.run_id, run.fence)
        script = msgspec.json.decode(run.payload or "", type=Arguments).script
        context = RunContext(run, None, started=started, saved=saved)  # type: ignore[arg-type]
        self._busy[name] = asyncio.get_running_loop().create_task(act(context, script, in_child=True))
        try:
            async with asyncio.timeout(timeout):
                result = await self._busy[name]
        except ChildDied:
            return Lost(named=True), True
        except TimeoutError:
            return TimedOut(timeout or 0.0), True
        except Snooze as error:
            return Snoozed(error.delay), False
        except asyncio.CancelledError:
            return (Cancelled() if name in self._cancelled else Failed("interrupted")), True
        except Exception as error:
            return Failed(str(error), retryable=not isinstance(error, NonRetryable)), False
        finally:
            del self._busy[name]
        return succeeded(result), False

    def cancel(self, run: Run) -> None:
        """Stop a child because someone asked for it."""
        self._cancelled.add((run.run_id, run.fence))
        self.interrupt(run)

    def interrupt(self, run: Run) -> None:
        """Stop a child because the worker ends."""
        if (task := self._busy.get((run.run_id, run.fence))) is not None:
            task.cancel()

    def close(self) -> None:
        """End every child."""
        for task in self._busy.values():
            task.cancel()


# ------------------------------------------------------------------------------------------------------------- handlers


class Arguments(msgspec.Struct):
    """The arguments of our handler."""

    script: Script


class ChildDied(Exception):
    """A child process died in the middle of an attempt."""


async def act(run: RunContext, script: Script, in_child: bool = False) -> list[int] | None:
    """Do what the script says for this attempt, and tell the ledger what happened."""
    process = this_process()
    ledger = process.world.ledger
    execution = ledger.start(process, run, script)
    what = script.acts[min(run.attempt, len(script.acts)) - 1]
    process.world.trace.add(process.world.now, process.name, f"start {what}", (run.id, run.attempt, run.fence))
    try:
        result = await perform(process, what, run, in_child)
    except asyncio.CancelledError:
        execution.ended_as = "interrupted"
        raise
    except ChildDied:
        execution.ended_as = "crashed"
        ledger.on_crash(run.id)
        raise
    except Snooze:
        execution.ended_as = "snoozed"
        raise
    except Exception:
        execution.ended_as = "failed"
        raise
    execution.ended_as = "succeeded"
    process.world.trace.add(process.world.now, process.name, "end", (run.id, run.attempt, run.fence))
    return result


async def perform(process: Process, what: str, run: RunContext, in_child: bool) -> list[int] | None:
    """Play one act."""
    world, random = process.world, process.random
    lease = world.plan.lease_seconds
    if what in ("crash", "poison"):
        await die(process, what, run, in_child)
    if what in ("long", "stubborn"):
        world.strike(f"{what}_handler", process)
    if what == "stubborn":
        await ignore_cancellation(random.uniform(1, 2 * lease))
    pause = {"quick": random.choice((0, 0, 0.01, 0.2)), "fail": random.choice((0, 0.3)), "hang": 10_000.0}
    pause |= {"slow": random.uniform(0.5, lease), "long": lease * LONG_LEASES}
    await asyncio.sleep(pause.get(what, 0.0))
    match what:
        case "fail":
            raise ValueError("it did not work")
        case "dead":
            raise NonRetryable("never will")
        case "snooze":
            raise Snooze(random.choice((0, 1, 3)))
        case "list":
            return list(range(random.randint(0, 3)))
        case "add":
            await world.add_nodes(process, run)
    return None


async def die(process: Process, what: str, run: RunContext, in_child: bool) -> None:
    """Take the process down: a child's alone, or the whole worker."""
    await asyncio.sleep(process.random.choice((0, 0.05, 0.5)))
    process.world.strike("poison" if what == "poison" else "handler_crash", process)
    if in_child:
        raise ChildDied
    process.world.ledger.on_crash(run.id)
    process.die()
    await asyncio.sleep(10_000)


async def ignore_cancellation(seconds: float) -> None:
    """Work on, whoever asks to stop: as a thread does."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while (left := until - loop.time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue


def draw_script(random: Random, world: World) -> tuple[str, RunOptions]:
    """Draw what the attempts of a job shall do. Gives its payload and its options."""
    script = draw_acts(random, world)
    if random.random() < 0.15:
        script.concurrency = random.choice((("door", 1), ("hall", 2)))
    if random.random() < 0.1:
        script.pad = "".join(random.choice("abcdefghij") for _ in range(4_000))  # Too long to stand in its row.
    return payload_of(script), options_of(script, random)


def draw_acts(random: Random, world: World) -> Script:
    """Draw what the attempts of a job shall do."""
    plan = world.plan
    choices = ["quick"] * 6 + ["slow", "fail", "fail", "snooze", "hang"]
    choices += ["crash"] * (2 * plan.has("handler_crash"))
    choices += ["long"] * plan.has("long_handler") + ["stubborn"] * plan.has("stubborn_handler")
    acts = [random.choice(choices) for _ in range(random.randint(1, 4))]
    acts += [random.choice(("quick", "quick", "quick", "slow", "fail", "dead"))]
    if plan.has("poison") and random.random() < 0.1:
        acts = ["poison"]
    return Script(acts, random.choice((1, 2, 3, 5)), random.choice((0.0, 0.5, 1.0)))


def options_of(script: Script, random: Random | None = None) -> RunOptions:
    """Write what a script allows as the options of its job; what may hang has a timeout."""
    timeout = random.uniform(0.5, 3) if random is not None and "hang" in script.acts else None
    delays = script.delays if script.policy == "list" else ()
    retry = Retry(script.most, script.base, CAP_SECONDS, script.policy, delays, jitter=1.0)
    return NO_OPTIONS.but(retry=retry, timeout_seconds=timeout, concurrency=script.concurrency)


def draw_submission(random: Random, world: World, delays: Sequence[float | None], **options: Any) -> Submission:
    """Draw a one-shot of a part, which adds options of its own."""
    script, delay = draw_acts(random, world), random.choice(delays)
    return Submission(
        "act",
        payload_of(script),
        random.choice(QUEUES),
        random.randint(0, 9),
        delay=None if delay is None else timedelta(seconds=delay),
        options=options_of(script, random).but(**options),
    )


def payload_of(script: Script) -> str:
    """Write a script as the payload of our handler."""
    return msgspec.json.encode(Arguments(script)).decode()


# --------------------------------------------------------------------------------------------------- clients and people


async def client_main(process: Process) -> None:
    """Submit jobs until their acknowledgements have come; give some up half-way."""
    world, random = process.world, process.random
    database = process.database()
    for number in range(world.plan.jobs):
        await asyncio.sleep(random.expovariate(world.plan.jobs / world.plan.storm_seconds / 0.8))
        await submit_somehow(process, database, f"{process.name}/{number}", random)


async def submit_somehow(process: Process, database: Any, key: str, random: Random) -> None:
    """Submit one job, or a few under one key; ask again while no answer comes."""
    asked = [a_submission(process, random) for _ in range(random.choice((1, 1, 1, 3)))]
    for _ in range(random.choice((1, 30))):
        try:
            if len(asked) == 1:
                answers = [await submit(database, asked[0], key=key)]
            else:
                answers = await submit_many(database, asked, key=key)
        except Unavailable:
            await asyncio.sleep(random.uniform(0.05, 1))
            continue
        except InvalidSchedule:
            return  # The moment it asked for is past: the database's clock was set forwards.
        process.world.ledger.acknowledged.update(answer.job_id for answer in answers)
        if random.random() < 0.1:
            await submit_another_body(process, database, key, a_submission(process, random))
        return


async def submit_another_body(process: Process, database: Any, key: str, job: Submission) -> None:
    """Use a key that was used, which must be refused."""
    try:
        await submit(database, job, key=key)
    except (KeyConflict, Unavailable, InvalidSchedule):
        return
    process.world.ledger.violate("a used key was taken for another job", key)


def a_submission(process: Process, random: Random) -> Submission:
    """Draw a one-shot."""
    world = process.world
    payload, options = draw_script(random, world)
    delay, at = random.choice((None, 0.0, 1.0, 4.9, 5.1, 8.0, 12.0)), None
    if random.random() < 0.2:
        delay, at = None, world.database_now() + timedelta(seconds=random.uniform(-5, 10))
    return Submission(
        "act",
        payload,
        random.choice(QUEUES),
        random.randint(0, 9),
        at,
        None if delay is None else timedelta(seconds=delay),
        options,
    )


async def workflows_main(process: Process) -> None:
    """Submit workflows until they are acknowledged."""
    world, random = process.world, process.random
    database = process.database()
    for number in range(world.plan.workflows):
        await asyncio.sleep(random.uniform(0, world.plan.storm_seconds / world.plan.workflows))
        workflow = a_workflow(process, random)
        for _ in range(30):
            try:
                answer = await submit_workflow(database, TENANT_DEFAULT, f"{process.name}/{number}", workflow)
            except Unavailable:
                await asyncio.sleep(random.uniform(0.05, 1))
                continue
            world.ledger.workflows[answer.workflow_id] = workflow
            break


def a_workflow(process: Process, random: Random) -> Workflow:
    """Draw a graph. Its edges are for success, so that what a replay of a dead node sets back has never run."""
    nodes: list[Node] = []
    for number in range(random.randint(2, 7)):
        payload, options = draw_script(random, process.world)
        parents = random.sample(nodes, min(len(nodes), random.randint(0, 3)))
        submission = Submission("act", payload, random.choice(QUEUES), random.randint(0, 9), options=options)
        nodes.append(Node(f"n{number}", submission, tuple(Edge(parent.name) for parent in parents)))
    return Workflow("simulated", tuple(nodes))


async def schedules_main(process: Process) -> None:
    """Submit the recurring jobs."""
    world, random = process.world, process.random
    database = process.database()
    for number in range(world.plan.schedules):
        await asyncio.sleep(random.uniform(0, 3))
        payload, options = draw_script(random, world)
        if random.random() < 0.5:
            payload, options = payload_of(Script(["quick"])), NO_OPTIONS
        anchor = random.choice(
            (None, world.database_now().replace(microsecond=0) + timedelta(seconds=random.randint(-20, 6)))
        )
        shape = every_shape(random.choice((1, 2, 3, 7)), anchor)
        if random.random() < 0.5:
            shape = {"trigger": {"type": "cron", "expr": f"*/{random.choice((2, 3, 5))} * * * * *"}}
        shape["overlap"] = {"policy": random.choice(("skip", "allow"))}
        schedule = Recurring("act", payload, random.choice(QUEUES), 5, shape, None, options)
        for _ in range(30):
            try:
                answer = await submit_recurring(database, schedule, key=f"{process.name}/{number}")
            except Unavailable:
                await asyncio.sleep(random.uniform(0.05, 1))
                continue
            world.ledger.acknowledged.add(answer.job_id)
            break


async def person_main(process: Process) -> None:
    """Cancel, replay and discard now and then."""
    world, random = process.world, process.random
    database = process.database()
    while True:
        await asyncio.sleep(10_000 if world.is_calm else random.expovariate(1 / 1.5))
        try:
            await meddle(process, database, random)
        except (Unavailable, NotFound, Unsettled):
            continue


async def meddle(process: Process, database: Any, random: Random) -> None:
    """Do one thing that people do."""
    ledger = process.world.ledger
    acknowledged = sorted(ledger.acknowledged)
    dead = sorted(ledger.dead)
    verbs = ("cancel", "cancel", "cancel_held", "cancel_job", "replay", "replay", "discard", "pause", "resume", "skip")
    match random.choice(verbs):
        case "cancel" if acknowledged:
            await cancel_one(process, database, random.choice(acknowledged))
        case "cancel_held" if ledger.leases:
            await cancel_one(process, database, random.choice(sorted(ledger.leases)))
        case "cancel_job" if ledger.schedules and random.random() < 0.2:
            await cancel_job(database, random.choice(sorted(ledger.schedules)))
        case "replay" if dead:
            await replay(database, [random.choice(dead)])
        case "discard" if dead and random.random() < 0.3:
            await discard(database, [random.choice(dead)])
        case "pause" if ledger.schedules:
            await pause(database, random.choice(sorted(ledger.schedules)))
        case "resume" if ledger.schedules:
            await resume(database, random.choice(sorted(ledger.schedules)))
        case "skip" if ledger.schedules:
            await skip_next(database, random.choice(sorted(ledger.schedules)))


async def cancel_one(process: Process, database: Any, run_id: UUID) -> None:
    """Cancel a run and hold the answer against what becomes of it."""
    ledger = process.world.ledger
    if run_id in ledger.schedules:
        return
    answer = await cancel_run(database, run_id)
    process.world.trace.add(process.world.now, process.name, f"answer {answer}", (run_id,))
    ledger.note_cancel(run_id, answer)


async def stopper_main(process: Process) -> None:
    """Stop everything, a queue or a tenant now and then, and let it go on; in the end all of it."""
    world, random = process.world, process.random
    database = process.database()
    while True:
        await asyncio.sleep(1 if world.is_calm else random.expovariate(1 / 3))
        try:
            if world.is_calm or random.random() < 0.5:
                for known in await pauses.standing(database):
                    world.ledger.held_since.pop(known.scope, None)
                    await resume_scope(database, known.scope)
            else:
                scope = Scope(random.choice((None, TENANT_DEFAULT)), random.choice((None, *QUEUES)))
                await pause_scope(database, scope, reason="stop", paused_by=process.name)
                world.ledger.held_since.setdefault(scope, world.now)
        except Unavailable:
            continue


async def closer_main(process: Process) -> None:
    """End every schedule, so that there can be an end."""
    database = process.database()
    others = [role for role in process.world.roles if role.is_once and role is not process.role]
    while True:
        all_submitted = all(role.process is None for role in others)
        for state in ("active", "paused"):
            for job in await jobs_listed(database, f"state:{state}"):
                await cancel_job(database, job["job_id"])
        if all_submitted:
            return
        await asyncio.sleep(0.2)


def populate(world: World) -> None:
    """Start everyone."""
    plan = world.plan
    for number in range(plan.schedulers):
        world.add(Role(f"scheduler-{number + 1}", SchedulerMain()))
    for number in range(plan.maintainers):
        world.add(Role(f"maintenance-{number + 1}", maintenance_main))
    for number in range(plan.workers):
        world.add(Role(f"worker-{number + 1}", worker_main))
    world.add(Role("client", client_main, is_once=True))
    world.add(Role("schedules", schedules_main, is_once=True))
    if plan.workflows:
        world.add(Role("workflows", workflows_main, is_once=True))
    if plan.people:
        world.add(Role("person", person_main))
        world.add(Role("stopper", stopper_main))
    for part in world.parts:
        part.populate()
