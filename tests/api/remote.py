"""A worker over HTTP, as a test holds it: it asks when it is told to, and remembers what it was given."""

from typing import Any

import httpx

from tests.api.front import Caller

HANDLER = "app:mail"
LEASE_SECONDS = 15


class Remote:
    """A registered worker."""

    def __init__(self, caller: Caller, worker_id: str) -> None:
        self.caller = caller
        self.worker_id = worker_id
        self.number = 0

    async def ask(self, verb: str, **body: Any) -> httpx.Response:
        """Send a request of this worker."""
        return await self.caller.post(f"/v1/worker/{self.worker_id}/{verb}", json=body)

    async def claim(self, limit: int = 10, **body: Any) -> list[dict[str, Any]]:
        """Claim what is due."""
        self.number += 1
        answer = await self.ask("claim", number=self.number, limit=limit, **body)
        assert answer.status_code == 200, answer.text
        runs: list[dict[str, Any]] = answer.json()["runs"]
        return runs

    async def renew(self, *held: dict[str, Any], answered: int | None = None) -> dict[str, Any]:
        """Renew the lease, knowing the answers of all claims unless told otherwise."""
        known = self.number if answered is None else answered
        answer = await self.ask("renew", leases=list(map(lease_of, held)), answered=known)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def settle(self, run: dict[str, Any], outcome: str = "succeeded", **more: Any) -> str:
        """Settle one run; say what became of the outcome."""
        answer = await self.ask("settle", outcomes=[{**lease_of(run), "outcome": outcome, **more}])
        assert answer.status_code == 200, answer.text
        [settled] = answer.json()["outcomes"]
        assert lease_of(settled) == lease_of(run)
        return str(settled["status"])

    async def leave(self, *held: dict[str, Any]) -> httpx.Response:
        """Leave for good."""
        return await self.caller.delete(f"/v1/worker/{self.worker_id}", json={"leases": list(map(lease_of, held))})


def lease_of(run: dict[str, Any]) -> dict[str, Any]:
    """Name a run under the lease it is held by."""
    return {"run_id": run["run_id"], "fence": run["fence"]}


async def a_remote(caller: Caller, **fields: Any) -> Remote:
    """Register a worker for one handler on the default queue, unless told otherwise."""
    told = {"name": "remote", "queues": ["default"], "handlers": [HANDLER], "slots": 10, **fields}
    answer = await caller.post("/v1/worker/register", json=told)
    assert answer.status_code == 201, answer.text
    return Remote(caller, answer.json()["worker_id"])


async def a_job_due_now(caller: Caller, **fields: Any) -> str:
    """Create a one-shot, and give its id."""
    job = {"target": {"type": "function", "handler": HANDLER}, **fields}
    answer = await caller.post("/v1/jobs", json=job)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["job_id"])
