"""`duly pause` and `duly resume`: the emergency stop of everything, a queue, a tenant, or a tenant's share of a queue."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from typing import Any

import click

from duly.cli.connect import opened
from duly.cli.options import with_settings
from duly.cli.output import json_option, moment, print_json
from duly.domain.hold import EVERYTHING, Hold, Scope
from duly.moves.hold import Change, HoldAnswer, hold, lift
from duly.settings import Settings
from duly.store.database import Database

HELD_BY = "the command line"
REASON = "paused on request"

reason_option = click.option("--reason", default=REASON, show_default=True, help="Why, for whoever looks at it.")


def scope_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --all, --queue and --tenant to a command that takes `scope`."""

    @wraps(function)
    def call(*, everything: bool, queue: str | None, tenant: int | None, **given: Any) -> Any:
        if everything == (queue is not None or tenant is not None):
            raise click.UsageError("say what: --all, or --queue NAME, --tenant NUMBER, or both of these")
        return function(scope=Scope(tenant, queue), **given)

    tenant = click.option("--tenant", metavar="NUMBER", type=click.IntRange(1, 2**31 - 1), help="One tenant.")
    queue = click.option("--queue", metavar="NAME", help="One queue; with --tenant, that tenant's share of it.")
    return click.option("--all", "everything", is_flag=True, help="Everything.")(queue(tenant(call)))


@click.command
@scope_options
@reason_option
@json_option
@with_settings()
def pause(settings: Settings, scope: Scope, reason: str, as_json: bool) -> None:
    """Let nothing new start, within a second, of everything, a queue or a tenant.

    What waits is kept, and what runs may end. Schedules go on: what falls due waits with the rest.
    """
    pause_scope(settings, scope, reason, as_json=as_json)


@click.command
@scope_options
@json_option
@with_settings()
def resume(settings: Settings, scope: Scope, as_json: bool) -> None:
    """Take back the pause that was made with the same flags; what waits goes on."""
    resume_scope(settings, scope, as_json=as_json)


def pause_scope(settings: Settings, scope: Scope, reason: str, *, as_json: bool) -> None:
    """Hold a scope, and say so."""
    asyncio.run(
        _change(settings, scope, lambda database: hold(database, scope, reason=reason, held_by=HELD_BY), as_json)
    )


def resume_scope(settings: Settings, scope: Scope, *, as_json: bool) -> None:
    """Lift the hold of a scope, and say so."""
    asyncio.run(_change(settings, scope, lambda database: lift(database, scope), as_json))


async def _change(
    settings: Settings, scope: Scope, change: Callable[[Database], Awaitable[Change]], as_json: bool
) -> None:
    async with opened(settings) as database:
        changed = await change(database)
    if as_json:
        print_json({"scope": scope, "answer": changed.answer, "paused": changed.standing})
    else:
        click.echo("\n".join([_sentence(scope, changed), *_others(scope, changed.standing)]))


def _sentence(scope: Scope, changed: Change) -> str:
    match changed.answer:
        case HoldAnswer.PAUSED:
            return f"{scope}: paused; nothing new starts within a second, and what waits is kept: {resume_line(scope)}"
        case HoldAnswer.ALREADY:
            return f"{scope}: paused already: {resume_line(scope)}"
        case HoldAnswer.RESUMED:
            return f"{scope}: resumed"
        case HoldAnswer.NOT_PAUSED:
            return f"{scope}: was not paused; nothing has changed"


def _others(scope: Scope, standing: Sequence[Hold]) -> list[str]:
    """Name the other holds that keep all of a scope, or some of it, back."""
    return [f"  also paused: {told(hold)}" for hold in standing if hold.scope != scope]


def told(hold: Hold) -> str:
    """Tell of a hold: what, since when, by whom, why, and what ends it."""
    since = f"since {moment(hold.held_at)} by {hold.held_by}"
    return f"{hold.scope}, {since} ({hold.reason}): {resume_line(hold.scope)}"


def resume_line(scope: Scope) -> str:
    """Give the command that takes a pause of this scope back."""
    if scope == EVERYTHING:
        return "duly resume --all"
    queue = [] if scope.queue is None else ["--queue", scope.queue]
    tenant = [] if scope.tenant is None else ["--tenant", str(scope.tenant)]
    return shlex.join(["duly", "resume", *queue, *tenant])
