"""Move a tenant, and die at one step: `python -m tests.end_to_end.mover URL KEYRING TENANT CELL STEP`."""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

from duly.domain.tenancy.sealing import read_keyring
from duly.moves.admin.cells.directory import Directory
from duly.moves.admin.cells.move import move_tenant
from duly.store.connection.database import Database

FROZEN = timedelta(seconds=0.5)  # no API remembers a key here
GRACE = timedelta(seconds=30)


async def main(url: str, keyring: str, tenant: str, cell: str, deadly: str) -> None:
    """Move it, as far as that goes."""
    text = await asyncio.to_thread(Path(keyring).read_text)

    def on_step(step: str) -> None:
        if step == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

    async with Database(url, size_max=2, keyring=lambda: read_keyring(text, keyring)) as database:
        await move_tenant(Directory(database), tenant, cell, grace=GRACE, frozen=FROZEN, on_step=on_step)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
