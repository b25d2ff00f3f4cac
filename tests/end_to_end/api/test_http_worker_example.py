"""The example of a worker over HTTP, by itself: what it has not started it does not keep, whenever a renewal is answered."""

import runpy
import threading
import time
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "http_worker.py"
RUN = {"run_id": "7", "fence": 1, "handler": "quick"}


@pytest.fixture
def asked():
    """What the worker has asked."""
    return []


@pytest.fixture
def worker(asked, monkeypatch):
    """One life, whose requests are answered by the test."""
    answers = {"register": {"worker_id": "w", "renew_every_seconds": 0.01, "start_within_seconds": 60.0}}
    example = runpy.run_path(str(EXAMPLE))["Worker"]

    def ask(self, path, body, method="POST", seconds=10):
        asked.append((path, body))
        answer = answers.get(path.rpartition("/")[2], {})
        return answer() if callable(answer) else answer

    monkeypatch.setattr(example, "ask", ask)
    made = example("http://nowhere", "key", {"quick": lambda run: None}, threading.Event(), slots=1)
    made.answers = answers
    return made


def test_example_worker_drops_a_run_that_its_lease_no_longer_lets_it_start(worker, asked):
    worker.held["7", 1] = RUN
    worker.safe_until = time.monotonic() - 1

    worker.execute(RUN)

    assert worker.held == {}  # so the next renewal gives it back, if there is one
    assert [path for path, _ in asked] == ["register"]


def test_example_worker_with_an_expired_lease_ignores_a_late_renewal(worker, asked):
    is_asked, is_over = threading.Event(), threading.Event()

    def late():
        is_asked.set()
        assert is_over.wait(20)
        return {"start_within_seconds": 60.0, "cancel": [], "lost": []}

    def claim():
        assert is_asked.wait(20)
        worker.safe_until = time.monotonic() - 1  # while it waits for runs, and for the answer to its renewal
        return {"runs": []}

    worker.answers.update(renew=late, claim=claim)
    before = set(threading.enumerate())
    worker.live()
    [renewing] = set(threading.enumerate()) - before
    is_over.set()
    renewing.join(20)

    assert not renewing.is_alive()
    assert [path for path, _ in asked].count("w/renew") == 1
