"""`duly restore`: bring a backup back, and hold the restored system until `duly recover approve`."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import click

from duly.cli.client import connected
from duly.cli.commands.recover import print_plan
from duly.cli.commands.system.backup import described, proofs, served
from duly.cli.flags.settings import with_settings
from duly.cli.render.output import json_option, moment, print_json
from duly.cli.render.say import confirm, say
from duly.cli.up.scheduler import process_name
from duly.clock import Rng
from duly.domain.counting import few
from duly.domain.errors import Refused
from duly.log import Log
from duly.postgres import backup_folder
from duly.postgres.backup_folder import KEYRING, Manifest, write_private
from duly.postgres.clients import environment_for, find_clients
from duly.scheduler.service import Scheduler
from duly.settings import Settings
from duly.store.connection.database import Database
from duly.store.reads import backup as store
from duly.store.reads.backup import Target
from duly.store.schema import in_force, migrate, state
from duly.store.tables import recovery
from duly.store.tenancy.keyring import file_of, keyring_of
from duly.wire.recovery import RecoveryPlan

_CONNECTIONS_MAX = 4
_LOOKING_SECONDS = 60.0
_LOOK_SECONDS = 0.1


@click.command
@click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[FOLDER]")
@click.option("--replace", is_flag=True, help="Remove the schema `duly` that is there, with everything in it.")
@click.option(
    "--in-place",
    is_flag=True,
    help="Load nothing: PostgreSQL itself has restored this database, to a point in time or by its own tools.",
)
@click.option("--yes", is_flag=True, help="Skip the confirmation of --replace.")
@json_option
@with_settings("pooler", "secrets_key")
def restore(settings: Settings, folder: Path | None, replace: bool, in_place: bool, yes: bool, as_json: bool) -> None:
    """Restore the backup in FOLDER into an empty database, and show what waits for a decision.

    The restored system is paused: nothing starts until `duly recover approve`. Leases from before are void. It is all done
    or nothing is: a backup that is damaged, a database that is not empty, and one that is in use are refused.
    """
    if in_place == (folder is not None):
        raise click.UsageError(
            "name the FOLDER of a backup, or use --in-place where PostgreSQL has restored the database"
        )
    manifest = None if folder is None else _read(folder)
    with served(settings) as url:
        target = asyncio.run(_target(settings, url))
        _check(target, manifest, replace=replace)
        if replace and target.has_schema and not yes:
            confirm(f"Remove every job, run and log of Duly in database {target.name} for good, and restore {folder}?")
        if folder is not None and manifest is not None:
            _load(folder, manifest, url, target, replaces=replace)
        plan = asyncio.run(_held(settings, url, manifest))
        fit = None if folder is None or manifest is None else _keyring(settings, folder, manifest)
    _print(folder, manifest, plan, fit, as_json=as_json)


def _read(folder: Path) -> Manifest:
    manifest = backup_folder.read_backup(folder)
    if (manifest.schema_version, manifest.edition) > (state.newest(), in_force.edition()):
        raise Refused(
            f"{folder} was written by a newer Duly, {manifest.duly}; upgrade this one: pip install --upgrade duly"
        )
    return manifest


async def _target(settings: Settings, url: str) -> Target:
    async with Database(url, size_max=1, pooler=settings.pooler, application="duly restore") as database:
        return await store.target(database)


def _check(target: Target, manifest: Manifest | None, *, replace: bool) -> None:
    if target.processes:
        raise Refused(
            f"database {target.name} is in use: {few(target.processes)}. Stop them all; one that was killed counts until"
            " its lease is over, some 15 s"
        )
    if manifest is None:
        if not target.has_schema:
            raise Refused(f"database {target.name} has no schema `duly`: restore it first, then run this again")
        return
    if target.has_schema and not replace:
        raise Refused(
            f"database {target.name} is not empty: it has a schema `duly`. Name an empty database or data folder, or use"
            " --replace, which removes what is there"
        )
    if target.major < (needed := int(manifest.postgresql.split(".")[0])):
        raise Refused(
            f"the backup is of PostgreSQL {manifest.postgresql}, and database {target.name} runs on {target.server}:"
            f" restore it on version {needed} or newer"
        )


def _load(folder: Path, manifest: Manifest, url: str, target: Target, *, replaces: bool) -> None:
    clients = find_clients(max(target.major, int(manifest.pg_dump.split(".")[0])))
    backup_folder.load(
        folder,
        clients,
        environment_for(url),
        before=store.before_loading(replaces=replaces),
        after=store.after_loading(manifest.created_at),
        is_before_17=target.major < 17,
    )


async def _held(settings: Settings, url: str, manifest: Manifest | None) -> RecoveryPlan:
    """Bring the schema up to date, let missed occurrences be found, and return the plan."""
    async with Database(url, size_max=_CONNECTIONS_MAX, pooler=settings.pooler, application="duly restore") as database:
        await migrate.migrate(database)
        if manifest is None:
            await recovery.hold_restored(database, await store.last_moment(database))
        await _look_for_missed(database)
    async with connected(settings) as client:
        return await client.recovery.get()


async def _look_for_missed(database: Database) -> None:
    """Be a scheduler until nothing is late. Nothing starts by that: everything is paused, and a recovery is open."""
    scheduler = Scheduler(database, name=process_name(), rng=Rng(), log=Log("restore"))
    running, clock = asyncio.create_task(scheduler.run()), database.clock
    begun = clock.monotonic()
    try:
        while clock.monotonic() - begun < _LOOKING_SECONDS and not running.done():
            if scheduler.health.stepped_at is not None and scheduler.health.lag_seconds == 0:
                break
            await clock.sleep(_LOOK_SECONDS)
    finally:
        scheduler.stop()
        await running


def _keyring(settings: Settings, folder: Path, manifest: Manifest) -> str:
    """Say whether the secrets of the backup can be opened here; put its keyring where there is none."""
    if not manifest.keys:
        return "the backup was made without a keyring: whether its secrets can be opened here is unknown"
    if manifest.has_keyring and settings.secrets_key is None and settings.database_url is None:
        with suppress(FileExistsError):
            write_private(file_of(settings), (folder / KEYRING).read_bytes())
            return f"the keyring of the backup was put into {file_of(settings)}"
    here = proofs(keyring_of(settings))
    missing = [key.id for key in manifest.keys if key not in here]
    if not missing:
        return "the keyring fits: secrets can be opened"
    where = f"it is {folder / KEYRING}" if manifest.has_keyring else "it is not in the backup"
    return (
        f"the keyring does not fit: secrets sealed with key {few(missing)} cannot be opened. Add the lines of the keyring that"
        f" was in use then to {file_of(settings)}, behind the first line, and restart every process that reads it; {where}"
    )


def _print(
    folder: Path | None, manifest: Manifest | None, plan: RecoveryPlan, fit: str | None, *, as_json: bool
) -> None:
    if as_json:
        print_json({"backup": manifest, "keyring": fit, "recovery": plan})
        return
    state = plan.recovery
    assert state is not None
    assert state.backup_at is not None
    came_from = f"restored {folder}: {described(manifest)}" if manifest else f"held as of {moment(state.backup_at)}"
    say(came_from)
    if fit:
        say(fit)
    say("everything is paused, and nothing starts before you approve; processes may be started again")
    print_plan(plan)
