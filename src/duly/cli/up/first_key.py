"""The API key that `duly up` creates for its data folder: the same at every start, because its text lies beside the
data.

The database has only its hash. The text is stored in the folder of the database itself, readable by its owner, who can
do everything that the key allows anyway. It is shown once, when it is created, and only on a terminal: output is often
kept in logs that others read.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec

from duly.cli.render.screen import Screen, short_path
from duly.cli.up.egress import write_private
from duly.clock import Rng
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.tenancy.api_key import Scope, Secret, parse
from duly.moves.admin.api_keys import create_key
from duly.store.connection.database import Database
from duly.store.connection.local import this_account
from duly.store.tenancy import api_keys

FILE = "api-key"
_NAME = "duly up"


class FirstKey(msgspec.Struct, frozen=True):
    """The file of a data folder's key, and its text if it was just created."""

    file: Path
    created: Secret | None = None


async def first_key(database: Database, data: Path | None, rng: Rng) -> FirstKey | None:
    """Return the key of a data folder, created again when it is no longer usable; None for an external database."""
    if data is None:
        return None
    if await _is_usable(database, data / FILE):
        return FirstKey(data / FILE)
    created = await create_key(
        database.acting_as(this_account()), rng, tenant=TENANT_DEFAULT, name=_NAME, scopes={Scope.ADMIN}
    )
    write_private(data / FILE, f"{created.text.reveal()}\n".encode())
    return FirstKey(data / FILE, created.text)


def print_key(screen: Screen, key: FirstKey | None, address: str) -> None:
    """Print where the key is, and how it is used; show it on a terminal when it is new."""
    if key is None:
        screen.fact("key", "none is created for a database of your own; create one: duly keys create --scope admin")
        return
    file = short_path(key.file)
    if key.created is not None and screen.is_terminal:
        screen.fact("key", f"{key.created.reveal()}   (shown once; kept in {file})")
    else:
        screen.fact("key", f"in {file}")
    screen.fact("try", f'curl -H "Authorization: Bearer $(cat {shlex.quote(file)})" {address}/v1/jobs')


async def _is_usable(database: Database, file: Path) -> bool:
    """Return whether the folder's key is still usable."""
    parts = parse(_read(file))
    found = None if parts is None else await api_keys.find(database, parts[0])
    if parts is None or found is None or not found.is_opened_by(parts[1]):
        return False
    return found.is_usable(await database.read_clock())


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""
