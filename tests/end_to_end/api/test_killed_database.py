"""`duly api` while PostgreSQL is killed: every answer comes in time, says 503 and when to come back, and no 2xx was a lie."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psycopg
import pytest

from duly.api.operations import ACT_SECONDS
from duly.clock import Rng
from duly.domain.tenancy.api_key import Scope, new_key, written
from duly.store.connection.database import Database
from duly.store.tenancy import api_keys
from tests.api.front import A_TARGET
from tests.end_to_end.house import PYTHONPATH, ROOT, House, a_house, wait_until

CALLERS = 6
GRACE_SECONDS = 3.0  # for a machine that has other things to do
ADDRESS = re.compile(r"api at (http://[\d.:]+)")


class Told(msgspec.Struct, frozen=True):
    """What was asked, under which key, what came back, and how long it took."""

    what: str
    key: str | None
    status: int
    seconds: float
    retry_after: str | None
    job_id: str | None


class Callers:
    """Those who ask, one request after another each, until they are told to stop."""

    def __init__(self, url: str, key: str, job_id: str) -> None:
        self.client = httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=ACT_SECONDS + GRACE_SECONDS
        )
        self.told: list[Told] = []
        self._job_id = job_id
        self._is_over = False

    async def run(self, story: Any) -> None:
        """Ask while a story is told."""
        asking = [asyncio.create_task(self._ask_on(number)) for number in range(CALLERS)]
        await story
        self._is_over = True
        await asyncio.gather(*asking)

    async def _ask_on(self, number: int) -> None:
        turn = 0
        while not self._is_over:
            turn += 1
            await self.create(f"key-{number}-{turn}")
            await self._ask("read", "GET", f"/v1/jobs/{self._job_id}")
            await self._ask("list", "GET", "/v1/runs?page_size=5")
            await self._ask("trigger", "POST", f"/v1/jobs/{self._job_id}/trigger")
            await self._ask("pause a queue", "POST", "/v1/queues/elsewhere/pause", json={})

    async def create(self, key: str) -> Told:
        """Create a one-shot that carries its key, so that it can be found again."""
        body = {"target": A_TARGET, "payload": {"key": key}}
        return await self._ask("create", "POST", "/v1/jobs", key, json=body)

    async def _ask(self, what: str, method: str, path: str, key: str | None = None, **request: Any) -> Told:
        headers = {} if key is None else {"Idempotency-Key": key}
        began = time.monotonic()
        answer = await self.client.request(method, path, headers=headers, **request)
        job_id = answer.json().get("job_id") if what == "create" and answer.is_success else None
        told = Told(what, key, answer.status_code, time.monotonic() - began, answer.headers.get("retry-after"), job_id)
        self.told.append(told)
        return told


@pytest.fixture
def house(tmp_path):
    with a_house(tmp_path) as house:
        yield house


def start_api(house: House) -> str:
    """Start the API in a process of its own. Gives its address."""
    command = [sys.executable, "-m", "duly", "api", "--port", "0", "--database-url", house.url]
    log = house.folder / "api.log"
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "PYTHONUNBUFFERED": "1"}
    with log.open("ab") as out:
        house.processes["api"] = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out)
    wait_until(lambda: ADDRESS.search(log.read_text()) is not None, 30)
    found = ADDRESS.search(log.read_text())
    assert found is not None
    return found[1]


async def a_key(house: House) -> str:
    key_id, secret = new_key(Rng().secret)
    async with Database(house.url) as database:
        await api_keys.create(database, key_id, secret, tenant=1, name="test", scopes=[Scope.ADMIN])
    return written(key_id, secret).reveal()


async def an_outage(house: House) -> None:
    """Let it work, kill PostgreSQL, leave it dead for a while, and let it work again."""
    await asyncio.sleep(1)
    os.kill(house.server.pid, signal.SIGKILL)
    await asyncio.sleep(2)
    await asyncio.to_thread(house.server.revive)
    await asyncio.sleep(2)


async def test_api_responds_503_in_time_when_postgresql_is_killed_and_keeps_creates(house: House, tmp_path: Path):
    url, key = start_api(house), await a_key(house)
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=20) as client:
        schedule = {"trigger": {"type": "interval", "every": "PT1H"}}
        job = await client.post("/v1/jobs", json={"target": A_TARGET, "schedule": schedule})
        assert job.status_code == 202, job.text
    callers = Callers(url, key, job.json()["job_id"])

    await callers.run(an_outage(house))

    during = list(callers.told)
    refused = [told for told in during if told.status == 503]
    assert {told.status for told in during} <= {200, 202, 409, 503}, {told.status for told in during}
    assert {told.what for told in refused} == {told.what for told in during}, "each kind of request met the outage"
    assert all(told.retry_after is not None and int(told.retry_after) >= 1 for told in refused)
    assert max(told.seconds for told in during) < ACT_SECONDS + GRACE_SECONDS
    await every_create_exists_once(house, callers, during)
    await callers.client.aclose()


async def every_create_exists_once(house: House, callers: Callers, during: list[Told]) -> None:
    """Ask for each create again under its key: what was answered is answered the same, and all are there once."""
    creates = [told for told in during if told.what == "create"]
    for told in creates:
        again = await callers.create(told.key or "")
        assert again.status == 202
        assert told.job_id in (None, again.job_id)
    with psycopg.connect(house.url, autocommit=True) as connection:
        rows = connection.execute("select payload->>'key', count(*) from duly.ready where payload ? 'key' group by 1")
        assert dict(rows.fetchall()) == {told.key: 1 for told in creates}
