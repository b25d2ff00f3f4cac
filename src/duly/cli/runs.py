"""`duly runs`: every run, wherever it stands."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import click
import msgspec

from duly.cli.arguments import read_moment, read_payload
from duly.cli.desk import Desk, Stopped, at_desk
from duly.cli.failures import REFUSED
from duly.cli.lazy import ListingGroup
from duly.cli.many import Many, change_many, many_options
from duly.cli.options import with_settings
from duly.cli.output import Listing, Row, json_option, listing_options, moment, plain, print_json, print_rows, show_list
from duly.cli.paging import chosen, filter_option, limit_option, none_of, quoted
from duly.cli.patience import about_run
from duly.cli.replaying import replay_runs
from duly.cli.run_many import CANCELLING, replaying
from duly.cli.say import say
from duly.cli.screen import some
from duly.cli.target_rows import what_runs
from duly.clock import Rng, SystemClock
from duly.domain.jobs.filter import RUN_STATES, RUNS
from duly.domain.runs import payload as payloads
from duly.domain.runs.progress import progress_text
from duly.moves.run_again import Changes
from duly.settings import Settings
from duly.store.boxes.runs import FINAL

_LOOK_SECONDS = 0.5

RUN_COLUMNS = {
    "id": lambda row: row["run_id"],
    "state": lambda row: row["state"],
    "handler": lambda row: row["handler"],
    "queue": lambda row: row["queue"],
    "attempt": lambda row: row["attempt"],
    "due": lambda row: row["due_at"],
    "reason": lambda row: reason(row["reason"], row.get("detail")),
}

ATTEMPT_COLUMNS = {
    "attempt": lambda row: row["attempt"],
    "outcome": lambda row: row["outcome"],
    "became": lambda row: row["became"],
    "started": lambda row: row["started_at"],
    "took": lambda row: row["finished_at"] - row["started_at"] if row["started_at"] else None,
    "late": lambda row: row["started_at"] - row["due_at"] if row["started_at"] and row["due_at"] else None,
    "fence": lambda row: row["fence"],
    "reason": lambda row: reason(row["reason"], row["detail"]),
}


@click.group(cls=ListingGroup)
def runs() -> None:
    """List, show, cancel and replay runs, and run them again. Without a command: list."""


@runs.command("list")
@click.option("--state", type=click.Choice(RUN_STATES))
@click.option("--job", metavar="JOB", help="Only the runs of this job, given by its id or its name.")
@click.option("--queue", help="Only those of this queue.")
@click.option("--parent", metavar="RUN", type=click.UUID, help="Only the subtasks of this run.")
@click.option("--workflow", metavar="WORKFLOW", type=click.UUID, help="Only the runs of this workflow's nodes.")
@filter_option
@limit_option
@listing_options
@with_settings("url")
def list_runs(
    settings: Settings,
    listing: Listing,
    state: str | None,
    job: str | None,
    queue: str | None,
    parent: UUID | None,
    workflow: UUID | None,
    filter_text: str,
    limit: int,
) -> None:
    """List runs, wherever they stand: by the moment they are for, what is to come first.

    A stretch of occurrences that did not run is one line, with its reason, how many they are, the first and the last.
    """

    of = {name: None if one is None else str(one) for name, one in (("parent", parent), ("workflow", workflow))}
    wanted = chosen(filter_text, RUNS, state=state, queue=queue, **of)

    async def read(desk: Desk) -> Sequence[Row]:
        of_job = wanted if job is None else chosen(wanted, RUNS, job_id=str(await desk.job_id(job)))
        return await desk.runs(of_job, limit)

    said = " AND ".join(part for part in (wanted, "" if job is None else f"job:{quoted(job)}") if part)
    empty = none_of("runs", said, "no runs; make one: duly submit HANDLER")
    show_list(settings, listing, read, RUN_COLUMNS, empty, at_desk)


@runs.command("show")
@click.argument("run_id", metavar="RUN", type=click.UUID)
@click.option("-f", "--follow", is_flag=True, help="Write its progress until it has ended, then show it.")
@json_option
@with_settings("url")
def show_run(settings: Settings, run_id: UUID, follow: bool, as_json: bool) -> None:
    """Show RUN: where it stands and what holds it back, how far it says it has come, its attempts, its last error."""
    asyncio.run(_show(settings, run_id, follow, as_json))


@runs.command("cancel")
@click.argument("run_ids", metavar="[RUN]...", type=click.UUID, nargs=-1)
@many_options("run_ids")
@click.option("--children", is_flag=True, help="Cancel the subtasks of those that are named as well.")
@json_option
@with_settings("url")
def cancel(settings: Settings, run_ids: tuple[UUID, ...], many: Many | None, children: bool, as_json: bool) -> int:
    """Cancel runs: those that are named, or all that fit and have not ended.

    The answer is `cancelled`: it was waiting, and will never start; `requested`: its worker has been asked, and what it came to
    will be on the run; or `too late`, with the state in which it had ended: then the exit code is 1.
    """
    if many is not None:
        if children:
            raise click.UsageError(
                "--children goes with runs that are named; of a filter, say which subtasks: parent:RUN"
            )
        return change_many(settings, CANCELLING, many, as_json=as_json)
    return asyncio.run(_cancel(settings, run_ids, children, as_json))


@runs.command("replay")
@click.argument("run_ids", metavar="[RUN]...", type=click.UUID, nargs=-1)
@many_options("run_ids")
@click.option("--rate", type=float, help="So many a second, instead of all at once; with --all or --filter.")
@json_option
@with_settings("url")
def replay(settings: Settings, run_ids: tuple[UUID, ...], many: Many | None, rate: float | None, as_json: bool) -> int:
    """Give dead runs another set of attempts: those that are named, or all that fit; as `duly dead replay` does."""
    if many is not None:
        return change_many(settings, replaying(rate), many, as_json=as_json)
    if rate is not None:
        raise click.UsageError("--rate goes with --filter or --all; runs that are named are replayed at once")
    return replay_runs(settings, run_ids, as_json=as_json)


@runs.command("again")
@click.argument("run_id", metavar="RUN", type=click.UUID)
@click.option("--payload", metavar="PAYLOAD", help="Other arguments, as one JSON object.")
@click.option("--queue", help="Another queue.")
@click.option("--priority", type=click.IntRange(0, 9), help="0 (first) to 9 (last).")
@click.option("--at", metavar="MOMENT", help="At this moment, with its offset, instead of now.")
@click.option("--key", help="Make it only once under this key, however often it is asked.")
@json_option
@with_settings("url")
def again(
    settings: Settings,
    run_id: UUID,
    payload: str | None,
    queue: str | None,
    priority: int | None,
    at: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Make a new run of what RUN was, when RUN has ended: as it was, or with what is given.

    RUN stays as it is. Dead runs can also be replayed, which keeps their id: duly dead replay.
    """
    arguments = None if payload is None else read_payload((), payload, "--payload")
    text = None if arguments is None else payloads.encode(arguments, "the payload")
    changes = Changes(text, queue, priority, read_moment(at, "--at"))
    asyncio.run(_again(settings, run_id, changes, key or str(Rng().uuid()), as_json))


