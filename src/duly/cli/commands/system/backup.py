"""`duly backup`: write a backup of the database, and check one that was written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from duly import __version__
from duly.cli.connect import database_url, opened
from duly.cli.flags.settings import with_settings
from duly.cli.render.output import answer, json_option, moment
from duly.cli.up import postgres
from duly.clock import host_now
from duly.domain.counting import some
from duly.domain.errors import DatabaseUnusable, Refused
from duly.domain.tenancy.sealing import Keyring
from duly.postgres import backup_folder, embedded
from duly.postgres.backup_folder import FORMAT, KEYRING, KeyProof, Manifest
from duly.postgres.clients import environment_for, find_clients
from duly.postgres.folder import Folder
from duly.settings import Settings
from duly.store.reads import backup as store
from duly.store.tenancy.keyring import file_of, keyring_of

_PURPOSE = b"duly backup"  # a proof derived for it reveals nothing of the key
_PROOF_CHARACTERS = 16


@click.command
@click.argument("folder", required=False, type=click.Path(path_type=Path), metavar="[FOLDER]")
@click.option(
    "--with-keyring", is_flag=True, help="Put the keyring into it: whoever has the backup then reads the secrets."
)
@click.option("--verify", "is_check", is_flag=True, help="Check FOLDER, a backup that was written, instead.")
@json_option
@with_settings("pooler", "secrets_key")
def backup(settings: Settings, folder: Path | None, with_keyring: bool, is_check: bool, as_json: bool) -> None:
    """Write a backup of Duly's schema to FOLDER, a new one, by default named for the moment. Everything goes on meanwhile.

    It holds everything but the keyring that secrets are sealed with. `duly restore` brings it back.
    """
    if is_check:
        manifest = _checked(folder, with_keyring)
        words = f"{folder} is whole: {described(manifest)}"
    else:
        folder = folder or Path(f"duly-backup-{host_now():%Y%m%dT%H%M%SZ}")
        manifest = _written(settings, folder.absolute(), with_keyring=with_keyring)
        words = f"wrote {folder}: {described(manifest)}"
    keyring = "" if manifest.has_keyring else "; the keyring is not in it: keep a copy of it elsewhere"
    document = {"folder": str(folder), **msgspec.to_builtins(manifest)}
    answer(as_json, document, words + keyring)


def described(manifest: Manifest) -> str:
    """Describe a backup in a few words."""
    size = f"{some(manifest.rows_total, 'row')}, {manifest.bytes / 1024**2:,.1f} MiB"
    return f"{size}, of {moment(manifest.created_at)} by Duly {manifest.duly} on PostgreSQL {manifest.postgresql}"


def proofs(keyring: Keyring | None) -> list[KeyProof]:
    """Return what shows whether another keyring has the same keys."""
    if keyring is None:
        return []
    derived = zip(keyring.key_ids, keyring.derived(_PURPOSE), strict=True)
    return [KeyProof(key_id, proof.hex()[:_PROOF_CHARACTERS]) for key_id, proof in derived]


@contextmanager
def served(settings: Settings) -> Iterator[str]:
    """Give the address of the database; the embedded server is started if it does not run, and stopped at the end."""
    if settings.database_url is not None or settings.url is not None or embedded.attach(settings.data) is not None:
        yield database_url(settings)
        return
    with postgres.running(settings, ephemeral=False) as started:
        yield started.url


def _checked(folder: Path | None, with_keyring: bool) -> Manifest:
    if folder is None or with_keyring:
        raise click.UsageError("--verify checks an existing backup: name its FOLDER, and nothing else")
    manifest = backup_folder.read_backup(folder)
    backup_folder.read_through(folder, manifest, find_clients(int(manifest.pg_dump.split(".")[0])))
    return manifest


def _written(settings: Settings, folder: Path, *, with_keyring: bool) -> Manifest:
    keyring = keyring_of(settings)
    if with_keyring and keyring is None:
        raise Refused(
            "there is no keyring to put into the backup; leave --with-keyring away, or name it in DULY_SECRETS_KEY"
        )
    if settings.database_url is None and settings.url is None and Folder(settings.data).major() is None:
        raise DatabaseUnusable(f"{settings.data} holds no database; name another with --data or --database-url")
    with backup_folder.new_backup(folder) as new, served(settings) as url:
        if with_keyring:
            backup_folder.write_private(new / KEYRING, file_of(settings).read_bytes())
        return asyncio.run(_dumped(settings, new, url, proofs(keyring), has_keyring=with_keyring))


async def _dumped(settings: Settings, new: Path, url: str, keys: list[KeyProof], *, has_keyring: bool) -> Manifest:
    async with opened(settings) as database, store.snapshot(database) as snapshot:
        clients = find_clients(int(snapshot.server.split(".")[0]))
        dump = await backup_folder.dump(new, clients, environment_for(url), snapshot.name)
        manifest = Manifest(
            format=FORMAT,
            duly=__version__,
            schema_version=snapshot.schema_version,
            edition=snapshot.edition,
            postgresql=snapshot.server.split()[0],
            pg_dump=clients.version,
            created_at=snapshot.taken_at,
            rows=snapshot.rows,
            bytes=dump.stat().st_size,
            sha256=backup_folder.digest_of(dump),
            keys=keys,
            has_keyring=has_keyring,
        )
        backup_folder.write_manifest(new, manifest)
        return manifest
