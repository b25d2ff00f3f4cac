"""The plan of a seed: how many of each process, which faults, how often. Each seed knows only some of the faults."""

from __future__ import annotations

from random import Random

import msgspec

# Faults of a single statement: the chance that it strikes.
ON_STATEMENT = {
    "refused": (0.002, 0.06),  # the connection breaks before the statement
    "lost_reply": (0.002, 0.06),  # it committed, and the answer never came
    "late_commit": (0.001, 0.02),  # the connection broke, and it committed seconds later
    "serialization": (0.005, 0.1),  # 40001
    "deadlock": (0.005, 0.1),  # 40P01
    "slow_request": (0.001, 0.02),
    "slow_reply": (0.001, 0.02),
    "crash_before": (0.0003, 0.004),  # the process dies with the statement unsent
    "crash_after": (0.0003, 0.004),  # the process dies before the answer
}
# Faults that come by themselves: seconds between two of them.
BY_ITSELF = {
    "crash": (4, 20),
    "pause": (4, 20),  # a process stands still longer than its lease, then goes on
    "stall": (4, 20),  # a worker's loop stands still while its heart beats
    "partition": (5, 20),  # one process cannot reach the database
    "outage": (10, 30),  # nobody can
    "restart": (4, 15),  # SIGTERM, then anew
    "clock_forward": (8, 25),
    "clock_back": (8, 25),
    "twin_scheduler": (8, 20),  # a second scheduler under the same identity
    "vacuum": (0.1, 1.0),  # the places of rows that are gone are given to others
}
# What seeds have from the beginning.
FROM_THE_START = ("drift", "handler_crash", "poison", "long_handler", "stubborn_handler")
# Those under which a worker still hears of a hold in time.
LOOKING = {*FROM_THE_START, "crash", "crash_before", "crash_after", "restart", "twin_scheduler", "vacuum"}
CLOCK_STEPS = {"clock_forward", "clock_back"}
# Themes of which each seed has a few: see parts.py.
_DRAWN = (
    "lines",
    "slots",
    "turns",
    "limits",
    "expiries",
    "floods",
    "graphs",
    "followers",
    "letters",
    "receivers",
    "budgets",
)
STRANGERS = "strangers"  # It goes with all the others.
PARTS = (*_DRAWN, STRANGERS)
_STRANGERS_SHARE = 0.25
ALONE = "floods"  # Its bounds hold where nothing else keeps workers busy.
WEBHOOK_LEASE_SECONDS_MIN = 3.0  # A webhook may wait for its place nearly a second after it was begun.
FAULTS = (*ON_STATEMENT, *BY_ITSELF, *FROM_THE_START)


class Plan(msgspec.Struct):
    """The shape of one simulation."""

    storm_seconds: float
    schedulers: int
    workers: int
    maintainers: int
    lease_seconds: float
    slots: int
    jobs: int
    schedules: int
    with_children: bool
    people: bool
    faults: dict[str, float]
    workflows: int = 0
    parts: tuple[str, ...] = ()

    @property
    def has_clock_steps(self) -> bool:
        """Say whether the database's clock is set in this seed."""
        return not CLOCK_STEPS.isdisjoint(self.faults)

    @property
    def lets_workers_look(self) -> bool:
        """Say whether no fault of this seed keeps a worker from looking at the holds in time."""
        return self.faults.keys() <= LOOKING

    def has(self, fault: str) -> bool:
        """Say whether this seed knows a fault."""
        return fault in self.faults


def plan_for(random: Random) -> Plan:
    """Draw a plan."""
    share = random.choice((0.0, 0.15, 0.3, 0.3, 0.5, 0.8))
    faults = {name: 1.0 for name in FROM_THE_START if random.random() < max(share, 0.1)}
    for name, (low, high) in {**ON_STATEMENT, **BY_ITSELF}.items():
        if random.random() < share:
            faults[name] = low * (high / low) ** random.random()
    plan = Plan(
        storm_seconds=random.uniform(12, 30),
        schedulers=random.choice((1, 2, 2, 3)),
        workers=random.choice((1, 2, 2, 3)),
        maintainers=random.choice((1, 1, 2)),
        lease_seconds=random.choice((2.0, 3.0, 3.0, 6.0)),
        slots=random.choice((1, 2, 4, 10)),
        jobs=random.randint(5, 25),
        schedules=random.choice((0, 1, 1, 2, 3)),
        with_children=random.random() < 0.5,
        people=random.random() < 0.6,
        faults=faults,
        workflows=random.choice((0, 1, 2, 4)),
    )
    return _with_parts(plan, random)


def _with_parts(plan: Plan, random: Random) -> Plan:
    """Draw the parts, and let the rest make room for them."""
    plan.parts = tuple(random.sample(_DRAWN, random.choice((0, 1, 2, 2, 3))))
    if ALONE in plan.parts:
        plan.parts, plan.people = (ALONE,), False
        plan.jobs = plan.schedules = plan.workflows = 0
        plan.slots = random.choice((1, 2))  # A flood that workers hold at once is none.
        if random.random() < 0.5:
            plan.faults = {}
    elif plan.parts:
        plan.jobs = min(plan.jobs, 10)
        plan.workflows = min(plan.workflows, 1)
    if ALONE not in plan.parts and random.random() < _STRANGERS_SHARE:
        plan.parts = (*plan.parts, STRANGERS)
    if "receivers" in plan.parts:  # Both have a way out of their own.
        plan.parts = tuple(name for name in plan.parts if name != "budgets")
    if not {"receivers", "budgets"}.isdisjoint(plan.parts):
        plan.lease_seconds = max(plan.lease_seconds, WEBHOOK_LEASE_SECONDS_MIN)
    return plan
