"""Flags that say what holds runs back by a key: `--concurrency KEY=3`, `--fifo KEY`, `--rate KEY=10/PT1S --burst 5`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from duly.cli.arguments import read_duration
from duly.domain.limits.concurrency import Rate, check_concurrency, check_line, check_rate

NONE = "none"
_FLAGS = (
    click.option("--concurrency", metavar="KEY=N", help="At most N runs of KEY at once."),
    click.option("--fifo", metavar="KEY", help="Runs of KEY go one after another, in order."),
    click.option("--rate", metavar="KEY=N/PER", help="At most N runs of KEY start in each PER, as mail=10/PT1S."),
    click.option("--burst", type=int, help="Of --rate: how many may start at once after a rest; default: 1."),
)


def gate_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags to a command."""
    for flag in reversed(_FLAGS):
        function = flag(function)
    return function


def read(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Give the options of runs that the flags ask for; `none` takes one away. Raises UsageError, InvalidOption."""
    concurrency, fifo, rate, burst = (typed.get(name) for name in ("concurrency", "fifo", "rate", "burst"))
    if concurrency is not None and fifo is not None:
        raise click.UsageError("give --concurrency or --fifo, not both; --fifo is one at a time, in order")
    if burst is not None and rate is None:
        raise click.UsageError("--burst goes with --rate KEY=N/PER")
    found: dict[str, Any] = {}
    if NONE in (concurrency, fifo):
        found |= {"gate": None, "fifo": False}
    elif concurrency is not None:
        key, places = _split(concurrency, "--concurrency", "KEY=N, as customer-7=3")
        found |= check_concurrency(key, _number(places, "--concurrency", int))
    elif fifo is not None:
        found |= check_line(fifo)
    if rate is not None:
        found["rate"] = None if rate == NONE else check_rate(_rate(rate, burst))
    return found


def _rate(text: str, burst: int | None) -> Rate:
    key, pace = _split(text, "--rate", "KEY=N/PER, as mail=10/PT1S")
    number, _, per = pace.partition("/")
    return Rate(key, _number(number, "--rate", float), read_duration(per or "PT1S"), 1 if burst is None else burst)


def _split(text: str, flag: str, shape: str) -> tuple[str, str]:
    key, sign, value = text.rpartition("=")
    if not sign or not key:
        raise click.UsageError(f"{flag} {text!r} is not {shape}")
    return key, value


def _number(text: str, flag: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise click.UsageError(f"{flag}: {text!r} is not a number") from None