async def _again(settings: Settings, run_id: UUID, changes: Changes, key: str, as_json: bool) -> None:
    async with at_desk(settings) as desk:
        made = await desk.run_again(run_id, changes, key=key)
    if as_json:
        print_json({"run_id": made, "job_id": made, "again_of": run_id})
    else:
        say(f"run {made}: made from run {run_id}")


async def _show(settings: Settings, run_id: UUID, follow: bool, as_json: bool) -> None:
    async with at_desk(settings) as desk:
        if follow:
            await _follow_progress(desk, run_id)
        await print_run(desk, run_id, as_json=as_json)


async def _follow_progress(desk: Desk, run_id: UUID) -> None:
    """Write how far a run has come, on standard error, whenever that has changed, until it has ended."""
    last, patience = "", about_run(run_id)
    while True:
        found = await patience.ask(lambda: desk.run(run_id))
        now = progress_text(found["progress"]) if found["progress"] else found["state"]
        if now != last:
            say(now, err=True)
        if found["state"] in FINAL:
            return
        last = now
        await SystemClock().sleep(_LOOK_SECONDS)


async def _cancel(settings: Settings, run_ids: Sequence[UUID], children: bool, as_json: bool) -> int:
    done: dict[UUID, Stopped] = {}
    async with at_desk(settings) as desk:
        try:
            for run_id in run_ids:
                done[run_id] = await desk.cancel_run(run_id, children=children)
        finally:  # One that is not there ends it; what was cancelled before is told all the same.
            _tell_cancelled(done, as_json=as_json)
    return REFUSED if any(stopped.is_too_late for stopped in done.values()) else 0


def _tell_cancelled(done: Mapping[UUID, Stopped], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {"run_id": run_id, "answer": one.answer, "state": one.state, "children": one.children}
                for run_id, one in done.items()
            ]
        )
        return
    for run_id, stopped in done.items():
        say(f"run {run_id}: {stopped.words}")


