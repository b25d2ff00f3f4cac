"""`duly verify`: check the invariants in one snapshot."""

from __future__ import annotations

import asyncio

import click

from duly.cli.connect import opened
from duly.cli.failures import REFUSED
from duly.cli.flags.settings import with_settings
from duly.cli.render.output import json_option, print_rows
from duly.settings import Settings
from duly.store.boxes import history

_SECONDS_MAX = 86_400.0  # it reads the index of all successes, and nobody waits for it
COLUMNS = {
    "broken": lambda row: row["broken"],
    "id": lambda row: row["id"],
    "detail": lambda row: row["detail"],
}


@click.command
@json_option
@with_settings()
def verify(settings: Settings, as_json: bool) -> int:
    """Check, in one snapshot, that no run is in two boxes, none succeeded twice, no schedule is without its timer, and no
    lease without a worker.
    """
    return asyncio.run(_verify(settings, as_json))


async def _verify(settings: Settings, as_json: bool) -> int:
    async with opened(settings) as database:
        unhurried = database.beside(1, command_timeout=_SECONDS_MAX)
        try:
            broken = await history.verify(unhurried)
        finally:
            await unhurried.close()
    print_rows(broken, COLUMNS, "every promise holds", as_json=as_json)
    return REFUSED if broken else 0
