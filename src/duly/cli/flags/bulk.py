"""Bulk changes on the command line: the selection, its size, and the result.

On a terminal they are counted and confirmed first, and no more are changed than were counted. Elsewhere `--yes` is
required; `--dry-run` counts and changes nothing. A refused one does not delay others.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import wraps
from typing import Any
from uuid import UUID

import click
import msgspec

from duly.cli.failures import NOT_FOUND, REFUSED
from duly.cli.flags.filters import filter_option
from duly.cli.flags.settings import together
from duly.cli.render.output import answer, print_json
from duly.cli.render.say import confirm, say, say_over
from duly.client.errors import NotFound
from duly.client.many import both
from duly.domain.counting import some
from duly.domain.errors import DulyError
from duly.domain.jobs.filter import Field, parse
from duly.wire.jobs.bulk import ManyDone

_STEP_MAX = 10_000
_NOTHING = ManyDone(matched=0, changed=0, dry_run=False, sample=[], refused=[], next_page_token=None, is_partial=False)


class Many(msgspec.Struct, frozen=True):
    """The selection: by a filter, or all; up to a limit; and whether to count only, or to skip the confirmation."""

    filter_text: str
    everything: bool
    limit: int | None
    dry_run: bool
    is_sure: bool


class Verb(msgspec.Struct, frozen=True):
    """A bulk change: its words, the fields of its filter, its request, and the JSON name of its count."""

    word: str
    done: str
    noun: str
    fields: Mapping[str, Field]
    change: Callable[..., Awaitable[ManyDone]]
    count: str = "changed"


def many_options(named: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the flags of a selection to a command that takes `many`, or else the argument `named`; one of the two."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(
            *, filter_text: str, everything: bool, limit: int | None, dry_run: bool, is_sure: bool, **given: Any
        ) -> Any:
            chosen = [bool(given[named]), bool(filter_text.strip()), everything].count(True)
            if chosen != 1:
                raise click.UsageError("give names or ids, or use exactly one of --filter and --all")
            if given[named] and (limit or dry_run):
                raise click.UsageError("--limit and --dry-run go with --filter or --all")
            many = None if given[named] else Many(filter_text, everything, limit, dry_run, is_sure)
            return function(many=many, **given)

        return _options(call)

    return decorate


_options = together(
    filter_option,
    click.option("--all", "everything", is_flag=True, help="All, instead of a filter."),
    click.option("--limit", type=click.IntRange(min=1), help="Maximum number; with --filter or --all."),
    click.option("--dry-run", is_flag=True, help="Count them and show a few; change nothing."),
    click.option("--yes", "is_sure", is_flag=True, help="Skip the confirmation."),
)


async def change_many(verb: Verb, many: Many, *, as_json: bool = False) -> int:
    """Carry out a bulk change, print its counts, and return the exit code: 1 when some were refused. Raises InvalidFilter."""
    parse(many.filter_text, verb.fields)
    if not (many.dry_run or many.is_sure or sys.stdin.isatty()):
        raise click.UsageError("no terminal to confirm on; add --yes, or --dry-run to have them counted")
    if not many.dry_run and not many.is_sure:
        counted, _ = await _walk(verb, many, dry_run=True)
        if counted.matched:
            confirm(f"{verb.word} {some(counted.matched, verb.noun)}?")
        many = msgspec.structs.replace(many, limit=counted.matched)
    done, is_cut = await _walk(verb, many, dry_run=many.dry_run)
    if as_json:
        document = {"matched": done.matched, verb.count: done.changed, "dry_run": many.dry_run, "sample": done.sample}
        print_json({**document, "refused": [{"id": one.id, "why": one.reason} for one in done.refused], "more": is_cut})
    else:
        _print_result(verb, done, dry_run=many.dry_run, is_cut=is_cut)
    return REFUSED if done.refused else 0


async def move_these(
    run_ids: Sequence[UUID], move: Callable[[UUID], Awaitable[object]], done: str, *, as_json: bool
) -> int:
    """Move these dead runs, print each result, and return the exit code: 4 when one is not dead."""
    moved = {run_id for run_id in run_ids if await _is_moved(move(run_id))}
    document = [{"run_id": run_id, "answer": done if run_id in moved else "not_dead"} for run_id in run_ids]
    missing = "not among the dead; `duly dead` lists them"
    answer(as_json, document, *(f"run {run_id}: {done if run_id in moved else missing}" for run_id in run_ids))
    return 0 if moved.issuperset(run_ids) else NOT_FOUND


async def _is_moved(moving: Awaitable[object]) -> bool:
    try:
        await moving
    except NotFound:
        return False
    return True


async def _walk(verb: Verb, many: Many, *, dry_run: bool) -> tuple[ManyDone, bool]:
    """Go from page to page. Returns the result, and whether more match than the limit."""
    done, token, limit = _NOTHING, None, many.limit
    which = {"filter": many.filter_text, "all": many.everything, "dry_run": dry_run}
    while limit is None or done.matched < limit:
        size = _STEP_MAX if limit is None else min(_STEP_MAX, limit - done.matched)
        try:
            found = await verb.change(**which, limit=size, page_token=token)
        except DulyError:
            if done.changed:
                say(
                    f"{some(done.changed, verb.noun)} {verb.done}, then it failed; repeat the command for the rest",
                    err=True,
                )
            raise
        done, token = both(done, found), found.next_page_token
        if sys.stderr.isatty():
            say_over(f"{some(done.matched, verb.noun)} found", nl=token is None)
        if token is None:
            return done, False
    return done, token is not None


def _print_result(verb: Verb, done: ManyDone, *, dry_run: bool, is_cut: bool) -> None:
    rest = "; more fit than the limit, so repeat the command for the rest" if is_cut else ""
    if dry_run:
        say(f"{some(done.matched, verb.noun)} would be {verb.done}; nothing was changed{rest}")
        for one in done.sample:
            say(f"  {one}")
        return
    say(f"{some(done.changed, verb.noun)} {verb.done}{rest}")
    for refused in done.refused:
        say(f"{verb.noun} {refused.id} was left as it is: {refused.reason}", err=True)
