"""The screen of `duly top`: one look at the installation, fitted to the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from duly.cli.render.output import duration, moment
from duly.cli.render.queue import queue_state
from duly.cli.render.say import in_one_line
from duly.wire.figures import Overview, Point
from duly.wire.queues import Queue, Worker
from duly.wire.system import System, SystemFinding

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

_UNBOUNDED = 1_000
_HEAD_LINES = 13  # the head, and the titles of the tables
_COLOURS = {"error": "red", "warning": "yellow", "notice": "cyan"}


class Look(msgspec.Struct, frozen=True):
    """The installation at one moment. `recent` adds up the last five minutes; without `system`, the caller is no operator."""

    overview: Overview
    recent: Point
    queues: list[Queue]
    workers: list[Worker]
    system: System | None


class Shown(msgspec.Struct, frozen=True):
    """The last look at a place, and the error of a server that does not answer now."""

    place: str
    look: Look | None
    error: str | None = None
    failing_since: datetime | None = None


def document(look: Look) -> dict[str, Any]:
    """Return a look for programs."""
    recent, system = look.recent, look.system
    delays = {"p50": recent.skew_p50, "p95": recent.skew_p95, "p99": recent.skew_p99}
    return {
        "read_at": look.overview.read_at,
        "runs_per_second": look.overview.runs_per_second,
        "start_delay_seconds": delays,
        "duration_seconds": {"p50": recent.duration_p50, "p95": recent.duration_p95, "p99": recent.duration_p99},
        "ended": recent.ended,
        "failed": recent.failed,
        "retried": recent.retried,
        "ready": sum(queue.ready for queue in look.queues),
        "dead": look.overview.dead,
        "queues": look.queues,
        "workers": look.workers,
        "schedulers": None if system is None else system.schedulers,
        "shards_held": None if system is None else system.shards_held,
        "staging_lag_seconds": None if system is None else system.staging_lag_seconds,
        "findings": None if system is None else system.findings,
        "attention": look.overview.attention,
    }


def screen(shown: Shown, width: int, height: int | None) -> RenderableType:
    """Lay a look out for a terminal of this size; without a height, everything is shown."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [_title(shown, width)]
    if shown.error is not None:
        since = "" if shown.failing_since is None else f" since {moment(shown.failing_since)}"
        parts.append(_line(f"no answer{since}, asking again: {shown.error}", "bold red"))
    if shown.look is None:
        return Group(*parts, *([] if shown.error else [Text("looking…")]))
    look, room = shown.look, _Room(_UNBOUNDED if height is None else height - _HEAD_LINES - (shown.error is not None))
    parts += _figures(look)
    findings = _findings(look, room)
    queues = _queues(look.queues, room)
    workers = _workers(look.workers, room)
    return Group(*parts, Text(), queues, Text(), workers, *findings)


