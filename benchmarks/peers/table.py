"""The result: a table of what was measured, and its place in the README."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers.registry import SYSTEMS

BEGIN, END = "<!-- written by make compare -->", "<!-- end -->"
_ABSENT = "–"
_NOISY_PERCENT = 15
LEGEND = (
    "The last column is above 1 where Duly is better (of times: the peer's by Duly's). "
    f"`~`: other programs used more than {_NOISY_PERCENT} % of the machine just before."
)


class Row(NamedTuple):
    """Figures of one scenario; of a rate more is better, of a time less."""

    title: str
    scenario: str
    figures: Sequence[str]
    is_rate: bool


ROWS = (
    Row("submit {many:,} in bulk, jobs/s", "bulk", ["per_second"], True),
    Row("submit one by one, jobs/s", "one_by_one", ["per_second"], True),
    Row("the same by the synchronous API", "one_by_one", ["sync_per_second"], True),
    Row("drain {many:,} with two worker processes, jobs/s", "drain", ["per_second"], True),
    Row("submit to start on an idle system, p50 / p95 / p99 ms", "pick_up", ["p50", "p95", "p99"], False),
    Row("start delay of {burst:,} due at one instant, p50 / p95 / max ms", "burst", ["p50", "p95", "max"], False),
)


def table(results: Mapping[str, Any]) -> str:
    """Return a Markdown table: one row for each figure, one column for each system, and Duly against the best peer."""
    systems = results["systems"]
    head = ["", *(_heading(system) for system in systems.values()), "Duly to best peer"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    lines += [_line(row, systems, results["sizes"]) for row in ROWS]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def notes(results: Mapping[str, Any]) -> str:
    """Return what the table depends on: the machine, and the configuration of each system."""
    machine = results["machine"]
    configs = [f"- {_heading(system)}: {system['config']}." for system in results["systems"].values()]
    settings = ", ".join(f"{name}={value}" for name, value in results["settings"].items())
    return "\n".join(
        [
            f"{caption(results)} {settings}, everything else by default. Median of {results['rounds']}.",
            LEGEND,
            f"Load average {machine['load_before']} before, {machine['load_after']} after.",
            *configs,
        ]
    )


def caption(results: Mapping[str, Any]) -> str:
    """Return one sentence: where and when this was measured."""
    machine = results["machine"]
    node = f", Node {machine['node']}" if machine["node"] else ""
    return (
        f"{results['at']}, {machine['cores']} cores shared by PostgreSQL {machine['postgres']} with fsync on, "
        f"two worker processes and the client; Python {machine['python']}{node}."
    )


def write(readme: Path, results: Mapping[str, Any]) -> None:
    """Put the table between the two marks of a page. Raises ValueError when they are not there."""
    page = readme.read_text(encoding="utf-8")
    before, begin, rest = page.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{readme} has no {BEGIN} and {END}")
    markdown = table(results)
    legend = LEGEND if "~" in markdown else LEGEND.partition(" `~`")[0]
    heading = f"`make compare` ([how](benchmarks/peers/README.md)), {caption(results)} {legend}"
    readme.write_text(f"{before}{begin}{heading}\n\n{markdown}\n{end}{after}", encoding="utf-8")


def _heading(system: Mapping[str, Any]) -> str:
    return f"{system['title']} {system['version']}".strip()


def _line(row: Row, systems: Mapping[str, Any], sizes: Mapping[str, Any]) -> list[str]:
    cells = [_cell(row, system["scenarios"].get(row.scenario), sizes) for system in systems.values()]
    return [row.title.format(**sizes), *cells, _against_best(row, systems)]


def _cell(row: Row, measured: Mapping[str, Any] | None, sizes: Mapping[str, Any]) -> str:
    if not measured:
        return _ABSENT
    if "error" in measured:
        return "failed"
    found = [measured[name] for name in row.figures if name in measured]
    if not found:
        return _ABSENT
    broken = [f", {measured[name]:,.0f} {what}" for name, what in _BROKEN.items() if measured.get(name)]
    noisy = "~" if measured["busy_percent"] > _NOISY_PERCENT else ""
    fewer = f" (of {measured['jobs']:,.0f})" if measured.get("jobs", sizes["many"]) < sizes["many"] else ""
    return " / ".join(map(_number, found)) + noisy + fewer + "".join(broken)


_BROKEN = {"early": "early", "run_twice": "run twice"}


def _against_best(row: Row, systems: Mapping[str, Any]) -> str:
    """Compare each figure with the best of any peer: how many times as good Duly's is."""
    ratios = [_ratio(row, name, systems) for name in row.figures]
    return " / ".join(ratio for ratio in ratios if ratio) or _ABSENT


def _ratio(row: Row, name: str, systems: Mapping[str, Any]) -> str:
    best: Callable[[Sequence[float]], float] = max if row.is_rate else min
    ours = _figure(systems.get("duly"), row, name)
    theirs = [
        figure
        for key, system in systems.items()
        if SYSTEMS[key].is_peer and (figure := _figure(system, row, name)) is not None
    ]
    if not ours or not theirs:
        return ""
    return f"{ours / best(theirs) if row.is_rate else best(theirs) / ours:.2f}"


def _figure(system: Mapping[str, Any] | None, row: Row, name: str) -> float | None:
    measured = (system or {"scenarios": {}})["scenarios"].get(row.scenario, {})
    figure: float | None = measured.get(name)
    return figure


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
