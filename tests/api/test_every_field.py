"""Every field of a job over HTTP: created, read, put back, exported and planned, it is the same."""

import msgspec
import pytest

from duly.domain.fields import non_defaults
from duly.domain.jobs.spec import JobSpec
from tests.api.test_as_code import apply
from tests.api.test_jobs import read
from tests.every_field import SPECS, shown

KINDS = sorted(SPECS)


async def created(api, kind):
    """Create the job of a kind, its spec written as callers write it, secrets included."""
    await api.put("/v1/calendars/holidays", json={"dates": ["2026-12-25"]})
    body = msgspec.json.encode(non_defaults(SPECS[kind])).replace(b"***", b"a secret")
    answer = await api.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 202, answer.text
    return answer.json()


@pytest.mark.parametrize("kind", KINDS)
async def test_job_returns_every_field_of_its_request(api, kind):
    job = await read(api, await created(api, kind))

    wanted = shown(SPECS[kind])
    if kind == "container":  # A delay has become a moment.
        job["schedule"], wanted["schedule"] = None, None
    for field in JobSpec.__struct_fields__:
        assert job[field] == wanted[field], field


@pytest.mark.parametrize("kind", KINDS)
async def test_a_job_is_put_back_as_it_was_read(api, kind):
    job = await read(api, await created(api, kind))

    answer = await api.put(f"/v1/jobs/{job['job_id']}", json=job, headers={"If-Match": f'"{job["version"]}"'})

    assert (answer.status_code, answer.json()["version"]) == (200, job["version"])


@pytest.mark.parametrize("kind", KINDS)
async def test_a_change_of_one_field_leaves_the_others(api, kind):
    before = await read(api, await created(api, kind))

    answer = await api.patch(f"/v1/jobs/{before['job_id']}", {"queue": "other"}, headers={"If-Match": "*"})

    assert answer.status_code == 200, answer.text
    assert {field: answer.json()[field] for field in JobSpec.__struct_fields__} == {
        field: before[field] for field in JobSpec.__struct_fields__
    } | {"queue": "other"}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if SPECS[kind].name is not None])
async def test_an_export_asks_for_the_same_and_a_plan_finds_no_difference(api, kind):
    made = await created(api, kind)
    before = await read(api, made)

    exported = (await api.get("/v1/jobs:export", params={"by_hand": "true"})).json()
    answer = await apply(api, exported, adopt=True, dry_run=True)
    assert answer.status_code == 200, answer.text
    [step] = answer.json()["steps"]

    assert (step["kind"], step["differences"]) == ("adopt", [])
    assert (await apply(api, exported, adopt=True)).status_code == 200
    depends_on = await read(api, made)
    assert {field: depends_on[field] for field in JobSpec.__struct_fields__} == {
        field: before[field] for field in JobSpec.__struct_fields__
    }
