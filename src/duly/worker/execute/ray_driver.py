"""The Ray driver of a worker: a process that places attempts on a Ray cluster, and ends with the worker.

Run as `python -m duly.worker.execute.ray_driver FD ADDRESS NAMESPACE`.

It says READY over its socket when it is connected, or why it is not. Then it is given a socket for each attempt: a `Placement`
comes in, and READY goes out when the cluster has a place; from there on lines pass both ways. When the worker hangs up, the
attempt is killed; when this process ends, Ray kills all that it has started.

An attempt is an actor that is named after its run. If the name is taken, an attempt of an earlier fence is left: it is
killed first, as long as the worker's lease certainly stands, so two attempts of a run are never on the cluster at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import msgspec
import ray
from ray.exceptions import (
    ActorAlreadyExistsError,
    ActorDiedError,
    ActorUnavailableError,
    RayError,
    RuntimeEnvSetupError,
)

from duly.domain.runs.outcome import Failed, Lost, Outcome
from duly.domain.runs.payload import storable
from duly.worker.execute.child import READY, ChildMessage, Done
from duly.worker.execute.ray_task import RayTask
from duly.worker.execute.ray_tasks import CANCEL, NoCluster, Placement
from duly.worker.resources import needs

ANSWER_SECONDS_MAX = 10.0
_LINE_BYTES_MAX = 67_108_864  # of the worker: a task has the results of other nodes, too
_LOOK_SECONDS = 1.0
_FREED_SECONDS = 0.05
_THREADS = 4  # one each to send, receive and cancel, and one to spare
_REASON_CHARACTERS_MAX = 500
_Answer = TypeVar("_Answer")


class Driver:
    """The attempts of one worker."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._attempts: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()

    async def run(self) -> NoReturn:
        """Serve until the worker hangs up, and end the process."""
        self._control.setblocking(False)
        asyncio.get_running_loop().add_reader(self._control, self._accept)
        await self._ended.wait()
        os._exit(0)  # at once: Ray kills what is left, and a thread that waits for the cluster would keep us

    def _accept(self) -> None:
        said, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        if not said:
            self._ended.set()
        for descriptor in descriptors:
            attempt = asyncio.create_task(self._serve(socket.socket(fileno=descriptor)))
            self._attempts.add(attempt)
            attempt.add_done_callback(self._attempts.discard)

    async def _serve(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=_LINE_BYTES_MAX)
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        parts = [asyncio.create_task(_hear(reader, lines)), asyncio.create_task(_attempt(lines, writer))]
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for part in parts:
                part.cancel()
            results = await asyncio.gather(*parts, return_exceptions=True)
            writer.close()
        if any(isinstance(result, NoCluster) for result in results) and len(self._attempts) == 1:
            self._ended.set()  # the next driver connects anew


async def _hear(reader: asyncio.StreamReader, lines: asyncio.Queue[bytes]) -> None:
    """Queue the lines of the worker until it hangs up."""
    async for line in reader:
        lines.put_nowait(line)


async def _attempt(lines: asyncio.Queue[bytes], writer: asyncio.StreamWriter) -> None:
    """Place an attempt, and pass lines to and fro until it ends or is cancelled, which kills it."""
    placement = msgspec.json.decode(await lines.get(), type=Placement)
    actor: Any = None
    try:
        actor = await _create(placement)
        node = await _load(actor, placement, writer)
        if node is not None:
            await _relay(actor, node, lines, writer)
    except NoCluster as error:
        writer.write(msgspec.json.encode(str(error)) + b"\n")
        raise
    except (ValueError, TypeError) as error:
        _end(writer, Failed(f"Ray refuses resources= of handler {placement.handler}: {error}", retryable=False))
    finally:
        if actor is not None:
            asyncio.get_running_loop().run_in_executor(None, ray.kill, actor)  # it may wait for the cluster
        await writer.drain()


async def _create(placement: Placement) -> Any:
    """Create the actor of a run, when there is no other. Raises NoCluster, and ValueError or TypeError for its options."""
    while True:
        try:
            return await _answered(lambda: _created(placement))
        except ActorAlreadyExistsError:
            if time.monotonic() >= placement.safe_until:
                raise NoCluster("an earlier attempt of the run is still on the Ray cluster") from None
        await _answered(lambda: _kill(str(placement.run_id)))
        await asyncio.sleep(_FREED_SECONDS)


def _created(placement: Placement) -> Any:
    # Not detached: it ends with this process, wherever it runs. Ray tries nothing again: attempts are counted by us.
    return (
        ray.remote(RayTask)
        .options(
            name=str(placement.run_id),
            lifetime="non_detached",
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=_THREADS,
            **placement.resources,
        )
        .remote()
    )


def _kill(name: str) -> None:
    try:
        ray.kill(ray.get_actor(name))
    except ValueError:
        return  # it has ended meanwhile


async def _load(actor: Any, placement: Placement, writer: asyncio.StreamWriter) -> str | None:
    """Wait for a place, and let the app be loaded there. Returns the node; None: the reason was sent. Raises NoCluster."""
    loading = asyncio.ensure_future(_result(actor.load.remote(placement.app_path)))
    try:
        if (lacking := await _wait_for_place(loading, placement, writer)) is not None:
            _end(writer, Failed(lacking))
            return None
        node, failed = await loading
    except RayError as error:
        if not _is_of_run(error):
            raise NoCluster(f"its place on the Ray cluster was lost before it started: {_words(error)}") from None
        _end(writer, Failed(f"it could not be loaded on the Ray cluster: {_words(error)}"))
        return None
    finally:
        loading.cancel()
    writer.write(READY if failed is None else failed)
    return node if failed is None else None


