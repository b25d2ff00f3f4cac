"""Ask for known vulnerabilities of every locked package: pip-audit about the Python locks, npm about the dashboard's.

Exit code 0: all packages were asked about, and nothing is known. 1: something is known. 2: nothing is known, but something could
not be asked. Both tools can end well without an answer, so a package counts as asked only if the answer names it.
Usage: audit.py PIP_AUDIT
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
NOTHING_FOUND, FOUND, NOT_ASKED = 0, 1, 2
# Packages of other platforms are asked about, too.
_MARKER = re.compile(r" ; .*? \\$", re.MULTILINE)
_LOCKED = re.compile(r"^([\w.-]+)==([^\s;]+)", re.MULTILINE)
_NAMES_SHOWN_MAX = 5


class Answer(NamedTuple):
    """The report of one tool."""

    asked: int  # packages
    found: list[str]
    not_asked: list[str]


def main(pip_audit: str) -> int:
    """Ask both tools, print what they say, and return the exit code."""
    answers = {
        "Python": ask_pip_audit(pip_audit, sorted(ROOT.glob("requirements*.lock"))),
        "dashboard": ask_npm(ROOT / "ui"),
    }
    for name, answer in answers.items():
        for line in answer.found:
            print(f"{name}: vulnerable: {line}")
        for line in answer.not_asked:
            print(f"{name}: not asked: {line}")
        print(f"{name}: asked about {answer.asked} packages, {len(answer.found)} known vulnerabilities")
    return verdict(list(answers.values()))


def verdict(answers: list[Answer]) -> int:
    """Return the exit code for these answers."""
    if any(answer.found for answer in answers):
        return FOUND
    return NOT_ASKED if any(answer.not_asked or not answer.asked for answer in answers) else NOTHING_FOUND


def ask_pip_audit(program: str, locks: list[Path]) -> Answer:
    """Ask about the packages of these locks."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--disable-pip", "--require-hashes", "--progress-spinner=off", "--format=json"]
        for lock in locks:
            copy = Path(folder) / lock.name
            copy.write_text(_MARKER.sub(r" \\", lock.read_text(encoding="utf-8")), encoding="utf-8")
            arguments += ["--requirement", str(copy)]
        said, reason = ask([program, *arguments], ROOT)
    locked = {package for lock in locks for package in _LOCKED.findall(lock.read_text(encoding="utf-8"))}
    return of_pip_audit(said, locked) if "dependencies" in said else Answer(0, [], [reason])


def ask_npm(folder: Path) -> Answer:
    """Ask about the packages of a `package-lock.json`, those that only build the dashboard too."""
    # Where npm is set to be offline, or to leave packages out, it would report that nothing is known of them.
    all_of_them = ["--offline=false", "--include=dev", "--include=optional", "--include=peer"]
    said, reason = ask(["npm", "audit", "--package-lock-only", "--json", *all_of_them], folder)
    return of_npm(said) if "vulnerabilities" in said else Answer(0, [], [said.get("message") or reason])


def ask(command: list[str], folder: Path) -> tuple[dict[str, Any], str]:
    """Return the JSON that a command prints, or nothing and the reason."""
    try:
        done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, encoding="utf-8")
    except OSError as error:
        return {}, f"{command[0]} does not start: {error.strerror}"
    reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
    try:
        return json.loads(done.stdout), reason
    except ValueError:
        return {}, f"{Path(command[0]).name}: {reason}"


def of_pip_audit(said: dict[str, Any], locked: set[tuple[str, str]]) -> Answer:
    """Read an answer of pip-audit about the packages `locked`, each a name and a version."""
    known = {
        (package["name"], package["version"]): package["vulns"]
        for package in said["dependencies"]
        if "vulns" in package
    }
    found = [
        f"{name} {version}: {vulnerability['id']}, fixed in {', '.join(vulnerability['fix_versions']) or 'no version'}"
        for (name, version), vulnerabilities in sorted(known.items())
        for vulnerability in vulnerabilities
    ]
    if not (missing := sorted(locked - known.keys())):
        return Answer(len(known), found, [])
    names = ", ".join(name for name, _ in missing[:_NAMES_SHOWN_MAX])
    more = f" and {len(missing) - _NAMES_SHOWN_MAX} more" if len(missing) > _NAMES_SHOWN_MAX else ""
    reason = next(
        (package["skip_reason"] for package in said["dependencies"] if "skip_reason" in package), "no reason given"
    )
    return Answer(len(known), found, [f"{names}{more}: {reason}"])


def of_npm(said: dict[str, Any]) -> Answer:
    """Read an answer of `npm audit`."""
    found = [f"{name} {package['range']}: {package['severity']}" for name, package in said["vulnerabilities"].items()]
    return Answer(said["metadata"]["dependencies"]["total"], sorted(found), [])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
