"""`duly runs`: runs in every state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from uuid import UUID

import click
import msgspec

from duly.cli.client import with_client
from duly.cli.commands.runs.patience import about_run
from duly.cli.failures import REFUSED
from duly.cli.flags.arguments import read_moment, read_payload
from duly.cli.flags.bulk import Many, Verb, change_many, many_options, move_these
from duly.cli.flags.filters import chosen, filter_option, first, limit_option, none_of, quoted
from duly.cli.flags.names import job_id_of
from duly.cli.lazy import ListingGroup
from duly.cli.render.output import (
    Columns,
    Listing,
    answer,
    json_text,
    listing_options,
    moment,
    print_json,
    print_rows,
    show_list,
)
from duly.cli.render.say import say
from duly.client.asynchronous.client import AsyncClient
from duly.clock import SystemClock
from duly.domain.counting import some
from duly.domain.jobs.filter import RUNS
from duly.domain.runs.progress import progress_text
from duly.domain.runs.run import FINAL_STATES, RUN_STATES
from duly.domain.targets.words import described
from duly.wire.pages import PAGE_SIZE_MAX
from duly.wire.runs import Attempt, Progress, Run, RunCancelled, RunSummary

_LOOK_SECONDS = 0.5


def _reason_in_list(run: RunSummary) -> str | None:
    if (skipped := run.skipped) is not None:
        return _stretch(run.reason, skipped.count, skipped.first, skipped.last)
    return _missed(run.reason, run.missed)


RUN_COLUMNS: Columns = {
    "id": "run_id",
    "state": "state",
    "handler": "handler",
    "queue": "queue",
    "attempt": "attempt",
    "due": "due_at",
    "reason": _reason_in_list,
}

ATTEMPT_COLUMNS: Columns = {
    "attempt": "attempt",
    "outcome": "outcome",
    "became": "became",
    "started": "started_at",
    "duration": lambda one: one.finished_at - one.started_at if one.started_at else None,
    "late": lambda one: one.started_at - one.due_at if one.started_at and one.due_at else None,
    "fence": "fence",
    "reason": lambda one: reason(one.reason, one.detail),
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
@with_client(options=listing_options)
async def list_runs(
    client: AsyncClient,
    listing: Listing,
    state: str | None,
    job: str | None,
    queue: str | None,
    parent: UUID | None,
    workflow: UUID | None,
    filter_text: str,
    limit: int,
) -> None:
    """List runs in every state, by their scheduled moment, future ones first.

    A span of occurrences that did not run is one line, with its reason, how many they are, the first and the last.
    """

    of = {name: None if one is None else str(one) for name, one in (("parent", parent), ("workflow", workflow))}
    wanted = chosen(filter_text, RUNS, state=state, queue=queue, **of)

    async def read() -> list[RunSummary]:
        of_job = wanted if job is None else chosen(wanted, RUNS, job_id=str(await job_id_of(client, job)))
        return await first(client.runs.list(of_job or None, page_size=min(limit, PAGE_SIZE_MAX)), limit)

    said = " AND ".join(part for part in (wanted, "" if job is None else f"job:{quoted(job)}") if part)
    empty = none_of("runs", said, "no runs; make one: duly submit HANDLER")
    await show_list(listing, read, RUN_COLUMNS, empty)


@runs.command("show")
@click.argument("run_id", metavar="RUN", type=click.UUID)
@click.option("-f", "--follow", is_flag=True, help="Write its progress until it has ended, then show it.")
@with_client()
async def show_run(client: AsyncClient, run_id: UUID, follow: bool, as_json: bool) -> None:
    """Show RUN: its state and what holds it back, its progress, its attempts, its last error."""
    if follow:
        await _follow_progress(client, run_id)
    await print_run(client, run_id, as_json=as_json)


@runs.command("cancel")
@click.argument("run_ids", metavar="[RUN]...", type=click.UUID, nargs=-1)
@many_options("run_ids")
@click.option("--children", is_flag=True, help="Cancel the subtasks of those that are named as well.")
@with_client()
async def cancel(
    client: AsyncClient, run_ids: tuple[UUID, ...], many: Many | None, children: bool, as_json: bool
) -> int:
    """Cancel runs: named ones, or all that match and have not ended.

    The answer is `cancelled`: it was waiting, and will never start; `requested`: its worker has been asked, and the run
    will show its outcome; or `too late`, with the state in which it had ended: then the exit code is 1.
    """
    if many is not None:
        if children:
            raise click.UsageError(
                "--children goes with runs that are named; of a filter, say which subtasks: parent:RUN"
            )
        verb = Verb("Cancel", "cancelled, or asked to stop", "run", RUNS, client.runs.cancel_many)
        return await change_many(verb, many, as_json=as_json)
    done: list[RunCancelled] = []
    try:
        for run_id in run_ids:
            done += [await client.runs.cancel(run_id, children=children)]
    finally:  # a missing one ends it; earlier results are printed all the same
        _print_cancelled(done, as_json=as_json)
    return REFUSED if any(one.status == "too_late" for one in done) else 0


@runs.command("replay")
@click.argument("run_ids", metavar="[RUN]...", type=click.UUID, nargs=-1)
@many_options("run_ids")
@click.option("--rate", type=float, help="Runs per second instead of all at once; with --all or --filter.")
@with_client()
async def replay(
    client: AsyncClient, run_ids: tuple[UUID, ...], many: Many | None, rate: float | None, as_json: bool
) -> int:
    """Replay dead runs: named ones, or all that match; as `duly dead replay` does."""
    if many is not None:
        verb = Verb("Replay", "replayed", "run", RUNS, partial(client.runs.replay_many, rate=rate))
        return await change_many(verb, many, as_json=as_json)
    if rate is not None:
        raise click.UsageError("--rate goes with --filter or --all; runs that are named are replayed at once")
    return await move_these(run_ids, client.dead.replay, "replayed", as_json=as_json)


@runs.command("rerun")
@click.argument("run_id", metavar="RUN", type=click.UUID)
@click.option("--payload", metavar="PAYLOAD", help="Other arguments, as one JSON object.")
@click.option("--queue", help="Another queue.")
@click.option("--priority", type=click.IntRange(0, 9), help="0 (first) to 9 (last).")
@click.option("--at", metavar="MOMENT", help="Time to run it, with an offset; default: now.")
@click.option("--key", help="Idempotency key: repeated requests create one run.")
@with_client()
async def rerun(
    client: AsyncClient,
    run_id: UUID,
    payload: str | None,
    queue: str | None,
    priority: int | None,
    at: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Create a new run from RUN, when RUN has ended: unchanged, or with changes.

    RUN stays as it is. Dead runs can also be replayed, which keeps their id: duly dead replay.
    """
    arguments = None if payload is None else read_payload((), payload, "--payload")
    due = read_moment(at, "--at")
    created = await client.runs.rerun(run_id, payload=arguments, queue=queue, priority=priority, at=due, key=key)
    document = {"run_id": created.run_id, "job_id": created.run_id, "rerun_of": run_id}
    answer(as_json, document, f"run {created.run_id}: created from run {run_id}")


