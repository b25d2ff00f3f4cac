"""Apply one mutant to a copy of the tree and see whether its test notices.

A test notices when it fails: not when it cannot begin, nor when the server does not understand the SQL, nor when it fails
without the mutant too. A verdict holds until the source or a test changes, so an interrupted programme continues.
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
_RULES = b"3"  # Raised when a verdict comes to mean something else: earlier ones are forgotten.
_COPIED = ("src", "tests", "pyproject.toml")
_TESTS_FAILED = 1
_TIMED_OUT = -1
_REPORT = "report.xml"
# The server's words for text that it does not understand: a mutant is a wrong thought, not a slip of the pen.
_BROKEN_SQL = re.compile(
    r"\b(?:PostgresSyntaxError|Undefined(?:Column|Function|Table|Object|Parameter)Error|AmbiguousColumnError|DatatypeMismatchError)\b"
)
_NOTICED = re.compile(r"^(?:seed \d+: broken: .*|FAILED .*|ERROR .*)$", re.MULTILINE)


class Fate(StrEnum):
    """The end of a mutant."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    CRASHED = "CRASHED"  # Nothing ran to its end, so nothing was shown.
    RED_ANYWAY = "RED ANYWAY"  # Its test fails without it, too.


class Trial(msgspec.Struct, frozen=True):
    """A mutant, its fate, the time it took and the last words of its test."""

    mutant: Mutant
    fate: Fate
    seconds: float
    words: str


def try_mutant(mutant: Mutant, seeds: int = SEEDS_MAX, processes: int = 2) -> Trial:
    """Break a copy of the source and run what must notice."""
    begun = time.monotonic()
    edit = mutant.find()
    with tempfile.TemporaryDirectory() as folder:
        root = _copy(Path(folder))
        (root / "src" / "duly" / edit.path).write_text(edit.apply(root / "src" / "duly"))
        fate, out = judge(mutant.killed_by, root, seeds, processes)
    noticed = _NOTICED.search(out)
    is_plain = fate is Fate.KILLED and noticed is not None
    words = noticed[0].split(" (")[0][:160] if is_plain and noticed else "\n".join(out.splitlines()[-10:])
    return Trial(mutant, fate, time.monotonic() - begun, words)


def judge(test: str, root: Path, seeds: int = SEEDS_MAX, processes: int = 2) -> tuple[Fate, str]:
    """Run what must notice on a tree that is broken. Returns the fate, and all that was printed."""
    if test == SIMULATION:
        asked = ["--seeds", str(seeds), "--processes", str(processes), "--stop"]
        status, out = _run([sys.executable, "-m", "tests.simulation", *asked], root)
        fate = {0: Fate.SURVIVED, BROKEN: Fate.KILLED}.get(status, Fate.CRASHED)
    else:
        status, out = _run(_pytest(test, "-x"), root)
        if status == _TESTS_FAILED and not _failures(root):
            status, out = _run(_pytest(test), root)  # Tests behind the first error may yet begin.
        fate = {0: Fate.SURVIVED, _TESTS_FAILED: Fate.KILLED}.get(status, Fate.CRASHED)
        if fate is Fate.KILLED and not _failures(root):
            return Fate.CRASHED, f"{out}\nno test came so far as to fail"
    noticed = _NOTICED.search(out)
    if fate is Fate.KILLED and (broken := _BROKEN_SQL.search(f"{noticed and noticed[0]} {_failures(root)}")):
        return Fate.CRASHED, f"{out}\nthe SQL is broken: {broken[0]}"
    return fate, out


def ask_baseline(trial: Trial) -> str:
    """Run what has noticed a mutant on the tree as it is. Returns what failed; nothing when it is green."""
    seed = re.search(r"^seed (\d+): broken", trial.words)
    with tempfile.TemporaryDirectory() as folder:
        simulation = [sys.executable, "-m", "tests.simulation", "--seed", seed[1]] if seed else []
        status, out = _run(simulation or _pytest(trial.mutant.killed_by), _copy(Path(folder)))
    noticed = _NOTICED.search(out)
    return "" if status == 0 else noticed[0] if noticed else f"exit status {status}"


class Memory:
    """Verdicts on the tree as it is: mutants that were killed, and tests that are green without any."""

    def __init__(self, file: Path = MEMORY) -> None:
        self._file = file
        self._tree = _digest_of_tree()
        lines = file.read_text().splitlines() if file.exists() else []
        self._known = {key: words for key, _, words in (line.partition(" ") for line in lines)}

    def recall(self, about: object) -> str | None:
        """Return the words that were kept about this, if any were."""
        return self._known.get(self._key(about))

    def keep(self, about: object, words: str) -> None:
        """Keep the last line of these words."""
        self._known[self._key(about)] = last = words.rpartition("\n")[2]
        with self._file.open("a") as file:
            file.write(f"{self._key(about)} {last}\n")

    def _key(self, about: object) -> str:
        return hashlib.sha256(_RULES + self._tree + repr(about).encode()).hexdigest()


def _digest_of_tree() -> bytes:
    """Sum up everything that a trial copies, but the bank itself: another mutant changes nothing for the others."""
    digest = hashlib.sha256()
    for name in _COPIED:
        for path in sorted([ROOT / name, *(ROOT / name).rglob("*.*")]):
            if path.is_file() and path.suffix != ".pyc" and path.parent != Path(__file__).parent:
                digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.digest()


def _copy(root: Path) -> Path:
    for name in _COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, root / name)
    return root


def _run(command: list[str], root: Path) -> tuple[int, str]:
    """Run a test to its end. After the time limit it is ended together with all it has started."""
    kept = {name: value for name, value in os.environ.items() if name != "TEST_TIMES"}  # Those are the caller's.
    paths = f"{root / 'src'}{os.pathsep}{root}"
    environment = {**kept, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "CI": ""}
    process = subprocess.Popen(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )  # fmt: skip
    try:
        out, _ = process.communicate(timeout=SECONDS_MAX)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGTERM)
        out, _ = process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        return _TIMED_OUT, f"{out}\nnot ended after {SECONDS_MAX:.0f} s"
    return process.returncode, out


def _pytest(name: str, *more: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={_REPORT}", *more, name]


def _failures(root: Path) -> str:
    """Return the messages of failed tests by pytest's own report, which keeps errors on the way to them apart."""
    report = root / _REPORT
    found = ET.parse(report).iterfind(".//failure") if report.exists() else ()
    return "\n".join(failure.get("message", "failed") for failure in found)
