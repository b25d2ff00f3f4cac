"""`duly migrate`: bring the schema up to date; show what that would do; finish it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta

import click

from duly.cli.connect import database_url
from duly.cli.failures import REFUSED
from duly.cli.flags.settings import with_settings
from duly.cli.render.output import json_option, print_json
from duly.cli.render.say import say
from duly.domain.counting import few, some
from duly.domain.duration import parse
from duly.settings import Settings
from duly.store.connection.database import Database
from duly.store.schema import migrate as store
from duly.store.schema import state
from duly.store.schema.plan import Plan, Touched, plan
from duly.store.schema.steps import GROWS

_STATEMENT_CHARACTERS_MAX = 100


@click.command
@click.option(
    "--check", "checks", is_flag=True, help="Show what would be done, with its locks; exit with 1 if something."
)
@click.option(
    "--finish", "finishes", is_flag=True, help="Remove what only older versions need; they cannot start again."
)
@click.option(
    "--hold", metavar="DURATION", default="PT1S", help="How long a migration may keep its locks; default: PT1S."
)
@json_option
@with_settings("pooler")
def migrate(settings: Settings, checks: bool, finishes: bool, hold: str, as_json: bool) -> int:
    """Bring the database's schema up to date. Safe to run anywhere, at any time, more than once.

    Processes of the version before go on, and may start again, until `--finish`.
    """
    if checks and finishes:
        raise click.UsageError("--check and --finish exclude each other")
    return asyncio.run(_migrate(settings, as_json, parse(hold, "--hold"), checks=checks, finishes=finishes))


async def _migrate(settings: Settings, as_json: bool, hold_max: timedelta, *, checks: bool, finishes: bool) -> int:
    async with Database(database_url(settings), pooler=settings.pooler) as database:
        if checks:
            return _show(await plan(database), as_json)
        if finishes:
            finished = [one.file for one in await store.finish(database, hold_max=hold_max)]
            if as_json:
                print_json({"schema": state.newest(), "finished": finished})
            else:
                say(f"finished {few(finished)}" if finished else f"finished already at {state.newest():04d}")
            return 0
        applied = await store.migrate(database, hold_max=hold_max)
        found = await state.read(database)
    if as_json:
        migrations = [{"version": one.version, "name": one.name} for one in applied.migrations]
        files = [file.name for file in applied.files]
        print_json({"schema": found.newest, "migrations": migrations, "files": files})
        return 0
    for migration in applied.migrations:
        say(f"applied {migration.file}")
    if applied.files:
        say(f"applied {some(len(applied.files), 'file')} of functions")
    if found.newest > state.newest():
        say(
            f"the schema is of a newer Duly ({found.newest:04d}; this one knows {state.newest():04d}), which this one may use"
        )
    elif not applied.migrations and not applied.files:
        say(f"up to date at {state.newest():04d}")
    if found.unfinished:
        say("the version before may run beside this one; when it is no longer wanted: duly migrate --finish")
    return 0


def _show(found: Plan, as_json: bool) -> int:
    if as_json:
        print_json(found)
        return 0 if found.is_up_to_date else REFUSED
    if found.schema == 0:
        migrations = list(dict.fromkeys(one.migration for one in found.steps))
        say(
            f"would create the schema in an empty database: {few(migrations)} and {some(len(found.files), 'file')} of functions"
        )
        return REFUSED
    _show_steps(found.steps, "would apply")
    if found.files:
        say(f"would write {some(len(found.files), 'file')} of functions: {few(found.files)}")
        say("  triggers and views are replaced last, under ACCESS EXCLUSIVE: a moment")
    if found.is_up_to_date:
        say(f"up to date at {found.schema:04d}")
    if found.unfinished:
        say(f"not finished: {few(found.unfinished)}; the version before may still run. duly migrate --finish ends that")
        _show_steps(found.finish_steps, "--finish would apply")
    for process in found.older:
        say(f"older version alive: {process.words}")
    if found.is_up_to_date and not found.finish_steps:
        return 0
    seconds = found.oldest_transaction_seconds
    say("Not known beforehand: how long a step takes that grows with its table, and how long others keep the tables.")
    say(
        "A lock is waited for 0.2 s at a time, so nothing queues behind it for longer; a migration that would keep its locks"
        " for more than --hold is rolled back."
        + ("" if seconds is None else f" The oldest transaction on these tables is {seconds:.1f} s old.")
    )
    return 0 if found.is_up_to_date else REFUSED


def _show_steps(steps: Iterable[Touched], verb: str) -> None:
    shown = ""
    for one in steps:
        if one.migration != shown:
            shown = one.migration
            say(f"{verb} {shown}")
        text = one.step.statement
        cut = text if len(text) <= _STATEMENT_CHARACTERS_MAX else f"{text[: _STATEMENT_CHARACTERS_MAX - 1]}…"
        say(f"  {cut}")
        say(f"    {_lock(one)}")


def _lock(one: Touched) -> str:
    if one.step.lock is None:
        return "no lock on a table in use"
    if one.step.table is None:
        return "locks and time are not known: read the file"
    if one.rows is None:
        return f"{one.step.lock} on {one.step.table}, which is new"
    size = f" ({one.rows:,} rows, {one.bytes or 0:,} bytes)" if one.step.takes == GROWS else ""
    return f"{one.step.lock} on {one.step.table}{size}: {one.step.takes}"
