"""Gates over HTTP: which keys hold runs back, who is inside and who waits; limits that are set while they wait."""

import pytest

from tests.api.front import A_TARGET
from tests.api.test_runs import pages
from tests.builders import a_ready_run, counts, staged


async def a_crowd(database, **options):
    """Let four runs come to a key."""
    for _ in range(4):
        await a_ready_run(database, **options)
    await database.execute("delete from duly.schedulers")  # of the front door, which stages nothing here
    await staged(database)


async def test_concurrency_key_counts_used_slots_and_waiting_runs(api, database):
    await a_crowd(database, concurrency=("customer/7", 2))
    await a_crowd(database, fifo="orders")
    await a_crowd(database, rate=("mail", 1 / 60, 1))

    found = {one["key"]: one for one in await pages(api, "/v1/concurrency-keys", page_size=1)}

    assert list(found) == ["customer/7", "mail", "orders"]
    assert found["customer/7"] == {
        "key": "customer/7",
        "kind": "concurrency",
        "slots": 2,
        "slots_used": 2,
        "waiting": 2,
        "rate": None,
        "waiting_for_rate": 0,
        "limits": None,
    }
    assert (found["orders"]["kind"], found["orders"]["slots"], found["orders"]["waiting"]) == ("fifo", 1, 3)
    assert (found["mail"]["kind"], found["mail"]["waiting_for_rate"]) == ("rate", 3)
    assert found["mail"]["rate"] == {"limit": 1, "per": "PT1M", "burst": 1}
    assert (await api.get("/v1/concurrency-keys/customer%2F7")).json() == found["customer/7"]


async def test_a_raised_limit_lets_waiters_in_at_once_and_lifted_it_is_as_before(api, database):
    await a_crowd(database, concurrency=("customer", 1))

    answer = await api.put("/v1/concurrency-keys/customer", json={"limit": 3})

    assert answer.status_code == 200, answer.text
    assert (answer.json()["slots"], answer.json()["slots_used"], answer.json()["limits"]["limit"]) == (3, 3, 3)
    assert await counts(database) == {"blocked": 1, "ready": 3}

    assert (await api.delete("/v1/concurrency-keys/customer")).status_code == 204
    lifted = (await api.get("/v1/concurrency-keys/customer")).json()
    assert (lifted["slots"], lifted["slots_used"], lifted["limits"]) == (1, 3, None)
    assert (await api.delete("/v1/concurrency-keys/customer")).status_code == 404


async def test_changed_rate_limit_applies_to_waiting_runs(api, database):
    await a_crowd(database, rate=("mail", 0.01, 1))
    assert await counts(database) == {"blocked": 3, "ready": 1}

    answer = await api.put("/v1/concurrency-keys/mail", json={"rate": {"limit": 600, "per": "PT1M", "burst": 2}})

    assert answer.json()["rate"] == {"limit": 10, "per": "PT1S", "burst": 2}
    assert await counts(database) == {"ready": 4}


@pytest.mark.parametrize(
    ("key", "body", "words"),
    [
        ("customer", {}, "key 'customer'"),
        ("mail", {"rate": {"limit": 1, "per": 0}}, "must be more than 0"),
        ("mail", {"rate": {"limit": 1_000_000, "per": 0.5}}, "outside 1 per 366 days to 1,000,000 per second"),
    ],
)
async def test_invalid_request_is_refused_with_the_remedy(api, key, body, words):
    answer = await api.put(f"/v1/concurrency-keys/{key}", json=body)

    assert answer.status_code == 422
    assert words in answer.text


async def test_unused_concurrency_key_is_not_found(api):
    answer = await api.get("/v1/concurrency-keys/nobody")

    assert answer.status_code == 404
    assert "no concurrency key 'nobody'" in answer.text


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"concurrency": {"key": "k", "order": "fifo"}}, {"concurrency": {"key": "k", "limit": 1, "order": "fifo"}}),
        ({"concurrency": {"key": "k", "limit": 3}}, {"concurrency": {"key": "k", "limit": 3, "order": None}}),
        (
            {"rate_limit": {"key": "k", "limit": 10, "per": "PT1M", "burst": 4}},
            {"rate_limit": {"key": "k", "limit": 10, "per": "PT1M", "burst": 4}},
        ),
    ],
)
async def test_job_shows_its_concurrency_key_and_rate_limit(api, asked, told):
    made = await api.a_job(name="held", **asked)
    path = f"/v1/jobs/{made['job_id']}"
    answer = await api.get(path)
    read = answer.json()
    assert {name: read[name] for name in told} == told

    patched = await api.patch(path, {"priority": 3}, headers={"If-Match": answer.headers["ETag"]})
    assert patched.status_code == 200, patched.text
    assert {name: patched.json()[name] for name in told} == told


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"concurrency": {"key": "k", "limit": 2, "order": "fifo"}}, "use a limit of 1"),
        ({"rate_limit": {"key": "k", "limit": 2, "per": "PT0S"}}, "must be more than 0"),
    ],
)
async def test_a_job_that_cannot_be_held_back_so_is_refused(api, asked, words):
    answer = await api.post("/v1/jobs", json={"target": A_TARGET, **asked})

    assert answer.status_code == 422
    assert words in answer.text
