"""Many seeds, on all cores: one scratch cluster, one database and one process for each core."""

from __future__ import annotations

import gc
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context
from multiprocessing.queues import Queue
from pathlib import Path

import msgspec

from tests.simulation.parts import COUNTED
from tests.simulation.plan import FAULTS
from tests.simulation.server import Server, scratch_servers
from tests.simulation.simulate import Verdict, simulate

PROCESSES = 2


class Report(msgspec.Struct):
    """What came of a batch."""

    verdicts: list[Verdict]
    seconds: float

    @property
    def broken(self) -> list[Verdict]:
        """The seeds that broke a promise."""
        return [verdict for verdict in self.verdicts if verdict.violation is not None]

    @property
    def struck(self) -> Counter[str]:
        """How often each fault struck."""
        return sum((Counter(verdict.struck) for verdict in self.verdicts), Counter())

    @property
    def absent(self) -> list[str]:
        """What should have struck or come about in any large batch, and has not."""
        return [what for what in (*FAULTS, *COUNTED) if not self.struck[what]]

    def _told(self, what: str) -> str:
        return f"{what} {self.struck[what]}" if self.struck[what] else f"{what} 0 (!)"

    def summary(self) -> str:
        """Say it in a few lines."""
        seeds = len(self.verdicts)
        statements = sum(verdict.statements for verdict in self.verdicts)
        executions = sum(verdict.executions for verdict in self.verdicts)
        struck = ", ".join(self._told(what) for what in sorted({*FAULTS, *COUNTED, *self.struck}))
        return (
            f"{seeds} seeds in {self.seconds:.0f} s ({seeds / self.seconds * 60:.0f} a minute),"
            f" {statements} statements, {executions} executions, {len(self.broken)} broken\nstruck: {struck}"
        )


def run_batch(
    seeds: Iterable[int],
    *,
    is_enough: Callable[[int, float], bool] = lambda _, __: False,
    on_verdict: Callable[[Verdict], None] = lambda _: None,
    without: Collection[str] = (),
    processes: int = PROCESSES,
) -> Report:
    """Run seeds, in order, until `is_enough(seeds done, seconds spent)` says so or there are no more."""
    begun = time.monotonic()
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory() as folder, scratch_servers(Path(folder) / "data", processes) as urls:
        context = get_context("spawn")
        addresses: Queue[str] = context.Queue()
        for url in urls:
            addresses.put(url)
        with ProcessPoolExecutor(processes, context, initializer=_connect, initargs=(addresses,)) as pool:
            left, pending = iter(seeds), set[Future[Verdict]]()
            while True:
                if not is_enough(len(verdicts), time.monotonic() - begun):
                    more = islice(left, processes * 2 - len(pending))
                    pending |= {pool.submit(_simulate, seed, without) for seed in more}
                if not pending:
                    break
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    verdicts.append(future.result())
                    on_verdict(verdicts[-1])
    return Report(sorted(verdicts, key=lambda verdict: verdict.seed), time.monotonic() - begun)


_server: Server | None = None


def _connect(addresses: Queue[str]) -> None:
    global _server
    _server = Server(addresses.get())
    gc.freeze()
    gc.disable()  # What a seed leaves behind is swept up after it, and not again and again while it is remembered.


def _simulate(seed: int, without: Collection[str]) -> Verdict:
    assert _server is not None
    verdict = simulate(seed, _server, without=without)
    gc.collect()
    return verdict
