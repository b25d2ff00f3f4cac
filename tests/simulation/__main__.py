"""Run seeds from the command line: `python -m tests.simulation --seeds 300`, or one of them again: `--seed 17 -v`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.simulation.batch import PROCESSES, run_batch
from tests.simulation.server import Server, scratch_servers
from tests.simulation.simulate import Verdict, simulate

BROKEN = 3  # The exit status when a promise was broken: another one than Python's own when the simulation itself fails.


def main() -> int:
    """Run what was asked for; the exit status says whether every promise held."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--minutes", type=float, help="start no seed after so long, and tell what the others came to")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="how many run at once")
    parser.add_argument("--stop", action="store_true", help="stop at the first seed that breaks a promise")
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument(
        "--without", default="", help="faults that stay away, to find out which one it takes: pause,crash"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="tell everything that happens in it")
    asked = parser.parse_args()
    without = asked.without.split(",")
    if asked.seed is not None:
        return replay(asked.seed, verbose=asked.verbose, without=without)
    broken: list[Verdict] = []

    def on_verdict(verdict: Verdict) -> None:
        if verdict.violation is not None:
            broken.append(verdict)
            print(tell(verdict), flush=True)

    seeds = range(asked.first, asked.first + asked.seeds)

    def is_enough(_: int, seconds: float) -> bool:
        return (asked.stop and bool(broken)) or (asked.minutes is not None and seconds > asked.minutes * 60)

    report = run_batch(seeds, is_enough=is_enough, on_verdict=on_verdict, without=without, processes=asked.processes)
    print(report.summary())
    return BROKEN if broken else 0


def replay(seed: int, *, verbose: bool, without: list[str]) -> int:
    """Run one seed and tell what happened."""
    with tempfile.TemporaryDirectory() as folder, scratch_servers(Path(folder) / "data", 1) as [url]:
        verdict = simulate(seed, Server(url), verbose=verbose, without=without)
    print(tell(verdict))
    return BROKEN if verdict.violation else 0


def tell(verdict: Verdict) -> str:
    """Tell a seed's story, its verdict last."""
    violation = verdict.violation
    held = "every promise held" if violation is None else f"broken: {violation.promise} {' '.join(violation.about)}"
    again = "" if violation is None else f"\nagain: python -m tests.simulation --seed {verdict.seed} -v"
    counts = f"{verdict.statements} statements, {verdict.executions} executions, {verdict.seconds:.0f} virtual seconds"
    return "\n".join([*verdict.trace, f"seed {verdict.seed}: {held} ({counts}){again}"])


if __name__ == "__main__":
    sys.exit(main())
