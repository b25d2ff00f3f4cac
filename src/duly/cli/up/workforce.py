"""The workers of `duly up`: children that run `duly worker`, each under a name of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

from duly.api.metrics.definitions import Family
from duly.cli.flags.settings import span
from duly.cli.up import demo
from duly.cli.up.children import Child, Keeper, duly_command
from duly.cli.up.egress import may_call_loopback
from duly.cli.up.figures import Reports, of_all
from duly.cli.up.plan import Plan
from duly.clock import SystemClock
from duly.log import Log
from duly.store.connection.database import Database
from duly.store.tables import workers
from duly.store.tables.workers import WorkerRow

# The whole of `duly up` ends within ten seconds of Ctrl-C: runs have at most so long to finish, and the worker a moment
# more to settle and deregister.
_GRACE_SECONDS_MAX = 5.5
_GOODBYE_SECONDS = 1.0
_HANDED_ON = ("database_url", "secrets_key", "log_level", "log_format")


class Workforce:
    """As many worker processes as the plan says."""

    def __init__(self, plan: Plan, data: Path | None, name: str, *, on_death: Callable[[int], None]) -> None:
        self._settings = plan.settings
        self._data = data or plan.settings.data
        self._name = name
        self._grace = min(span(plan.settings, "grace").total_seconds(), _GRACE_SECONDS_MAX)
        clock, log = SystemClock(), Log("up")
        self._keepers: list[Keeper] = []
        self._reports: list[Reports] = []
        for number, what in enumerate(_served(plan), 1):
            reports = Reports()
            command = duly_command("worker", *what, *self._flags(number), "--figures", str(reports.descriptor))
            child = Child(command, pass_fds=[reports.descriptor])
            self._keepers.append(Keeper(child, "worker", clock=clock, log=log, on_death=on_death))
            self._reports.append(reports)

    def __len__(self) -> int:
        return len(self._keepers)

    async def start(self) -> None:
        """Start them all, and again whichever dies."""
        for keeper in self._keepers:
            await keeper.start()

    async def keep_reading(self) -> None:
        """Read what they report, for ever."""
        await asyncio.gather(*(reports.keep_reading() for reports in self._reports))

    def families(self) -> list[Family]:
        """Return their metrics, added up."""
        return of_all(self._reports)

    async def stop(self) -> None:
        """Let their runs finish, or be handed back, and end them all."""
        await asyncio.gather(*(keeper.stop(self._grace + _GOODBYE_SECONDS) for keeper in self._keepers))

    async def registered(self, database: Database) -> list[WorkerRow]:
        """Return those that are registered."""
        return [row for row in await workers.live(database) if row.name.startswith(f"{self._name}.")]

    def _flags(self, number: int) -> Iterator[str]:
        """Return our flags for the workers; they read variables and files by themselves."""
        yield from ("--tied", "--quiet", "--name", f"{self._name}.{number}")
        yield from ("--data", str(self._data), "--grace", str(self._grace))
        yield "--egress-loopback" if may_call_loopback(self._settings) else "--no-egress-loopback"
        for name in _HANDED_ON:
            if self._settings.sources[name].startswith("--"):
                yield from (f"--{name.replace('_', '-')}", str(getattr(self._settings, name)))


def _served(plan: Plan) -> list[list[str]]:
    """Describe what each process serves: the user's app, and the demo beside it; or, without either, only webhooks and
    programs.
    """
    settings = plan.settings
    mine, theirs = [[demo.PATH]] if plan.demo else [], settings.app
    if theirs:
        return [*([[theirs]] * plan.workers), *mine]
    is_wanted = settings.webhooks or settings.commands or settings.containers
    alone = [["--webhooks", str(settings.webhooks)]] if is_wanted else []
    return (mine or alone) * plan.workers