class _Room:
    """The lines that are left."""

    def __init__(self, lines: int) -> None:
        self._lines = max(lines, 3)

    def take(self, wanted: int, share: int) -> int:
        """Take as many lines as are wanted, at most one in `share` of those that are left."""
        given = max(1, min(wanted, self._lines // share))
        self._lines -= given
        return given


def _line(text: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(in_one_line(text), style=style, no_wrap=True, overflow="ellipsis")


def _title(shown: Shown, width: int) -> Text:
    at = "" if shown.look is None else moment(shown.look.overview.read_at)
    left = f"duly top   {shown.place}"
    room = max(0, width - len(at) - 1)
    return _line(f"{left[:room]:<{room}} {at}" if at else left, "bold")


def _figures(look: Look) -> list[RenderableType]:
    overview, recent, system = look.overview, look.recent, look.system
    ready = sum(queue.ready for queue in look.queues)
    dead = f"{overview.dead:,}{'+' if overview.dead_is_more else ''}"
    lines = [
        f"throughput   {overview.runs_per_second:,.1f}/s   ready {ready:,}   dead {dead}",
        f"start delay  {_shares(recent.skew_p50, recent.skew_p95, recent.skew_p99)}",
        (
            f"in 5 min     ended {recent.ended:,}   failed {recent.failed:,}   retried {recent.retried:,}"
            f"   duration p95 {_seconds(recent.duration_p95)}"
        ),
    ]
    slots = sum(worker.slots for worker in look.workers)
    if system is not None:
        late = f"staging {_seconds(system.staging_lag_seconds)} late"
        lines.append(f"schedulers   {len(system.schedulers)}   {system.shards_held} of {system.shards} shards   {late}")
    lines.append(f"workers      {len(look.workers)}   {slots:,} slots")
    return [_line(line) for line in lines]


def _queues(queues: Sequence[Queue], room: _Room) -> Table:
    ordered = sorted(queues, key=lambda queue: (-queue.oldest_age_seconds, -queue.ready, queue.name))
    columns: dict[str, Callable[[Queue], str]] = {
        "queue": lambda queue: queue.name,
        "ready": lambda queue: f"{queue.ready:,}",
        "oldest": lambda queue: _seconds(queue.oldest_age_seconds) if queue.ready else "",
        "workers": lambda queue: str(queue.workers),
        "slots": lambda queue: str(queue.slots),
        "state": queue_state,
    }
    return _table(ordered, columns, room.take(len(ordered), 2), numbers=("ready", "oldest", "workers", "slots"))


def _workers(workers: Sequence[Worker], room: _Room) -> Table:
    ordered = sorted(workers, key=lambda worker: (worker.stalled_at is None, -worker.held_runs, worker.name))
    columns: dict[str, Callable[[Worker], str]] = {
        "worker": lambda worker: worker.name,
        "queues": lambda worker: ", ".join(worker.queues),
        "holds": lambda worker: f"{worker.held_runs:,}",
        "slots": lambda worker: str(worker.slots),
        "lease": lambda worker: _seconds(worker.lease_seconds_left),
        "state": lambda worker: "stalled" if worker.stalled_at else "draining" if worker.is_draining else "serving",
    }
    return _table(ordered, columns, room.take(len(ordered), 1), numbers=("holds", "slots", "lease"))


def _table(
    rows: Sequence[Any], columns: dict[str, Callable[[Any], str]], most: int, *, numbers: Sequence[str]
) -> Table:
    """Lay rows out; those that find no room are counted."""
    from rich.table import Table

    first, *rest = columns
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    table.add_column(first, no_wrap=True, overflow="ellipsis", min_width=8)
    for title in rest:
        justify = "right" if title in numbers else "left"
        table.add_column(title, justify=justify, no_wrap=True, overflow="ellipsis")  # type: ignore[arg-type]
    fits = rows if len(rows) <= most else rows[: most - 1]
    for row in fits:
        table.add_row(*(_line(read(row)) for read in columns.values()))
    if len(fits) < len(rows):
        table.add_row(_line(f"and {len(rows) - len(fits)} more", "dim"))
    elif not rows:
        table.add_row(_line("none", "dim"))
    return table


def _findings(look: Look, room: _Room) -> list[RenderableType]:
    """Return the doctor's findings, or, for those who are no operators, what needs attention."""
    if look.system is None:
        found = [_line(f"{one.severity:8} {one.text}", "yellow") for one in look.overview.attention]
    else:
        found = [_finding(one) for one in look.system.findings]
    if not found:
        return [_line(""), _line("nothing is wrong", "green")]
    shown = found[: room.take(len(found), 3)]
    return [_line(""), *shown]


def _finding(one: SystemFinding) -> Text:
    return _line(f"{one.severity:8} {one.code}: {one.message}", _COLOURS[one.severity])


def _shares(*values: float | None) -> str:
    named = zip(("p50", "p95", "p99"), values, strict=True)
    return "   ".join(f"{name} {_seconds(value)}" for name, value in named)


def _seconds(value: float | None) -> str:
    return "–" if value is None else duration(timedelta(seconds=value))
