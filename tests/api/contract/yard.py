"""Requests for every operation of the table, each about something that was made for it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import msgspec

from duly.api.operations import Operation
from duly.api.response import NDJSON
from duly.clock import Rng
from duly.domain.runs.outcome import Failed, Outcome, Succeeded
from duly.domain.runs.run import Run
from duly.moves.archive.parquet import Writer
from duly.moves.claim import claim
from duly.moves.settle import Settled, settle
from duly.outbound.archive_files import ArchiveFiles
from duly.store.boxes import history, runs
from duly.store.connection.database import Database
from duly.store.connection.local import this_host
from duly.store.tables import clocks
from duly.store.tenancy import browser_sessions
from tests.api.contract.described import described
from tests.api.contract.samples import least
from tests.api.front import A_TARGET, CALLBACKS, EVERY_HOUR, Caller
from tests.builders import HANDLER, RNG, a_leased_run, a_ready_run, a_worker, an_awaited_run

UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"
UNKNOWN_TOKEN = f"cb_{'0' * 32}_1_{'A' * 43}"  # well written, and none of ours
UNKNOWN = {"token": UNKNOWN_TOKEN, "key_id": "a" * 10, "tenant": "999999", "name": "never-was", "node": "first"}
HOURLY_SINCE_LONG_AGO = {"trigger": {"type": "interval", "every": "PT1H", "anchor": "2026-11-01T00:00:00Z"}}
A_WORKER: dict[str, Any] = {"name": "remote", "queues": ["remote"], "handlers": [HANDLER]}
A_WORKFLOW: dict[str, Any] = {
    "name": "nightly",
    "nodes": {"first": {"target": A_TARGET}, "second": {"target": A_TARGET, "depends_on": ["first"]}},
}
PARAMETER = re.compile(r"{(\w+)}")
A_RECOVERY = """
delete from duly.recoveries;
insert into duly.recoveries (recovery_id, state, opened_at) values (gen_random_uuid(), 'open', duly.clock_now())
"""
AN_ARCHIVE = """
insert into duly.archived_partitions (
    name, source, kind, day, is_late, state, holder, until, begun_at, horizon, location, rows, left_out, checksum, bytes,
    first_run, last_run, tenants, archived_at, dropped_at)
select $1, 'attempts_succeeded', 'succeeded', '2026-10-01', false, $5, gen_random_uuid(), now, now, pg_current_xact_id(),
       $1, $2, 0, $3, $4, '00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff', '{1}', now, now
  from (select duly.clock_now() as now) as clock
"""
_A_BATCH = b'{"target": {"type": "function", "handler": "app:mail"}}\n{"nothing": 1}\n'


class Asked(msgspec.Struct):
    """A request that can be sent, and changed before."""

    method: str
    path: str
    headers: dict[str, str]
    content: bytes | None

    async def by(self, caller: Caller) -> httpx.Response:
        """Send it with someone's key. A stream is heard until it is closed."""
        return await caller.ask(self.method, self.path, headers=self.headers, content=self.content)

    def with_body(self, body: Any) -> Asked:
        """Give the same with another body."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return msgspec.structs.replace(self, content=content)

    def with_fields(self, **fields: Any) -> Asked:
        """Give the same with other fields in its body."""
        return self.with_body({**msgspec.json.decode(self.content or b"{}"), **fields})

    def with_headers(self, **headers: str) -> Asked:
        """Give the same with more headers."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return msgspec.structs.replace(self, headers={**self.headers, **named})

    @property
    def query(self) -> str:
        """The parameters that are required."""
        return self.path.partition("?")[2]

    def with_query(self, query: str) -> Asked:
        """Give the same with another query."""
        return msgspec.structs.replace(self, path=f"{self.path.partition('?')[0]}?{query}")


def request_for(operation: Operation, **named: str) -> Asked:
    """Give a plain request for an operation about what is named."""
    path = PARAMETER.sub(lambda found: named[found[1]], operation.path)
    required = [
        f"{one['name']}={least(one['schema'])}"
        for one in described(operation)["parameters"]
        if one["in"] == "query" and one["required"]
    ]
    headers = {"If-Match": "*"} if operation.is_matched else {}
    content = None
    if operation.body is not None:
        headers["Content-Type"] = operation.media_type
        content = _A_BATCH if operation.media_type == NDJSON else msgspec.json.encode(_body(operation))
    return Asked(operation.method, "?".join([path, *filter(None, ["&".join(required)])]), headers, content)


def unknown(operation: Operation) -> dict[str, str]:
    """Name what never was."""
    return {name: UNKNOWN.get(name, UNKNOWN_ID) for name in PARAMETER.findall(operation.path)}


def _body(operation: Operation) -> Any:
    content = described(operation)["requestBody"]["content"][operation.media_type]
    return _BODIES.get(operation.name) or least(content["schema"])


