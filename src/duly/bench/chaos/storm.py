"""The storm: schedulers, workers and connections of a scratch installation are struck at random while work is submitted."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TypeVar

import msgspec

from duly.bench.chaos import checker
from duly.bench.chaos.evidence import Acknowledged, Departure, Evidence, Record, Sink, Strike
from duly.bench.processes import family
from duly.bench.progress import Steps
from duly.bench.role_process import RoleConfig
from duly.bench.roles import START_SECONDS, Role, RoleFailed
from duly.bench.scratch import Scratch
from duly.domain.errors import KeyBusy
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.runs.options import options_of
from duly.domain.runs.retry import Retry
from duly.domain.runs.run import PRIORITY_DEFAULT, QUEUE_DEFAULT
from duly.domain.triggers.schedule.timing import every_shape
from duly.moves.cancel import cancel_job
from duly.moves.submit import submit, submit_many, submit_recurring
from duly.store.boxes import history
from duly.store.connection.database import Database, Unavailable
from duly.store.tables.jobs import Submitted

LEASE_SECONDS = 2.0
SCHEDULERS, WORKERS, SLOTS = 2, 3, 20
_DRAIN_SECONDS = 90.0
_GONE_SECONDS = 10.0
_PAUSE_SECONDS = (0.5, 2.5)  # between two strikes
_CUT_MAX = 8  # connections at once
_BATCH = 25
_CONNECTIONS_MAX = 4
# Tried again at once, and often: a strike on a run is not its own fault.
_RETRY = Retry(max_attempts=100, base_seconds=0.01, cap_seconds=0.05)
_PLAIN, _GUARDED = options_of(retry=_RETRY), options_of(retry=_RETRY, timeout_seconds=60)
_HANDLERS = ("quick",) * 14 + ("steady",) * 4 + ("plain",) * 5
_STRIKES = ("worker",) * 4 + ("scheduler",) * 3 + ("connections",) * 3

# Ours alone: sessions of the same role, in a database of our own.
_CUT = """
select count(pg_terminate_backend(pid)) from (
    select pid from pg_stat_activity
     where datname = current_database() and usename = current_user and pid <> pg_backend_pid() and backend_type = 'client backend'
     order by hashint8(pid + $1) limit $2) as chosen
"""
_RECORDS = """
select run_id::text, job_id::text, attempt, outcome::text, became::text, fence, worker_id::text, scheduled_at, started_at,
       finished_at from duly.attempts
