"""`duly pause` and `duly resume`: the emergency stop of everything, a queue, a tenant, or a tenant's share of a queue."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click
import msgspec

from duly.cli.client import with_client
from duly.cli.flags.names import tenant_named
from duly.cli.render.output import answer
from duly.cli.render.queue import pause_text, resume_line
from duly.client.asynchronous.client import AsyncClient
from duly.domain.jobs.job import check_name
from duly.domain.limits.pause import Scope
from duly.wire.queues import Pause, PauseChange

REASON = "paused on request"
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")

reason_option = click.option("--reason", default=REASON, show_default=True, help="Reason, shown with the pause.")


class ScopeFlags(msgspec.Struct, frozen=True):
    """A scope as it was typed: the tenant by its name or number."""

    tenant: str | None = None
    queue: str | None = None

    async def at(self, client: AsyncClient) -> Scope:
        """Return the scope; a number is taken as it is. Raises NotFound when no tenant has that name."""
        queue = None if self.queue is None else check_name(self.queue, "queue")
        if self.tenant is None or _NUMBER.fullmatch(self.tenant):
            return Scope(None if self.tenant is None else int(self.tenant), queue)
        return Scope((await tenant_named(client, self.tenant)).tenant, queue)


def scope_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --all, --queue and --tenant to a command that takes `scope_flags`."""

    @wraps(function)
    def call(*, everything: bool, queue: str | None, tenant: str | None, **given: Any) -> Any:
        if everything == (queue is not None or tenant is not None):
            raise click.UsageError("no scope given: use --all, --queue NAME, --tenant TENANT, or both of these")
        return function(scope_flags=ScopeFlags(tenant, queue), **given)

    tenant = click.option("--tenant", metavar="TENANT", help="One tenant, by its name or number.")
    queue = click.option("--queue", metavar="NAME", help="One queue; with --tenant, that tenant's share of it.")
    return click.option("--all", "everything", is_flag=True, help="Everything.")(queue(tenant(call)))


@click.command
@scope_options
@reason_option
@with_client()
async def pause(client: AsyncClient, scope_flags: ScopeFlags, reason: str, as_json: bool) -> None:
    """Pause everything, a queue or a tenant: within a second nothing new starts.

    Waiting runs are kept, and active ones may end. Schedules go on: due runs wait with the rest.
    """
    await pause_scope(client, scope_flags, reason, as_json=as_json)


@click.command
@scope_options
@with_client()
async def resume(client: AsyncClient, scope_flags: ScopeFlags, as_json: bool) -> None:
    """Remove the pause that was set with the same flags; waiting runs go on."""
    await resume_scope(client, scope_flags, as_json=as_json)


async def pause_scope(client: AsyncClient, scope_flags: ScopeFlags, reason: str, *, as_json: bool) -> None:
    """Pause a scope, and print it."""
    scope = await scope_flags.at(client)
    done = await client.pauses.pause(everything=scope == Scope(), queue=scope.queue, tenant=scope.tenant, reason=reason)
    _print_change(scope, done, as_json)


async def resume_scope(client: AsyncClient, scope_flags: ScopeFlags, *, as_json: bool) -> None:
    """Resume a scope, and print it."""
    scope = await scope_flags.at(client)
    done = await client.pauses.resume(everything=scope == Scope(), queue=scope.queue, tenant=scope.tenant)
    _print_change(scope, done, as_json)


def _print_change(scope: Scope, done: PauseChange, as_json: bool) -> None:
    document = {"scope": scope, "answer": done.status, "paused": done.remaining}
    answer(as_json, document, _sentence(scope, done.status), *_others(scope, done.remaining))


def _sentence(scope: Scope, answer: str) -> str:
    undo = f"to resume: {resume_line(scope)}{_as_tenant()}"
    known = {
        "paused": f"paused; no run starts from about a second on, and waiting runs are kept; {undo}",
        "already": f"already paused; {undo}",
        "not_paused": "was not paused; nothing was changed",
    }
    return f"{scope}: {known.get(answer, answer)}"


def _as_tenant() -> str:
    """Repeat the flag that made the command act in a tenant."""
    tenant = click.get_current_context().params.get("as_tenant")
    return "" if tenant is None else f" --as-tenant {shlex.quote(tenant)}"


def _others(scope: Scope, remaining: Sequence[Pause]) -> list[str]:
    """Return the other pauses that cover all of a scope, or some of it."""
    return [f"  also paused: {pause_text(pause)}" for pause in remaining if Scope(pause.tenant, pause.queue) != scope]
