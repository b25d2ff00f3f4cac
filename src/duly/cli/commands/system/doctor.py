"""`duly doctor`: findings about this installation, and their remedies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import click

from duly.cli.client import connected, is_remote
from duly.cli.connect import opened, replica_of
from duly.cli.failures import REFUSED
from duly.cli.flags.settings import with_settings
from duly.cli.render.output import json_option, print_json
from duly.cli.render.say import say, visible
from duly.clock import host_now
from duly.domain.diagnosis.doctor import Finding, findings, is_well
from duly.settings import Settings
from duly.store.connection.session import Sessions
from duly.store.reads import system

_STATEMENT = timedelta(seconds=2)
_COLOURS = {"error": "red", "warning": "yellow", "notice": "cyan"}


@click.command
@json_option
@with_settings("url")
def doctor(settings: Settings, as_json: bool) -> int:
    """Report what is wrong, the gravest first, and what to do about it. Exits with 1 when something needs a person.

    It checks staging and reaping, indexes, partitions, vacuum, the server's settings, replicas, clocks and versions,
    and changes nothing.
    """
    found = asyncio.run(_findings(settings))
    if as_json:
        print_json(found)
    else:
        _print_findings(found)
    return 0 if is_well(found) else REFUSED


async def _findings(settings: Settings) -> list[Finding]:
    if is_remote(settings):
        async with connected(settings) as client:
            listed = (await client.system()).findings
            return [Finding(one.code, one.severity, one.message, one.remedy) for one in listed]
    async with (
        opened(settings) as database,
        replica_of(database, settings) as replica,
        Sessions(database, size_max=1) as sessions,
        sessions.look(timeout=_STATEMENT) as session,
    ):
        return [*findings(await system.read(session, host_now, replica)), *_of_commands(settings)]


def _of_commands(settings: Settings) -> list[Finding]:
    """Return whether commands that may be run here are limited as a whole, as seen from this process."""
    from duly.cli.up.programs import limits_in_words
    from duly.worker.targets import cgroup

    ground = cgroup.look()
    if not settings.commands or ground.missing is None:
        return []
    remedy = "give the worker a control group of its own, or let commands that need it be containers"
    message = f"limits of commands: {limits_in_words(ground)}; {ground.missing}"
    return [Finding("commands_not_grouped", "notice", message, remedy)]


def _print_findings(found: Sequence[Finding]) -> None:
    for one in found:
        severity = click.style(f"{one.severity:8}", _COLOURS[one.severity])
        click.echo(f"{severity} {one.code}: {visible(one.message)}")
        say(f"{'':8} {one.remedy}")
    if not found:
        say("nothing is wrong")
