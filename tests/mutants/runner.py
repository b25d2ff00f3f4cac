"""Apply one mutant to a copy of the tree and see whether its test notices."""

from __future__ import annotations

import os
import re
import shutil
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
_COPIED = ("src", "tests", "pyproject.toml")
_TESTS_FAILED = 1


class Fate(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "SURVIVED"
    CRASHED = "CRASHED"  # Nothing ran at all, so nothing was shown.


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
        done = subprocess.run(
            _command(mutant, seeds), cwd=root, env=_environment(root), capture_output=True, text=True, check=False
        )
    killing = BROKEN if mutant.killed_by == SIMULATION else _TESTS_FAILED
    fate = {0: Fate.SURVIVED, killing: Fate.KILLED}.get(done.returncode, Fate.CRASHED)
    return Trial(mutant, fate, time.monotonic() - begun, _words(fate, done.stdout, done.stderr))


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


def _words(fate: Fate, out: str, err: str) -> str:
    """Give the line that says what was noticed, or, where nothing was, the end of what was said."""
    noticed = re.search(r"^(?:seed \d+: broken: .*|FAILED .*|ERROR .*)$", out, re.MULTILINE)
    if fate is Fate.KILLED and noticed:
        return noticed[0].split(" (")[0][:160]
    return "\n".join((out + err).splitlines()[-10:])
