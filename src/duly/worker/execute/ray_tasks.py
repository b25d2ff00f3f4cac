"""Attempts on a Ray cluster, from the worker's side: each is a child of the process pool on another machine.

The worker loads nothing of Ray. A driver process does, `ray_driver.py`: Ray ends a process that has lost its cluster, and
everything that a driver has started ends with it. It gets one socket per attempt, and passes the lines of `child.py` between
the worker and the attempt's task, `ray_task.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import msgspec

from duly.domain.runs.outcome import Failed, Lost
from duly.domain.runs.run import Run
from duly.log import Log
from duly.worker.execute.child import READY, ChildMessage, Done
from duly.worker.execute.child_processes import Unloadable
from duly.worker.execute.process_pool import OnMessage

CANCEL = b"cancel\n"
CONNECTING_SECONDS_MAX = 60.0
# No longer, because a run that no node can ever have would take a slot for ever; an autoscaler adds a node sooner.
UNPLACEABLE_SECONDS_MAX = 300.0
LINE_BYTES_MAX = 4_194_304
_NO_WORDS = "the Ray driver of the worker ended; its cluster may be gone"


class NoCluster(Exception):
    """The Ray cluster does not answer, or has not taken the attempt: nothing was started."""


class Placement(msgspec.Struct):
    """An attempt to be placed, as the driver is told of it."""

    run_id: UUID
    handler: str
    resources: dict[str, Any]
    app_path: str
    safe_until: float  # on the monotonic clock that both processes share: until then nobody else may have the run
    unplaceable_seconds_max: float


class RayChild:
    """An attempt's task on the cluster, at the other end of a socket to the driver."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def stop(self) -> None:
        """Ask the task to stop."""
        if not self.writer.is_closing():
            self.writer.write(CANCEL)

    def close(self) -> None:
        """Hang up: the driver kills the task."""
        self.writer.close()

    async def lost(self) -> Lost:
        """Return the outcome of an attempt whose driver has ended; of all other losses the driver reports."""
        return Lost(cause=_NO_WORDS)


class RayTasks:
    """Places attempts on the cluster, through a driver that is started with the first of them."""

    def __init__(
        self,
        resources: Mapping[str, Mapping[str, Any]],
        *,
        address: str,
        namespace: str,
        app_path: str,
        safe_until: Callable[[], float],
        log: Log,
    ) -> None:
        self._resources = resources  # by the handler's names
        self._address = address
        self._namespace = namespace
        self._app_path = app_path
        self._safe_until = safe_until
        self._log = log
        self._driver: asyncio.Future[_Driver] | None = None

    async def take(self, run: Run, on_message: OnMessage) -> RayChild:
        """Wait until the cluster has a place for a run. What no node has, its log says.

        Raises Unloadable, and NoCluster while there is no cluster.
        """
        driver = await self._connected()
        child = await driver.open()
        try:
            child.writer.write(msgspec.json.encode(self._placement(run)) + b"\n")
            return await self._placed(run, child, on_message)
        except BaseException:
            child.close()
            raise

    def offer(self, child: Any) -> None:
        """End a task that has nothing to do: its name and its resources are those of one run."""
        child.close()

    def close(self) -> None:
        """End the driver, and with it every task."""
        driving, self._driver = self._driver, None
        if driving is None:
            return
        if not driving.done():
            driving.cancel()
        elif not driving.cancelled() and driving.exception() is None:
            driving.result().end()

    async def _placed(self, run: Run, child: RayChild, on_message: OnMessage) -> RayChild:
        while line := await child.reader.readline():
            if line == READY:
                return child
            if line.startswith(b'{"kind"'):
                said = msgspec.json.decode(line, type=ChildMessage)
                self._log.warning("ray_task_waits", **run.ids, reason=said.text)
                on_message(run, said)
            elif line.startswith(b'"'):
                raise NoCluster(msgspec.json.decode(line))
            else:
                done = msgspec.json.decode(line, type=Done)
                assert isinstance(done.outcome, Failed), done
                raise Unloadable(done.outcome)
        raise NoCluster(_NO_WORDS)

    def _placement(self, run: Run) -> Placement:
        resources = dict(self._resources[run.handler])
        moments = self._safe_until(), UNPLACEABLE_SECONDS_MAX
        return Placement(run.run_id, run.handler, resources, self._app_path, *moments)

    async def _connected(self) -> _Driver:
        """Return the driver, a new one if the last has ended. Raises NoCluster."""
        if self._driver is None or (self._driver.done() and not _is_alive(self._driver)):
            self._driver = asyncio.ensure_future(_start(self._address, self._namespace))
        return await asyncio.shield(self._driver)


class _Driver:
    """The driver process, and the socket over which it is given others."""

    def __init__(self, process: Process, control: socket.socket) -> None:
        self.process = process
        self._control = control

    async def open(self) -> RayChild:
        """Give the driver one end of a new socket, and return the other."""
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._control, [b"\n"], [theirs.fileno()])
        except OSError as error:
            ours.close()
            raise NoCluster(f"{_NO_WORDS}: {error}") from None
        finally:
            theirs.close()
        return RayChild(*await asyncio.open_connection(sock=ours, limit=LINE_BYTES_MAX))

    def end(self) -> None:
        """End it."""
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


async def _start(address: str, namespace: str) -> _Driver:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "duly.worker.execute.ray_driver", str(theirs.fileno()), address, namespace),
            pass_fds=(theirs.fileno(),),
            stdin=DEVNULL,
            stdout=DEVNULL,  # Ray reports there about its nodes
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    driver = _Driver(process, ours)
    try:
        async with asyncio.timeout(CONNECTING_SECONDS_MAX):
            said = await asyncio.get_running_loop().sock_recv(ours, LINE_BYTES_MAX)
    except BaseException as error:
        driver.end()
        if isinstance(error, TimeoutError):
            raise NoCluster(f"the Ray cluster at {address} did not answer in {CONNECTING_SECONDS_MAX:g} s") from None
        raise
    if said != READY:
        driver.end()
        raise NoCluster(msgspec.json.decode(said) if said else _NO_WORDS)
    return driver


def _is_alive(driving: asyncio.Future[_Driver]) -> bool:
    if driving.cancelled() or driving.exception() is not None:
        return False
    return driving.result().process.returncode is None
