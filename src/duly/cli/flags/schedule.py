"""Flags of a job's schedule, the same for `duly submit` and `duly jobs edit`, and their parsing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec

from duly.cli.flags.arguments import read_duration, read_moment
from duly.cli.flags.job import NONE
from duly.cli.flags.settings import together
from duly.domain.errors import InvalidOption
from duly.domain.triggers.schedule import options

_FLAGS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("--every",), "DURATION", "Repeat at this interval, such as PT1H or seconds."),
    (("--cron",), "EXPR", 'By cron: "30 2 * * 1-5", five fields, or six with seconds first.'),
    (("--when", "--text", "when"), "TEXT", 'In English: "every weekday at 9:30am", "tomorrow at noon".'),
    (("--schedule",), "JSON|@FILE", "The whole schedule as JSON, or its file; see docs/reference/triggers.md."),
    (("--tz",), "ZONE", "The zone of the schedule, as Europe/Paris; UTC without it."),
    (("--mode",), "MODE", "Of --every: fixed_rate, or fixed_delay to count from the end of each run."),
    (("--start",), "MOMENT", "Start of the schedule: with an offset, or local time in --tz."),
    (("--end",), "MOMENT", "End of the schedule, exclusive."),
    (("--max-runs",), "N", "Total number of runs."),
    (("--jitter",), "DURATION|JSON", "Delay each fire by up to this; always the same for one job."),
    (("--misfire",), "POLICY|JSON", "Missed occurrences: fire_once, fire_all or skip."),
    (("--overlap",), "POLICY|JSON", "Occurrences due during a run: skip, buffer_one, queue, cancel_running or allow."),
    (("--pause-on-failure",), "N", "Pause it after this many failed runs in a row."),
)
schedule_flags = together(
    *(click.option(*names, metavar=metavar, help=text) for names, metavar, text in _FLAGS),
    click.option(
        "--calendar",
        "calendars",
        multiple=True,
        metavar="NAME[:MODE[:ON_HIT]]",
        help="Apply a calendar: exclude (or include) its times, and skip (or defer) blocked occurrences.",
    ),
)
# Where these are JSON, they are the shape itself.
_SHAPES = ("jitter", "misfire", "overlap")
_NUMBERS = ("max_runs", "pause_on_failure")


def flag(option: str) -> str:
    """Write an option as a flag."""
    return "--calendar" if option == "calendars" else f"--{option.replace('_', '-')}"


def compose(typed: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the typed shape; None without one. Raises UsageError, Refused."""
    said = read_said(typed)
    try:
        shape = options.compose(said, flag)
    except InvalidOption as error:
        raise click.UsageError(str(error)) from None
    if shape is not None:
        options.check(shape)
    return shape


def amend(shape: Mapping[str, Any], typed: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a shape with only the typed parts changed. Raises UsageError, Refused."""
    said = {option: None if _is_none(value) else value for option, value in read_said(typed).items()}
    if not said:
        return shape
    try:
        changed = options.amend(shape, said, flag)
    except InvalidOption as error:
        raise click.UsageError(str(error)) from None
    options.check(changed)
    return changed


def read_said(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the typed parts of a schedule; the rest is left out."""
    given = {option: typed.get(option) for option in options.OPTIONS}
    return {option: _read(option, value) for option, value in given.items() if value not in (None, ())}


def _read(option: str, value: Any) -> Any:
    if _is_none(value):
        return value
    if option == "at":
        return read_moment(value, "at")
    if option == "every":
        return read_duration(value)
    if option == "schedule":
        return _json(_contents(value), "--schedule")
    if option == "calendars":
        return [_calendar(text) for text in value]
    if option in _SHAPES and value.startswith("{"):
        return _json(value, flag(option))
    if option == "jitter":
        return read_duration(value)
    if option in _NUMBERS:
        with suppress(ValueError):
            return int(value)
    return value


def _is_none(value: Any) -> bool:
    return value in (NONE, (NONE,), [NONE])


def _contents(text: str) -> str:
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--schedule {text}: {error}") from None


def _json(text: str, what: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise click.UsageError(f"{what} is not JSON: {error}") from None


def _calendar(text: str) -> dict[str, str]:
    """Read NAME[:MODE[:ON_HIT]]."""
    name, *rest = text.split(":")
    if len(rest) > 2 or not name:
        raise click.UsageError(f"--calendar {text!r} is not NAME, NAME:exclude or NAME:include:defer")
    return {"name": name, **dict(zip(("mode", "on_hit"), rest, strict=False))}
