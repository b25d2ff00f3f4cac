"""The registrar: registers the schedules that the program's code declares.

It looks when the worker starts, and every half minute.

The looks between are for changes elsewhere: another version of the program comes or goes.
"""

from __future__ import annotations

from duly.clock import Rng
from duly.domain.jobs.declaration import Declarations
from duly.log import Log
from duly.moves.schedules.declare import Became, Declared, declare
from duly.store.connection.database import Database

LOOK_SECONDS = 30.0
LOOK_AGAIN_SECONDS = 1.0


class Registrar:
    """Registers for one life of a worker, which publishes the same declarations in its row."""

    def __init__(self, database: Database, declarations: Declarations, *, rng: Rng, log: Log) -> None:
        self._database = database
        self._declarations = declarations
        self._rng = rng
        self._log = log
        self._said: set[Declared] = set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            pause = LOOK_SECONDS
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - whatever keeps us from looking, the worker's runs go on
                self._log.warning("schedules_not_registered", error=repr(error))
                pause = LOOK_AGAIN_SECONDS
            await self._database.clock.sleep(pause)

    async def look(self) -> list[Declared]:
        """Bring the jobs to their declarations, and log the results; one that stays the same is logged once."""
        found = await declare(self._database, self._declarations, self._rng)
        for one in found:
            if one not in self._said:
                self._say(one)
        self._said = {one for one in found if one.became.is_settled}
        return found

    def _say(self, one: Declared) -> None:
        fields = {"name": one.name, "job_id": one.job_id, "source": self._declarations.source}
        match one.became:
            case Became.REFUSED:
                self._log.error("schedule_refused", **fields, reason=one.reason)
            case Became.REMOVED:
                self._log.warning("schedule_removed", **fields, reason="no worker declares it; it is paused")
            case Became.NAME_TAKEN:
                self._log.warning(
                    "schedule_name_taken", **fields, reason="a person's job has that name; it is left alone"
                )
            case _:
                self._log.info(f"schedule_{one.became}", **fields)