async def _follow_progress(client: AsyncClient, run_id: UUID) -> None:
    """Print the progress of a run, on standard error, whenever it has changed, until it has ended."""
    last, patience = "", about_run(run_id)
    while True:
        found = await patience.until_answered(lambda: client.runs.get(run_id))
        now = _progress(found.progress) if found.progress else found.state
        if now != last:
            say(now, err=True)
        if found.state in FINAL_STATES:
            return
        last = now
        await SystemClock().sleep(_LOOK_SECONDS)


def _print_cancelled(done: Sequence[RunCancelled], *, as_json: bool) -> None:
    if as_json:
        print_json(
            [{"run_id": one.run_id, "answer": one.status, "state": one.state, "children": one.children} for one in done]
        )
        return
    for one in done:
        subtasks = f"; {some(one.children, 'subtask')} with it" if one.children else ""
        say(f"run {one.run_id}: {cancel_words(one.status, one.state)}{subtasks}")


def cancel_words(status: str, state: str) -> str:
    """Describe the result of a cancel."""
    remedy = "; `duly runs cancel` asks its worker to stop it" if state == "running" else ""
    known = {
        "too_late": f"too late: it is {state}{remedy}",
        "requested": "requested: its worker has been asked to stop it",
    }
    return known.get(status, status)


