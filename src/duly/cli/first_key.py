"""The key that `duly up` makes for its data folder: the same at every start, because its text lies beside the data.

In the database stands its hash alone. The text is kept in the folder that holds the database itself, readable by its owner: who
can read it there can do all that the key allows anyway.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from duly.cli.screen import Screen
from duly.clock import Rng
from duly.domain.api_key import Scope, Secret, parse, written
from duly.domain.run import TENANT_DEFAULT
from duly.moves.api_keys import create_key
from duly.store import api_keys
from duly.store.database import Database
from duly.store.local import this_account

FILE = "api-key"
_NAME = "duly up"


async def first_key(database: Database, data: Path | None, rng: Rng) -> Secret | None:
    """Give the key of a data folder, made anew when it opens nothing; none for a database of somebody else's."""
    if data is None:
        return None
    kept = await _kept(database, data / FILE)
    if kept is not None:
        return kept
    made = await create_key(
        database.acting_as(this_account()), rng, tenant=TENANT_DEFAULT, name=_NAME, scopes={Scope.ADMIN}
    )
    _keep(data / FILE, made.text)
    return made.text


def tell_key(screen: Screen, key: Secret | None, address: str) -> None:
    """Show a key, and how it is used."""
    if key is None:
        screen.fact("key", "none is made for a database of your own; make one: duly keys create --scope admin")
        return
    screen.fact("key", f"{key.reveal()}   (this data folder only)")
    screen.fact("try", f'curl -H "Authorization: Bearer {key.reveal()}" {address}/v1/jobs')


async def _kept(database: Database, file: Path) -> Secret | None:
    """Read the key that lies in the folder, if it still opens something."""
    parts = parse(_read(file))
    found = None if parts is None else await api_keys.find(database, parts[0])
    if parts is None or found is None or not found.is_opened_by(parts[1]):
        return None
    return written(*parts) if found.is_usable(await database.read_clock()) else None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""


def _keep(file: Path, key: Secret) -> None:
    """Write the key where its owner alone can read it; at no moment is there less than a whole file."""
    new = file.with_name(f"{file.name}.new")
    with suppress(FileNotFoundError):
        new.unlink()
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as writing:
        writing.write(key.reveal() + "\n")
    new.rename(file)
