"""The packages of the peers, in folders of their own below `build/peers`, from lock files with hashes.

An installation is kept until its lock file changes. Duly's own environment is left as it is.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.lock"
NODE_FILES = (HERE / "package.json", HERE / "package-lock.json")
_STAMP = "installed"


class InstallFailed(Exception):
    """The packages of a peer could not be installed."""


def python_packages(folder: Path) -> Path:
    """Install the peers of PyPI. Returns the Python that has them."""
    python = folder / "bin" / "python"
    if not _is_current(folder, [REQUIREMENTS]):
        _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        _run([*pip, "--require-hashes", "-r", str(REQUIREMENTS)])
        _stamp(folder, [REQUIREMENTS])
    return python


def node_packages(folder: Path) -> Path:
    """Install the peers of npm. Returns the folder from which Node finds them."""
    if not _is_current(folder, NODE_FILES):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in NODE_FILES:
            shutil.copy(file, folder)
        _run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", "--prefix", str(folder)])
        _stamp(folder, NODE_FILES)
    return folder


def missing_for_node() -> list[str]:
    """Return which programs are missing for the peers of npm."""
    return [program for program in ("node", "npm") if shutil.which(program) is None]


def python_version(python: Path, package: str) -> str:
    """Return the version of an installed package of PyPI."""
    question = f"from importlib.metadata import version; print(version({package!r}))"
    return _run([str(python), "-c", question]).strip()


def node_version(folder: Path, package: str) -> str:
    """Return the version of an installed package of npm."""
    described = json.loads((folder / "node_modules" / package / "package.json").read_text(encoding="utf-8"))
    return str(described["version"])


def _is_current(folder: Path, files: Sequence[Path]) -> bool:
    stamp = folder / _STAMP
    return stamp.exists() and stamp.read_text(encoding="utf-8") == _fingerprint(files)


def _stamp(folder: Path, files: Sequence[Path]) -> None:
    (folder / _STAMP).write_text(_fingerprint(files), encoding="utf-8")


def _fingerprint(files: Sequence[Path]) -> str:
    content = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(sys.version.encode() + content).hexdigest()


def _run(command: Sequence[str]) -> str:
    """Run a program to its end and return what it writes. Raises InstallFailed."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise InstallFailed(f"{' '.join(command)} failed:\n{(done.stderr or done.stdout).strip()}")
    return done.stdout
