"""`duly api`: the front door in a process of its own, beside all else."""

import json
import signal
import threading
import time
import urllib.request
from datetime import UTC, datetime

from tests.cli.processes import running, wait_for


class Listener:
    """Somebody who reads a stream of events on a thread, and notes when each came."""

    def __init__(self, address, key):
        self.heard = []
        self._answer = urllib.request.urlopen(
            urllib.request.Request(f"{address}/v1/events", headers={"Authorization": f"Bearer {key}"}), timeout=20
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self):
        for line in self._answer:
            if line.startswith(b"data: "):
                self.heard.append((datetime.now(UTC), json.loads(line[6:])))

    def of_type(self, kind):
        return next(((at, event) for at, event in self.heard if event["type"] == kind), None)

    def ends(self):
        self._reading.join(5)
        return not self._reading.is_alive()


def test_api_process_streams_run_events_and_stops_with_streams_open(up, project):
    key = (project / ".duly" / "api-key").read_text().strip()
    with running("api", "--port", "0", cwd=project) as process:
        address = process.wait_for_line("api at").split()[2].rstrip(",")
        listener = Listener(address, key)

        assert up.duly("run", "greet", "name=Ada", "--wait").returncode == 0

        came, started = wait_for(lambda: listener.of_type("duly.run.started.v1"))
        assert (came - datetime.fromisoformat(started["data"]["started_at"])).total_seconds() < 5.0
        _, ended = wait_for(lambda: listener.of_type("duly.run.succeeded.v1"))
        assert ended["subject"] == started["subject"]

        asking = urllib.request.Request(f"{address}/metrics", headers={"Authorization": f"Bearer {key}"})
        with urllib.request.urlopen(asking, timeout=20) as answer:
            metrics = answer.read().decode()
        assert 'duly_api_requests_total{operation="stream_events",status="2xx"} 1' in metrics
        assert "duly_staging_lag_seconds 0.0" in metrics
        assert "duly_shards_held 64\n" in metrics
        assert "duly_scheduler_" not in metrics, "those of a process are its own"

        began = time.monotonic()
        assert process.interrupt(signal.SIGTERM) < 5
        assert listener.ends()
        assert time.monotonic() - began < 5
        assert process.process.returncode == 0
        assert "Traceback" not in process.text
