"""`duly recover`: fires missed while everything was down, the decision on them, and its progress."""

from __future__ import annotations

from functools import partial
from typing import get_args

import click

from duly.cli.client import with_client
from duly.cli.flags.names import job_id_of, tenant_named
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Columns, Listing, listing_options, moment, print_json, print_rows, watch
from duly.cli.render.say import confirm, say
from duly.client.asynchronous.client import AsyncClient
from duly.domain.counting import some
from duly.domain.errors import InvalidOption
from duly.domain.jobs.recovery import Choice
from duly.wire.recovery import RecoveryPlan, RecoveryRule, RecoveryState

_CHOICES: tuple[Choice, ...] = get_args(Choice)
_SHOWN = 20
_NEXT_RESTORED = (
    "`duly recover approve` ends the pause, catches up and retries the runs in flight; `duly recover dismiss` does so"
    " without the missed occurrences"
)
COLUMNS: Columns = {
    "job": lambda one: one.name or one.job_id,
    "tenant": "tenant",
    "queue": "queue",
    "missed": "missed",
    "policy": lambda one: one.policy if one.choice is None else f"{one.choice} (chosen)",
    "runs": "runs",
    "created": "created",
    "state": lambda one: "waiting" if one.is_waiting else "under way",
}
IN_FLIGHT: Columns = {
    "run": "run_id",
    "tenant": "tenant",
    "queue": "queue",
    "handler": "handler",
    "attempt": "attempt",
    "scheduled": "scheduled_at",
    "worker": "worker",
}


@click.group(cls=ListingGroup)
def recover() -> None:
    """Show, approve and dismiss the recovery after downtime. Without a command: show."""


@recover.command("list")
@with_client(options=listing_options)
async def show(client: AsyncClient, listing: Listing) -> None:
    """Show the missed fires by tenant and schedule, the decision, a rate, and when it will be done."""
    show_plan = partial(print_plan, as_json=listing.as_json, is_one_line=listing.watch)
    await watch(listing, client.recovery.get, show_plan)


