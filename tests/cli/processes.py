"""Real `duly` processes, each wait with a deadline."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from litestar import Litestar

from duly.api.app import create_for_one
from duly.api.dispatch import Dispatcher
from duly.cli.main import call
from duly.log import Log
from tests.api.application import Place

DULY = (sys.executable, "-m", "duly")
PATIENCE_SECONDS = 60.0  # A process of ours may take ten to start, where many do at once.
Finished = subprocess.CompletedProcess[str]


def environment(**more: str) -> dict[str, str]:
    """Our environment without any setting of Duly but `more`."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DULY_")} | more


def duly(*arguments: str, cwd: Path, stdin: str = "", timeout: float = 30, **more: str) -> Finished:
    """Run one command to its end."""
    return subprocess.run(
        [*DULY, *arguments],
        cwd=cwd,
        input=stdin,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=timeout,
    )


class SharedApplication:
    """The application of commands in this process: building it takes most of the time of a command, so it is built once."""

    def __init__(self) -> None:
        self._dispatcher = Place()
        self._built: Litestar | None = None

    def over(self, dispatcher: Dispatcher, log: Log) -> Litestar:
        """Return the application over this dispatcher, until it is asked for over another."""
        self._dispatcher.now = dispatcher
        if self._built is None:
            self._built = create_for_one(cast("Dispatcher", self._dispatcher), log)
        return self._built


application = SharedApplication()


def inside(*arguments: str, cwd: Path, **more: str) -> Finished:
    """Run one command to its end in this process, ten times as fast; what it imports is forgotten."""
    modules, paths, folder = set(sys.modules), list(sys.path), Path.cwd()
    with (
        redirect_stdout(io.StringIO()) as stdout,
        redirect_stderr(io.StringIO()) as stderr,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in os.environ.keys() - environment().keys():
            patch.delenv(name)
        for name, value in more.items():
            patch.setenv(name, value)
        patch.setattr("duly.cli.in_process.create_for_one", application.over)
        os.chdir(cwd)
        try:
            code = call(arguments)
        finally:
            os.chdir(folder)
            sys.path[:] = paths
            for name in sys.modules.keys() - modules:
                if Path(getattr(sys.modules[name], "__file__", None) or "/").parent == cwd:
                    del sys.modules[name]
    return subprocess.CompletedProcess(arguments, code, stdout.getvalue(), stderr.getvalue())


def wait_for(condition: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
    """Wait until `condition` gives something, and give that."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
    return found


class Process:
    """A `duly` that keeps running, and what it has said."""

    def __init__(self, *arguments: str, cwd: Path, under: Sequence[str] = (), **more: str) -> None:
        self.process = subprocess.Popen(
            [*under, *DULY, *arguments], cwd=cwd, env=environment(**more), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def text(self) -> str:
        """Everything it has said."""
        return "\n".join(self.lines)

    def wait_for_line(self, words: str, seconds: float = PATIENCE_SECONDS) -> str:
        """Wait until it says a line with these words in it."""

        def look() -> str | None:
            line = next((line for line in self.lines if words in line), None)
            assert line or self.process.poll() is None or self._reading.is_alive(), (
                f"it ended without {words!r}:\n{self.text}"
            )
            return line

        try:
            return str(wait_for(look, seconds))
        except AssertionError:
            raise AssertionError(f"no line with {words!r}:\n{self.text}") from None

    def family(self) -> list[psutil.Process]:
        """Every process below it, and itself."""
        this = psutil.Process(self.process.pid)
        return [this, *this.children(recursive=True)]

    def interrupt(self, number: int = signal.SIGINT) -> float:
        """Ask it to end; gives the seconds it took."""
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(20)
        return time.monotonic() - began

    def close(self) -> None:
        """End it and everything below it, whatever state it is in."""
        if self.process.poll() is None:
            family = self.family()
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                for member in family:
                    member.kill()
        self._reading.join(5)
        assert self.process.stdout
        self.process.stdout.close()


@contextmanager
def running(*arguments: str, cwd: Path, under: Sequence[str] = (), **more: str) -> Iterator[Process]:
    """Run a `duly` for as long as the `with` lasts, by itself or under a program that becomes it."""
    process = Process(*arguments, cwd=cwd, under=under, **more)
    try:
        yield process
    finally:
        process.close()


class Up:
    """A `duly up` that is ready."""

    def __init__(self, process: Process, folder: Path) -> None:
        self.process = process
        self.folder = folder
        process.wait_for_line("ready in")
        self.address = process.wait_for_line("/readyz").split()[1]

    def asking(self, path: str) -> urllib.request.Request:
        """Give a request that carries the key of its folder."""
        key = (self.folder / ".duly" / "api-key").read_text().strip()
        return urllib.request.Request(self.address + path, headers={"Authorization": f"Bearer {key}"})

    def duly(self, *arguments: str) -> Finished:
        """Run one command beside it."""
        return inside(*arguments, cwd=self.folder)


def dies(process: psutil.Process) -> bool:
    """Say whether a process is gone, or only waits to be buried."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
