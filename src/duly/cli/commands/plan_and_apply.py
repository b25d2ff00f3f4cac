"""`duly plan` and `duly apply`: bring the schedules to a file's definitions, and show the plan first."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Any

import click
import msgspec

from duly.cli.client import with_client
from duly.cli.failures import REFUSED
from duly.cli.flags.submission import live_workers
from duly.cli.render.output import answer, print_json
from duly.cli.render.plan import applied_lines, obstacle_lines, plan_lines, plan_of
from duly.cli.render.say import confirm, say
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import Invalid
from duly.domain.jobs.manifest import Manifest, read_manifest
from duly.domain.jobs.manifest_plan import Plan, StepKind
from duly.domain.jobs.manifest_text import FILE_BYTES_MAX, Document, read_text
from duly.domain.problems import Path, Problem
from duly.wire.jobs.manifests import Applied

FILE_DEFAULT = "duly.yaml"


def _file_options(function: Callable[..., Any]) -> Callable[..., Any]:
    adopt = click.option(
        "--adopt", is_flag=True, help="Take over jobs and rules of these names that do not belong to the file."
    )
    prune = click.option("--prune", is_flag=True, help="Remove the jobs and rules that the file no longer contains.")
    file = click.option(
        "-f",
        "--file",
        default=FILE_DEFAULT,
        show_default=True,
        metavar="FILE",
        help="YAML or JSON; - reads standard input.",
    )
    return file(prune(adopt(function)))


@click.command("plan")
@_file_options
@click.option("--check", is_flag=True, help="Exit with 1 if something would change.")
@with_client()
async def plan(client: AsyncClient, file: str, prune: bool, adopt: bool, check: bool, as_json: bool) -> int:
    """Show the plan of `duly apply`: new, different and drifted jobs and rules. Nothing is changed."""
    written = read_file(file)
    found = plan_of(await _send(client, written, dry_run=True))
    if as_json:
        print_json(found)
    else:
        await _show(client, written.manifest, found, prune=prune, adopt=adopt)
        say(f"digest {found.digest}")
    found.check(adopt=adopt)
    return REFUSED if check and _does_something(found, prune=prune) else 0


@click.command("apply")
@_file_options
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@click.option("--expect", metavar="DIGEST", help="Apply only the plan of this digest, as `duly plan` gave it.")
@with_client()
async def apply(
    client: AsyncClient, file: str, prune: bool, adopt: bool, yes: bool, expect: str | None, as_json: bool
) -> None:
    """Bring jobs and notification rules to the file's definitions, in one transaction."""
    if as_json and not (yes or expect):
        raise click.UsageError("--json asks nothing; add --yes, or --expect with the digest of a plan")
    written = read_file(file)
    if not as_json:
        found = plan_of(await _send(client, written, dry_run=True))
        await _show(client, written.manifest, found, prune=prune, adopt=adopt)
        found.check(adopt=adopt)
        if not yes and expect is None and _does_something(found, prune=prune):
            _confirm()
            expect = found.digest  # only the confirmed plan is carried out
    done = await _send(client, written, prune=prune, adopt=adopt, digest=expect)
    calendars = [one.name for one in done.calendars]
    document = {
        "plan": plan_of(done), "done": done.done, "calendars": calendars, "orphans": done.orphans,
        "orphan_rules": done.orphan_rules,
    }  # fmt: skip
    answer(as_json, document, *applied_lines(done))


class File(msgspec.Struct, frozen=True):
    """A file of schedules: as written, and as parsed."""

    document: Any
    manifest: Manifest


def read_file(file: str) -> File:
    """Parse a file of schedules. Raises UsageError, InvalidManifest."""
    document, name = read_document(file)
    return File(document.value, read_manifest(document.value, document.places, name))


def read_document(file: str) -> tuple[Document, str]:
    """Parse a file of YAML or JSON, and return its name too. Raises UsageError, InvalidManifest."""
    name = "standard input" if file == "-" else file
    try:
        if file == "-":
            data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
        else:
            with FilePath(file).open("rb") as opened_file:
                data = opened_file.read(FILE_BYTES_MAX + 1)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{name} is not UTF-8 text: byte {error.start}") from None
    except OSError as error:
        raise click.UsageError(
            f"{name} cannot be read: {error.strerror}; name a file that can be, or - for standard input"
        ) from None
    return read_text(text, name), name


async def _send(client: AsyncClient, file: File, **options: Any) -> Applied:
    """Send a file to be planned or applied. Raises InvalidManifest, with positions in the file."""
    try:
        return await client.jobs.apply(file.document, **options)
    except Invalid as error:
        if error.code != "invalid_manifest":
            raise
        problems = [Problem(_path(fault.pointer, file.document), fault.message) for fault in error.errors]
        raise file.manifest.refused(problems) from None


def _path(pointer: str, document: Any) -> Path:
    """Parse a JSON pointer; only the document tells indexes from names that are numbers."""
    path: list[str | int] = []
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        is_index = isinstance(document, list) and name.isdecimal() and int(name) < len(document)
        key: str | int = int(name) if is_index else name
        document = document[key] if is_index else document.get(key) if isinstance(document, dict) else None
        path.append(key)
    return tuple(path)


async def _show(client: AsyncClient, manifest: Manifest, found: Plan, *, prune: bool, adopt: bool) -> None:
    live = await live_workers(client)
    lines = plan_lines(found, manifest, prune=prune, adopt=adopt)
    say("\n".join([*lines, *([] if live is None else obstacle_lines(found, manifest, live))]))


def _confirm() -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("no terminal to confirm on; add --yes, or --expect with the digest of a plan")
    confirm("apply this?")


def _does_something(found: Plan, *, prune: bool) -> bool:
    kinds = {step.kind for step in found.steps} | {step.kind for step in found.rules}
    return bool(found.calendars) or bool(kinds if prune else kinds - {StepKind.REMOVE})