"""
_DEPARTURES = "select worker_id::text, safe_until + $1 from duly.expired_workers"
_LEFT = "select concat_ws(' ', state, run_id, attempt) from duly.live_runs where state <> 'dead' limit 20"

_Answer = TypeVar("_Answer")


class Plan(msgspec.Struct, frozen=True):
    """A storm: how long, with which chance, and how much is submitted meanwhile."""

    seconds: float
    seed: int
    rate: int
    schedules: int


class Verdict(msgspec.Struct, frozen=True):
    """The judgement. Each list is empty when all is well."""

    seed: int
    seconds: float
    acknowledged: int
    repeated_requests: int
    calls: int
    repeated_calls: int
    strikes: dict[str, int]
    outcomes: dict[str, int]
    broken: list[str]  # by `duly verify`
    findings: list[str]  # from outside: lost, early, double and the like

    @property
    def is_good(self) -> bool:
        """Return whether every promise held."""
        return not self.broken and not self.findings


async def weather(scratch: Scratch, folder: Path, plan: Plan, steps: Steps) -> Verdict:
    """Let it blow, let everything come to its end, and judge. Leaves no process."""
    await scratch.renew()
    async with scratch.database(_CONNECTIONS_MAX) as database, Storm(scratch.url, folder, plan) as storm:
        await storm.start()
        with steps.step(f"storm, seed {plan.seed}", plan.seconds) as advance:
            submitting = asyncio.create_task(storm.submit_load(database))
            try:
                await storm.blow(database, advance)
                await submitting
            finally:
                submitting.cancel()
        with steps.step("calm"):
            left = await storm.calm_down(database)
        evidence = await storm.gather(database, left)
        broken = [" ".join(map(str, row.values())) for row in await history.verify(database)]
    return storm.judge(evidence, broken)


class Storm:
    """The processes, and what is known of them from outside."""

    def __init__(self, url: str, folder: Path, plan: Plan) -> None:
        self._url = url
        self._plan = plan
        self._chance = random.Random(plan.seed)
        self._folder = folder
        self._sink = Sink(folder / "sink")
        self._roles: dict[str, Role] = {}
        self._ever: set[int] = set()  # every process that was ever below us
        self._ledger: list[Acknowledged] = []
        self._strikes: list[Strike] = []
        self._cuts = 0
        self._ended: list[str] = []  # processes that ended by themselves

    async def __aenter__(self) -> Storm:
        return self

    async def __aexit__(self, *_: object) -> None:
        """End every process, in good order, and what is left of those that were killed."""
        self._look()
        await asyncio.gather(*(role.stop() for role in self._roles.values()), return_exceptions=True)
        await self._see_them_gone()

    async def start(self) -> None:
        """Start schedulers and workers, and wait until they are ready."""
        names = [f"scheduler {number}" for number in range(1, SCHEDULERS + 1)]
        names += [f"worker {number}" for number in range(1, WORKERS + 1)]
        for name in names:
            await self._start(name)
        deadline = monotonic() + START_SECONDS
        while not all(role.reported.ready for role in self._roles.values()):
            if monotonic() > deadline:
                raise RoleFailed(f"the processes were not ready within {START_SECONDS:.0f} s")
            for role in self._roles.values():
                role.check()
            await asyncio.sleep(0.05)

    async def blow(self, database: Database, advance: Callable[[float], None]) -> None:
        """Strike again and again, for the time of the plan."""
        began = monotonic()
        while (passed := monotonic() - began) < self._plan.seconds:
            advance(passed)
            await asyncio.sleep(min(self._chance.uniform(*_PAUSE_SECONDS), self._plan.seconds - passed))
            self._look()
            await self._strike(database, self._chance.choice(_STRIKES))

    async def submit_load(self, database: Database) -> None:
        """Submit schedules, then one-shots at an even rate: some due now, some soon, some beyond the horizon."""
        chance = random.Random(self._plan.seed + 1)
        for number in range(self._plan.schedules):
            schedule = Recurring(
                "quick", "{}", QUEUE_DEFAULT, PRIORITY_DEFAULT, every_shape(1), f"every-second-{number}", _PLAIN
            )
            create = partial(submit_recurring, database, schedule, key=f"schedule-{number}")
            await self._acknowledged(create, is_schedule=True)
        began, done = monotonic(), 0
        while monotonic() - began < self._plan.seconds:
            jobs = [_a_job(chance) for _ in range(chance.choice((1, 1, _BATCH)))]
            if len(jobs) == 1:
                await self._acknowledged(partial(submit, database, jobs[0], key=f"runs-{done}"))
            else:
                await self._acknowledged(partial(submit_many, database, jobs, key=f"runs-{done}"))
            done += len(jobs)
            await asyncio.sleep(max(0.0, began + done / self._plan.rate - monotonic()))

    async def calm_down(self, database: Database) -> list[str]:
        """End the schedules, and wait until everything has come to its end. Returns what has not."""
        for one in self._ledger:
            if one.is_schedule:
                await _until_answered(partial(cancel_job, database, one.job_id))
        deadline = monotonic() + _DRAIN_SECONDS
        while left := [row[0] for row in (await _until_answered(partial(database.fetch, _LEFT)))[0]]:
            if monotonic() > deadline:
                break
            self._look()
            await self._replace_ended()
            await asyncio.sleep(0.2)
        return left

    async def gather(self, database: Database, left: Sequence[str]) -> Evidence:
        """Gather what clients, targets and the database know."""
        records = await database.fetch(_RECORDS)
        departures = await database.fetch(_DEPARTURES, timedelta(seconds=LEASE_SECONDS / 3))
        return Evidence(
            self._ledger,
            list(self._sink.read()),
            [Record(*record) for record in records],
            [Departure(*departure) for departure in departures],
            left,
            self._strikes,
        )

    def judge(self, evidence: Evidence, broken: list[str]) -> Verdict:
        """Compare all of it."""
        strikes = Counter(strike.what for strike in evidence.strikes) + Counter(connections=self._cuts)
        return Verdict(
            seed=self._plan.seed,
            seconds=self._plan.seconds,
            acknowledged=len(evidence.acknowledged),
            repeated_requests=sum(one.requests > 1 for one in evidence.acknowledged),
            calls=len(evidence.arrivals),
            repeated_calls=checker.duplicates(evidence),
            strikes=dict(strikes),
            outcomes=dict(Counter(record.outcome for record in evidence.records)),
            broken=broken,
            findings=[*self._ended, *checker.findings(evidence)],
        )

    async def _start(self, name: str) -> None:
        kind = name.split()[0]
        is_worker = kind == "worker"
        config = RoleConfig(
            kind,
            self._url,
            name,
            slots=SLOTS if is_worker else 0,
            sink=str(self._folder / "sink") if is_worker else "",
            lease_seconds=LEASE_SECONDS if is_worker else 0.0,
        )
        self._roles[name] = Role(config, self._folder / f"{name}.log")
        await self._roles[name].start()

    async def _strike(self, database: Database, what: str) -> None:
        await self._replace_ended()
        if what == "connections":
            chosen = self._chance.randint(1, _CUT_MAX), self._chance.randrange(1_000_000)
            cut, _ = await _until_answered(partial(database.fetchval, _CUT, chosen[1], chosen[0]))
            self._cuts += int(cut)
            return
        name = self._chance.choice([name for name in self._roles if name.startswith(what)])
        stays_dead = self._chance.uniform(0, LEASE_SECONDS) if self._chance.random() < 0.5 else 0.0
        at, pid = time.time(), self._roles[name].pid
        await self._roles[name].kill()
        await asyncio.sleep(stays_dead)
        await self._start(name)
        self._strikes.append(Strike(what, pid, at, time.time()))

    async def _replace_ended(self) -> None:
        """Record processes that have ended by themselves, and start others in their places."""
        for name, role in list(self._roles.items()):
            try:
                role.check()
            except RoleFailed:
                words = (self._folder / f"{name}.log").read_text(encoding="utf-8", errors="replace").splitlines()
                self._ended.append(f"ended: {name} ended by itself: {words[-1] if words else 'without a word'}")
                await self._start(name)

    async def _acknowledged(
        self, request: Callable[[], Awaitable[Submitted | list[Submitted]]], *, is_schedule: bool = False
    ) -> None:
        answer, requests = await _until_answered(request)
        answers = answer if isinstance(answer, list) else [answer]
        self._ledger += [
            Acknowledged(one.job_id, one.scheduled_at.timestamp(), is_schedule, requests) for one in answers
        ]

    def _look(self) -> None:
        """Remember all processes below ours: those of a worker that is killed must end, too."""
        self._ever |= {one.pid for role in self._roles.values() for one in family([role.pid])}

    async def _see_them_gone(self) -> None:
        """Wait until what was below the killed has ended too, which it does by itself."""
        deadline = monotonic() + _GONE_SECONDS
        while any(map(_is_one_of_ours, self._ever)):
            if monotonic() > deadline:
                break
            await asyncio.sleep(0.1)


def _is_one_of_ours(pid: int) -> bool:
    """Return whether a process lives that runs our code; another may have got its number."""
    try:
        return b"duly" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


async def _until_answered(request: Callable[[], Awaitable[_Answer]]) -> tuple[_Answer, int]:
    """Repeat a request until it is answered. Returns the answer, and the number of requests."""
    requests = 0
    while True:
        requests += 1
        try:
            return await request(), requests
        except (Unavailable, KeyBusy):
            await asyncio.sleep(0.1)


def _a_job(chance: random.Random) -> Submission:
    delay = timedelta(seconds=chance.choice((0.0, 0.0, chance.uniform(0, 4), chance.uniform(4, 9))))
    is_guarded = chance.random() < 0.01
    handler, options = ("guarded", _GUARDED) if is_guarded else (chance.choice(_HANDLERS), _PLAIN)
    return Submission(handler, "{}", QUEUE_DEFAULT, PRIORITY_DEFAULT, None, delay, options)
