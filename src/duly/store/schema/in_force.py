"""Functions, views and triggers: each is written once, in `functions/`, and is applied again when the text of its file has
changed.

The database records the digest of each applied file, and its edition: a number that rises with the texts, so that the
newer of two versions of Duly is known. An older version leaves newer files as they are, and runs on them: a function
keeps its parameters and its result, see migrate.py.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files

import asyncpg
import msgspec

from duly.domain.counting import some
from duly.domain.errors import DatabaseUnusable
from duly.store.connection.database import Connection, Database
from duly.store.schema.expand import expanded
from duly.store.schema.locks import held_at_most

# Both are made of functions, which must exist before.
_LAST = {"triggers.sql", "views.sql"}
_FOLDER = files("duly.store.schema").joinpath("functions")
# They call each other, and are applied file by file. A test lets the server check each when all exist.
_UNCHECKED = "set local check_function_bodies = off"
# Anyone may call a new function until that is revoked. Grants are in the function's own file.
_OURS = "revoke execute on all functions in schema duly from public"
_SELECT_APPLIED = "select file, digest, edition from duly.functions"
_RECORD_APPLIED = """
with removed as (delete from duly.functions where file <> all ($1))
insert into duly.functions (file, digest, edition)
select file, digest, $3 from unnest($1::text[], $2::text[]) as applied (file, digest)
on conflict (file) do update set digest = excluded.digest, edition = excluded.edition,
    applied_at = case when functions.digest = excluded.digest then functions.applied_at else excluded.applied_at end
"""


class File(msgspec.Struct, frozen=True):
    """One file."""

    name: str
    sql: str

    @property
    def digest(self) -> str:
        """A digest of its text."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


class Applied(msgspec.Struct, frozen=True):
    """The record of what was applied to a database: the digest of each file, and the newest edition."""

    digests: dict[str, str]
    edition: int


def known() -> list[File]:
    """Read the files of this version of Duly, in the order in which they are applied."""
    found = [
        File(entry.name, expanded(entry.read_text(encoding="utf-8")))
        for folder in _FOLDER.iterdir()
        if folder.is_dir()
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    ]
    return sorted(found, key=lambda file: (file.name in _LAST, file.name))


def edition() -> int:
    """Return the edition of the files of this version of Duly."""
    return int(_FOLDER.joinpath("edition.txt").read_text(encoding="utf-8").split()[0])


async def apply(connection: asyncpg.Connection[asyncpg.Record], hold_seconds: float | None = None) -> list[File]:
    """Apply the files that differ, under the lock and after the tables of the migrations. Returns what was applied:
    nothing when a newer Duly has applied its files. Raises HeldTooLong: triggers and views lock tables.
    """
    applied, carried = await _applied(connection), known()
    if applied.edition > edition():
        return []
    differing = _changed(applied, carried)
    if differing or applied != Applied({file.name: file.digest for file in carried}, edition()):
        await connection.execute(_UNCHECKED)
        for file in differing:
            if file.name not in _LAST:
                await connection.execute(file.sql)
        await connection.execute(_OURS)
        await connection.execute(
            _RECORD_APPLIED, [file.name for file in carried], [file.digest for file in carried], edition()
        )
        async with held_at_most(connection, hold_seconds):
            for file in differing:
                if file.name in _LAST:
                    await connection.execute(file.sql)
    return differing


async def check(database: Database) -> None:
    """Check that the applied files are those of this version, or newer. Raises DatabaseUnusable, naming the remedy."""
    applied = await _applied(database)
    if applied.edition <= edition() and (differing := _changed(applied, known())):
        raise DatabaseUnusable(
            f"the schema's functions differ in {some(len(differing), 'file')}, from {differing[0].name} on. Run `duly migrate`"
        )


async def changed(database: Database) -> list[str]:
    """Return the names of the files that `apply` would write."""
    applied = await _applied(database)
    return [file.name for file in _changed(applied, known())] if applied.edition <= edition() else []


async def _applied(reader: Connection) -> Applied:
    rows = await reader.fetch(_SELECT_APPLIED)
    return Applied({row["file"]: row["digest"] for row in rows}, max((row["edition"] for row in rows), default=0))


def _changed(applied: Applied, carried: list[File]) -> list[File]:
    return [file for file in carried if applied.digests.get(file.name) != file.digest]
