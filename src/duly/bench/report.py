"""Results of a scenario: one JSON object for programs, a table for people.

`skew_ms` is start minus due. `latency_ms` is what the scenario is about: its own docstring says from where to where.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec


class Percentiles(msgspec.Struct, frozen=True):
    """The distribution of a quantity; None where a scenario has none of it."""

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class Verdict(msgspec.Struct, frozen=True):
    """Runs that broke a promise."""

    early: int = 0
    lost: int = 0
    duplicates: int = 0

    def __add__(self, other: Verdict) -> Verdict:
        return Verdict(self.early + other.early, self.lost + other.lost, self.duplicates + other.duplicates)


class Result(msgspec.Struct, kw_only=True):
    """The figures of a scenario. In JSON, the fields of `verdict` and `more` stand beside the rest.

    `more` holds what only this scenario has, `config` what differs from its options and surroundings. Where no `ratio` is
    given, it is the rate against the baseline's.
    """

    runs_per_second: float
    baseline_per_second: float | None
    ratio: float | msgspec.UnsetType | None = msgspec.UNSET
    verdict: Verdict = Verdict()
    latency_ms: Percentiles = Percentiles()
    skew_ms: Percentiles = Percentiles()
    config: dict[str, Any] = {}
    more: dict[str, Any] = {}

    def as_dict(self) -> dict[str, Any]:
        """Lay the figures out side by side."""
        own: dict[str, Any] = msgspec.to_builtins(self)
        own.setdefault("ratio", share(self.runs_per_second, self.baseline_per_second))
        del own["config"]
        own |= own.pop("verdict") | own.pop("more")
        return own


def percentiles(seconds: Iterable[float]) -> Percentiles:
    """Sum spans up, in milliseconds."""
    ordered = sorted(seconds)
    if not ordered:
        return Percentiles()
    return Percentiles(*(milliseconds(at_share(ordered, share)) for share in (0.50, 0.95, 0.99, 1.0)))


def at_share(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of them does not exceed."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def milliseconds(seconds: float) -> float:
    """Write a span in milliseconds, to the microsecond."""
    return round(seconds * 1000, 3)


def rate(number: float, seconds: float) -> float:
    """Return how many a second."""
    return round(number / seconds, 1) if seconds > 0 else 0.0


def share(part: float, whole: float | None) -> float | None:
    """Say how large `part` is against `whole`; nothing when there is nothing to hold it against."""
    return round(part / whole, 3) if whole else None


def print_json(result: dict[str, Any]) -> None:
    """Write exactly one JSON object to standard output."""
    click.echo(msgspec.json.encode(result))


def print_table(result: dict[str, Any]) -> None:
    """Show a result to a person."""
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"duly bench {result['scenario']}", title_justify="left", box=None, show_header=False, pad_edge=False
    )
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in result.items():
        if name != "scenario" and value not in (None, {}, {"p50": None, "p95": None, "p99": None, "max": None}):
            table.add_row(name, _words(value))
    Console(highlight=False).print(table)


def _words(value: object) -> str:
    match value:
        case dict():
            return "   ".join(f"{name} {_words(inner)}" for name, inner in value.items() if inner is not None)
        case list():
            return "  ".join(map(_words, value))
        case float() if abs(value) >= 100:
            return f"{value:,.0f}"
        case bool() | str() | None:
            return str(value).lower() if isinstance(value, bool) else str(value)
        case int():
            return f"{value:,}"
    return str(value)
