"""Apply one mutant to a copy of the tree and see whether its test notices.

A verdict holds until a line of the engine or of its tests changes, so a programme that was cut short goes on where it was.
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

import msgspec

from tests.mutants.bank import SIMULATION, Mutant
from tests.simulation.__main__ import BROKEN

ROOT = Path(__file__).parents[2]
SEEDS_MAX = 300
MEMORY = ROOT / ".venv" / "mutants"
SECONDS_MAX = 1800.0
_COPIED = ("src", "tests", "pyproject.toml")
_TESTS_FAILED = 1
_TIMED_OUT = -1


class Fate(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    CRASHED = "CRASHED"  # Nothing ran to its end, so nothing was shown.


class Trial(msgspec.Struct, frozen=True):
    """A mutant, its fate, how long it lived and the last words of its test."""

    mutant: Mutant
    fate: Fate
    seconds: float
    words: str


def try_mutant(mutant: Mutant, seeds: int = SEEDS_MAX) -> Trial:
    """Break a copy of the engine and run what must notice."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        copy_tree(root)
        mutant.apply(root)
        status, out = _run(_command(mutant, seeds), root)
    killing = BROKEN if mutant.killed_by == SIMULATION else _TESTS_FAILED
    fate = {0: Fate.SURVIVED, killing: Fate.KILLED}.get(status, Fate.CRASHED)
    return Trial(mutant, fate, time.monotonic() - begun, _words(fate, out))


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
    """Which mutants have been killed on the tree as it stands."""

    def __init__(self, file: Path = MEMORY) -> None:
        self._file = file
        self._tree = _digest_of_tree()
        lines = file.read_text().splitlines() if file.exists() else []
        self._known = {key: words for key, _, words in (line.partition(" ") for line in lines)}

    def recall(self, mutant: Mutant) -> str | None:
        """Give the last words of the test that has noticed this mutant, if one has."""
        return self._known.get(self._key(mutant))

    def keep(self, trial: Trial) -> None:
        """Remember a mutant that was killed."""
        if trial.fate is Fate.KILLED:
            with self._file.open("a") as file:
                file.write(f"{self._key(trial.mutant)} {trial.words.splitlines()[-1]}\n")

    def _key(self, mutant: Mutant) -> str:
        return hashlib.sha256(self._tree + repr(mutant).encode()).hexdigest()


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


def _command(mutant: Mutant, seeds: int) -> list[str]:
    if mutant.killed_by == SIMULATION:
        return [sys.executable, "-m", "tests.simulation", "--seeds", str(seeds), "--stop"]
    return [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", mutant.killed_by]


def _environment(root: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}", "PYTHONDONTWRITEBYTECODE": "1", "CI": ""}


def _words(fate: Fate, out: str) -> str:
    """Give the line that says what was noticed, or, where nothing was, the end of what was said."""
    noticed = re.search(r"^(?:seed \d+: broken: .*|FAILED .*|ERROR .*)$", out, re.MULTILINE)
    if fate is Fate.KILLED and noticed:
        return noticed[0].split(" (")[0][:160]
    return "\n".join(out.splitlines()[-10:])
