"""`duly migrate`: bring the schema up to date."""

from __future__ import annotations

import asyncio

import click

from duly.cli.connect import database_url
from duly.cli.flags.settings import with_settings
from duly.cli.render.output import json_option, print_json
from duly.cli.render.say import say
from duly.domain.counting import some
from duly.settings import Settings
from duly.store.connection.database import Database
from duly.store.schema import migrate as store


@click.command
@json_option
@with_settings("pooler")
def migrate(settings: Settings, as_json: bool) -> None:
    """Bring the database's schema up to date. Safe to run anywhere, at any time, more than once."""
    asyncio.run(_migrate(settings, as_json))


async def _migrate(settings: Settings, as_json: bool) -> None:
    async with Database(database_url(settings), pooler=settings.pooler) as database:
        applied = await store.migrate(database)
    if as_json:
        migrations = [{"version": one.version, "name": one.name} for one in applied.migrations]
        files = [file.name for file in applied.files]
        print_json({"schema": store.newest(), "migrations": migrations, "files": files})
        return
    for migration in applied.migrations:
        say(f"applied {migration.version:04d}_{migration.name}")
    if applied.files:
        say(f"applied {some(len(applied.files), 'file')} of functions")
    if not applied.migrations and not applied.files:
        say(f"up to date at {store.newest():04d}")
