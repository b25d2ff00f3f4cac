"""`duly archive`: archives of history, and legal holds."""

from __future__ import annotations

from uuid import UUID

import click
import msgspec

from duly.cli.client import lists, with_client
from duly.cli.failures import REFUSED, in_commands
from duly.cli.flags.filters import first
from duly.cli.flags.names import tenant_named
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import Columns, answer, print_json
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import ApiError
from duly.wire.pages import PAGE_SIZE_MAX
from duly.wire.system import ArchiveRecord, LegalHold

_SHOWN_MAX = 100_000
COLUMNS: Columns = {
    "name": "name",
    "day": "day",
    "state": "state",
    "rows": "rows",
    "left out": "left_out",
    "bytes": "bytes",
    "location": "location",
    "error": "error",
}
HOLD_COLUMNS: Columns = {"tenant": "tenant", "job": "job_id", "reason": "reason", "held at": "held_at"}
_job_option = click.option("--job", metavar="JOB", type=click.UUID, help="Only the history of this job, by its id.")


@click.group(cls=ListingGroup)
def archive() -> None:
    """List and verify archives of history; hold history. Without a command: list."""


@archive.command("list")
@lists(COLUMNS, "history is not archived yet")
async def list_archives(client: AsyncClient) -> list[ArchiveRecord]:
    """List archives: what each has, where it is, and why the last try failed."""
    return await first(client.archive.list(page_size=PAGE_SIZE_MAX), _SHOWN_MAX)


@archive.command("verify")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@with_client()
async def verify(client: AsyncClient, names: tuple[str, ...], as_json: bool) -> int:
    """Read archives back, all or those that are named, and compare each with its record."""
    done = [await _verified(client, name) for name in names or await _names(client)]
    if as_json:
        print_json(done)
    for one in [] if as_json else done:
        say(f"{one['name']}: {one['error'] or 'whole'}", err=one["error"] is not None)
    return REFUSED if any(one["error"] for one in done) else 0


async def _verified(client: AsyncClient, name: str) -> dict[str, object]:
    try:
        return {"name": name, "rows": (await client.archive.verify(name)).rows, "error": None}
    except ApiError as error:
        return {"name": name, "rows": None, "error": in_commands(error.detail)}


async def _names(client: AsyncClient) -> list[str]:
    found = await first(client.archive.list(page_size=PAGE_SIZE_MAX), _SHOWN_MAX)
    return [one.name for one in found if one.state in ("verified", "dropped")]


@archive.command("stop")
@with_client()
async def stop(client: AsyncClient, as_json: bool) -> None:
    """Drop history without an archive from now on. Remove archive_url from every scheduler first; archives stay."""
    await client.archive.stop()
    answer(
        as_json, {"state": "stopped"}, "history is dropped without an archive, unless a scheduler with archive_url runs"
    )


@archive.command("holds")
@lists(HOLD_COLUMNS, "no legal holds")
async def list_holds(client: AsyncClient) -> list[LegalHold]:
    """List legal holds."""
    return await first(client.archive.holds(), _SHOWN_MAX)


@archive.command("hold")
@click.argument("tenant")
@_job_option
@click.option("--reason", required=True, help="Why, such as a case number.")
@with_client()
async def hold(client: AsyncClient, tenant: str, job: UUID | None, reason: str, as_json: bool) -> None:
    """Hold the history of TENANT, or of one of its jobs: it is neither dropped, nor sampled, nor purged."""
    held = await client.archive.hold((await tenant_named(client, tenant)).tenant, reason, job_id=job)
    answer(as_json, msgspec.to_builtins(held), f"{_subject(tenant, job)} is held: {held.reason}")


@archive.command("release")
@click.argument("tenant")
@_job_option
@with_client()
async def release(client: AsyncClient, tenant: str, job: UUID | None, as_json: bool) -> None:
    """End a legal hold; others stay."""
    await client.archive.release((await tenant_named(client, tenant)).tenant, job_id=job)
    document = {"tenant": tenant, "job_id": None if job is None else str(job), "reason": None}
    answer(as_json, document, f"{_subject(tenant, job)} is held no more")


def _subject(tenant: str, job: UUID | None) -> str:
    return f"the history of tenant {tenant}" if job is None else f"the history of job {job} of tenant {tenant}"
