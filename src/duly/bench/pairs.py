"""`duly bench SCENARIO --pairs CHECKOUT`: measure this version against the one in another checkout, in turns.

Each measurement is a child process. The version that goes first changes from pair to pair, so a machine that becomes slower
favours neither. A figure's ratio is this version against the other within a pair: its median, and its spread over the pairs.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import click
import msgspec

from duly.bench.progress import Steps
from duly.bench.report import share
from duly.bench.roles import RoleFailed
from duly.domain.errors import Refused

THIS, OTHER = "this", "other"
_STOP_SECONDS = 30.0
_NOT_FIGURES = ("scenario", "config")
# A version is loaded from its own checkout, whatever this process was told.
_NOT_INHERITED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")

Figures = dict[str, float]


class Comparison(msgspec.Struct, frozen=True):
    """One figure: the median of each version, and this version's share of the other's, where that is not zero."""

    this: float
    other: float
    ratio: float | None
    ratio_min: float | None
    ratio_max: float | None


class Side:
    """One version of Duly, as the command that runs its scenarios."""

    def __init__(self, name: str, command: Sequence[str], variables: Mapping[str, str]) -> None:
        self.name = name
        self._command = [*command, "bench"]
        self._variables = dict(variables)

    def check_knows(self, scenario: str, arguments: Sequence[str]) -> None:
        """Raise Refused when this version lacks the scenario or an option."""
        answer = subprocess.run(
            [*self._command, scenario, "--help"],
            capture_output=True,
            encoding="utf-8",
            env=self._variables,
            check=False,
        )
        if answer.returncode:
            raise Refused(f"{self.name}: cannot measure {scenario!r}: {answer.stderr.strip() or answer.stdout.strip()}")
        known = set(re.findall(r"--[a-z][a-z-]*", answer.stdout))
        if unknown := [flag for flag in arguments if flag.startswith("--") and flag not in known]:
            raise Refused(f"{self.name}: does not know {', '.join(unknown)} of {scenario!r}: leave it out")

    def measure(self, scenario: str, arguments: Sequence[str]) -> dict[str, Any]:
        """Run the scenario and return its result. Raises RoleFailed, below what the process wrote, when there is none."""
        with tempfile.TemporaryFile() as log:
            # In a session of its own, so that it gets one signal of Ctrl-C, from us, and can clean up undisturbed.
            with subprocess.Popen(
                [*self._command, scenario, *arguments, "--json"],
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self._variables,
                start_new_session=True,
            ) as child:
                written = _output_of(child)
            if child.returncode == 0:
                result: dict[str, Any] = msgspec.json.decode(written)
                return result
            log.seek(0)
            click.echo(log.read().decode(errors="replace").rstrip(), err=True)
        raise RoleFailed(f"{self.name}: the scenario ended with status {child.returncode}; its log is above")


def compare(
    scenario: str, arguments: Sequence[str], checkout: Path, rounds: int, fixed: Sequence[str], steps: Steps
) -> dict[str, Any]:
    """Measure both versions `rounds` times. The values of `fixed` in their configs have to be the same, or it is Refused."""
    sides = (Side(THIS, [sys.executable, "-m", "duly"], os.environ), other_side(checkout))
    sides[1].check_knows(scenario, arguments)
    pairs = []
    with steps.step(f"{rounds} pairs", 2 * rounds) as advance:
        for number in range(rounds):
            pair = {}
            for side in sides if number % 2 == 0 else reversed(sides):
                pair[side.name] = side.measure(scenario, arguments)
                advance(2 * number + len(pair))
            check_alike(pair[THIS]["config"], pair[OTHER]["config"], fixed)
            pairs.append((pair[THIS], pair[OTHER]))
    this, other = pairs[0]
    return {
        "scenario": scenario,
        "rounds": rounds,
        "config": this["config"],
        "other": {"checkout": str(checkout), "config": other["config"]},
        "figures": msgspec.to_builtins(figures([(flat(mine), flat(theirs)) for mine, theirs in pairs])),
    }


def other_side(checkout: Path) -> Side:
    """Return the version in a checkout. Raises Refused when there is none, or when it is not installed."""
    if not (checkout / "src" / "duly" / "__init__.py").is_file():
        raise Refused(f"{checkout} is not a checkout of Duly: it has no src/duly")
    program = checkout.absolute() / ".venv" / "bin" / "duly"
    if not program.is_file():
        raise Refused(f"{checkout} is not installed: run `make install` there")
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    return Side(OTHER, [str(program)], inherited)


def check_alike(this: Mapping[str, object], other: Mapping[str, object], fixed: Sequence[str]) -> None:
    """Raise Refused when two versions did not measure the same, because a default has changed."""
    for name in fixed:
        if name in this and name in other and this[name] != other[name]:
            flag = f"--{name.replace('_', '-')}"
            raise Refused(f"the default of {flag} is {this[name]} here and {other[name]} in the other version: give it")


def flat(result: Mapping[str, Any], prefix: str = "") -> Figures:
    """Return the numbers of a result, each under its path, such as `latency_ms p50`."""
    found: Figures = {}
    for name, value in result.items():
        if isinstance(value, dict) and name not in _NOT_FIGURES:
            found |= flat(value, f"{prefix}{name} ")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[prefix + name] = value
    return found


def figures(pairs: Sequence[tuple[Figures, Figures]]) -> dict[str, Comparison]:
    """Compare each figure that every result has; one that is always zero says nothing, and is left out."""
    return {name: _compared([(this[name], other[name]) for this, other in pairs]) for name in _names(pairs)}


def _names(pairs: Sequence[tuple[Figures, Figures]]) -> Iterator[str]:
    results = [result for pair in pairs for result in pair]
    for name in results[0]:
        if all(name in result for result in results) and any(result[name] for result in results):
            yield name


def _compared(pairs: Sequence[tuple[float, float]]) -> Comparison:
    this, other = (median(values) for values in zip(*pairs, strict=True))
    ratios = [ratio for mine, theirs in pairs if (ratio := share(mine, theirs)) is not None]
    if not ratios:
        return Comparison(this, other, None, None, None)
    return Comparison(this, other, round(median(ratios), 3), min(ratios), max(ratios))


def _output_of(child: subprocess.Popen[bytes]) -> bytes:
    """Read all that the child writes. When we are interrupted, so is the child, and it has time to clean up."""
    try:
        return child.communicate()[0]
    except BaseException:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
        raise


def print_comparison(compared: Mapping[str, Any]) -> None:
    """Show a comparison to a person."""
    from rich.console import Console
    from rich.table import Table

    title = f"duly bench {compared['scenario']}: this version against {compared['other']['checkout']}"
    table = Table(title=f"{title}, {compared['rounds']} pairs", title_justify="left", box=None, pad_edge=False)
    table.add_column("figure", style="bold")
    for heading in (THIS, OTHER, "ratio", "spread"):
        table.add_column(heading, justify="right")
    for name, row in compared["figures"].items():
        ratio, spread = "", ""
        if row["ratio"] is not None:
            ratio, spread = f"{row['ratio']:.2f}", f"{row['ratio_min']:.2f} to {row['ratio_max']:.2f}"
        table.add_row(name, _number(row["this"]), _number(row["other"]), ratio, spread)
    Console(highlight=False).print(table)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"
