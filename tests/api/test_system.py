"""The installation over HTTP: for the operator alone, and without a write."""

from duly.domain.diagnosis.doctor import SHARDS
from duly.store.schema import state


async def test_system_shows_versions_schedulers_database_and_findings(api):
    seen = (await api.get("/v1/system")).json()

    assert seen["versions"]["schema"] == state.known()[-1].version
    assert (seen["shards_held"], seen["shards"], seen["workers"]) == (SHARDS, SHARDS, 1)
    assert [one["shards"] for one in seen["schedulers"]] == [SHARDS]
    assert seen["schedulers"][0]["lease_seconds_left"] > 0
    tables = {one["name"]: one for one in seen["database"]["tables"]}
    assert tables["jobs"]["bytes"] > 0
    assert [one["bytes"] for one in seen["database"]["tables"]] == sorted(
        (one["bytes"] for one in seen["database"]["tables"]), reverse=True
    )
    found = {one["code"]: one for one in seen["findings"]}
    assert not seen["is_well"]
    assert found["fsync_off"]["severity"] == "error"
    assert found["fsync_off"]["remedy"]


async def test_system_endpoint_requires_the_operator(front):
    for caller in (await front.caller("jobs:read"), await front.caller("jobs:write"), await front.stranger()):
        answer = await caller.get("/v1/system")
        assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
