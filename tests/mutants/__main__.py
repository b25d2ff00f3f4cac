"""Try every mutant, or those whose names contain what is given: `python -m tests.mutants fence`."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from tests.mutants.bank import BANK, SIMULATION
from tests.mutants.runner import SEEDS_MAX, Fate, try_mutant


def main() -> int:
    """Try mutants; the exit status says whether each was killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of names; none means all")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="how many seeds the simulation may need")
    asked = parser.parse_args()
    chosen = [mutant for mutant in BANK if not asked.names or any(name in mutant.name for name in asked.names)]
    fates: Counter[Fate] = Counter()
    by_simulation = 0
    for mutant in chosen:
        trial = try_mutant(mutant, asked.seeds)
        fates[trial.fate] += 1
        by_simulation += trial.fate is Fate.KILLED and mutant.killed_by == SIMULATION
        print(f"{trial.fate:8} {trial.seconds:5.0f} s  {mutant.name}\n{'':18}{trial.words}", flush=True)
    print(f"{len(chosen)} mutants: {fates[Fate.KILLED]} killed, {by_simulation} of them by the simulation alone")
    return 0 if fates[Fate.KILLED] == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
