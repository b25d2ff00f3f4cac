"""Helpers of tests of programs: a run's context that remembers its lines, an attempt, and who is left behind."""

import asyncio
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from duly.domain.runs.options import RunPolicy
from duly.domain.runs.outcome import Outcome
from duly.domain.runs.run import Run
from duly.domain.targets.target import Command, Container, handler_of
from duly.worker.context import RunContext
from duly.worker.execute.attempt import attempt_target
from duly.worker.slots import Kind
from duly.worker.targets import TargetHandler
from duly.worker.targets.command import Commands
from duly.worker.targets.sandbox import Ceiling, find_sandbox
from tests.worker.stories import a_run

SHELL = "/bin/sh"
PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin") or "/usr/bin/python3"
GRACE_SECONDS = 0.5
CEILING = Ceiling(memory_bytes=512 * 1_048_576, processes=64)
needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs the Debian package bubblewrap")
with_and_without_sandbox = pytest.mark.parametrize(
    "required", [pytest.param(True, marks=needs_bubblewrap, id="sandbox"), pytest.param(False, id="none")]
)

_marks = count(1)


class Lines:
    """A desk that remembers what was logged."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, Any]] = []

    def log(self, run: Run, level: str, message: str, fields: dict[str, Any]) -> None:
        """Keep a line."""
        self.lines.append((level, message, fields.get("stream")))

    def of(self, stream: str) -> list[str]:
        """Give what was said on a stream."""
        return [message for _, message, of in self.lines if of == stream]

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a program has no {name}")


def commands(
    *,
    required: bool = True,
    allowed: Sequence[str] = (SHELL, PYTHON),
    ceiling: Ceiling = CEILING,
    network: bool = False,
    hidden: Sequence[Path] = (),
    paths: Sequence[Path] = (),
    grace_seconds: float = GRACE_SECONDS,
    variables: Sequence[str] = (),
) -> Commands:
    """Allow a shell and Python, unless told otherwise."""
    sandbox = find_sandbox(required=required, user=None, paths=paths, hidden=hidden)
    return Commands(sandbox, dict.fromkeys(allowed, variables), ceiling, network=network, grace_seconds=grace_seconds)


def sh(script: str, *arguments: str, **more: Any) -> Command:
    """Run a script."""
    return Command((SHELL, "-c", script, "sh", *arguments), **more)


def python(script: str, *arguments: str, **more: Any) -> Command:
    """Run a script of Python."""
    return Command((PYTHON, "-I", "-S", "-c", script, *arguments), **more)


class Attempt:
    """One attempt under way."""

    def __init__(
        self,
        runner: Any,
        target: Command | Container,
        *,
        payload: str | None = None,
        timeout: float | None = None,
        fence: int = 1,
    ) -> None:
        self.lines = Lines()
        policy = RunPolicy(target=target, timeout_seconds=timeout)
        self.run = a_run(handler_of(target), payload=payload, policy=policy, fence=fence)
        self.context = RunContext(self.run, self.lines)
        handler = TargetHandler(self.run.handler, Kind.PROCESS, runner.attempt)
        self.task = asyncio.create_task(attempt_target(handler, self.context, self.run))

    def cancel(self) -> None:
        """Ask for its end, as somebody may."""
        self.context.mark_cancelled()
        self.task.cancel()

    def interrupt(self) -> None:
        """End it because the worker ends."""
        self.task.cancel()

    async def outcome(self, seconds: float = 60.0) -> Outcome:
        """Wait for what it comes to. A deadline that cancelled it would help it to end."""
        await asyncio.wait({self.task}, timeout=seconds)
        assert self.task.done(), f"waited {seconds} s in vain"
        outcome = self.task.result()
        assert isinstance(outcome, Outcome)
        return outcome


async def attempt(runner: Any, target: Command | Container, **more: Any) -> tuple[Outcome, Lines]:
    """Run a target to its end."""
    one = Attempt(runner, target, **more)
    return await one.outcome(), one.lines


def a_mark() -> str:
    """Give a number of seconds to sleep that nobody else sleeps: it names the processes of one story."""
    return f"{10_000_000 + os.getpid() * 100 + next(_marks)}"


def marked(mark: str) -> list[int]:
    """Find the living processes with a mark among their arguments."""
    return [pid for pid, line in command_lines().items() if mark in line.split("\0")]


def command_lines() -> dict[int, str]:
    """Read the command lines of everyone who lives."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                found[int(folder.name)] = (folder / "cmdline").read_text(errors="replace")
    return found


@contextmanager
def a_folder_for_all() -> Iterator[Path]:
    """Make a folder that every user may enter."""
    folder = Path("/var/tmp") / f"duly-{os.getpid()}-{next(_marks)}"
    folder.mkdir(mode=0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
