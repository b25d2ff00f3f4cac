"""Try every mutant, or those whose names contain what is given: `python -m tests.mutants fence`.

What was killed on this very tree before is not tried again, so a programme that was cut short goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.mutants.bank import BANK, SIMULATION, Mutant
from tests.mutants.runner import SEEDS_MAX, Fate, Memory, Trial, try_mutant


def main() -> int:
    """Try mutants; the exit status says whether each was killed."""
    asked = _parser().parse_args()
    chosen = [mutant for mutant in BANK if not asked.names or any(name in mutant.name for name in asked.names)]
    chosen.sort(key=lambda mutant: mutant.killed_by == SIMULATION)  # A test takes seconds, the simulation minutes.
    memory = Memory()
    trials = [_try(mutant, memory, asked) for mutant in chosen]
    killed = [trial.mutant for trial in trials if trial.fate is Fate.KILLED]
    by_simulation = Counter(mutant.killed_by for mutant in killed)[SIMULATION]
    print(f"{len(chosen)} mutants: {len(killed)} killed, {by_simulation} of them by the simulation alone")
    for trial in trials:
        if trial.fate is not Fate.KILLED:
            print(f"{trial.fate}: {trial.mutant.name}")
    return 0 if len(killed) == len(chosen) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; none means all")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="how many seeds the simulation may need")
    parser.add_argument("--anew", action="store_true", help="try those too that were killed before")
    return parser


def _try(mutant: Mutant, memory: Memory, asked: argparse.Namespace) -> Trial:
    words = None if asked.anew else memory.recall(mutant)
    if words is not None:
        trial = Trial(mutant, Fate.KILLED, 0.0, f"{words} (before)")
    else:
        trial = try_mutant(mutant, asked.seeds)
        memory.keep(trial)
    print(f"{trial.fate:8} {trial.seconds:5.0f} s  {mutant.name}\n{'':18}{trial.words}", flush=True)
    return trial


if __name__ == "__main__":
    sys.exit(main())
