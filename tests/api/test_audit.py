"""The audit over HTTP: who is told, what is written, and what is not."""

import asyncio

import pytest

from duly.domain.tenancy.audit import Action
from duly.store.tables import clocks
from duly.store.tenancy import audit
from tests.api.front import A_TARGET, EVERY_HOUR
from tests.builders import a_ready_run, a_worker


async def listed(caller, **query):
    answer = await caller.get("/v1/audit", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


async def actions(caller, **query):
    return [entry["action"] for entry in await listed(caller, **query)]


async def test_audit_entry_names_actor_action_and_subject(api, clock):
    job = await api.a_job(name="nightly")
    await clock.advance(1)
    headers = {"X-Request-ID": "of-mine"}
    await api.post(f"/v1/jobs/{job['job_id']}/pause", json={"reason": "holidays"}, headers=headers)

    entry, created = await listed(api)

    assert entry.pop("audit_id") != created["audit_id"]
    assert entry.pop("at").endswith("Z")
    assert entry == {
        "actor": {"kind": "key", "key_id": api.key_id, "name": "test"},
        "action": "job.paused",
        "subject": {"kind": "job", "id": job["job_id"], "name": "nightly"},
        "count": 1,
        "request_id": "of-mine",
        "detail": {"reason": "holidays"},
    }
    assert created["action"] == "job.created"
    assert created["detail"] == {"handler": "app:mail", "queue": "default"}


async def test_creates_of_one_moment_share_a_transaction_and_each_has_its_row(api, front):
    other = await front.caller()
    answers = await asyncio.gather(
        *(caller.post("/v1/jobs", json={"target": A_TARGET}) for caller in (api, other) for _ in range(20))
    )

    made = {answer.json()["job_id"]: answer.headers["x-request-id"] for answer in answers}
    entries = await listed(api, action="job.created", page_size=100)
    assert {entry["subject"]["id"]: entry["request_id"] for entry in entries} == made
    assert sorted(entry["actor"]["key_id"] for entry in entries) == sorted([api.key_id, other.key_id] * 20)


async def test_a_create_that_is_refused_among_others_has_no_row(api):
    fitting, refused = (
        {"target": A_TARGET},
        {"target": A_TARGET, "depends_on": [{"job": "00000000-0000-4000-8000-000000000000"}]},
    )
    answers = await asyncio.gather(
        *(api.post("/v1/jobs", json=body) for body in [fitting, refused, fitting, refused, fitting])
    )

    made = {answer.json()["job_id"] for answer in answers if answer.status_code == 202}
    assert len(made) < len(answers)
    assert {entry["subject"]["id"] for entry in await listed(api)} == made


async def test_a_batch_is_one_entry_with_its_count(api):
    line = b'{"target": {"type": "function", "handler": "app:mail"}}\n'
    named = b'{"target": {"type": "function", "handler": "app:mail"}, "idempotency_key": "a"}\n'
    answer = await api.post(
        "/v1/jobs:batch", content=line * 3 + named * 2 + b"{}\n", headers={"Content-Type": "application/x-ndjson"}
    )
    assert answer.headers["duly-refused"] == "1"

    [entry] = await listed(api)
    assert (entry["action"], entry["count"], entry["subject"]["id"]) == ("job.created", 4, None)


async def test_bulk_audit_records_each_job_and_counts_runs(api, database):
    jobs = {(await api.a_job(name=name))["job_id"] for name in "ab"}
    for _ in range(3):
        await a_ready_run(database)

    await api.post("/v1/jobs:pause", json={"all": True})
    await api.post("/v1/runs:cancel", json={"filter": "state:ready"})

    assert {entry["subject"]["id"] for entry in await listed(api, action="job.paused")} == jobs
    [entry] = await listed(api, action="run.cancelled")
    assert (entry["count"], entry["subject"]["id"]) == (3, None)


async def test_repeated_drain_or_resume_of_a_worker_adds_no_audit_entry(api, database):
    worker = f"/v1/workers/{await a_worker(database)}"
    for verb in ("drain", "drain", "resume", "resume"):
        assert (await api.post(f"{worker}/{verb}")).status_code == 200

    assert sorted(await actions(api)) == ["worker.drained", "worker.resumed"]


async def test_request_without_effect_is_not_audited(api, database):
    job = f"/v1/jobs/{(await api.a_job(name='a'))['job_id']}"
    await api.post(f"{job}/pause")
    await api.put("/v1/limits", json={"queue": "mail", "slots": 3})
    await api.put("/v1/concurrency-keys/k", json={"limit": 2})
    await api.put("/v1/calendars/c", json={"dates": ["2026-12-25"]})
    key = (await api.post("/v1/keys", json={"name": "spare", "scopes": ["jobs:read"]})).json()["key_id"]
    await api.delete(f"/v1/keys/{key}")
    await api.post("/v1/queues/mail/pause")
    before = len(await listed(api, page_size=100))

    for ask in (
        api.post(f"{job}/pause"),
        api.put("/v1/limits", json={"queue": "mail", "slots": 3}),
        api.put("/v1/concurrency-keys/k", json={"limit": 2}),
        api.put("/v1/calendars/c", json={"dates": ["2026-12-25"]}),
        api.delete(f"/v1/keys/{key}"),
        api.post("/v1/queues/mail/pause"),
        api.post("/v1/queues/other/resume"),
        api.post("/v1/dead:replay", json={"all": True}),
        api.post(
            f"{job}/backfill", json={"from": "2026-11-01T00:00:00Z", "to": "2026-11-02T00:00:00Z", "dry_run": True}
        ),
        api.patch("/v1/tenants/1", {"limits": {}}, headers={"Content-Type": "application/json"}),
    ):
        answer = await ask
        assert answer.status_code < 300, answer.text

    assert len(await listed(api, page_size=100)) == before


async def test_refused_request_is_not_audited(api):
    job = f"/v1/jobs/{(await api.a_job(name='a'))['job_id']}"
    before = len(await listed(api))

    for ask in (
        api.post("/v1/jobs", json={"target": A_TARGET, "schedule": EVERY_HOUR, "name": "a"}),
        api.patch(job, {"queue": "other"}, headers={"If-Match": '"7"'}),
        api.post(f"{job}/trigger", json={"payload": "no object"}),
        api.post("/v1/keys", json={"name": "late", "scopes": ["admin"], "expires_at": "2001-01-01T00:00:00Z"}),
        api.delete("/v1/keys/aaaaaaaaaa"),
        api.delete("/v1/limits?queue=none"),
        api.patch("/v1/tenants/1", {"state": "suspended"}, headers={"Content-Type": "application/json"}),
    ):
        assert (await ask).status_code in (400, 404, 409, 412, 422)

    assert len(await listed(api)) == before


async def test_an_edit_tells_which_parts_changed_and_never_their_values(api, database, clock):
    target = {"type": "webhook", "url": "https://example.com/in", "headers": {"Authorization": "Bearer hush"}}
    job = await api.a_job(name="hook", target=target, payload={"card": "4111"})
    await clock.advance(1)
    await api.patch(
        f"/v1/jobs/{job['job_id']}", {"payload": {"card": "4222"}, "priority": 2}, headers={"If-Match": "*"}
    )

    entry, _ = await listed(api)
    assert entry["detail"] == {"version": 2, "changed": ["priority", "payload"]}
    everything = str(await database.fetch("select audit::text from duly.audit"))
    assert "hush" not in everything
    assert "4111" not in everything
    assert "4222" not in everything


async def test_audit_entry_of_a_new_api_key_omits_its_text(api, database):
    made = (await api.post("/v1/keys", json={"name": "ci", "scopes": ["jobs:write"]})).json()

    [entry] = await listed(api, subject=made["key_id"])
    assert (entry["subject"]["name"], entry["detail"]) == ("ci", {"scopes": ["jobs:write"]})
    assert made["key"].rpartition("_")[2] not in str(await database.fetch("select audit::text from duly.audit"))


async def test_pages_and_filters(api, front, clock):
    other = await front.caller()
    first = await api.a_job(name="first")
    await clock.advance(1)
    second = await other.a_job(name="second")
    for job in (first, second):
        for verb in ("pause", "resume"):
            await clock.advance(1)
            await api.post(f"/v1/jobs/{job['job_id']}/{verb}")

    found, token = [], None
    while True:
        query = {"page_size": 2} | ({} if token is None else {"page_token": token})
        page = (await api.get("/v1/audit", params=query)).json()
        found += [entry["action"] for entry in page["items"]]
        token = page["next_page_token"]
        if token is None:
            break
    assert found == ["job.resumed", "job.paused", "job.resumed", "job.paused", "job.created", "job.created"]
    assert await actions(api, actor=other.key_id) == ["job.created"]
    assert await actions(api, action="job.paused") == ["job.paused"] * 2
    assert await actions(api, subject=first["job_id"]) == ["job.resumed", "job.paused", "job.created"]
    assert await actions(api, subject=first["job_id"], action="job.created") == ["job.created"]
    assert await actions(api, actor=api.key_id, action="job.created") == ["job.created"]
    oldest = (await listed(api))[-1]["at"]
    assert await actions(api, until=oldest) == []
    assert len(await actions(api, since=oldest)) == 6


async def test_an_unknown_action_is_refused_with_the_nearest(api):
    answer = await api.get("/v1/audit", params={"action": "job.pause"})

    assert answer.status_code == 400
    assert "job.paused" in answer.json()["detail"]


async def test_a_tenant_sees_its_own_and_the_operator_any(api, front, clock):
    stranger = await front.stranger()
    await stranger.a_job(name="theirs")
    await clock.advance(1)
    made = await api.post("/v1/keys", json={"name": "for them", "scopes": ["jobs:read"], "tenant": stranger.tenant})
    assert made.status_code == 201

    assert await actions(stranger) == ["key.created", "job.created"]
    assert await actions(api) == []
    assert await actions(api, tenant=stranger.tenant) == ["key.created", "job.created"]
    assert (await stranger.get("/v1/audit?tenant=1")).status_code == 403


async def test_audit_page_token_of_another_filter_is_refused(api):
    for name in "abc":
        await api.a_job(name=name)
    token = (await api.get("/v1/audit?page_size=1")).json()["next_page_token"]

    assert (await api.get(f"/v1/audit?page_size=1&page_token={token}&action=job.paused")).status_code == 400


async def test_change_is_rolled_back_when_its_audit_entry_cannot_be_written(api, database):
    """One transaction: without the row there is no key, no pause, no job."""
    job = await api.a_job(name="a")
    await database.execute("alter table duly.audit add constraint full_up check (at is null) not valid")
    try:
        paused = await api.post(f"/v1/jobs/{job['job_id']}/pause")
        keyed = await api.post("/v1/keys", json={"name": "spare", "scopes": ["jobs:read"]})
        held = await api.post("/v1/queues/mail/pause")
        made = await api.post("/v1/jobs", json={"target": A_TARGET})
    finally:
        await database.execute("alter table duly.audit drop constraint full_up")

    assert {answer.status_code for answer in (paused, keyed, held, made)} == {500}
    assert (await api.get(f"/v1/jobs/{job['job_id']}")).json()["status"] == "active"
    assert [key["name"] for key in (await api.get("/v1/keys")).json()["items"]] == ["test"]
    assert (await api.get("/v1/pauses")).json()["items"] == []
    assert (await api.get("/v1/runs")).json()["items"] == []


@pytest.mark.parametrize("action", [*Action])
def test_audit_action_names_a_thing_and_its_change(action):
    thing, _, became = action.partition(".")

    assert thing.isidentifier()
    assert became.isidentifier()
    assert action.islower()


async def test_short_audit_page_returns_a_next_page_token(api, clock, monkeypatch):
    monkeypatch.setattr(audit, "LOOKS", 3)
    first = await api.a_job(name="first")
    await api.post(f"/v1/jobs/{first['job_id']}/pause")
    await clock.advance(1)
    for name in "abcdef":
        await api.a_job(name=name)

    page = (await api.get(f"/v1/audit?actor={api.key_id}&action=job.created&page_size=5")).json()
    assert len(page["items"]) == 3
    assert page["next_page_token"] is not None


async def test_repeated_drain_or_resume_of_a_host_adds_no_audit_entry(api, database):
    await clocks.record(database, ["worker"], "w")
    host = await database.fetchval("select host from duly.processes")
    for verb in ("drain", "drain", "resume", "resume"):
        assert (await api.post(f"/v1/hosts/{host}/{verb}")).status_code == 200

    assert sorted(await actions(api)) == ["host.drained", "host.resumed"]
    assert (await api.post("/v1/hosts/nowhere/drain")).status_code == 404
