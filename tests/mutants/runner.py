"""Apply one mutant to a copy of the tree and see whether its test notices.

A test notices when it fails: not when it cannot even begin, nor when what it met was SQL that no server understands, nor when it
is red without any mutant. A verdict holds until a line of the engine or of its tests changes, so a programme that was cut short
goes on where it was.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec

from tests.mutants.bank import SIMULATION, Mutant
from tests.simulation.__main__ import BROKEN

ROOT = Path(__file__).parents[2]
SEEDS_MAX = 300
MEMORY = ROOT / ".venv" / "mutants"
SECONDS_MAX = 1800.0
BASELINE = "baseline"
_RULES = b"2"  # Raised when a verdict comes to mean something else: those of before are forgotten.
_COPIED = ("src", "tests", "pyproject.toml")
_TESTS_FAILED = 1
_TIMED_OUT = -1
_REPORT = "report.xml"
# What PostgreSQL says of text that it does not understand: a mutant is a wrong thought, not a slip of the pen.
_BROKEN_SQL = re.compile(
    r"\b(?:PostgresSyntaxError|Undefined(?:Column|Function|Table|Object|Parameter)Error|AmbiguousColumnError|DatatypeMismatchError)\b"
)
_MIGRATE = """
import asyncio, sys, tempfile
from pathlib import Path
from duly.store import embedded
from duly.store.database import Database
from duly.store.migrate import migrate

async def main(url):
    async with Database(url) as database:
        await migrate(database)

with tempfile.TemporaryDirectory() as folder, embedded.start(Path(folder) / "data", durable=False) as cluster:
    asyncio.run(main(cluster.url))
"""


class Fate(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    CRASHED = "CRASHED"  # Nothing ran to its end, so nothing was shown.
    RED_ANYWAY = "RED ANYWAY"  # Its test fails without it, too.


class Trial(msgspec.Struct, frozen=True):
    """A mutant, its fate, how long it lived and the last words of its test."""

    mutant: Mutant
    fate: Fate
    seconds: float
    words: str


def try_mutant(mutant: Mutant, seeds: int = SEEDS_MAX, baseline: Baseline | None = None, processes: int = 2) -> Trial:
    """Break a copy of the engine and run what must notice."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        copy_tree(root)
        mutant.apply(root)
        fate, out = judge(mutant, root, seeds, processes)
    words = _words(fate, out)
    if fate is Fate.KILLED and baseline is not None and (red := baseline.red(mutant, out)):
        fate, words = Fate.RED_ANYWAY, red
    return Trial(mutant, fate, time.monotonic() - begun, words)


def judge(mutant: Mutant, root: Path, seeds: int = SEEDS_MAX, processes: int = 1) -> tuple[Fate, str]:
    """Run what must notice on a tree that is broken. Gives what came of it, and all that was said."""
    if mutant.file.endswith(".sql"):
        status, out = _run([sys.executable, "-c", _MIGRATE], root)
        if status != 0:
            return Fate.CRASHED, f"{out}\nit does not even migrate"
    if mutant.killed_by == SIMULATION:
        status, out = _run(_simulation(seeds, processes), root)
        fate = {0: Fate.SURVIVED, BROKEN: Fate.KILLED}.get(status, Fate.CRASHED)
    else:
        status, out = _run(_test(mutant.killed_by, "-x"), root)
        if status == _TESTS_FAILED and not _failures(root) and not mutant.in_setup:
            status, out = _run(_test(mutant.killed_by), root)  # Those behind the first may yet begin.
        fate = {0: Fate.SURVIVED, _TESTS_FAILED: Fate.KILLED}.get(status, Fate.CRASHED)
        if fate is Fate.KILLED and not _failures(root) and not mutant.in_setup:
            return Fate.CRASHED, f"{out}\nno test came so far as to fail"
    if fate is Fate.KILLED and (broken := _BROKEN_SQL.search(f"{_what_was_noticed(out)} {_failures(root)}")):
        return Fate.CRASHED, f"{out}\nit is no SQL: {broken[0]}"
    return fate, out


def _failures(root: Path) -> str:
    """Tell what tests have failed of, by pytest's own report, which keeps that apart from errors on the way to them."""
    report = root / _REPORT
    found = ET.parse(report).iterfind(".//failure") if report.exists() else ()
    return "\n".join(failure.get("message", "failed") for failure in found)


