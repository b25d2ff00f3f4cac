"""`python -m benchmarks.peers`: install the peers, measure every system by every scenario, and show the table.

A scenario is measured with one system after the other, so what is compared was measured within a minute or two.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from time import sleep
from typing import Any, NamedTuple

import click

from benchmarks.peers import install, server, table
from benchmarks.peers.registry import SYSTEMS, Home
from benchmarks.peers.scenarios import SCENARIOS, Sizes
from benchmarks.peers.server import Server
from duly import __version__
from duly.postgres.settings import MEBIBYTE, memory_of_machine

ROOT = Path(__file__).parents[2]
WORK = ROOT / "build" / "peers"
README = ROOT / "README.md"
_DATABASE = "measured"
_SECONDS_MAX = 600.0
_END_SECONDS = 30.0
_BUSY_SECONDS = 0.3
# Systems are measured with their own settings, and with compiled code, as any process has it.
_NOT_INHERITED = ("DULY_", "PG", "PYTHON", "VIRTUAL_ENV")


class Place(NamedTuple):
    """Where a system runs: its Python, the folder of Node's packages, and its version."""

    python: Path
    node: Path | None
    version: str


class NotMeasured(Exception):
    """A measurement gave no figures."""


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--systems", default=",".join(SYSTEMS), show_default=True, help="Which, separated by commas.")
@click.option("--scenarios", default=",".join(SCENARIOS), show_default=True, help="Which, separated by commas.")
@click.option("--scale", type=click.FloatRange(0.0001, 1), default=1.0, show_default=True, help="Of all sizes.")
@click.option("--rounds", type=click.IntRange(1), default=1, show_default=True, help="The table has their medians.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=WORK / "results.json",
    help="Write the results here, as JSON.  [default: build/peers/results.json]",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Make the temporary PostgreSQL in this folder; it should be on a disk.  [default: build/peers]",
)
@click.option("--write", is_flag=True, help="Put the table into the README; only at full size, and with all systems.")
def compare(
    systems: str, scenarios: str, scale: float, rounds: int, output: Path, folder: Path | None, write: bool
) -> None:
    """Measure Duly, its peers and bare SQL by the same scenarios, on one PostgreSQL made for it."""
    chosen, requested = _chosen(systems, SYSTEMS), _chosen(scenarios, SCENARIOS)
    if write and (scale < 1 or len(chosen) < len(SYSTEMS) or len(requested) < len(SCENARIOS)):
        raise click.UsageError("--write needs all systems and scenarios, at full size")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    WORK.mkdir(parents=True, exist_ok=True)
    try:
        places = _install(chosen)
    except install.InstallFailed as error:
        raise click.ClickException(str(error)) from error
    before = _load()
    with server.running(folder or WORK) as postgres:
        cells = _measure_all(postgres, places, requested, scale, rounds)
        results = _results(postgres, places, cells, Sizes().scaled(scale), rounds)
    results["machine"] |= {"load_before": before, "load_after": _load()}
    output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    click.echo(f"{table.table(results)}\n\n{table.notes(results)}")
    failed = [f"{system} {scenario}" for (system, scenario), cell in cells.items() if "error" in cell]
    if failed:
        raise click.ClickException(f"not measured: {', '.join(failed)}; {WORK}/logs has what they wrote")
    if write and len(places) < len(SYSTEMS):
        raise click.ClickException("the README is as it was, because a system is missing")
    if write:
        table.write(README, results)


