"""A client of all hosts: submits over HTTP, asks again with the same idempotency key when no answer came, and keeps account.

It also gathers the evidence: its own account, the calls that functions and receivers noted, and what the public API says.
"""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Self
from uuid import UUID

import httpx

from duly.bench.chaos.evidence import Acknowledged, Departure, Evidence, Record
from duly.domain.runs.run import FINAL_STATES, HORIZON
from tests.end_to_end.hosts.installation import CLIENTS, HOSTS, Installation

THREADS = 4
SCHEDULES = 6
ANSWER_SECONDS = 2.5
BEYOND_SECONDS = HORIZON.total_seconds() + 0.5
AGAIN = {409, 429, 503}
# Tried again at once, and often: what is done to a host is not the run's fault.
RETRY = {"policy": "exponential", "max_attempts": 100, "base": "PT0.05S", "cap": "PT0.5S"}
HANDLERS = ("quick",) * 12 + ("steady",) * 4 + ("plain",) * 2 + ("webhook",) * 4


class Load:
    """Requests at an even rate while the block lasts. One in three is asked once: its result may stay unknown."""

    def __init__(self, installation: Installation, name: str, rate: float) -> None:
        self.name = name
        self.acknowledged: list[Acknowledged] = []
        self.unknown: list[str] = []
        self.refused: list[str] = []
        self._installation = installation
        self._rate = rate
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._submit, args=(n,), daemon=True) for n in range(THREADS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a client got no answer for a minute"

    def submit_due_at(self, moment: float, number: int) -> None:
        """Submit runs that take a while and are due at one moment: at a fault, say."""
        hosts = [self._installation.client(host, ANSWER_SECONDS) for host in HOSTS]
        job = {"target": {"type": "function", "handler": "steady"}, "retry": RETRY, "schedule": _at(moment)}
        for n in range(number):
            self._ask(hosts, random.Random(n), f"{self.name}/{moment:.0f}-{n}", job)
        for host in hosts:
            host.close()

    def _submit(self, thread: int) -> None:
        chance = random.Random(f"{self.name} {thread}")
        hosts = [self._installation.client(host, ANSWER_SECONDS) for host in HOSTS]
        try:
            for number in range(thread, SCHEDULES, THREADS):
                self._ask(hosts, chance, f"{self.name}/schedule-{number}", _schedule())
            number = 0
            while not self._is_over.wait(chance.uniform(0, 2 * THREADS / self._rate)):
                number += 1
                self._ask(hosts, chance, f"{self.name}/{thread}-{number}", self._a_job(chance, is_first=number <= 3))
        finally:
            for host in hosts:
                host.close()

    def _a_job(self, chance: random.Random, *, is_first: bool) -> dict[str, Any]:
        handler = chance.choice(HANDLERS)
        job: dict[str, Any] = {"target": {"type": "function", "handler": handler}, "retry": RETRY}
        if handler == "webhook":
            job["target"] = {"type": "webhook", "url": f"{self._installation.receiver.origin}/"}
        delay = chance.choice((0.0, 0.0, chance.uniform(0, 2), BEYOND_SECONDS if is_first else 1.0))
        if delay:
            job["schedule"] = _at(time.time() + delay)
        return job

    def _ask(self, hosts: list[httpx.Client], chance: random.Random, key: str, job: dict[str, Any]) -> None:
        """Ask one host after the other until there is an answer."""
        is_patient = chance.random() > 1 / 3 or "schedule-" in key
        asked = 0
        while not asked or is_patient:
            asked, sent_at = asked + 1, time.time()
            try:
                answer = self._post(chance.choice(hosts), key, job)
            except httpx.HTTPError:
                continue
            if answer.is_success:
                self.acknowledged.append(_acknowledged(answer.json(), asked, key, sent_at))
                return
            if answer.status_code not in AGAIN:
                self.refused.append(f"{key}: {answer.status_code} {answer.text}")
                return
            time.sleep(0.1)
        self.unknown.append(key)

    def _post(self, host: httpx.Client, key: str, job: dict[str, Any]) -> httpx.Response:
        body = job | {"tags": [self.name, key]}
        with self._installation.network.inside(CLIENTS):
            return host.post("/v1/jobs", json=body, headers={"Idempotency-Key": key})

    def end_schedules(self) -> None:
        """Cancel the schedules."""
        with self._installation.network.inside(CLIENTS), self._installation.client(HOSTS[-1], 10.0) as host:
            for one in self.acknowledged:
                if one.is_schedule:
                    host.delete(f"/v1/jobs/{one.job_id}").raise_for_status()

    def left(self) -> list[str]:
        """Name the runs that have not ended."""
        states = "scheduled,blocked,ready,running,retrying"
        return [f"{run['state']} {run['run_id']} {run['attempt']}" for run in self._runs(f" AND state:({states})")]

    def gathered(self) -> Evidence:
        """Gather what clients, targets and the public API know of this load."""
        created = self._created()
        ours = {job_id for jobs in created.values() for job_id in jobs}
        runs = [self._installation.ask(f"/v1/runs/{run['run_id']}") for run in self._runs()]
        return Evidence(
            self.acknowledged,
            [call for call in self._installation.arrivals() if call.job_id in ours],
            [record for run in runs for record in _records(run)],
            [Departure(worker_id, _moment(until)) for worker_id, until in self._installation.leases.until.items()],
            [f"{run['state']} {run['run_id']}" for run in runs if run["state"] not in FINAL_STATES],
            self._installation.house.strikes,
            created,
        )

    def _created(self) -> dict[str, list[str]]:
        """List the jobs by the request that created them."""
        created = defaultdict(list)
        for job in self._pages("/v1/jobs", filter=f'tag:"{self.name}"', include="one_shots"):
            [key] = [tag for tag in job["tags"] if tag != self.name]
            created[key].append(job["job_id"])
        return dict(created)

    def _runs(self, more: str = "") -> Iterator[dict[str, Any]]:
        return self._pages("/v1/runs", filter=f'tag:"{self.name}"{more}')

    def _pages(self, path: str, **parameters: Any) -> Iterator[dict[str, Any]]:
        token = None
        while True:
            page = self._installation.ask(path, page_size=200, **parameters, **({"page_token": token} if token else {}))
            yield from page["items"]
            if not (token := page["next_page_token"]):
                return


def _at(moment: float) -> dict[str, Any]:
    return {"trigger": {"type": "at", "at": _moment(moment).isoformat()}}


def _schedule() -> dict[str, Any]:
    trigger = {"type": "interval", "every": "PT1S"}
    return {
        "target": {"type": "function", "handler": "quick"},
        "schedule": {"trigger": trigger, "overlap": {"policy": "allow"}},
        "retry": RETRY,
    }


def _acknowledged(answer: dict[str, Any], asked: int, key: str, sent_at: float) -> Acknowledged:
    at = datetime.fromisoformat(answer["next_run_at"]).timestamp() if answer["next_run_at"] else 0.0
    return Acknowledged(UUID(answer["job_id"]), at, answer["run_id"] is None, asked, key, sent_at)


def _records(run: dict[str, Any]) -> Iterator[Record]:
    for one in run["attempts"]:
        yield Record(
            run["run_id"],
            run["job_id"],
            one["attempt"],
            one["outcome"],
            one["became"],
            one["fence"],
            one["worker_id"],
            datetime.fromisoformat(run["scheduled_at"]),
            one["started_at"] and datetime.fromisoformat(one["started_at"]),
            datetime.fromisoformat(one["finished_at"]),
        )


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
