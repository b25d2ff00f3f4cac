"""graphile-worker: Node processes with the configuration of its own benchmark; `graphile_worker.cjs` is the other half."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from collections.abc import Sequence
from pathlib import Path

import asyncpg

from benchmarks.peers.system import WORKERS, System

_NODE = ["node", str(Path(__file__).with_suffix(".cjs"))]


class Adapter(System):
    """graphile-worker by a client process, one line of JSON for each request. The cost of a line is not measured."""

    async def create(self) -> None:
        await self._start()
        await self._request(op="create")
        await self._end()

    async def open(self) -> None:
        await self._start()
        await self._request(op="open")
        self._probe = await asyncpg.connect(self.url)

    async def close(self) -> None:
        await self._probe.close()
        await self._end()

    async def submit_many(self, number: int, reference: float, due: float | None = None) -> None:
        await self._request(op="submit_many", number=number, ref=reference, due=due)

    async def submit(self, reference: float) -> None:
        await self._request(op="submit", ref=reference)

    async def submit_now(self) -> None:
        await self._request(op="submit")

    async def submit_each(self, number: int) -> None:
        await self._request(op="submit_each", number=number)

    async def unfinished(self) -> int:
        count: int = await self._probe.fetchval("select count(*) from graphile_worker._private_jobs")
        return count

    def commands(self) -> Sequence[Sequence[str]]:
        return [[*_NODE, "work"]] * WORKERS

    async def _start(self) -> None:
        self._client = await asyncio.create_subprocess_exec(*_NODE, "client", stdin=PIPE, stdout=PIPE)

    async def _end(self) -> None:
        assert self._client.stdin
        self._client.stdin.close()
        await self._client.wait()

    async def _request(self, **request: object) -> None:
        assert self._client.stdin
        assert self._client.stdout
        self._client.stdin.write(json.dumps(request).encode() + b"\n")
        answer = json.loads(await self._client.stdout.readline() or '{"error": "the client has ended"}')
        if "error" in answer:
            raise RuntimeError(answer["error"])
