"""A write over HTTP: one order of steps and the same promises, with a key or without, for a tenant with quotas or without.

See docs/decisions/0036-one-write-path.md.
"""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import duly
from duly.store.tenancy import tenants
from tests.api.front import A_TARGET, EVERY_HOUR
from tests.hints import a_submit_that_stays_open

ONE_SHOT = {"target": A_TARGET, "payload": {"customer": 7}}
SCHEDULE = {"target": A_TARGET, "name": "report", "schedule": EVERY_HOUR}
WAYS = pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "k1"}], ids=["unkeyed", "keyed"])
BODIES = pytest.mark.parametrize("body", [ONE_SHOT, SCHEDULE], ids=["one-shot", "schedule"])
TENANTS = pytest.mark.parametrize("counted", [False, True], ids=["uncounted", "counted"])


async def a_tenant(front, api, *, counted, **limits):
    """Make a tenant, with quotas or without, and a caller of its own."""
    stranger = await front.stranger()
    limits = {"schedules_max": 1, "ready_max": 1, **limits} if counted else limits
    changed = await api.ask("PATCH", f"/v1/tenants/{stranger.tenant}", json={"limits": limits})
    assert changed.status_code == 200, changed.text
    return stranger


async def stored(database, tenant):
    """Count the runs that wait, the jobs and the stored responses of a tenant."""
    return tuple(
        [
            await database.fetchval(f"select count(*) from duly.{table} where tenant = $1", tenant)
            for table in ("ready", "jobs", "idempotent_responses")
        ]
    )


@WAYS
@BODIES
@TENANTS
class TestEveryKindOfCaller:
    async def test_a_create_is_answered_and_audited_alike(self, front, api, database, headers, body, counted):
        caller = await a_tenant(front, api, counted=counted)

        made = await caller.post("/v1/jobs", json=body, headers={**headers, "X-Request-ID": "the-request"})

        assert made.status_code == 202, made.text
        [entry] = await database.fetch("select * from duly.audit where tenant = $1", caller.tenant)
        assert (entry["action"], entry["subject_id"]) == ("job.created", made.json()["job_id"])
        assert (entry["actor"], entry["request_id"]) == (caller.key_id, "the-request")
        assert entry["detail"] == '{"queue": "default", "handler": "app:mail"}'

    async def test_without_its_audit_entry_nothing_is_stored(self, front, api, database, headers, body, counted):
        caller = await a_tenant(front, api, counted=counted)
        await database.execute("alter table duly.audit add constraint full_up check (at is null) not valid")
        try:
            made = await caller.post("/v1/jobs", json=body, headers=headers)
        finally:
            await database.execute("alter table duly.audit drop constraint full_up")

        assert made.status_code == 500
        assert await stored(database, caller.tenant) == (0, 0, 0)

    async def test_a_conflict_with_another_transaction_is_run_again(self, front, api, database, headers, body, counted):
        caller = await a_tenant(front, api, counted=counted)
        async with a_conflict(database):
            made = await caller.post("/v1/jobs", json=body, headers=headers)

        assert made.status_code == 202, made.text
        assert (await stored(database, caller.tenant))[:2] in ((1, 0), (0, 1))
        assert await database.fetchval("select count(*) from duly.audit where tenant = $1", caller.tenant) == 1


class a_conflict:
    """The server rolls the next transaction back that writes an audit entry, and no other."""

    def __init__(self, database) -> None:
        self._database = database

    async def __aenter__(self) -> None:
        await self._database.execute(
            """
            create sequence duly.tries;
            create function duly.fail_first() returns trigger language plpgsql security definer as $$
            begin
                if nextval('duly.tries') = 1 then
                    raise exception using errcode = 'serialization_failure', message = 'another was faster';
                end if;
                return new;
            end $$;
            create trigger fail_first before insert on duly.audit for each row execute function duly.fail_first();
            """
        )

    async def __aexit__(self, *_: object) -> None:
        await self._database.execute(
            "drop trigger fail_first on duly.audit; drop function duly.fail_first(); drop sequence duly.tries"
        )


STEPS = [
    "api/app.py",
    "api/request.py",
    "api/dispatch.py",
    "api/auth/authenticate.py",
    "api/admission.py",
    "api/idempotency.py",
    "api/routes/jobs.py",
    "moves/group_commit.py",
    "moves/submit.py",
    "store/tables/jobs.py",
    "api/metrics/requests.py",
]


