"""`duly next`: a description of a schedule and its next fires, before anything is saved."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from duly import triggers
from duly.cli.failures import REFUSED
from duly.cli.render.carets import explained
from duly.cli.render.output import json_option, print_json, print_table
from duly.cli.render.say import say
from duly.clock import host_now
from duly.domain.triggers.schedule.summary import brief

_CRON_ZONE = re.compile(r"\s*(CRON_TZ|TZ)=", re.IGNORECASE)
_CRON_WORD = re.compile(r"[\d*?,/()+.HLW-]+|@.*", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_REPEAT = re.compile(r"R-?\d*/|R/", re.IGNORECASE)
_DURATION = re.compile(r"P[T\d]")


class Unreadable(click.ClickException):
    """A schedule that cannot be read, shown with a caret under each place that is wrong."""

    exit_code = REFUSED

    def __init__(self, errors: Sequence[Mapping[str, Any]], expression: str) -> None:
        super().__init__(str(errors[0]["message"]))
        self._errors, self._expression = errors, expression

    def show(self, file: Any = None) -> None:
        """Write to standard error."""
        found = ((error, self._expression if error["field"].startswith("trigger.") else None) for error in self._errors)
        say(explained(found), err=True)


@click.command("next")
@click.argument("schedule")
@click.option("--tz", help="The zone of local times, such as Europe/London. Without it: UTC.")
@click.option(
    "-n", "--count", default=10, show_default=True, type=click.IntRange(1, 1000), help="How many fires to show."
)
@click.option("--start", help="Where an RRULE or an interval begins: 2026-01-01T09:00:00, with or without an offset.")
@click.option("--after", help="Show the fires after this moment rather than after now; with an offset.")
@click.option("--job", help="The id of the job, for H in a cron expression.")
@json_option
def next_(
    schedule: str, tz: str | None, count: int, start: str | None, after: str | None, job: str | None, as_json: bool
) -> None:
    """Describe SCHEDULE and show its next fires.

    SCHEDULE is English ("every weekday at 9:30am"), cron ("30 9 * * 1-5"), an interval (PT90M), an ISO 8601 repetition
    (R/2026-01-31T09:00:00Z/P1M), an RRULE (with --start) or a single moment.
    """
    shown = triggers.preview({"trigger": trigger_of(schedule, tz, start)}, _moment(after), count, job)
    if as_json:
        print_json(shown)
        raise click.exceptions.Exit(0 if shown["valid"] else REFUSED)
    if not shown["valid"]:
        raise Unreadable(shown["errors"], schedule)
    _print(shown)


def trigger_of(text: str, tz: str | None, start: str | None) -> dict[str, Any]:
    """Return the kind of trigger of a text, by how it begins."""
    zone = {} if tz is None else {"tz": tz}
    if _REPEAT.match(text):
        return {"type": "iso8601", "text": text, **zone}
    if "FREQ=" in text.upper():
        if start is None:
            raise click.UsageError("an RRULE needs --start, which sets its phase and time of day")
        return {"type": "rrule", "rrule": text, "dtstart": start, **zone}
    if _DURATION.match(text):
        return {"type": "interval", "every": text, "anchor": start, **zone}
    words = text.split()
    if words and _DATE.match(words[0]):
        return {"type": "at" if "T" in words[0] else "text", "at" if "T" in words[0] else "text": text, **zone}
    if _CRON_ZONE.match(text) or (words and _CRON_WORD.fullmatch(words[0])):
        return {"type": "cron", "expr": text, **zone}
    return {"type": "text", "text": text, **zone}


def _moment(text: str | None) -> datetime:
    if text is None:
        return host_now()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise click.UsageError(
            f"--after {text!r} is not a moment; write it with an offset, such as 2026-11-01T09:00:00+01:00"
        )
    return moment


def _print(shown: Mapping[str, Any]) -> None:
    say(shown["description"])
    if shown["words"] is not None:
        say(f"saved as {brief(shown['canonical'])}")
    rows = [_row(fire) for fire in shown["next"]]
    if rows:
        print_table(rows, ["local", "offset", "UTC", "note"])
    else:
        say("it does not fire any more")
    for warning in shown["warnings"]:
        say(f"{warning['code'].replace('_', ' ').lower()}: {warning['message']}")


def _row(fire: Mapping[str, Any]) -> list[str]:
    local = datetime.fromisoformat(fire["local"])
    utc = fire["scheduled_at"].replace("T", " ")
    return [f"{local:%a} {fire['local'].replace('T', ' ')}", fire["offset"], utc, fire["note"] or ""]
