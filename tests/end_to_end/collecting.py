"""A collector of traces: the receiver's process, and the spans that it has received."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.processes import wait_for

COLLECTOR = Path(__file__).parents[1] / "outbound" / "collector.py"


class Collector:
    """The receiver's process, and the spans that it has received."""

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(COLLECTOR), *arguments], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
        )
        assert self._process.stdout
        self.endpoint = f"http://127.0.0.1:{self._process.stdout.readline().strip()}"
        self.spans: list[dict[str, Any]] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self.spans.append(json.loads(line))

    def of(self, run_id: str) -> dict[str, dict[str, Any]]:
        """Give the spans of a run by their names."""
        return {span["name"]: span for span in self.spans if span["duly.run_id"] == run_id}

    def wait_for(self, run_id: str, *names: str) -> dict[str, dict[str, Any]]:
        """Wait for spans of a run."""
        wait_for(lambda: {f"duly.{name}" for name in names} <= self.of(run_id).keys())
        return self.of(run_id)

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(10)
        self._reading.join(10)
        assert self._process.stdout
        self._process.stdout.close()


@contextmanager
def collecting(*arguments: str) -> Iterator[Collector]:
    collector = Collector(*arguments)
    try:
        yield collector
    finally:
        collector.close()
