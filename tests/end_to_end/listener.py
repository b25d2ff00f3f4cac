"""A listener of the event stream: it comes back with its Last-Event-ID whenever the stream ends, and keeps what it was sent."""

import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import httpx

GAP = "duly.stream.gap.v1"
FINAL = {f"duly.run.{state}.v1" for state in ("succeeded", "dead", "cancelled", "expired", "skipped")}


class Listener(threading.Thread):
    """Listens at one address after the other; with `stay_seconds` it leaves on its own, too."""

    def __init__(self, addresses: Sequence[str], key: str, stay_seconds: float = 1e9) -> None:
        super().__init__(daemon=True)
        self._addresses = itertools.cycle(addresses)
        self._headers = {"Authorization": f"Bearer {key}"}
        self._stay_seconds = stay_seconds
        self._is_over = threading.Event()
        self.told: Counter[str] = Counter()
        self.gaps: list[datetime] = []
        self.joins = 0

    def run(self) -> None:
        """Listen until told to stop."""
        while not self._is_over.is_set():
            with suppress(httpx.HTTPError):
                self._listen(next(self._addresses))
            self._is_over.wait(0.05)

    def stop(self) -> None:
        """Listen no more."""
        self._is_over.set()
        self.join(20)

    def _listen(self, address: str) -> None:
        leave_at = time.monotonic() + self._stay_seconds
        with httpx.stream("GET", f"{address}/v1/events", headers=self._headers, timeout=3) as answer:
            self.joins += answer.is_success
            place = ""
            for line in answer.iter_lines() if answer.is_success else ():
                name, _, value = line.partition(": ")
                if name == "id":
                    place = value
                elif name == "data":
                    self._headers["Last-Event-ID"] = place
                    self._take(json.loads(value))
                elif not line and (self._is_over.is_set() or time.monotonic() > leave_at):
                    return

    def _take(self, event: dict[str, Any]) -> None:
        if event["type"] == GAP:
            self.gaps.append(datetime.fromisoformat(event["time"]))
        elif event["type"] in FINAL:
            self.told[event["id"]] += 1
