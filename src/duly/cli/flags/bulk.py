"""Many jobs or runs at once on the command line: which are meant, how many that are, and what became of them.

On a terminal they are counted first and somebody is asked, and no more are changed than were counted. Where nobody can be asked,
`--yes` has to be said; `--dry-run` counts and changes nothing. One that is refused holds up no other.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial, wraps
from typing import Any

import click
import msgspec

from duly.cli.client import connected
from duly.cli.failures import REFUSED
from duly.cli.flags.filters import filter_option
from duly.cli.render.output import print_json
from duly.cli.render.say import say, say_over
from duly.cli.render.screen import some
from duly.client.asynchronous.client import AsyncClient
from duly.client.many import both
from duly.domain.errors import DulyError
from duly.domain.jobs.filter import Field, parse
from duly.settings import Settings
from duly.wire.jobs.bulk import ManyDone

_STEP_MAX = 10_000
_NOTHING = ManyDone(matched=0, changed=0, dry_run=False, sample=[], refused=[], next_page_token=None, is_partial=False)
Step = Callable[[int, str | None, bool], Awaitable[ManyDone]]


class Many(msgspec.Struct, frozen=True):
    """Which are meant: those that fit a filter, or all; up to a limit. And whether they are only counted, or nobody is asked."""

    filter_text: str
    everything: bool
    limit: int | None
    dry_run: bool
    is_sure: bool

    def parsed(self, fields: Mapping[str, Field]) -> Many:
        """Check the filter. Raises InvalidFilter."""
        parse(self.filter_text, fields)
        return self


class Verb(msgspec.Struct, frozen=True):
    """What is done to many: its words, the fields of its filter, and how it is asked for."""

    word: str
    done: str
    noun: str
    fields: Mapping[str, Field]
    change: Callable[..., Awaitable[ManyDone]]


def many_options(named: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add what says which many are meant to a command that takes `many`, or else what is called `named`; one of the two."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(
            *, filter_text: str, everything: bool, limit: int | None, dry_run: bool, is_sure: bool, **given: Any
        ) -> Any:
            chosen = [bool(given[named]), bool(filter_text.strip()), everything].count(True)
            if chosen != 1:
                raise click.UsageError("give names or ids, or use exactly one of --filter and --all")
            if given[named] and (limit or dry_run or is_sure):
                raise click.UsageError("--limit, --dry-run and --yes go with --filter or --all")
            many = None if given[named] else Many(filter_text, everything, limit, dry_run, is_sure)
            return function(many=many, **given)

        command: Callable[..., Any] = call
        for option in reversed(_OPTIONS):
            command = option(command)
        return command

    return decorate


_OPTIONS = (
    filter_option,
    click.option("--all", "everything", is_flag=True, help="Every one, in place of a filter."),
    click.option("--limit", type=click.IntRange(min=1), help="So many at most; with --filter or --all."),
    click.option("--dry-run", is_flag=True, help="Count them and show a few; change nothing."),
    click.option("--yes", "is_sure", is_flag=True, help="Do not ask."),
)


def change_many(settings: Settings, verb: Verb, many: Many, *, as_json: bool = False) -> int:
    """Do something to many, say to how many, and give the exit code: 1 when some were refused."""
    return asyncio.run(_change(settings, verb, many.parsed(verb.fields), as_json=as_json))


async def _change(settings: Settings, verb: Verb, many: Many, *, as_json: bool) -> int:
    if not (many.dry_run or many.is_sure or sys.stdin.isatty()):
        raise click.UsageError("nobody can be asked here; add --yes, or --dry-run to have them counted")
    async with connected(settings) as client:
        step = partial(_step, client, verb, many)
        if not many.dry_run and not many.is_sure:
            counted, _ = await _walk(verb, step, many.limit, dry_run=True)
            if counted.matched:
                click.confirm(f"{verb.word} {some(counted.matched, verb.noun)}?", abort=True, err=True)
            many = msgspec.structs.replace(many, limit=counted.matched)
        done, is_cut = await _walk(verb, step, many.limit, dry_run=many.dry_run)
    if as_json:
        told = {"matched": done.matched, "changed": done.changed, "dry_run": many.dry_run, "sample": done.sample}
        print_json({**told, "refused": [{"id": one.id, "why": one.why} for one in done.refused], "more": is_cut})
    else:
        _tell(verb, done, dry_run=many.dry_run, is_cut=is_cut)
    return REFUSED if done.refused else 0


async def _walk(verb: Verb, step: Step, limit: int | None, *, dry_run: bool) -> tuple[ManyDone, bool]:
    """Go from page to page. Gives what was done, and whether more fit than the limit."""
    done, place = _NOTHING, None
    while limit is None or done.matched < limit:
        size = _STEP_MAX if limit is None else min(_STEP_MAX, limit - done.matched)
        try:
            found = await step(size, place, dry_run)
        except DulyError:
            if done.changed:
                say(f"{some(done.changed, verb.noun)} {verb.done}, then it failed; ask again for the rest", err=True)
            raise
        done, place = both(done, found), found.next_page_token
        if sys.stderr.isatty():
            say_over(f"{some(done.matched, verb.noun)} found", nl=place is None)
        if place is None:
            return done, False
    return done, place is not None


def _tell(verb: Verb, done: ManyDone, *, dry_run: bool, is_cut: bool) -> None:
    rest = "; more fit than the limit, so ask again for the rest" if is_cut else ""
    if dry_run:
        say(f"{some(done.matched, verb.noun)} would be {verb.done}; nothing was changed{rest}")
        for one in done.sample:
            say(f"  {one}")
        return
    say(f"{some(done.changed, verb.noun)} {verb.done}{rest}")
    for refused in done.refused:
        say(f"{verb.noun} {refused.id} was left as it is: {refused.why}", err=True)


async def _step(client: AsyncClient, verb: Verb, many: Many, size: int, place: str | None, dry_run: bool) -> ManyDone:
    """Change, or only count, so many from a place on."""
    chosen: dict[str, Any] = {"all": True} if many.everything else {"filter": many.filter_text}
    behind = {} if place is None else {"page_token": place}
    return await verb.change(client, **chosen, **behind, limit=size, dry_run=dry_run)
