"""One seed, from its plan to its verdict."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

import msgspec

from tests.simulation import checks
from tests.simulation.ledger import Violation
from tests.simulation.parts import parts_of
from tests.simulation.plan import plan_for
from tests.simulation.processes import closer_main, populate, simulated_ports
from tests.simulation.server import Server, statement_names
from tests.simulation.world import Role, World


class Verdict(msgspec.Struct):
    """What came of a seed."""

    seed: int
    violation: Violation | None
    struck: dict[str, int]
    statements: int
    executions: int
    seconds: float
    trace: list[str]


def simulate(seed: int, server: Server, *, verbose: bool = False, without: Collection[str] = ()) -> Verdict:
    """Run one seed: a storm, then calm, in which everything must come to its end. Faults named in `without` stay away."""
    server.reset()
    random = Random(seed)
    plan = plan_for(random)
    plan.faults = {name: rate for name, rate in plan.faults.items() if name not in without}
    world = World(seed, plan, server, statement_names(), random)
    with simulated_ports():
        _play(world)
    for role in world.roles:
        if role.process is not None:
            role.process.kill()
    violation = world.ledger.violation
    about = violation.about if violation else []
    executions = sum(map(len, world.ledger.executions.values()))
    trace = world.trace.all_lines() if verbose else world.trace.lines(about) if violation else []
    return Verdict(seed, violation, dict(world.struck), world.statements, executions, world.now, trace)


def _play(world: World) -> None:
    world.parts = parts_of(world)
    populate(world)
    world.unleash()
    world.run_until(world.plan.storm_seconds)
    world.calm()
    world.add(Role("closer", closer_main, is_once=True))
    world.settle_down()
    if world.ledger.violation is None:
        checks.check_end(world)
