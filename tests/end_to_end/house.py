"""A whole installation in real processes: one PostgreSQL, two schedulers, three workers; and the hand that kills them."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from duly.bench.chaos.evidence import SINK, Strike
from duly.postgres import embedded
from duly.store.boxes import history
from duly.store.connection.database import Database
from duly.store.schema.migrate import migrate

ROOT = Path(__file__).parents[2]
# The engine beside these tests: in a copy of the tree, what is installed is another one.
SOURCE = ROOT / "src"
PYTHONPATH = f"{SOURCE}{os.pathsep}{ROOT}"
LEASE_SECONDS = 3.0
SCHEDULERS = 2
WORKERS = 3


class House:
    """Everything that runs, by name."""

    def __init__(self, folder: Path, server: Any) -> None:
        self.folder = folder
        self.server = server
        self.url = server.url
        self.source = SOURCE
        self.sink = folder / "sink"
        self.ledger = folder / "ledger"
        self.lease_seconds = LEASE_SECONDS
        self.strikes: list[Strike] = []
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, role: str, name: str, *more: object, url: str | None = None) -> subprocess.Popen[bytes]:
        """Start one part in a process of its own."""
        words = ["tests.end_to_end.role", role, url or self.url, name, *map(str, more)]
        command = ["env", f"{SINK}={self.sink}", sys.executable, "-m", *words]
        return self.run(command, name)

    def command(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a command of the command line as one part."""
        return self.run([sys.executable, "-m", "duly", *words, "--database-url", self.url], name)

    def run(self, command: Sequence[str], name: str) -> subprocess.Popen[bytes]:
        """Start a program as one part."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=log, stderr=log)
        return self.processes[name]

    @property
    def environment(self) -> dict[str, str]:
        """What parts run in: the engine of `source`."""
        return {**os.environ, "PYTHONPATH": f"{self.source}{os.pathsep}{ROOT}"}

    def start_scheduler(self, name: str) -> None:
        """Start a scheduler, with maintenance."""
        self.start("scheduler", name)

    def start_worker(self, name: str, *, slots: int = 20, url: str | None = None) -> None:
        """Start a worker, which may have a way of its own to the database."""
        self.start("worker", name, self.lease_seconds, slots, url=url)

    def kill(self, name: str, *, stays_dead: bool = False) -> Strike:
        """Kill a scheduler or a worker, as a failing machine would, and start another in its place unless it stays dead."""
        process = self.processes[name]
        assert process.poll() is None, f"{name} had ended by itself: {self.last_words(name)}"
        at = time.time()
        process.kill()
        process.wait()
        if not stays_dead:
            self.start_worker(name) if name.startswith("worker") else self.start_scheduler(name)
        return self.struck(name.rstrip("0123456789"), process.pid, at)

    def freeze(self, name: str) -> float:
        """Stop a part as a hypervisor would. Gives the moment."""
        self.processes[name].send_signal(signal.SIGSTOP)
        return time.time()

    def thaw(self, name: str) -> None:
        """Let it go on, as if nothing had been."""
        self.processes[name].send_signal(signal.SIGCONT)

    def kill_postgresql(self) -> Strike:
        """Kill PostgreSQL's first process, and start it again on the same data."""
        pid, at = self.server.pid, time.time()
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not self.server.is_running, 30)
        self.server.revive()
        return self.struck("postgresql", pid, at)

    def struck(self, what: str, pid: int, at: float) -> Strike:
        """Write down a blow that is over."""
        self.strikes.append(Strike(what, pid, at, time.time()))
        return self.strikes[-1]

    def ask(self, query: str, *args: object) -> list[tuple]:
        """Ask the database."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(query, args).fetchall()

    def execute(self, script: str) -> None:
        """Run statements whose rows nobody wants."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(script)

    def last_words(self, name: str) -> str:
        """Give the end of what a part said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]

    def end(self) -> None:
        """End everything that still runs."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def a_house(folder: Path, **settings: str) -> Iterator[House]:
    """Start the installation, with a PostgreSQL that keeps what it has acknowledged."""
    settings = {"shared_buffers": "128MB"} | settings
    server = embedded.start(folder / "postgres", durable=True, settings=settings)
    with server, a_house_on(folder, server) as house:
        yield house


@contextmanager
def a_house_on(folder: Path, server: Any) -> Iterator[House]:
    """Start the installation on a server that runs."""
    house = House(folder, server)
    asyncio.run(_set_up(house.url))
    try:
        yield house
    finally:
        house.end()


async def _set_up(url: str) -> None:
    async with Database(url) as database:
        await migrate(database)
        await history.create_partitions(database, 3)


def wait_until(condition: Callable[[], object], seconds: float, *, what: str = "", pause: float = 0.02) -> float:
    """Wait for a condition, and say how long it took. Fails when it does not come."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"waited {seconds} s in vain: {what}"
        time.sleep(pause)
    return time.monotonic() - began


def sleep_until(moment: float) -> None:
    """Let time pass that a fault is to last."""
    time.sleep(max(0.0, moment - time.time()))


def anyone(names: str, number: int, chance: random.Random) -> str:
    """Pick one of a kind."""
    return f"{names}{chance.randrange(number)}"
