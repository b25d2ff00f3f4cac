"""Try every mutant, or those whose names contain what is given: `python -m tests.mutants fence`.

A mutant that was killed on this very tree is not tried again, so an interrupted programme continues.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from tests.mutants.bank import BANK, SIMULATION, Mutant
from tests.mutants.runner import SEEDS_MAX, Fate, Memory, Trial, ask_baseline, try_mutant

PROCESSES = 2
BY_SIMULATION_MIN = 10  # of the whole bank


def main() -> int:
    """Try mutants; the exit status says whether each was killed, and enough of them by the simulation alone."""
    asked = _parser().parse_args()
    # On SIGTERM it waits for the tests under way, which are sessions of their own and would go on alone.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = [mutant for mutant in BANK if not asked.names or any(name in mutant.name for name in asked.names)]
    chosen.sort(key=lambda mutant: mutant.killed_by == SIMULATION)  # A test takes seconds, the simulation minutes.
    memory, begun, trials = Memory(), time.monotonic(), []

    def attempt(mutant: Mutant) -> Trial:
        words = None if asked.anew else memory.recall(mutant)
        if words is not None:
            return Trial(mutant, Fate.KILLED, 0.0, words)
        return try_mutant(mutant, asked.seeds, max(1, PROCESSES // asked.processes))

    with ThreadPoolExecutor(asked.processes) as pool:
        for trial in pool.map(attempt, chosen):
            trials.append(confirmed(trial, memory))
            print(
                f"{trials[-1].fate:8} {trial.seconds:5.0f} s  {trial.mutant.name}\n{'':18}{trials[-1].words}",
                flush=True,
            )
    summary, is_good = sum_up(trials, is_whole=not asked.names)
    print(f"{summary}\nin {time.monotonic() - begun:.0f} s, {asked.processes} at once")
    return 0 if is_good else 1


def confirmed(trial: Trial, memory: Memory) -> Trial:
    """Return the trial, kept in memory where it was killed by what is green without it."""
    if trial.fate is not Fate.KILLED or memory.recall(trial.mutant) is not None:
        return trial
    noticed_by = trial.words.partition(":")[0] if trial.mutant.killed_by == SIMULATION else trial.mutant.killed_by
    if memory.recall(noticed_by) is None:
        if red := ask_baseline(trial):
            return msgspec.structs.replace(trial, fate=Fate.RED_ANYWAY, words=red)
        memory.keep(noticed_by, "")
    memory.keep(trial.mutant, trial.words)
    return trial


def sum_up(trials: Sequence[Trial], *, is_whole: bool) -> tuple[str, bool]:
    """Summarise the trials, and say whether they meet the demand."""
    killed = [trial.mutant for trial in trials if trial.fate is Fate.KILLED]
    by_simulation = Counter(mutant.killed_by for mutant in killed)[SIMULATION]
    is_enough = not is_whole or by_simulation >= BY_SIMULATION_MIN
    demand = "" if is_enough else f", of which {BY_SIMULATION_MIN} are demanded"
    lines = [f"{len(trials)} mutants: {len(killed)} killed, {by_simulation} of them by the simulation alone{demand}"]
    lines += [f"{trial.fate}: {trial.mutant.name}" for trial in trials if trial.fate is not Fate.KILLED]
    return "\n".join(lines), is_enough and len(killed) == len(trials)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; none means all")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="how many seeds the simulation may need")
    parser.add_argument("--anew", action="store_true", help="try those too that were killed before")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="how many are tried at once")
    return parser


if __name__ == "__main__":
    sys.exit(main())