def _chosen(names: str, known: Mapping[str, object]) -> list[str]:
    chosen = [name.strip() for name in names.split(",")]
    if unknown := [name for name in chosen if name not in known]:
        raise click.UsageError(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    return [name for name in known if name in chosen]


def _install(chosen: Sequence[str]) -> dict[str, Place]:
    """Install what the systems need. One whose programs are missing is left out, with a sentence."""
    places = {}
    for name in chosen:
        entry = SYSTEMS[name]
        missing = install.missing_for_node() if entry.home is Home.NODE else []
        if missing:
            click.echo(
                f"{entry.title} is left out: {' and '.join(missing)} not found; install Node 18 or newer", err=True
            )
            continue
        places[name] = _place(entry.home, entry.package)
    return places


def _place(home: Home, package: str) -> Place:
    if home is Home.DULY:
        return Place(Path(sys.executable), None, __version__ if package else "")
    python = install.python_packages(WORK / "python")
    if home is Home.PYTHON:
        return Place(python, None, install.python_version(python, package))
    node = install.node_packages(WORK / "node")
    return Place(python, node, install.node_version(node, package))


def _measure_all(
    postgres: Server, places: Mapping[str, Place], scenarios: Sequence[str], scale: float, rounds: int
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the figures, or the error, of each system and scenario."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for number in range(1, rounds + 1):
        for scenario in scenarios:
            for system, place in places.items():
                asyncio.run(postgres.renew(_DATABASE))
                busy = _busy_percent()
                try:
                    cell: dict[str, Any] = measured(system, place, scenario, scale, postgres.url(_DATABASE))
                except NotMeasured as error:
                    cell = {"error": str(error)}
                found.setdefault((system, scenario), []).append(cell | {"busy_percent": busy})
                click.echo(f"{number}/{rounds} {scenario} {system}: {_words(cell)}", err=True)
    return {key: _median_of(cells) for key, cells in found.items()}


def measured(system: str, place: Place, scenario: str, scale: float, url: str) -> dict[str, Any]:
    """Measure one scenario with one system in a child process. Raises NotMeasured; nothing of it is left behind."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
    variables = inherited | {"PYTHONPATH": str(ROOT), "PEERS_URL": url, "PEERS_NODE": str(place.node or "")}
    command = [str(place.python), "-m", "benchmarks.peers.measure", f"benchmarks.peers.adapters.{system}"]
    logs = WORK / "logs"
    logs.mkdir(exist_ok=True)
    with (logs / f"{system}-{scenario}.log").open("wb") as log:
        # It and its workers are a process group of their own.
        child = subprocess.Popen(
            [*command, scenario, str(scale)],
            cwd=WORK,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
        try:
            written, _ = child.communicate(timeout=_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"not within {_SECONDS_MAX:.0f} s") from None
        finally:
            _end(child)
        if child.returncode:
            log.flush()
            raise NotMeasured(_last_line(Path(log.name)))
    figures: dict[str, Any] = json.loads(written.splitlines()[-1])
    return figures


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child, which ends its workers; then kill what may be left of its process group."""
    if child.poll() is None:
        child.terminate()
        with suppress(subprocess.TimeoutExpired):
            child.wait(_END_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "it ended without a word"


def _median_of(cells: Sequence[dict[str, Any]]) -> dict[str, Any]:
    for cell in cells:
        if "error" in cell:
            return cell
    return {name: median(cell[name] for cell in cells) for name in cells[0]}


def _results(
    postgres: Server,
    places: Mapping[str, Place],
    cells: Mapping[tuple[str, str], dict[str, Any]],
    sizes: Sizes,
    rounds: int,
) -> dict[str, Any]:
    systems = {
        name: {
            "title": SYSTEMS[name].title,
            "version": place.version,
            "config": SYSTEMS[name].config,
            "scenarios": {scenario: cell for (system, scenario), cell in cells.items() if system == name},
        }
        for name, place in places.items()
    }
    machine = {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_mib": memory_of_machine() // MEBIBYTE,
        "postgres": postgres.version,
        "python": platform.python_version(),
        "node": _node_version() if any(place.node for place in places.values()) else "",
    }
    at = f"{datetime.now(UTC):%d %B %Y}".lstrip("0")
    sizes_ = sizes._asdict()
    return {
        "at": at,
        "machine": machine,
        "settings": server.SETTINGS,
        "sizes": sizes_,
        "rounds": rounds,
        "systems": systems,
    }


def _node_version() -> str:
    done = subprocess.run([shutil.which("node") or "node", "--version"], capture_output=True, text=True, check=True)
    return done.stdout.strip().lstrip("v")


def _load() -> float:
    return round(os.getloadavg()[0], 1)


def _busy_percent() -> float:
    """Return how much of the machine others use now, while we wait; 0 where the system does not tell."""
    try:
        began = _cpu()
        sleep(_BUSY_SECONDS)
        ended = _cpu()
    except OSError:
        return 0.0
    return round(100 * (1 - (ended[1] - began[1]) / max(1, ended[0] - began[0])), 1)


def _cpu() -> tuple[int, int]:
    """Read the ticks of all cores, and those in which they were idle."""
    with Path("/proc/stat").open(encoding="ascii") as file:
        ticks = [int(field) for field in file.readline().split()[1:]]
    return sum(ticks), ticks[3] + ticks[4]


def _words(cell: Mapping[str, Any]) -> str:
    return "  ".join(
        f"{name} {value:,.1f}" if isinstance(value, float) else f"{name} {value}" for name, value in cell.items()
    )


if __name__ == "__main__":
    compare(prog_name="make compare")