@recover.command
@click.option(
    "--all", "everyone", metavar="CHOICE", help="Choice for all schedules, instead of their misfire policies."
)
@click.option(
    "--tenant",
    "tenants",
    multiple=True,
    metavar="TENANT=CHOICE",
    help="For all schedules of a tenant, by its name or number.",
)
@click.option("--schedule", "schedules", multiple=True, metavar="JOB=CHOICE", help="For one schedule, by name or id.")
@click.option("--rate", type=float, help="Runs per second in total.")
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@with_client()
async def approve(
    client: AsyncClient,
    everyone: str | None,
    tenants: tuple[str, ...],
    schedules: tuple[str, ...],
    rate: float | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Approve the recovery: by each schedule's own policy, or by a choice of skip, fire_once or fire_all; the nearest
    counts.

    The rate of a recovery under way can be changed.
    """
    rules = [RecoveryRule(choice=_choice(everyone, f"--all {everyone}"))] if everyone is not None else []
    rules += [await _rule_of_tenant(client, text) for text in tenants]
    rules += [await _rule_of_schedule(client, text) for text in schedules]
    if not yes:
        print_plan(await client.recovery.approve(rules=rules, rate=rate, dry_run=True), rate=rate)
        confirm("Approve this plan?")
    print_plan(await client.recovery.approve(rules=rules, rate=rate), as_json=as_json)


@recover.command
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@with_client()
async def dismiss(client: AsyncClient, yes: bool, as_json: bool) -> None:
    """Dismiss everything missed that is not created yet; each schedule's history records it."""
    if not yes:
        print_plan(await client.recovery.get())
        confirm("Leave out all that is not created yet?")
    print_plan(await client.recovery.dismiss(), as_json=as_json)


async def _rule_of_tenant(client: AsyncClient, text: str) -> RecoveryRule:
    tenant, _, choice = text.rpartition("=")
    if not tenant:
        raise InvalidOption(f"--tenant {text} is not a tenant and a choice; write it as acme=skip, or 3=skip")
    number = (await tenant_named(client, tenant)).tenant
    return RecoveryRule(choice=_choice(choice, f"--tenant {text}"), tenant=number)


async def _rule_of_schedule(client: AsyncClient, text: str) -> RecoveryRule:
    job, _, choice = text.rpartition("=")
    if not job:
        raise InvalidOption(f"--schedule {text} is not a job and a choice; write it as nightly-report=fire_once")
    return RecoveryRule(choice=_choice(choice, f"--schedule {text}"), job_id=await job_id_of(client, job))


def _choice(text: str, whole: str) -> Choice:
    """Parse a choice: a misfire policy. Raises InvalidOption."""
    for choice in _CHOICES:
        if text == choice:
            return choice
    raise InvalidOption(f"{text!r} in {whole} is none of {', '.join(_CHOICES)}")


def print_plan(
    plan: RecoveryPlan, *, as_json: bool = False, is_one_line: bool = False, rate: float | None = None
) -> None:
    """Print a plan: what waits for a decision, or is being carried out, and what to do next."""
    if as_json:
        print_json(plan, is_one_line=is_one_line)
        return
    say("\n".join(lines_of(plan, rate)))
    if plan.in_flight:
        print_rows(plan.in_flight[:_SHOWN], IN_FLIGHT, "")
    if plan.items:
        print_rows(plan.items[:_SHOWN], COLUMNS, "")
    if len(plan.items) > _SHOWN or plan.is_partial:
        say(f"the {_SHOWN} largest are shown; --json gives more")


def lines_of(plan: RecoveryPlan, rate: float | None = None) -> list[str]:
    """Describe a recovery and the next commands; `rate` is one that is about to be approved."""
    found = plan.recovery
    lines = ["no recovery was ever opened"] if found is None else [_headline(found, is_empty=not plan.items)]
    is_restored = found is not None and found.state == "open" and found.backup_at is not None
    lines += _of_restored(plan) if is_restored else []
    if not plan.items and found is not None and found.state == "open":
        return [*lines, _NEXT_RESTORED] if is_restored else lines
    if not plan.items:
        return [*lines, "no recovery waits for approval or is running"]
    when = (
        "no worker serves these queues"
        if plan.finish_at is None
        else f"all will be created by {moment(plan.finish_at)}"
    )
    if rate is None and found is not None and found.state == "approved":
        rate = found.rate
    at = f"at {rate:g} a second" if rate else f"at the proposed {plan.proposed_rate:g} a second"
    lines.append(f"{some(plan.left, 'run')} left to make, {at}; {when}")
    lines += [
        f"tenant {one.tenant}: {some(one.schedules, 'schedule')} missed {some(one.missed, 'occurrence')}, which makes {one.runs}"
        for one in plan.tenants
    ]
    if found is not None and found.state == "open":
        lines.append(
            _NEXT_RESTORED if is_restored else "`duly recover approve` runs it, `duly recover dismiss` drops it"
        )
    return lines


def _of_restored(plan: RecoveryPlan) -> list[str]:
    """Describe the runs of a restored database that may have run after its backup."""
    again = "may have ended after the backup, and will run again: the same run id, a higher fence"
    lines = [f"{some(len(plan.in_flight), 'run')} in flight then {again}"] if plan.in_flight else []
    return [*lines, f"{some(plan.due, 'run')} due since may have run after the backup, too"] if plan.due else lines


def _headline(found: RecoveryState, *, is_empty: bool) -> str:
    since = "" if found.down_since is None else f": no scheduler ran from {moment(found.down_since)}"
    if found.backup_at is not None:
        since = f": the database was restored from the backup of {moment(found.backup_at)}"
    by = f" by {found.decided_by}" if found.decided_by else ""
    words = {
        "open": f"open since {moment(found.opened_at)}{since}; {'nothing was missed' if is_empty else 'it waits for approval'}",
        "approved": f"approved{by}; {some(found.created, 'run')} created, {some(found.schedules_waiting, 'schedule')} waiting",
        "dismissing": f"being dismissed{by}; {some(found.schedules_waiting, 'schedule')} to go",
        "done": f"done; {some(found.created, 'run')} created",
        "dismissed": f"dismissed{by}; {some(found.created, 'run')} created before",
    }
    return f"recovery {found.recovery_id} is {words[found.state]}"
