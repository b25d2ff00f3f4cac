"""Time, chance and the environment come in by the door they were given: `clock.py` and `settings.py`, nowhere else.

A module that reads the clock by itself cannot be moved by a test, nor replayed by the simulation.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "duly"

BANNED = {
    "asyncio.sleep",
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "os.environ",
    "os.environb",
    "os.getenv",
    "random",
    "time.monotonic",
    "time.monotonic_ns",
    "time.perf_counter",
    "time.perf_counter_ns",
    "time.sleep",
    "time.time",
    "time.time_ns",
    "uuid.uuid1",
    "uuid.uuid4",
}

# Where the world comes in. A folder ends in a slash.
DOORS = ("clock.py", "settings.py", "bench/")

# Each with its reason, and no more than it needs.
ALLOWED = {
    # A process of its own beside the worker, to which no clock of ours can be handed.
    "worker/heartbeat/process.py": {"asyncio.sleep", "time.monotonic"},
    # As is this one, between the worker and each program it starts.
    "worker/targets/launch.py": {"time.monotonic", "time.sleep"},
    # And this one, between the worker and Ray; its tasks are on other machines.
    "worker/execute/ray_driver.py": {"asyncio.sleep", "time.monotonic"},
    # Give the loop a turn, and wait for no time.
    "outbound/transport.py": {"asyncio.sleep"},
    "worker/execute/ray_task.py": {"asyncio.sleep"},
    # Start the database, so they run before there is a clock; the server inherits our environment.
    "postgres/processes.py": {"time.monotonic", "time.sleep"},
    "postgres/embedded.py": {"asyncio.sleep", "time.monotonic", "time.sleep", "os.environ"},
    # psql and its like inherit our environment.
    "postgres/clients.py": {"os.environ"},
}


def uses_of_banned(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Find each banned name in `tree`, also behind an alias, with its line."""
    origins = dict(imported_names(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [dotted(node, origins)]
        else:
            continue
        yield from ((node.lineno, found) for name in names if (found := banned_name(name)))


def imported_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Pair each name that an import binds with the full name of what it means."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (top, top)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def dotted(node: ast.expr, origins: dict[str, str]) -> str:
    """Write an attribute chain in full, from the module it was imported from; "" when it starts anywhere else."""
    match node:
        case ast.Name(id=name):
            return origins.get(name, "")
        case ast.Attribute(value=value, attr=attribute):
            start = dotted(value, origins)
            return f"{start}.{attribute}" if start else ""
    return ""


def banned_name(name: str) -> str:
    """Return the ban that `name` falls under, or "" when it is free."""
    parts = name.split(".")
    prefixes = (".".join(parts[:length]) for length in range(1, len(parts) + 1))
    return next((prefix for prefix in prefixes if prefix in BANNED), "")


def modules_behind_the_doors() -> list[str]:
    """List every module of the package that has to be given its time and chance."""
    names = (path.relative_to(SOURCE).as_posix() for path in sorted(SOURCE.rglob("*.py")))
    return [name for name in names if not name.startswith(DOORS)]


@pytest.mark.parametrize("name", modules_behind_the_doors())
def test_a_module_reads_no_clock_chance_or_environment_by_itself(name):
    uses = uses_of_banned(ast.parse((SOURCE / name).read_text()))

    offences = {(line, use) for line, use in uses if use not in ALLOWED.get(name, set())}

    assert offences == set(), f"{name}: take a Clock, a seed or Settings as an argument instead"


@pytest.mark.parametrize(
    ("source", "use"),
    [
        ("import time\ntime.time()", "time.time"),
        ("import time as t\nt.monotonic()", "time.monotonic"),
        ("from time import sleep", "time.sleep"),
        ("from datetime import datetime, UTC\ndatetime.now(UTC)", "datetime.datetime.now"),
        ("import datetime\ndatetime.datetime.utcnow()", "datetime.datetime.utcnow"),
        ("import random\nrandom.uniform(0, 1)", "random"),
        ("from random import Random", "random"),
        ("import uuid\nuuid.uuid4()", "uuid.uuid4"),
        ("import os\nos.environ['HOME']", "os.environ"),
        ("import asyncio\nasync def f():\n    await asyncio.sleep(1)", "asyncio.sleep"),
    ],
)
def test_each_way_to_the_world_is_seen(source, use):
    assert {found for _, found in uses_of_banned(ast.parse(source))} == {use}


@pytest.mark.parametrize(
    "source",
    [
        "async def f(clock):\n    await clock.sleep(1)\n    return clock.time.time()",
        "from datetime import datetime\ndatetime.fromisoformat('2026-11-01')",
        "import uuid\nuuid.UUID(int=1)",
        "import os\nos.getpid()",
    ],
)
def test_injected_clock_and_pure_functions_are_allowed(source):
    assert list(uses_of_banned(ast.parse(source))) == []
