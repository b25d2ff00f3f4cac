"""`duly drain`: empty a host, so that its processes can be stopped or replaced."""

from __future__ import annotations

import click

from duly.cli.client import with_client
from duly.cli.failures import REFUSED
from duly.cli.render.output import print_json
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.clock import SystemClock
from duly.domain.counting import few, some
from duly.domain.duration import parse
from duly.store.connection.local import this_host
from duly.wire.queues import HostDraining, HostProcess

_LOOK_SECONDS = 0.5


@click.command
@click.argument("host", required=False)
@click.option("--undo", is_flag=True, help="Let the host take work again.")
@click.option(
    "--wait", metavar="DURATION", default="PT5M", help="How long to wait until nothing is held; default: PT5M."
)
@with_client()
async def drain(client: AsyncClient, host: str | None, undo: bool, wait: str, as_json: bool) -> int:
    """Drain HOST, or this machine: its workers and schedulers take nothing new, and hand back what they have not started.

    It ends with 0 when nothing is held there any more, and with 1 when something is after `--wait`. Processes that start
    on the host take nothing either, until `--undo`.
    """
    host, clock = host or this_host(), SystemClock()
    deadline = clock.monotonic() + parse(wait, "--wait").total_seconds()
    found = await (client.hosts.resume(host) if undo else client.hosts.drain(host))
    while not undo and not found.is_empty and clock.monotonic() < deadline:
        await clock.sleep(_LOOK_SECONDS)
        found = await client.hosts.drain(host)
    if as_json:
        print_json(found)
    else:
        say(_words(found, undo=undo))
    return 0 if undo or found.is_empty else REFUSED


def _words(found: HostDraining, *, undo: bool) -> str:
    if undo:
        return f"host {found.host} takes work again"
    names = few([f"{one.role} {one.name}" for one in found.processes]) or "no process"
    if found.is_empty:
        return f"host {found.host} is empty: {names}. To undo: duly drain {found.host} --undo"
    return f"host {found.host} still holds {few([_held(one) for one in found.processes if one.held])}"


def _held(process: HostProcess) -> str:
    unit = "run" if process.role == "worker" else "shard"
    return f"{some(process.held, unit)} ({process.role} {process.name})"