async def print_run(desk: Desk, run_id: UUID, *, as_json: bool) -> None:
    """Print one run with its attempts. Raises NotFound."""
    found = await desk.run(run_id)
    if as_json:
        print_json({**plain(found), "attempts": [plain(attempt) for attempt in found["attempts"]]})
        return
    _print_found(found)
    if found["state"] not in FINAL:
        say(_live(found["state"], (await desk.explain(str(run_id))).sentences))


def _live(state: str, sentences: Sequence[str]) -> str:
    """Say what a run does that has not ended: all of what is under way, whose attempt is not told yet; or what holds it back."""
    return "; ".join(sentences if state == "running" else sentences[:1])


def _print_found(found: Mapping[str, Any]) -> None:
    why = reason(found["reason"], _last_detail(found))
    say(f"run {found['run_id']} is {found['state']}{f': {why}' if why else ''}")
    say(f"{what_runs(found)} on queue {found['queue']}, due {moment(found['due_at'])}")
    if missed := missed_by(found):
        say(f"it stands for {some(missed, 'occurrence')} that came too late, itself included")
    if marks := _marks_line(found):
        say(marks)
    if made := _made_line(found):
        say(made)
    if found.get("payload"):
        say(f"payload {found['payload']}")
    elif not found.get("payload_kept", True):
        say("its payload is no longer kept")
    if found["progress"]:
        say(f"progress {progress_text(found['progress'])}, told {moment(found['progress']['updated_at'])}")
    if found["checkpoint"]:
        saved = found["checkpoint"]
        say(f"checkpoint of {some(saved['bytes'], 'byte')}, saved {moment(saved['saved_at'])}")
    if found["attempts"] or found["state"] != "running":
        print_rows(found["attempts"], ATTEMPT_COLUMNS, "no attempts yet")
    if found["attempts"]:
        _print_last(found["attempts"][-1])


def _made_line(found: Mapping[str, Any]) -> str:
    """Say who submitted a run, and which definition it uses or used."""
    by, definition = found.get("submitted_by"), found.get("definition") or {}
    said = {
        "submitted by": None if by is None else f"{by['name']} ({by['action']}, {moment(by['at'])})",
        "priority": found["priority"],
        "version": definition.get("version"),
        **{name: definition.get(name) for name in ("retry", "timeout", "concurrency", "rate_limit")},
    }
    return "   ".join(f"{name} {_written(value)}" for name, value in said.items() if value is not None)


def _written(value: object) -> str:
    return msgspec.json.encode(value).decode() if isinstance(value, dict) else str(value)


def _marks_line(found: Mapping[str, Any]) -> str:
    """Say what a run is marked with."""
    said = {
        "tags": ", ".join(found["tags"]),
        "request": found["request_id"],
        "trace": found["traceparent"],
        "parent": found["parent"],
        "after": ", ".join(f"{job} ({on})" for job, on in found["after"]),
        "workflow": found["workflow_id"],
        "node": found["node"],
    }
    return "   ".join(f"{name} {value}" for name, value in said.items() if value)


def reason(words: str | None, detail: str | None) -> str | None:
    """Say why, with all that a record stands for: a stretch of skipped occurrences, or those that a run makes up for."""
    known = _object(detail)
    if "count" in known:
        first, last = (moment(datetime.fromisoformat(known[end]).astimezone(UTC)) for end in ("first", "last"))
        stretch = first if known["count"] == 1 else f"{first} to {last}"
        return f"{words}: {some(known['count'], 'occurrence')}, {stretch}"
    if "missed" in known:
        return "; ".join([*([words] if words else []), f"{known['missed']} missed"])
    return words


def missed_by(found: Mapping[str, Any]) -> int:
    """Say how many missed occurrences a run stands for: its options say so while it lives, its last attempt afterwards."""
    return int(_object(found.get("options")).get("missed") or _object(_last_detail(found)).get("missed") or 0)


def _last_detail(found: Mapping[str, Any]) -> str | None:
    return found["attempts"][-1]["detail"] if found["attempts"] else None


def _object(text: str | None) -> dict[str, Any]:
    value = None if text is None else msgspec.json.decode(text)
    return value if isinstance(value, dict) else {}


def _print_last(attempt: Mapping[str, Any]) -> None:
    if attempt["result"] is not None:
        say(f"result {attempt['result']}")
    detail = _object(attempt["detail"])
    trace = detail.get("traceback")
    if isinstance(trace, str):
        say(trace)
    elif detail.keys() - {"missed", "first", "last", "count"}:
        say(f"detail {attempt['detail']}")
