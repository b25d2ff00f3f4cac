"""A Duly worker in 65 lines of plain Python, without the SDK. docs/how-to/workers-over-http.md says why each is as it is."""

import http.client
import json
import os
import signal
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from traceback import format_exc


class Worker:
    """A life under one lease: it ends when the lease could not be renewed in time, and another begins."""

    def __init__(self, url, key, handlers, stopping, *, queues=("default",), slots=10, lease="PT15S"):
        self.key, self.handlers, self.stopping, self.slots = key, handlers, stopping, slots
        about = {"name": "http", "queues": list(queues), "handlers": list(handlers), "slots": slots, "lease": lease}
        self.held, self.number, self.answered, self.pool = {}, 0, 0, ThreadPoolExecutor(slots)
        self.url, self.is_over, asked_at = f"{url}/v1/worker", False, time.monotonic()
        while not (reported := self.ask("register", about)):
            stopping.wait(0.5) and sys.exit()
        self.id, self.renew_every = reported["worker_id"], reported["renew_every_seconds"]
        self.safe_until = asked_at + reported["start_within_seconds"]

    def ask(self, path, body, method="POST", seconds=10):
        """Give the answer; nothing when there is none, or a refusal."""
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/{path}", json.dumps(body).encode(), headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=seconds) as answer:
                return json.load(answer)
        except (OSError, ValueError, http.client.HTTPException) as error:
            print(f"{path}: {error}", file=sys.stderr)
            return {}

    def renew(self):
        while time.monotonic() < self.safe_until and not self.is_over:
            asked_at, answered = time.monotonic(), self.answered  # Before `held`, which has all that those claims gave.
            held = [{"run_id": run_id, "fence": fence} for run_id, fence in list(self.held)]
            if reported := self.ask(
                f"{self.id}/renew", {"leases": held, "answered": answered}, seconds=self.renew_every
            ):
                self.safe_until = asked_at + reported["start_within_seconds"]
                for lease in reported["cancel"] + reported["lost"]:
                    self.held.get((lease["run_id"], lease["fence"]), {})["cancelled"] = True
            time.sleep(self.renew_every)

    def live(self):
        threading.Thread(target=self.renew, daemon=True).start()
        while time.monotonic() < self.safe_until and not self.stopping.is_set():
            self.number, free = self.number + 1, min(100, self.slots - len(self.held))
            claim = {"number": self.number, "limit": free, "wait": 5}
            runs = self.ask(f"{self.id}/claim", claim).get("runs", []) if free else []
            self.held.update({(run["run_id"], run["fence"]): run for run in runs})
            self.answered = self.number  # Or given up, without an answer: its runs go back when the lease is renewed.
            self.pool.map(self.execute, runs)
            time.sleep(0.01 if runs else 0.1)
        self.is_over = (
            not self.stopping.is_set()
        )  # For good, though a renewal be answered yet: it would keep runs for ever.
        self.pool.shutdown(wait=self.stopping.is_set(), cancel_futures=True)
        if self.stopping.is_set():
            self.ask(self.id, {"leases": []}, "DELETE")

    def execute(self, run):
        if time.monotonic() >= self.safe_until:  # Somebody else may have begun it before it ended.
            del self.held[run["run_id"], run["fence"]]  # Or it goes back, if the lease is renewed after all.
            return
        outcome = {"run_id": run["run_id"], "fence": run["fence"], "outcome": "succeeded"}
        try:
            result = json.dumps(self.handlers[run["handler"]](run), allow_nan=False, ensure_ascii=False)
            outcome["result"] = json.loads(result.encode())
        except Exception as error:  # Also of what is no JSON.
            outcome["outcome"] = "cancelled" if run.get("cancelled") else "failed"
            outcome["error"] = {"type": type(error).__name__, "message": str(error), "traceback": format_exc()}
        # Settled; or fenced, if the lease was lost. What nobody takes for a minute goes back, and is tried again.
        any(self.ask(f"{self.id}/settle", {"outcomes": [outcome]}) or time.sleep(0.2) for _ in range(300))
        del self.held[run["run_id"], run["fence"]]


def work(url, key, handlers, **options):
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    while not stopping.is_set():
        Worker(url, key, handlers, stopping, **options).live()


if __name__ == "__main__":
    work(sys.argv[1], os.environ["DULY_API_KEY"], {"app:hello": lambda run: print(run["payload"])})
