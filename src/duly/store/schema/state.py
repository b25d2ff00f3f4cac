"""State: the migrations that this version of Duly has, and those that a database has.

Data that this version can neither migrate nor share is refused wherever it is read.
"""

from __future__ import annotations

import re
from importlib.resources import files

import msgspec

from duly.domain.errors import DatabaseUnusable
from duly.store.connection.database import Connection
from duly.store.connection.statements import load

SQL = load("schema/state")
_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
# The name of the first migration. It changes with the baseline until the first release, so that data of an earlier development
# version, which had other tables under the same numbers, is recognised and refused.
_BASELINE = "tables"


class Migration(msgspec.Struct, frozen=True):
    """One file, and the one that finishes it, if there is something to remove."""

    version: int
    name: str
    sql: str
    finish: str = ""

    @property
    def file(self) -> str:
        """Return the name of its file."""
        return f"{self.version:04d}_{self.name}"


class State(msgspec.Struct, frozen=True):
    """The schema of a database: the name of each applied migration, and those that are not finished."""

    applied: dict[int, str]
    unfinished: frozenset[int]

    @property
    def newest(self) -> int:
        """Return the newest applied migration; 0 in an empty database."""
        return max(self.applied, default=0)

    def missing(self) -> list[Migration]:
        """Return those of this version that are not applied."""
        return [migration for migration in known() if migration.version not in self.applied]


def known() -> list[Migration]:
    """Read the migrations of this version of Duly: the baseline is the first."""
    folder = files("duly.store.schema")
    parts = [folder.joinpath(name).read_text(encoding="utf-8") for name in ("role.sql", "baseline.sql")]
    baseline = Migration(1, _BASELINE, "\n".join(parts))
    texts = {entry.name: entry.read_text(encoding="utf-8") for entry in folder.joinpath("migrations").iterdir()}
    later = [
        Migration(int(match[1]), match[2], text, texts.get(f"{match[1]}_{match[2]}.finish.sql", ""))
        for name, text in texts.items()
        if (match := _FILE.fullmatch(name))
    ]
    return [baseline, *sorted(later, key=lambda migration: migration.version)]


def newest() -> int:
    """Return the newest migration that this version of Duly has."""
    return max(migration.version for migration in known())


async def read(database: Connection) -> State:
    """Read what was applied. Raises DatabaseUnusable for data that this version must not touch."""
    [(exists,)] = await database.fetch(SQL["exists"])
    rows = await database.fetch(SQL["applied"]) if exists else []
    found = State(
        {row["version"]: row["name"] for row in rows},
        frozenset(row["version"] for row in rows if not row["is_finished"]),
    )
    _refuse_others(found)
    return found


def _refuse_others(found: State) -> None:
    """Refuse data of another version that this one can neither migrate nor share."""
    if found.applied.get(1, _BASELINE) != _BASELINE:
        raise DatabaseUnusable(
            "the data belongs to a development version of Duly and cannot be converted."
            " Export its schedules with that version (`duly export`), then start on a new database or data folder"
        )
    newer = {version for version in found.applied if version > newest()}
    if not newer <= found.unfinished:
        raise DatabaseUnusable(of_newer(max(newer)))


def of_newer(schema: int) -> str:
    """Say that a schema is newer than this version, and the remedy."""
    return (
        f"the data belongs to a newer Duly (schema {schema}, this one knows {newest()})."
        " Upgrade Duly: pip install --upgrade duly"
    )