A_CHANNEL = {"kind": "webhook", "url": "https://hooks.example/in"}
A_RULE = {"events": ["dead"], "channels": ["for-rules"]}
# Where the least that the schema asks for is not sensible.
_BODIES: dict[str, Any] = {
    "put_job_by_name": {"target": A_TARGET, "schedule": EVERY_HOUR},
    "put_calendar": {"dates": ["2026-12-25"]},
    "put_channel": A_CHANNEL,
    "put_notification_rule": A_RULE,
    "backfill_job": {"from": "2026-11-01T00:00:00Z", "to": "2026-11-01T03:00:00Z", "confirm": True},
    "limit_concurrency_key": {"limit": 3},
    "pause": {"queue": "pausable"},
    "resume": {"queue": "pausable"},
    "put_limit": {"queue": "limited", "slots": 5},
    "replay_matching": {"all": True, "dry_run": True},
    "discard_matching": {"all": True, "dry_run": True},
    "pause_jobs": {"all": True, "dry_run": True},
    "resume_jobs": {"all": True, "dry_run": True},
    "delete_jobs": {"all": True, "dry_run": True},
    "cancel_runs": {"all": True, "dry_run": True},
    "replay_runs": {"all": True, "dry_run": True},
    "apply_file": {"source": "test", "jobs": {"by-file": {"target": "app:mail", "schedule": "every day at 9am"}}},
    "append_logs": {
        "lines": [{"level": "info", "message": "hello"}],
        "run_id": "00000000-0000-4000-8000-00000000abcd",
        "fence": 1,
    },
    "edit_matching": {"all": True, "dry_run": True, "payload": {}},
    "create_workflow": A_WORKFLOW,
    "replay_workflow": {"node": "first"},
    "add_nodes": {"node": "first", "fence": 1, "nodes": {"added": {"target": A_TARGET}}},
}


