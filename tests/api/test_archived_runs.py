"""Archived runs over HTTP: they are read with those of the database, and by their own tenant alone."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import httpx
import pytest

from duly.api.admission import ARCHIVES
from duly.api.app import create
from duly.api.metrics.collector import Metrics
from duly.cli.up.dispatcher import opened_dispatcher
from duly.clock import Rng
from duly.domain.archive import ArchivePlace
from duly.domain.runs.outcome import Cancelled, Succeeded
from duly.log import Log
from duly.maintenance.service import Maintenance
from duly.moves.archive import cold
from duly.moves.archive.export import Exporter
from duly.moves.submit import submit
from duly.outbound.archive_files import ArchiveFiles
from duly.store.boxes import history
from duly.store.connection.database import Database
from duly.store.tenancy import tenants
from duly.store.tenancy.tenants import Limits
from tests.api.conftest import parts_of
from tests.api.front import A_TARGET, Caller, Front
from tests.api.working import take
from tests.builders import a_key, a_submission, settled
from tests.clock import START

RANGE = 'finished_at>="2026-01-01"'
AGES = timedelta(days=100)
FILTERS: list[tuple[str, set[str]]] = [
    ("state:succeeded AND {}", {"plain", "tagged", "mail"}),
    ("state:cancelled AND {}", set()),
    ("tag:import AND {}", {"tagged"}),
    ("tag:(import,export) AND {}", {"tagged"}),
    ("tag:import AND tag:export AND {}", set()),
    ("queue:mail AND {}", {"mail"}),
    ('queue:"mail\'; drop table part; --" AND {}', set()),
    ('handler:"app:mail" AND {}', {"plain", "tagged", "mail"}),
    ("parent:00000000-0000-8000-8000-000000000000 AND {}", set()),
    ("workflow:00000000-0000-8000-8000-000000000000 AND {}", set()),
    ('finished_at>="2026-11-03" AND {}', set()),
    ('finished_at<"2026-11-03" AND {}', {"plain", "tagged", "mail"}),
    (
        'scheduled_at>="2026-11-02T09:00:00Z" AND scheduled_at<"2026-11-02T09:00:01Z" AND {}',
        {"plain", "tagged", "mail"},
    ),
    ('due_at<"2026-11-02" AND {}', set()),
]


@pytest.fixture
def files(tmp_path) -> ArchiveFiles:
    return ArchiveFiles(ArchivePlace(False, str(tmp_path / "archive")))


@pytest.fixture
async def front(own_database, files) -> AsyncIterator[Front]:
    """An API over a database whose history is archived."""
    parts = parts_of(own_database)
    async with opened_dispatcher(own_database, archive=files, logs_in=False) as door:
        app = create(parts.vitals, Metrics(parts.vitals.database, Log("test")), Log("test"), door)
        transport = httpx.ASGITransport(cast("Any", app), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://duly") as client:
            yield Front(client, own_database, [], door)


@pytest.fixture
async def api(front):
    return await front.caller()


async def a_tenant(database: Database, name: str) -> int:
    """Create a tenant."""
    return (await tenants.create(database, name, Limits())).tenant


async def ended_runs(
    database: Database, number: int, *, tenant: int = 1, outcome: Any = None, **more: Any
) -> list[str]:
    """Let runs end, the last one first."""
    await history.create_partitions(database, 1)
    for _ in range(number):
        await submit(database, a_submission(handler=A_TARGET["handler"], **more), key=a_key(), tenant=tenant)
    worker_id, runs = await take(database)
    for run in runs:
        assert await settled(database, worker_id, run, outcome or Succeeded('{"rows": 42}')) == []
    return sorted((str(run.run_id) for run in runs), reverse=True)


async def archived(database: Database, clock, files: ArchiveFiles) -> None:
    """Let time pass until all history so far is in the archive alone."""
    await clock.advance(AGES)
    await Maintenance(
        database,
        rng=Rng(1),
        log=Log("test"),
        exporter=Exporter(database, files, rng=Rng(uuid4().int % 1_000_000), log=Log("test")),
    ).archive()
    await history.create_partitions(database, 1)


async def listed(api: Caller, text: str = RANGE, size: int = 50) -> list[dict[str, Any]]:
    """Read all pages of the runs that match."""
    found, token = [], None
    while True:
        query = {"filter": text, "page_size": size} | ({} if token is None else {"page_token": token})
        answer = await api.get("/v1/runs", params=query)
        assert answer.status_code == 200, answer.text
        found += answer.json()["items"]
        token = answer.json()["next_page_token"]
        if token is None:
            return found


def ids(runs: list[dict[str, Any]]) -> list[str]:
    return [run["run_id"] for run in runs]


async def test_a_time_range_reads_the_archive_and_the_database_together(own_database, clock, files, api):
    old = await ended_runs(own_database, 3, payload='{"n": 1}', tags=["import"])
    await archived(own_database, clock, files)
    new = await ended_runs(own_database, 2)

    found = await listed(api)

    assert ids(found) == [*new, *old]
    assert [run["is_archived"] for run in found] == [False] * 2 + [True] * 3
    assert found[2]["payload_preview"] == '{"n": 1}'
    assert (found[2]["state"], found[2]["handler"], found[2]["attempt"]) == ("succeeded", A_TARGET["handler"], 1)


async def test_an_archived_run_cannot_be_run_again_and_the_refusal_says_so(own_database, clock, files, api):
    [old] = await ended_runs(own_database, 1)
    await archived(own_database, clock, files)

    refused = await api.post(f"/v1/runs/{old}/rerun", json={})

    assert (refused.status_code, refused.json()["code"]) == (404, "not_found")
    assert f"archived run cannot be run again: take its payload from `duly runs show {old}`" in refused.json()["detail"]


async def test_pages_of_any_size_have_each_run_once_and_in_order(own_database, clock, files, api):
    old = await ended_runs(own_database, 5)
    await archived(own_database, clock, files)
    older = await ended_runs(own_database, 4)
    await archived(own_database, clock, files)
    new = await ended_runs(own_database, 3)

    for size in (1, 2, 3, 5, 12, 50):
        assert ids(await listed(api, size=size)) == [*new, *older, *old], size


async def test_a_page_ends_when_its_time_is_over_and_the_next_one_goes_on(own_database, clock, files, api, monkeypatch):
    expected: list[str] = []
    for _ in range(3):
        expected = await ended_runs(own_database, 2) + expected
        await archived(own_database, clock, files)
    ticks = iter(range(1_000_000))
    monkeypatch.setattr(clock, "monotonic", lambda: next(ticks) * cold.SECONDS_MAX * 0.7)

    assert ids(await listed(api)) == expected


async def test_a_page_that_cannot_come_further_in_its_time_is_a_problem_and_not_the_same_page_for_ever(
    own_database, clock, files, api, monkeypatch
):
    runs = list[str]()
    for outcome in (Succeeded(), Cancelled(), Succeeded(), Cancelled()):  # the files of both kinds overlap
        await clock.advance(1)
        runs += await ended_runs(own_database, 1, outcome=outcome)
    await archived(own_database, clock, files)
    ticks = iter(range(1_000_000))
    monkeypatch.setattr(clock, "monotonic", lambda: next(ticks) * cold.SECONDS_MAX * 1.1)

    first = (await api.get("/v1/runs", params={"filter": RANGE})).json()
    second = await api.get("/v1/runs", params={"filter": RANGE, "page_token": first["next_page_token"]})

    assert ids(first["items"]) == runs[-1:]
    assert (second.status_code, second.json()["code"]) == (503, "archive_unavailable")


async def test_a_run_with_two_records_hides_no_other(own_database, clock, files, api):
    """A skipped occurrence that is made up for, and cancelled, is in one file twice."""
    runs = await ended_runs(own_database, 3, outcome=Cancelled())
    await own_database.execute(
        "insert into duly.attempts (run_id, job_id, scheduled_at, due_at, finished_at, tenant, attempt, outcome, became,"
        " queue, handler)"
        " select run_id, job_id, scheduled_at, due_at, finished_at, tenant, 0, 'skipped', 'skipped', queue, handler"
        " from duly.attempts where run_id = $1",
        UUID(runs[0]),
    )
    await archived(own_database, clock, files)

    found = await listed(api, size=2)

    assert [(run["run_id"], run["state"]) for run in found] == [(run, "cancelled") for run in runs]


async def test_filters_choose_archived_runs_as_they_choose_others(own_database, clock, files, api):
    runs = {"plain": await ended_runs(own_database, 1), "tagged": await ended_runs(own_database, 1, tags=["import"])}
    await submit(own_database, a_submission(handler=A_TARGET["handler"], queue="mail"), key=a_key())
    worker_id, [mail] = await take(own_database, "mail")
    await settled(own_database, worker_id, mail)
    runs["mail"] = [str(mail.run_id)]
    expected = {text.format(RANGE): {runs[name][0] for name in matching} for text, matching in FILTERS}
    expected[f"job_id:{runs['plain'][0]} AND {RANGE}"] = set(runs["plain"])
    assert {text: set(ids(await listed(api, text))) for text in expected} == expected, "in the database"

    await archived(own_database, clock, files)

    assert {text: set(ids(await listed(api, text))) for text in expected} == expected


async def test_a_list_without_a_time_range_reads_no_archive(own_database, clock, files, api):
    await ended_runs(own_database, 1)
    await archived(own_database, clock, files)
    for file in Path(files.place.root).rglob("*.parquet"):
        file.unlink()

    assert await listed(api, "state:succeeded") == []


async def test_an_archived_run_is_shown_with_all_that_it_had(own_database, clock, files, api):
    [run_id] = await ended_runs(own_database, 1, payload='{"n": 1}', tags=["import"])
    before = (await api.get(f"/v1/runs/{run_id}")).json()
    await archived(own_database, clock, files)

    after = (await api.get(f"/v1/runs/{run_id}")).json()

    assert before.pop("is_archived") is False
    assert after.pop("is_archived") is True
    assert after == before
    assert (await api.get(f"/v1/runs/{uuid4()}")).status_code == 404


async def test_a_run_that_takes_too_long_to_read_is_a_problem_and_not_half_a_run(
    own_database, clock, files, api, monkeypatch
):
    [run_id] = await ended_runs(own_database, 1)
    await archived(own_database, clock, files)
    ticks = iter(range(1_000_000))
    monkeypatch.setattr(clock, "monotonic", lambda: next(ticks) * cold.SECONDS_MAX * 1.1)

    answer = await api.get(f"/v1/runs/{run_id}")

    assert (answer.status_code, answer.json()["code"]) == (503, "archive_unavailable")
    assert "in time" in answer.json()["detail"]


async def test_a_rule_of_redaction_holds_for_archived_runs_too(own_database, clock, files, api):
    [run_id] = await ended_runs(own_database, 1, payload='{"card": "4111-1111", "n": 1}')
    await archived(own_database, clock, files)
    await own_database.execute("select duly.set_rules(1, array['$.card'])")

    [found] = await listed(api)
    shown = (await api.get(f"/v1/runs/{run_id}")).text

    assert "4111" not in f"{found} {shown}"
    assert '"n":1' in found["payload_preview"].replace(" ", "")


class TestTenants:
    async def test_no_other_tenant_reads_an_archived_run(self, own_database, clock, files, front, api):
        other = await a_tenant(own_database, "other")
        mine = await ended_runs(own_database, 2)
        theirs = await ended_runs(own_database, 2, tenant=other)
        await archived(own_database, clock, files)
        stranger = await front.caller(tenant=other)

        assert ids(await listed(api)) == mine
        assert ids(await listed(stranger)) == theirs
        for text in (f"job_id:{mine[0]}", f"parent:{mine[0]}", 'queue:"x\') or (tenant = 1"', 'tag:"\' or 1=1 --"'):
            assert set(ids(await listed(stranger, f"{text} AND {RANGE}"))) <= set(theirs), text
        for run_id in mine:
            assert (await stranger.get(f"/v1/runs/{run_id}")).status_code == 404
            assert (await stranger.get(f"/v1/runs/{run_id}/attempts")).status_code == 404
        token = (await api.get("/v1/runs", params={"filter": RANGE, "page_size": 1})).json()["next_page_token"]
        taken = await stranger.get("/v1/runs", params={"filter": RANGE, "page_size": 50, "page_token": token})
        assert set(ids(taken.json()["items"])) <= set(theirs)

    async def test_a_tenant_leaves_room_for_others_at_the_archive(self, own_database, clock, files, front, api):
        await ended_runs(own_database, 1)
        await archived(own_database, clock, files)
        services = front.door.services
        for _ in range(cold.AT_ONCE_MAX):
            await services.cold._room.acquire()
        waiting = [asyncio.create_task(listed(api)) for _ in range(ARCHIVES.of_tenant_max)]
        while services.open_requests.taken(ARCHIVES) < len(waiting):
            await asyncio.sleep(0.01)

        answer = await api.get("/v1/runs", params={"filter": RANGE})

        assert (answer.status_code, answer.json()["code"]) == (429, "quota_reached")
        for _ in range(cold.AT_ONCE_MAX):
            services.cold._room.release()
        assert [len(found) for found in await asyncio.gather(*waiting)] == [1, 1]

    @pytest.mark.parametrize("path", ["archive", "legal-holds"])
    async def test_only_the_operator_sees_archives_and_holds(self, own_database, front, path):
        other = await a_tenant(own_database, "other")
        admin = await front.caller(tenant=other)

        assert (await admin.get(f"/v1/{path}")).status_code == 403
        body = {"tenant": other, "reason": "x"}
        assert (await admin.put("/v1/legal-holds", json=body)).status_code == 403
        assert (await admin.post("/v1/archive:stop")).status_code == 403
        assert (await admin.post("/v1/archive/x/verify")).status_code == 403


class TestUnreadable:
    async def test_a_damaged_archive_is_a_problem_of_that_range_alone(self, own_database, clock, files, api, front):
        await ended_runs(own_database, 1)
        await archived(own_database, clock, files)
        new = await ended_runs(own_database, 1)
        for file in Path(files.place.root).rglob("*.parquet"):
            file.write_bytes(file.read_bytes()[:100])

        answer = await api.get("/v1/runs", params={"filter": RANGE})

        assert (answer.status_code, answer.json()["code"]) == (503, "archive_unavailable")
        assert files.place.root not in answer.text, "callers do not learn where archives are"
        assert ids((await api.get("/v1/runs")).json()["items"]) == new
        recent = f'finished_at>="{(START + AGES).date()}"'
        assert ids(await listed(api, recent)) == new

    async def test_verify_reads_an_archive_back(self, own_database, clock, files, api):
        await ended_runs(own_database, 3)
        await archived(own_database, clock, files)
        [record] = (await api.get("/v1/archive")).json()["items"]
        assert (record["state"], record["rows"], record["day"]) == ("dropped", 3, "2026-11-02")

        assert (await api.post(f"/v1/archive/{record['name']}/verify")).json() == record
        [file] = Path(files.place.root).rglob("*.parquet")
        file.write_bytes(file.read_bytes()[:-20])
        assert (await api.post(f"/v1/archive/{record['name']}/verify")).status_code == 503
        assert (await api.post("/v1/archive/none/verify")).status_code == 404


class TestHolds:
    async def test_a_hold_behind_more_than_a_list_shows_keeps_its_first_reason(self, own_database, api):
        await own_database.execute(
            "insert into duly.legal_holds (tenant, job_id, reason, held_at)"
            " select 1, gen_random_uuid(), 'bulk', duly.clock_now() from generate_series(1, 10000)"
        )
        held = {"tenant": 1, "job_id": str(UUID(int=2**128 - 1)), "reason": "case 7"}

        first = await api.put("/v1/legal-holds", json=held)
        again = await api.put("/v1/legal-holds", json={**held, "reason": "case 8"})

        assert (first.status_code, again.status_code) == (200, 200)
        assert again.json() == first.json()

    async def test_a_hold_is_set_listed_and_released_and_stops_a_purge(self, own_database, api):
        await ended_runs(own_database, 1)
        [run] = (await api.get("/v1/runs")).json()["items"]
        held = {"tenant": 1, "job_id": run["job_id"], "reason": "case 7"}

        first = await api.put("/v1/legal-holds", json=held)
        again = await api.put("/v1/legal-holds", json=held)

        assert (first.status_code, again.json()) == (200, first.json())
        assert (await api.get("/v1/legal-holds")).json()["items"] == [first.json()]
        purge = await api.delete(f"/v1/jobs/{run['job_id']}", params={"purge": "true"})
        assert purge.status_code == 409
        assert "legal hold" in purge.json()["detail"]
        assert (await api.delete("/v1/legal-holds", params={"tenant": 1, "job_id": run["job_id"]})).status_code == 204
        assert (await api.delete("/v1/legal-holds", params={"tenant": 1})).status_code == 404
        assert (await api.delete(f"/v1/jobs/{run['job_id']}", params={"purge": "true"})).status_code < 300
        actions = [one["action"] for one in (await api.get("/v1/audit")).json()["items"]]
        assert actions.count("hold.created") == actions.count("hold.removed") == 1

    async def test_a_hold_on_an_unknown_tenant_is_refused(self, api):
        answer = await api.put("/v1/legal-holds", json={"tenant": 77, "reason": "case 7"})

        assert answer.status_code == 404