async def files_passed(caller, headers):
    """Create a one-shot, and give the files of ours that the request passes, in the order in which each is entered."""
    folder, passed = str(Path(duly.__file__).parent) + "/", dict[str, None]()

    def enter(frame, event, argument):
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(folder):
            passed[path.removeprefix(folder)] = None

    sys.setprofile(enter)
    try:
        made = await caller.post("/v1/jobs", json=ONE_SHOT, headers=headers)
    finally:
        sys.setprofile(None)
    assert made.status_code == 202, made.text
    return list(passed)


@WAYS
async def test_every_kind_of_caller_passes_the_same_files_in_the_same_order(front, api, headers):
    plain = await a_tenant(front, api, counted=False)
    counted = await a_tenant(front, api, counted=True, ready_max=10)
    for caller in (plain, counted):  # The next request of a key finds it in memory, and its use on record.
        assert (await caller.post("/v1/jobs", json=ONE_SHOT)).status_code == 202
    await asyncio.gather(*front.door.auth._keys._touching)

    passed = await files_passed(plain, headers)

    assert [path for path in passed if path in STEPS] == STEPS
    assert await files_passed(counted, headers) == passed
    assert len(passed) <= 40


@WAYS
async def test_a_quota_refuses_a_one_shot_and_leaves_its_key_free(front, api, database, clock, headers):
    caller = await a_tenant(front, api, counted=True)
    assert (await caller.post("/v1/jobs", json=ONE_SHOT)).status_code == 202
    await tenants.count_usage(database)

    refused = await caller.post("/v1/jobs", json=ONE_SHOT, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (429, "quota_reached")
    assert await stored(database, caller.tenant) == (1, 0, 0)

    await database.execute("delete from duly.ready where tenant = $1", caller.tenant)
    await tenants.count_usage(database)
    assert (await caller.post("/v1/jobs", json=ONE_SHOT, headers=headers)).status_code == 202


@WAYS
async def test_a_quota_refuses_a_schedule(front, api, database, headers):
    caller = await a_tenant(front, api, counted=True)
    assert (await caller.post("/v1/jobs", json=SCHEDULE)).status_code == 202

    refused = await caller.post("/v1/jobs", json={**SCHEDULE, "name": "another"}, headers=headers)

    assert (refused.status_code, refused.json()["code"]) == (429, "quota_reached")
    assert await stored(database, caller.tenant) == (0, 1, 0)


async def test_a_new_quota_holds_before_the_key_is_looked_up_again(front, api, database):
    """The statement asks the tenant's row, not what a process remembers of the key."""
    caller = await a_tenant(front, api, counted=False)
    assert (await caller.post("/v1/jobs", json=ONE_SHOT)).status_code == 202
    await api.ask("PATCH", f"/v1/tenants/{caller.tenant}", json={"limits": {"ready_max": 1}})
    await tenants.count_usage(database)

    assert (await caller.post("/v1/jobs", json=ONE_SHOT)).status_code == 429


async def test_creates_beyond_a_quota_are_refused_and_take_no_other_along(front, api, database):
    caller = await a_tenant(front, api, counted=True, ready_max=1_000)
    other = await a_tenant(front, api, counted=True, ready_max=0)

    answers = await asyncio.gather(*(one.post("/v1/jobs", json=ONE_SHOT) for one in (caller, other) for _ in range(10)))

    assert [answer.status_code for answer in answers] == [202] * 10 + [429] * 10
    assert await stored(database, caller.tenant) == (10, 0, 0)
    assert await stored(database, other.tenant) == (0, 0, 0)


async def test_request_repeated_after_a_lost_response_changes_nothing_twice(api, database, front, monkeypatch):
    """The process dies between the commit and the response: the caller asks again, and nothing is done twice."""
    headers = {"Idempotency-Key": "k1"}

    def dies(queue):
        raise RuntimeError("the process dies here")

    monkeypatch.setattr(front.door, "_wake", dies)
    async with a_submit_that_stays_open(database.url):  # So the hint is sent after the commit.
        assert (await api.post("/v1/jobs", json=ONE_SHOT, headers=headers)).status_code == 500
    monkeypatch.undo()
    again = await api.post("/v1/jobs", json=ONE_SHOT, headers=headers)

    assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
    assert await stored(database, 1) == (1, 0, 1)
    assert (await api.get(again.headers["location"])).json()["job_id"] == again.json()["job_id"]


async def test_a_replayed_response_has_the_status_the_headers_and_the_bytes_of_the_first(api, clock):
    headers = {"Idempotency-Key": "k1"}
    first = await api.post("/v1/jobs", json=SCHEDULE, headers=headers)
    await clock.advance(timedelta(hours=2))
    again = await api.post("/v1/jobs", json=SCHEDULE, headers=headers)

    assert (again.status_code, again.content) == (first.status_code, first.content)
    for name in ("location", "etag", "content-type"):
        assert again.headers[name] == first.headers[name]
