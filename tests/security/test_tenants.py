"""A crawler with the key of B, over all that A has: each answer is the one for what never was, and nothing of A's changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from duly.api.operations import Operation
from duly.api.response import EVENT_STREAM
from duly.api.routes import OPERATIONS
from duly.domain.runs.outcome import Failed
from tests.api.contract.yard import A_WORKER, A_WORKFLOW, HOURLY_SINCE_LONG_AGO, UNKNOWN, UNKNOWN_ID, Yard, request_for
from tests.api.front import A_TARGET, Caller
from tests.builders import a_leased_run, a_ready_run, a_retrying_run, a_waiting_run

A = 1
PARAMETER = re.compile(r"{(\w+)}")
UUIDS = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
CARRYING_A_TENANT = """
select relname from pg_class join pg_attribute on attrelid = pg_class.oid
 where relnamespace = 'duly'::regnamespace and relkind in ('r', 'p') and not relispartition and attname = 'tenant'
 order by 1
"""
SECRET = "of-a-alone"  # in everything of A's that has a text


class Estate:
    """What A has: ids that paths take, by the kind they are of, and what else B could send."""

    def __init__(self) -> None:
        self.ids: dict[str, list[str]] = {"key_id": [], "tenant": [str(A)], "name": [], "_id": []}
        self.leases: list[dict[str, Any]] = []
        self.tokens: dict[str, str] = {}
        self.keys: list[str] = []

    def of(self, parameter: str) -> list[str]:
        """Give all that could stand in a path for a parameter: an id of any kind for an id."""
        return self.ids.get(parameter) or self.ids["_id"]


@pytest.fixture
async def estate(front, api, database):
    """Fill A's place: jobs of each kind, runs in each state, and all else that has an id or a name."""
    made, yard = Estate(), Yard(database, api)
    ids = made.ids["_id"]
    for schedule in (HOURLY_SINCE_LONG_AGO, None, {"trigger": {"type": "cron", "expr": "0 9 * * *"}}):
        job = await api.a_job(schedule=schedule, name=f"{SECRET}-{len(ids)}", queue=SECRET, tags=[SECRET])
        ids.append(job["job_id"])
        made.ids["name"].append(job["name"])
    ids.append((await api.a_job(schedule=None, payload={"word": SECRET}))["job_id"])
    paused = await api.a_job(name=f"{SECRET}-paused")
    await api.post(f"/v1/jobs/{paused['job_id']}/pause", json={"reason": SECRET})
    ids.append(paused["job_id"])
    worker_id, run = await a_leased_run(database)
    made.leases.append({"run_id": str(run.run_id), "fence": run.fence})
    ids += map(str, [worker_id, run.run_id])
    ids += map(str, [await yard.ended_run(), await yard.ended_run(Failed(SECRET, retryable=False))])
    ids += map(str, [await a_waiting_run(database), await a_ready_run(database), await a_retrying_run(database)])
    gated = {"concurrency": {"key": SECRET, "limit": 1}, "schedule": None}
    ids += [(await api.a_job(**gated))["job_id"] for _ in range(2)]
    asked = await api.post(
        f"/v1/jobs/{ids[0]}/backfill",
        json={"from": "2026-11-01T00:00:00Z", "to": "2026-11-01T03:00:00Z", "confirm": True},
    )
    ids.append(asked.json()["backfill_id"])
    remote = await api.post("/v1/worker/register", json={**A_WORKER, "name": SECRET})
    ids.append(remote.json()["worker_id"])
    ids += [await yard.session() for _ in range(2)]
    for number in range(2):
        destination = await api.post("/v1/destinations", json={"url": f"https://{SECRET}-{number}.example"})
        ids.append(destination.json()["destination_id"])
    flow = {**A_WORKFLOW, "name": SECRET, "tags": [SECRET]}
    ids += [(await api.post("/v1/workflows", json=flow)).json()["workflow_id"] for _ in range(2)]
    await api.put(f"/v1/calendars/{SECRET}", json={"dates": ["2026-12-25"]})
    for key in (SECRET, f"{SECRET}-2"):
        await api.put(f"/v1/concurrency-keys/{key}", json={"limit": 3})
    await api.post(f"/v1/queues/{SECRET}/pause", json={"reason": SECRET})
    jobs = {f"{SECRET}-file": {"target": "a:b", "schedule": "every day at 9am"}}
    await api.post("/v1/jobs:apply", json={"source": SECRET, "jobs": jobs})
    made.ids["name"] += [SECRET, f"{SECRET}-file"]
    made.ids["key_id"].append(api.key_id)
    made.keys.append(SECRET)
    await api.post("/v1/jobs", json={"target": A_TARGET}, headers={"Idempotency-Key": SECRET})
    for operation in OPERATIONS:
        if "page_token" in getattr(operation.query, "__struct_fields__", ()) and not PARAMETER.search(operation.path):
            asked = request_for(operation)
            page = await asked.with_query(f"{asked.query}&page_size=1".lstrip("&")).by(api)
            if page.is_success and page.json()["next_page_token"]:
                made.tokens[operation.name] = page.json()["next_page_token"]
    return made


async def belongings(database) -> dict[str, list[str]]:
    """Read all that is A's."""
    tables = [row[0] for row in await database.fetch(CARRYING_A_TENANT)]
    return {
        table: sorted(
            row[0] for row in await database.fetch(f"select t::text from duly.{table} as t where tenant = {A}")
        )
        for table in tables
    }


def paths(operation: Operation, estate: Estate) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Give what B puts into a path: each thing of A's, and beside it what never was."""
    [parameter, *others] = PARAMETER.findall(operation.path)
    beside = {name: UNKNOWN[name] for name in others}
    for value in estate.of(parameter):
        yield {parameter: value, **beside}, {parameter: UNKNOWN.get(parameter, UNKNOWN_ID), **beside}


