"""`duly worker --reload`: a supervisor that starts the worker again when its source changes.

It never imports the app, so that a file that does not even parse can be mended while it waits.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from duly.cli.render.say import say
from duly.cli.up.children import Child, duly_command
from duly.cli.up.stopping import stop_on_signals

_LOOK_SECONDS = 0.4
_STOP_SECONDS = 10.0
_NOT_SOURCE = {"node_modules", "__pycache__", "venv", "site-packages"}

Snapshot = dict[str, int]


async def reload_for_ever(arguments: Sequence[str]) -> int:
    """Keep a worker running on the newest source, until stopped."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    stop_on_signals(lambda: loop.call_soon_threadsafe(stopping.set))
    child, seen = Child(duly_command(*arguments, "--tied")), snapshot(Path.cwd())
    await child.start()
    waiting = asyncio.create_task(stopping.wait())
    while not waiting.done():
        found = snapshot(Path.cwd())
        if found != seen:
            say(f"{', '.join(changed(seen, found))} changed: starting the worker again", err=True)
            await child.stop(_STOP_SECONDS)
            await child.start()
            seen = found
        await asyncio.wait({waiting}, timeout=_LOOK_SECONDS)
    await child.stop(_STOP_SECONDS)
    return 0


def snapshot(root: Path) -> Snapshot:
    """Return when each source file below `root` was last written."""
    return dict(_sources(root, root))


def changed(before: Snapshot, after: Snapshot) -> list[str]:
    """Return the files that differ, at most three."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))[:3]


def _sources(folder: Path, root: Path) -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _NOT_SOURCE:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _sources(Path(entry.path), root)
        elif entry.name.endswith(".py"):
            yield from _written(entry, root)


def _written(entry: os.DirEntry[str], root: Path) -> Iterator[tuple[str, int]]:
    try:
        yield os.path.relpath(entry.path, root), entry.stat().st_mtime_ns
    except OSError:
        return