async def print_run(client: AsyncClient, run_id: UUID, *, as_json: bool) -> None:
    """Print one run with its attempts. Raises NotFound."""
    found = await client.runs.get(run_id)
    if as_json:
        print_json(found)
        return
    _print_found(found)
    if found.state not in FINAL_STATES:
        reasons = (await client.runs.explain(run_id)).reasons
        say(_live(found.state, [reason.text for reason in reasons]))


def _live(state: str, sentences: Sequence[str]) -> str:
    """Describe a run that has not ended: all of an active one, whose attempt is not recorded yet; or what holds it back."""
    return "; ".join(sentences if state == "running" else sentences[:1])


def _print_found(found: Run) -> None:
    why = reason(found.reason, found.attempts[-1].detail if found.attempts else None)
    say(f"run {found.run_id} is {found.state}{f': {why}' if why else ''}")
    say(f"{_target_text(found)} on queue {found.queue}, due {moment(found.due_at)}")
    if found.missed:
        say(f"it stands for {some(found.missed, 'occurrence')} that came too late, itself included")
    if metadata := _metadata_line(found):
        say(metadata)
    if created := _created_line(found):
        say(created)
    if found.payload is not None:
        say(f"payload {json_text(found.payload)}")
    elif not found.payload_kept:
        say("its payload is no longer kept")
    if found.progress:
        say(f"progress {_progress(found.progress)}, reported {moment(found.progress.updated_at)}")
    if saved := found.checkpoint:
        say(f"checkpoint of {some(saved.bytes, 'byte')}, saved {moment(saved.saved_at)}")
    if found.attempts or found.state != "running":
        print_rows(found.attempts, ATTEMPT_COLUMNS, "no attempts yet")
    if found.attempts:
        _print_last(found.attempts[-1])


def _target_text(found: Run) -> str:
    return found.handler if found.target is None else described(msgspec.structs.asdict(found.target))


def _progress(reported: Progress) -> str:
    return progress_text(msgspec.structs.asdict(reported))


def _created_line(found: Run) -> str:
    """Describe who submitted a run, and which definition it uses or used."""
    by, definition = found.submitted_by, found.definition
    said: dict[str, object] = {
        "submitted by": None if by is None else f"{by.name} ({by.action}, {moment(by.at)})",
        "priority": found.priority,
    }
    if definition is not None:
        named = ("version", "retry", "timeout", "concurrency", "rate_limit")
        said |= {name: getattr(definition, name) for name in named}
    return "   ".join(f"{name} {_written(value)}" for name, value in said.items() if value is not None)


def _written(value: object) -> str:
    return msgspec.json.encode(value).decode() if isinstance(value, msgspec.Struct) else str(value)


def _metadata_line(found: Run) -> str:
    """Describe the metadata of a run: its tags, its origin and what it belongs to."""
    said = {
        "tags": ", ".join(found.tags),
        "request": found.request_id,
        "trace": found.traceparent,
        "parent": found.parent,
        "depends on": ", ".join(f"{one.job} ({one.on})" for one in found.depends_on),
        "workflow": found.workflow_id,
        "node": found.node,
    }
    return "   ".join(f"{name} {value}" for name, value in said.items() if value)


def reason(words: str | None, detail: object) -> str | None:
    """Describe a reason, with all that a record stands for: a span of skipped occurrences, or those that a run makes up for."""
    known = detail if isinstance(detail, dict) else {}
    if "count" in known:
        first, last = (datetime.fromisoformat(known[end]) for end in ("first", "last"))
        return _stretch(words, known["count"], first, last)
    return _missed(words, known.get("missed"))


def _stretch(words: str | None, count: int, first: datetime, last: datetime) -> str:
    ends = [moment(end.astimezone(UTC)) for end in ([first] if count == 1 else [first, last])]
    return f"{words}: {some(count, 'occurrence')}, {' to '.join(ends)}"


def _missed(words: str | None, count: int | None) -> str | None:
    return words if count is None else "; ".join([*([words] if words else []), f"{count} missed"])


def _print_last(attempt: Attempt) -> None:
    if attempt.result is not None:
        say(f"result {json_text(attempt.result)}")
    detail = attempt.detail if isinstance(attempt.detail, dict) else {}
    trace = detail.get("traceback")
    if isinstance(trace, str):
        say(trace)
    elif detail.keys() - {"missed", "first", "last", "count"}:
        say(f"detail {json_text(detail)}")