class Yard:
    """A place in which whatever a request is about can be made."""

    def __init__(self, database: Database, api: Caller, files: ArchiveFiles | None = None) -> None:
        self.database = database
        self.api = api
        self._files = files
        self._makers: dict[str, Callable[[Operation], Awaitable[str]]] = {
            "job_id": self._job,
            "run_id": self._run,
            "backfill_id": self._backfill,
            "key_id": self._key,
            "session_id": self.session,
            "tenant": self._tenant,
            "name": self._name,
            "worker_id": self._worker,
            "host": self._host,
            "token": self._token,
            "destination_id": self._destination,
            "workflow_id": self._workflow,
            "node": self._node,
        }

    async def request(self, operation: Operation) -> Asked:
        """Give a request that will be done."""
        named = await self.named(operation)
        asked = request_for(operation, **named)
        if operation.name in ("create_tenant", "create_key"):
            return asked.with_fields(name=f"fresh-{uuid4()}")
        if operation.name in ("approve_recovery", "dismiss_recovery"):
            await self.database.execute(A_RECOVERY)
        if operation.name == "remove_limit":
            await self.api.ask("PUT", "/v1/limits", json={"queue": "limited", "slots": 5})
            return asked.with_query("queue=limited")
        if operation.name == "stop_archive":
            await history.archive(self.database, 4096)
        if operation.name == "release_history":
            await self.api.ask("PUT", "/v1/legal-holds", json={"tenant": 1, "reason": "an inquiry"})
            return asked.with_query("tenant=1")
        if operation.name == "export_file":
            await self.api.a_job(name=f"to-export-{uuid4()}")
            return asked.with_query("by_hand=true")
        if operation.name == "add_nodes":
            return asked.with_fields(fence=await self.running_node(named["workflow_id"]))
        if {"run_id", "fence"} <= set(getattr(operation.body, "__struct_fields__", ())):
            return asked.with_fields(**await self._lease(named["worker_id"]))
        return asked

    async def named(self, operation: Operation) -> dict[str, str]:
        """Make what a path names."""
        return {name: await self._makers[name](operation) for name in PARAMETER.findall(operation.path)}

    async def _job(self, _: Operation | None = None) -> str:
        made = await self.api.a_job(schedule=HOURLY_SINCE_LONG_AGO)
        return str(made["job_id"])

    async def _run(self, operation: Operation) -> str:
        if "/dead/" in operation.path or operation.path.endswith(("/replay", "/rerun")):
            return str(await self.ended_run(Failed("broken", retryable=False)))
        if operation.path.endswith("/checkpoint"):
            worker_id, run = await a_leased_run(self.database)
            assert await runs.save_checkpoint(self.database, run.run_id, run.fence, worker_id, "[1]")
            return str(run.run_id)
        return str(await a_ready_run(self.database))

    async def ended_run(self, outcome: Outcome | None = None) -> UUID:
        """Make a run whose attempt has come to this."""
        worker_id, run = await a_leased_run(self.database)
        await settle_one(self.database, worker_id, run, outcome or Succeeded())
        return run.run_id

    async def _backfill(self, _: Operation) -> str:
        body = _BODIES["backfill_job"]
        answer = await self.api.post(f"/v1/jobs/{await self._job()}/backfill", json=body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["backfill_id"])

    async def _key(self, _: Operation) -> str:
        answer = await self.api.post("/v1/keys", json={"name": "spare", "scopes": ["jobs:read"]})
        return str(answer.json()["key_id"])

    async def session(self, _: Operation | None = None) -> str:
        """Let a browser log in with the key."""
        token = Rng().secret(32)
        kept = timedelta(hours=1)
        await browser_sessions.open_session(
            self.database, token, self.api.key_id, self.api.tenant, kept, address="", user_agent="test", most=100
        )
        return str((await self.api.get("/v1/sessions")).json()["items"][0]["session_id"])

    async def _tenant(self, _: Operation) -> str:
        answer = await self.api.post("/v1/tenants", json={"name": f"tenant-{uuid4()}"})
        return str(answer.json()["tenant"])

    async def _name(self, operation: Operation) -> str:
        name = f"named-{uuid4()}"
        if "/calendars/" in operation.path and operation.method != "PUT":
            answer = await self.api.put(f"/v1/calendars/{name}", json={"dates": ["2026-12-25"]})
            assert answer.status_code == 200, answer.text
        elif "/concurrency-keys/" in operation.path and operation.method != "PUT":
            answer = await self.api.put(f"/v1/concurrency-keys/{name}", json={"limit": 3})
            assert answer.status_code == 200, answer.text
        elif "/channels/" in operation.path and operation.method != "PUT":
            await self.api.put(f"/v1/channels/{name}", json=A_CHANNEL)
        elif "/notification-rules/" in operation.path:
            await self.api.put("/v1/channels/for-rules", json=A_CHANNEL)
            if operation.method != "PUT":
                await self.api.put(f"/v1/notification-rules/{name}", json=A_RULE)
        elif "/archive/" in operation.path and self._files is not None:
            return await self.an_archive(self._files)
        elif "/files/" in operation.path:
            answer = await self.api.post("/v1/jobs:apply?adopt=true", json={**_BODIES["apply_file"], "source": name})
            assert answer.status_code == 200, answer.text
        elif "/by-name/" in operation.path and operation.method != "PUT":
            await self.api.a_job(name=name)
        return name

    async def an_archive(self, files: ArchiveFiles, state: str = "dropped") -> str:
        """Put an archive without rows on record, which is said to reach over all runs of the first tenant."""
        name = f"archive-{uuid4()}"
        contents = Writer(files.create(name)).finish()
        await self.database.execute(AN_ARCHIVE, name, contents.rows, contents.checksum, contents.bytes, state)
        return name

    async def _worker(self, _: Operation) -> str:
        answer = await self.api.post("/v1/worker/register", json=A_WORKER)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["worker_id"])

    async def _token(self, _: Operation) -> str:
        """Put a run into its receiver's hands."""
        run = await an_awaited_run(self.database)
        return CALLBACKS.make(run.run_id, run.fence)

    async def _destination(self, _: Operation) -> str:
        answer = await self.api.post("/v1/destinations", json={"url": f"https://{uuid4()}.example/in"})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["destination_id"])

    async def _workflow(self, operation: Operation) -> str:
        """Start a workflow; one to be replayed has been cancelled."""
        answer = await self.api.post("/v1/workflows", json=A_WORKFLOW)
        assert answer.status_code == 202, answer.text
        path = f"/v1/workflows/{answer.json()['workflow_id']}"
        if operation.name == "replay_workflow":
            await self.api.post(f"{path}/cancel")
        return path.rpartition("/")[2]

    async def _node(self, _: Operation) -> str:
        return "first"

    async def running_node(self, workflow_id: str) -> int:
        """Put the first node of a workflow into a worker's hands, and give the fence."""
        handler = A_TARGET["handler"]
        worker_id = await a_worker(self.database, handlers=[handler])
        node = (await self.api.get(f"/v1/workflows/{workflow_id}/nodes/first")).json()
        taken = await claim(self.database, worker_id, ["default"], [handler], 100)
        return next(run.fence for run in taken if str(run.run_id) == node["run_id"])

    async def _host(self, _: Operation) -> str:
        await clocks.record(self.database, ["worker"], "yard")
        return this_host()

    async def _lease(self, worker_id: str) -> dict[str, Any]:
        """Put a run into a worker's hands."""
        await a_ready_run(self.database, queue=A_WORKER["queues"][0])
        answer = await self.api.post(f"/v1/worker/{worker_id}/claim", json={"number": 1})
        [run] = answer.json()["runs"]
        return {name: run[name] for name in ("run_id", "fence")}


async def settle_one(database: Database, worker_id: UUID, run: Run, outcome: Outcome) -> None:
    """Settle a run at this moment of the database."""
    now = await database.read_clock()
    assert await settle(database, worker_id, [Settled(run, now - timedelta(seconds=1), now, outcome)], RNG) == []
