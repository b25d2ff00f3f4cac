"""Worker processes of a system: started for one scenario, ended with it."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic

from benchmarks.peers.hits import FOLDER, Hits

_END_SECONDS = 8.0


@contextmanager
def working(commands: Sequence[Sequence[str]]) -> Iterator[Hits]:
    """Run the processes until the end, and give the starts of their handlers."""
    with tempfile.TemporaryDirectory(prefix="duly-peers-") as folder:
        variables = os.environ | {FOLDER: folder}
        processes: list[subprocess.Popen[bytes]] = []
        try:
            for command in commands:
                # Their output goes to our standard error, which the runner keeps.
                started = subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=2)
                processes.append(started)
            yield Hits(Path(folder))
        finally:
            _end(processes)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask each to end; kill those that take too long."""
    for process in processes:
        process.send_signal(signal.SIGTERM)
    deadline = monotonic() + _END_SECONDS
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, deadline - monotonic()))
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.wait()