class Baseline:
    """What is red without any mutant: each test is asked once, and of the simulation each seed that has noticed something."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def red(self, mutant: Mutant, out: str) -> str:
        """Say what a test says of the tree as it stands, if it fails on it; nothing when it is green."""
        seed = re.search(r"^seed (\d+): broken", out, re.MULTILINE)
        asked = f"seed {seed[1]}" if seed and mutant.killed_by == SIMULATION else mutant.killed_by
        with self._lock:
            lock = self._locks.setdefault(asked, threading.Lock())
        with lock:
            known = self._memory.recall_baseline(asked)
            if known is None:
                known = self._ask(asked)
                self._memory.keep_baseline(asked, known)
        return known

    def _ask(self, asked: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            copy_tree(root)
            seed = asked.removeprefix("seed ")
            command = [sys.executable, "-m", "tests.simulation", "--seed", seed] if seed != asked else _test(asked)
            status, out = _run(command, root)
        return "" if status == 0 else (_what_was_noticed(out) or f"exit status {status}").replace("\n", " ")


def _run(command: list[str], root: Path) -> tuple[int, str]:
    """Run a test to its end. One that has none is ended together with all it has started."""
    process = subprocess.Popen(
        command, cwd=root, env=_environment(root), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        out, _ = process.communicate(timeout=SECONDS_MAX)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGTERM)
        out, _ = process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        return _TIMED_OUT, f"{out}\nit had not ended after {SECONDS_MAX:.0f} s"
    return process.returncode, out


class Memory:
    """Which mutants have been killed on the tree as it stands, and which tests are red on it without any."""

    def __init__(self, file: Path = MEMORY) -> None:
        self._file = file
        self._tree = _digest_of_tree()
        self._lock = threading.Lock()
        lines = file.read_text().splitlines() if file.exists() else []
        self._known = {key: words for key, _, words in (line.partition(" ") for line in lines)}

    def recall(self, mutant: Mutant) -> str | None:
        """Give the last words of the test that has noticed this mutant, if one has."""
        return self._known.get(self._key(repr(mutant)))

    def keep(self, trial: Trial) -> None:
        """Remember a mutant that was killed."""
        if trial.fate is Fate.KILLED:
            self._write(repr(trial.mutant), trial.words.splitlines()[-1])

    def recall_baseline(self, asked: str) -> str | None:
        """Give what a test says of the tree without any mutant, nothing being the good answer, if it was asked."""
        return self._known.get(self._key(f"{BASELINE} {asked}"))

    def keep_baseline(self, asked: str, said: str) -> None:
        """Remember that. A red one is asked again by the next programme: it may have been chance."""
        self._known[self._key(f"{BASELINE} {asked}")] = said
        if not said:
            self._write(f"{BASELINE} {asked}", said)

    def _write(self, about: str, words: str) -> None:
        with self._lock, self._file.open("a") as file:
            file.write(f"{self._key(about)} {words}\n")

    def _key(self, about: str) -> str:
        return hashlib.sha256(_RULES + self._tree + about.encode()).hexdigest()


def _digest_of_tree() -> bytes:
    """Sum up everything that a trial copies, but the bank itself: a mutant more changes nothing for the others."""
    digest = hashlib.sha256()
    for name in _COPIED:
        for path in sorted([ROOT / name, *(ROOT / name).rglob("*.*")]):
            if path.is_file() and path.suffix != ".pyc" and path.parent != Path(__file__).parent:
                digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.digest()


def copy_tree(root: Path) -> None:
    """Copy what the tests need."""
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, root / name)


def _simulation(seeds: int, processes: int) -> list[str]:
    asked = ["--seeds", str(seeds), "--processes", str(processes), "--stop"]
    return [sys.executable, "-m", "tests.simulation", *asked]


def _test(name: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={_REPORT}", *more, name]


def _environment(root: Path) -> dict[str, str]:
    kept = {
        name: value for name, value in os.environ.items() if name != "TEST_TIMES"
    }  # Those are told by who calls us.
    return {**kept, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}", "PYTHONDONTWRITEBYTECODE": "1", "CI": ""}


def _words(fate: Fate, out: str) -> str:
    """Give the line that says what was noticed, or, where nothing was, the end of what was said."""
    noticed = _what_was_noticed(out)
    if fate is Fate.KILLED and noticed:
        return noticed.split(" (")[0][:160]
    return "\n".join(out.splitlines()[-10:])


def _what_was_noticed(out: str) -> str:
    noticed = re.search(r"^(?:seed \d+: broken: .*|FAILED .*|ERROR .*)$", out, re.MULTILINE)
    return noticed[0] if noticed else ""
