"""The process of a run: started by a launcher, read to its end, and stopped with everything it started.

The launcher (`launch.py`) is between us and the program. Closing its connection kills the program's whole tree; so
does our death, because the kernel closes it for us.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from duly.worker.targets import launch as launcher
from duly.worker.targets.wires import Heard, Wires, listen

FILE_FD, STATUS_FD, FILTER_FD = launcher.FILE_FD, launcher.STATUS_FD, launcher.FILTER_FD
SCRATCH_FOLDERS = tuple(f"{launcher.SCRATCH}/{name}" for name in launcher.SCRATCH_FOLDERS)
_LAUNCHER = str(Path(launcher.__file__).resolve())
# Shells, sandboxes and container engines add this to the number of the signal that killed a program.
_SIGNALLED = 128
_ENDING_SECONDS = 30.0
_EMPTYING_SECONDS = 5.0


class Account(msgspec.Struct, frozen=True):
    """A user of this machine."""

    name: str
    uid: int
    gid: int


class Launch(msgspec.Struct, frozen=True):
    """The program to start, and how."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = {}
    account: Account | None = None  # None: our own
    file: bytes | None = None  # the content of FILE_FD
    seccomp: bytes | None = None  # and beside it, of FILTER_FD, which a sandbox reads
    scratch_bytes: int = 0  # the size of SCRATCH_FOLDERS, which a sandbox shows as its own
    is_wrapped: bool = False  # the exit status comes through a sandbox or a container engine
    reports_start: bool = False  # a sandbox reports on STATUS_FD whether it reached the program
    ends_tree: bool = True
    last: tuple[str, ...] = ()  # runs when all else is over, even when the worker has died
    group: Path | None = None  # the folder of its control group
    cpu_seconds: float | None = None  # of all its processes together, where it has a group

    @property
    def user(self) -> tuple[int, int]:
        """The ids of its account, negative when it is ours."""
        return (-1, -1) if self.account is None else (self.account.uid, self.account.gid)


class Used(msgspec.Struct, frozen=True):
    """The usage of all processes of a program together, by its control group; no peak: memory is not counted."""

    cpu_seconds: float
    memory_peak_bytes: int | None = None
    out_of_memory: bool = False


class Exit(msgspec.Struct, frozen=True):
    """The end of a program, if it was started at all, and its usage, if counted."""

    status: int  # after death by a signal, 128 and its number, as in a shell
    signal: str | None = None
    started: bool = True
    used: Used | None = None

    @property
    def words(self) -> str:
        """Describe it in words."""
        return f"exit status {self.status}" if self.signal is None else f"killed by {self.signal}"


class LauncherMessage(msgspec.Struct):
    """A line of the launcher, or one of a sandbox that it passes on."""

    status: int | None = None
    exit_code: int | None = msgspec.field(default=None, name="exit-code")
    used: Used | None = None


