"""Files of schedules, sent to a Duly over HTTP: its answers as the plans we know, its refusals with their place in the file."""

from __future__ import annotations

from typing import Any, NoReturn

import msgspec

from duly.cli.desk import File
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import Invalid
from duly.domain.jobs.manifest_plan import Plan
from duly.domain.problems import Path, Problem
from duly.moves.schedules.apply import Applied, Done
from duly.wire.jobs import manifests


async def plan(client: AsyncClient, file: File) -> Plan:
    """Say what applying a file would do. Raises InvalidManifest."""
    try:
        return _plan(await client.jobs.apply(file.document, dry_run=True))
    except Invalid as error:
        _place(error, file)


async def apply(client: AsyncClient, file: File, *, prune: bool, adopt: bool, expected: str | None) -> Applied:
    """Apply a file, all of it or nothing. Raises InvalidManifest."""
    try:
        told = await client.jobs.apply(file.document, prune=prune, adopt=adopt, digest=expected)
    except Invalid as error:
        _place(error, file)
    done = msgspec.convert(msgspec.to_builtins(told.done), tuple[Done, ...])
    return Applied(_plan(told), done, tuple(one.name for one in told.calendars), tuple(told.orphans))


def _plan(told: manifests.Applied) -> Plan:
    return msgspec.convert(msgspec.to_builtins(told), Plan)


def _place(error: Invalid, file: File) -> NoReturn:
    """Say where in the file it is that the server found something wrong, as if we had found it."""
    if error.code != "invalid_manifest":
        raise error
    problems = [Problem(_path(fault.pointer, file.document), fault.message) for fault in error.errors]
    raise file.manifest.refused(problems) from None


def _path(pointer: str, document: Any) -> Path:
    """Read a JSON pointer; only the document tells the places of a list from names that are numbers."""
    path: list[str | int] = []
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        is_place = isinstance(document, list) and name.isdecimal() and int(name) < len(document)
        key: str | int = int(name) if is_place else name
        document = document[key] if is_place else document.get(key) if isinstance(document, dict) else None
        path.append(key)
    return tuple(path)