def told(answer: httpx.Response, named: dict[str, str]) -> tuple[Any, ...]:
    """Give what an answer says, whoever it is about."""
    text = re.sub(r'"request_id":"[^"]*"', "", answer.text)
    for value in named.values():
        text = re.sub(rf"(?<![\w-]){re.escape(value)}(?![\w-])", "<it>", text)
    headers = {name: UUIDS.sub("<id>", value) for name, value in answer.headers.items() if name not in VARYING}
    for value in named.values():
        headers = {name: text_of.replace(value, "<it>") for name, text_of in headers.items()}
    return answer.status_code, UUIDS.sub("<id>", text), headers


VARYING = {"x-request-id", "content-length", "date"}


async def test_resource_of_another_tenant_answers_as_unknown_on_every_route(front, api, estate, database):
    stranger = await front.stranger()
    before = await belongings(database)
    assert sum(map(len, before.values())) > 40, "A has too little for this to mean anything"

    wrong = []
    for operation in OPERATIONS:
        if not PARAMETER.search(operation.path):
            continue
        for theirs, nobodys in paths(operation, estate):
            found = told(await request_for(operation, **theirs).by(stranger), theirs)
            await forget(database, stranger)
            expected = told(await request_for(operation, **nobodys).by(stranger), nobodys)
            await forget(database, stranger)
            if found != expected:
                wrong.append((operation.name, theirs, found, expected))

    assert wrong == []
    assert await belongings(database) == before


async def forget(database, stranger: Caller) -> None:
    """Take away what B has made under a name, so that the next of that name is new to it."""
    for table in ("calendars", "key_limits", "pauses", "limits", "notification_rules", "channels"):
        await database.execute(f"delete from duly.{table} where tenant = $1", stranger.tenant)
    await database.execute("update duly.jobs set name = null where tenant = $1", stranger.tenant)


async def test_leases_of_another_cannot_be_spoken_for(front, api, estate, database):
    stranger = await front.stranger()
    before = await belongings(database)
    wrong = []
    for operation in OPERATIONS:
        if "worker_id" not in operation.path or operation.body is None:
            continue
        for lease in estate.leases:
            answers = []
            for one in (lease, {"run_id": UNKNOWN_ID, "fence": lease["fence"]}):
                own = (await stranger.post("/v1/worker/register", json=A_WORKER)).json()["worker_id"]
                asked = request_for(operation, worker_id=own)
                fields = set(getattr(operation.body, "__struct_fields__", ()))
                if {"run_id", "fence"} <= fields:
                    asked = asked.with_fields(**one)
                elif "held" in fields:
                    asked = asked.with_fields(held=[one])
                elif "outcomes" in fields:
                    asked = asked.with_fields(outcomes=[{**one, "outcome": "succeeded"}])
                answers.append(told(await asked.by(stranger), {"run_id": one["run_id"]}))
            if answers[0] != answers[1]:
                wrong.append((operation.name, answers))

    assert wrong == []
    assert await belongings(database) == before


async def test_a_page_of_another_shows_nothing_of_it(front, api, estate):
    stranger = await front.stranger()
    assert len(estate.tokens) >= 2

    for operation in OPERATIONS:
        if (token := estate.tokens.get(operation.name)) is None:
            continue
        asked = request_for(operation)
        page = await asked.with_query(f"{asked.query}&page_token={token}".lstrip("&")).by(stranger)
        if page.is_success:
            assert_of_b_alone(page, estate)
        else:
            assert page.status_code in (400, 403), page.text


async def test_lists_show_nothing_of_another(front, api, estate):
    stranger = await front.stranger()
    for operation in OPERATIONS:
        if (
            operation.method == "GET"
            and not PARAMETER.search(operation.path)
            and operation.response_type != EVENT_STREAM
        ):
            assert_of_b_alone(await request_for(operation).by(stranger), estate)
    for filter_text in (f"queue:{SECRET}", f"tag:{SECRET}", f"name:{SECRET}*"):
        for path in ("/v1/jobs", "/v1/runs", "/v1/dead", "/v1/workflows"):
            assert_of_b_alone(await stranger.get(path, params={"filter": filter_text}), estate, filter_text)


def assert_of_b_alone(answer: httpx.Response, estate: Estate, said: str = "") -> None:
    """What B itself said may come back to it."""
    text = answer.text.replace(said, "") if said else answer.text
    seen = [word for word in (*estate.ids["_id"], *estate.ids["key_id"], SECRET) if word in text]
    assert seen == [], (str(answer.request.url), answer.text[:500])


async def test_a_key_that_another_used_is_new(front, api, estate, database):
    stranger = await front.stranger()
    before = await belongings(database)
    for key in estate.keys:
        for operation in OPERATIONS:
            if operation.is_keyed and not PARAMETER.search(operation.path):
                answer = await request_for(operation).with_headers(Idempotency_Key=key).by(stranger)
                assert "idempotency-replayed" not in answer.headers
                assert_of_b_alone(answer, estate, key)

    assert await belongings(database) == before


async def test_bulk_moves_of_one_tenant_reach_nothing_of_another(front, api, estate, database):
    stranger = await front.stranger()
    before = await belongings(database)
    for operation in OPERATIONS:
        if {"filter", "dry_run"} <= set(getattr(operation.body, "__struct_fields__", ())):
            answer = await request_for(operation).with_fields(all=True, dry_run=False).by(stranger)
            told = answer.json()
            assert (told["matched"], told.get("moved", told.get("changed")), told["sample"]) == (0, 0, [])

    assert await belongings(database) == before