class Process:
    """One active program."""

    def __init__(self, launch: Launch, launcher: asyncio.subprocess.Process, wires: Wires, heard: Heard) -> None:
        self._launch = launch
        self._launcher = launcher
        self._socket = wires.socket
        self._socket.setblocking(False)
        self._ended = asyncio.create_task(self._until_ended())
        self._listening = [
            asyncio.create_task(listen(wires.stdout, "stdout", heard)),
            asyncio.create_task(listen(wires.stderr, "stderr", heard)),
        ]

    @classmethod
    async def start(cls, launch: Launch, stdin: bytes, heard: Heard) -> Process:
        """Start a program, and pass on its output."""
        wires = Wires(stdin, launch.environment, (launch.file, launch.seccomp), launch.user[0])
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-I", "-S", _LAUNCHER),
                *_orders(launch, wires),
                stdin=wires.stdin,
                stdout=wires.their_stdout,
                stderr=wires.their_stderr,
                env={},
                cwd="/",
                pass_fds=(wires.control, *wires.files),
                start_new_session=True,
            )
        except BaseException:
            wires.close_ours()
            raise
        finally:
            wires.close_theirs()
        return cls(launch, process, wires, heard)

    async def ended(self) -> Exit:
        """Wait until the program has ended and all its output was read."""
        ended = await asyncio.shield(self._ended)
        await asyncio.wait(self._listening, timeout=_EMPTYING_SECONDS)
        return ended

    async def stop(self, grace_seconds: float) -> None:
        """Ask the program to end, and kill it with everything it started after the grace period."""
        try:
            with contextlib.suppress(OSError):
                self._socket.send(b"end\n")
            await asyncio.wait({self._ended}, timeout=grace_seconds)
        finally:  # cancelled once more: there is no time left
            self.kill()
            await asyncio.wait({self._ended, *self._listening}, timeout=_ENDING_SECONDS)

    def kill(self) -> None:
        """Close the connection: the program and everything it started are killed. Does not wait for it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def abandon(self) -> None:
        """Kill it, and read to its end and no longer. Does not wait for it."""
        self.kill()
        self._ended.add_done_callback(lambda _: self.close())

    def close(self) -> None:
        """Stop reading."""
        for task in self._listening:
            task.cancel()

    async def _until_ended(self) -> Exit:
        """Read the launcher's lines, to the end."""
        reader, writer = await asyncio.open_connection(sock=self._socket)
        status, exit_code, used = None, None, None
        while line := await reader.readline():
            message = msgspec.json.decode(line, type=LauncherMessage)
            exit_code = message.exit_code if message.exit_code is not None else exit_code
            status = message.status if message.status is not None else status
            used = message.used or used
        writer.close()
        launcher_status = await self._launcher.wait()
        if status is not None:
            return msgspec.structs.replace(_exit_of(status, self._launch, exit_code), used=used)
        if launcher_status < 0:  # the launcher was killed, and with it the program
            return _killed_by(-launcher_status)
        return Exit(launcher_status, started=False)


async def run(launch: Launch, stdin: bytes, heard: Heard, grace_seconds: Callable[[], float]) -> Exit:
    """Run a program to its end. When cancelled, it is stopped with everything it started before this returns."""
    starting = asyncio.ensure_future(Process.start(launch, stdin, heard))
    try:
        process = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Should we be cancelled once more before it has started, nothing else would end it.
        starting.add_done_callback(_abandon)
        await asyncio.wait({starting})
        if _has_started(starting):
            await starting.result().stop(0.0)
        raise
    try:
        return await process.ended()
    except asyncio.CancelledError:
        await process.stop(grace_seconds())
        raise
    finally:
        process.close()


def _abandon(starting: asyncio.Future[Process]) -> None:
    if _has_started(starting):
        starting.result().abandon()


def _has_started(starting: asyncio.Future[Process]) -> bool:
    return not starting.cancelled() and starting.exception() is None


async def output_of(argv: tuple[str, ...], environment: Mapping[str, str], seconds: float) -> tuple[int, str]:
    """Run a program of ours to its end, and return its status and its output; -1 when it took too long."""
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=environment, cwd="/"
    )
    try:
        async with asyncio.timeout(seconds):
            output, errors = await process.communicate()
    except TimeoutError:
        return -1, f"{argv[0]} did not answer within {seconds:g} s"
    finally:
        if process.returncode is None:  # too late, or we are cancelled: its answer is not awaited
            process.kill()
    status = process.returncode or 0
    return status, (output if status == 0 else errors).decode(errors="replace").strip()


def _orders(launch: Launch, wires: Wires) -> list[str]:
    cpu = math.ceil(1_000 * (launch.cpu_seconds or 0))
    numbers = (
        *(wires.control, wires.variables, *wires.given),
        *(launch.scratch_bytes, *launch.user, int(launch.ends_tree), cpu, len(launch.last)),
    )
    return [*map(str, numbers), str(launch.group or ""), *launch.last, *launch.argv]


def _exit_of(status: int, launch: Launch, exit_code: int | None) -> Exit:
    if os.WIFSIGNALED(status):
        return _killed_by(os.WTERMSIG(status))
    code = os.waitstatus_to_exitcode(status)
    if launch.is_wrapped and 0 < code - _SIGNALLED < signal.SIGRTMIN:
        return _killed_by(code - _SIGNALLED)
    return Exit(code, started=exit_code is not None or not launch.reports_start)


def _killed_by(number: int) -> Exit:
    known = {each.value: each.name for each in signal.Signals}
    return Exit(_SIGNALLED + number, known.get(number, f"signal {number}"))
