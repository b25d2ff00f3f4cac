"""Keys over HTTP: made, listed, ended; the secret is shown once and kept nowhere."""

from datetime import datetime, timedelta

from tests.api.front import A_TARGET, Caller
from tests.api.test_runs import pages


async def made(api, **fields):
    answer = await api.post("/v1/keys", json={"name": "mine", "scopes": ["jobs:read"], **fields})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def test_api_key_is_created_used_listed_and_revoked(front, api, clock):
    key = await made(api)
    caller = Caller(front.client, key["key"])
    assert key["key"].startswith(f"duly_{key['key_id']}_")
    assert (await caller.get("/v1/jobs")).status_code == 200
    assert (await caller.post("/v1/jobs", json={"target": A_TARGET})).status_code == 403

    assert key["key_id"] in {one["key_id"] for one in await pages(api, "/v1/keys", page_size=1)}
    assert (await api.delete(f"/v1/keys/{key['key_id']}")).status_code == 204
    await clock.advance(timedelta(seconds=4))

    assert (await caller.get("/v1/jobs")).status_code == 401
    [listed] = [one for one in await pages(api, "/v1/keys") if one["key_id"] == key["key_id"]]
    assert listed["revoked_at"] is not None
    assert (await api.delete("/v1/keys/unknown")).status_code == 404


async def test_an_admin_looks_after_the_keys_of_a_tenant_and_the_operator_after_all(front, api):
    stranger = await front.stranger()
    own = await made(stranger)
    ours = await made(api)

    assert {one["tenant"] for one in await pages(stranger, "/v1/keys")} == {stranger.tenant}
    assert (await stranger.get("/v1/keys", params={"tenant": 1})).status_code == 403
    assert (await stranger.post("/v1/keys", json={"name": "x", "scopes": ["admin"], "tenant": 1})).status_code == 403
    assert (await stranger.delete(f"/v1/keys/{ours['key_id']}")).status_code == 404
    assert (await made(api, tenant=stranger.tenant))["tenant"] == stranger.tenant
    assert len(await pages(api, "/v1/keys", tenant=stranger.tenant)) == 3
    assert (await api.delete(f"/v1/keys/{own['key_id']}")).status_code == 204
    assert (await api.post("/v1/keys", json={"name": "x", "scopes": ["admin"], "tenant": 999})).status_code == 404


async def test_a_key_has_its_own_rate(front, api):
    key = await made(api, scopes=["jobs:write"], rate=1)
    caller = Caller(front.client, key["key"])
    answers = [await caller.post("/v1/jobs", json={"target": A_TARGET}) for _ in range(30)]

    refused = [answer for answer in answers if answer.status_code == 429]
    assert refused
    assert {answer.status_code for answer in answers} == {202, 429}
    assert refused[0].json()["code"] == "rate_limited"
    assert int(refused[0].headers["retry-after"]) >= 1
    assert refused[0].json()["detail"] == "The limit of the key is 1 submits a second."
    for answer in (answers[0], refused[0]):
        assert answer.headers["ratelimit"]
        assert answer.headers["ratelimit-policy"]


async def test_api_key_expiry_counts_from_the_database_clock(api, database):
    now = await database.read_clock()

    key = await made(api, scopes=["jobs:read"], expires_after="PT1H")

    assert datetime.fromisoformat(key["expires_at"]) - now == timedelta(hours=1)


async def test_invalid_request_is_refused(api):
    good = {"name": "mine", "scopes": ["jobs:read"]}
    wrong = [
        {},
        {**good, "name": ""},
        {**good, "name": "\0"},
        {**good, "name": "a\nb"},
        {**good, "name": "x" * 201},
        {**good, "scopes": []},
        {**good, "scopes": ["everything"]},
        {**good, "scopes": "admin"},
        {**good, "expires_at": "2020-01-01T00:00:00Z"},
        {**good, "expires_at": "0001-01-01T00:00:00+14:00"},
        {**good, "expires_at": "9999-12-31T23:59:59-14:00"},
        {**good, "expires_at": "soon"},
        {**good, "expires_at": "2030-01-01T00:00:00"},
        {**good, "expires_after": "PT0S"},
        {**good, "expires_after": "P1M"},
        {**good, "expires_after": "PT1H", "expires_at": "2999-01-01T00:00:00Z"},
        {**good, "rate": 0},
        {**good, "rate": -1},
        {**good, "rate": 10**400},
        {**good, "tenant": 0},
        {**good, "tenant": 10**400},
        {**good, "secret": "mine"},
    ]
    before = len(await pages(api, "/v1/keys"))
    for body in wrong:
        answer = await api.post("/v1/keys", json=body)
        assert answer.status_code == 422, (body, answer.text)
    assert len(await pages(api, "/v1/keys")) == before
    for key_id in ("x" * 300, "%ff"):
        assert (await api.delete(f"/v1/keys/{key_id}")).status_code == 404