async def _wait_for_place(
    loading: asyncio.Future[Any], placement: Placement, writer: asyncio.StreamWriter
) -> str | None:
    """Wait until the task has been loaded. Returns what no node has, once that has been so for too long."""
    lacking_since: float | None = None
    while not (await asyncio.wait({loading}, timeout=_LOOK_SECONDS))[0]:
        if (lacking := await _lacking(placement)) is None:
            lacking_since = None
        elif lacking_since is None:
            lacking_since = time.monotonic()
            writer.write(msgspec.json.encode(ChildMessage("log", level="warning", text=lacking)) + b"\n")
        elif time.monotonic() - lacking_since >= placement.unplaceable_seconds_max:
            return lacking
    return None


async def _lacking(placement: Placement) -> str | None:
    """Say that no node could have this attempt, even if nothing else ran there; None: one could, or it is unknown."""
    wanted = needs(placement.resources)
    try:
        nodes = [node["Resources"] for node in await _answered(ray.nodes) if node["Alive"]]
    except (NoCluster, RayError):
        return None
    if any(all(node.get(name, 0) >= number for name, number in wanted.items()) for node in nodes):
        return None
    listed = ", ".join(f"{name} {number:g}" for name, number in wanted.items())
    most = ", ".join(f"{name} {max((node.get(name, 0) for node in nodes), default=0):g}" for name in wanted)
    return (
        f"no node of the Ray cluster has {listed} (at most {most});"
        f" add one, or lower resources= of handler {placement.handler}"
    )


async def _relay(actor: Any, node: str, lines: asyncio.Queue[bytes], writer: asyncio.StreamWriter) -> None:
    """Pass lines both ways until the worker hangs up. If the task is lost first, its outcome is sent."""
    task = await lines.get()
    writer.write(
        READY
    )  # before the task is sent: should we die in between, it counts as started, and is not started again
    actor.send.remote(task)
    sending = asyncio.create_task(_send(actor, lines))
    rest = b""
    try:
        while said := await _result(actor.receive.remote()):
            whole, newline, rest = (rest + said).rpartition(b"\n")  # a line that is lost half way is not passed on
            writer.write(whole + newline)
            await writer.drain()
    except RayError as error:
        _end(writer, await _lost(error, node))
    finally:
        sending.cancel()


async def _send(actor: Any, lines: asyncio.Queue[bytes]) -> None:
    while line := await lines.get():
        if line == CANCEL:
            actor.cancel.remote()
        else:
            actor.send.remote(line)


async def _lost(error: RayError, node: str) -> Lost:
    """Return the outcome of a task that is gone: the run is to blame, unless its node is gone as well."""
    try:
        is_there = any(one["NodeID"] == node and one["Alive"] for one in await _answered(ray.nodes))
    except (NoCluster, RayError):
        return Lost(cause="the Ray cluster was lost while it ran this run")
    if not is_there or isinstance(error, ActorUnavailableError):
        return Lost(cause=f"Ray node {node[:12]} was lost while it ran this run")
    return Lost(named=True, cause=f"its process on Ray node {node[:12]} died: {_words(error)}")


def _is_of_run(error: RayError) -> bool:
    """Return whether a task that could not be loaded would fail likewise on another node."""
    if isinstance(error, RuntimeEnvSetupError):
        return True
    return isinstance(error, ActorDiedError) and "its node has died" not in str(error)  # Ray says it nowhere else


def _end(writer: asyncio.StreamWriter, outcome: Outcome) -> None:
    writer.write(msgspec.json.encode(Done(outcome, left_behind=True)) + b"\n")


def _words(error: RayError) -> str:
    return storable(" ".join(str(error).split()), _REASON_CHARACTERS_MAX)


async def _result(reference: Any) -> Any:
    return await reference


async def _answered(ask: Callable[[], _Answer]) -> _Answer:
    """Ask the cluster on a thread. Raises NoCluster when it does not answer: Ray itself would wait for a minute."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            return await asyncio.to_thread(ask)
    except ActorAlreadyExistsError:  # a RayError, and an answer
        raise
    except (TimeoutError, RayError, ConnectionError) as error:
        raise NoCluster(f"the Ray cluster does not answer: {str(error) or 'timed out'}") from None


def connect(address: str, namespace: str) -> None:
    """Connect to the cluster. Raises OSError, or what Ray raises."""
    host, _, port = address.rpartition(":")
    if port.isdigit():  # Ray would try for a minute, and then end the process
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS_MAX).close()
    ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level=logging.ERROR)


def main(descriptor: int, address: str, namespace: str) -> None:
    """Be the driver."""
    control = socket.socket(fileno=descriptor)
    try:
        connect(address, namespace)
    except Exception as error:  # noqa: BLE001 - whatever it is, the worker says it
        reason = f"no Ray cluster at {address}: {error}. Start one with `ray start --head`, or set ray_address"
        control.sendall(msgspec.json.encode(reason) + b"\n")
        return
    control.sendall(READY)
    asyncio.run(Driver(control).run())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
