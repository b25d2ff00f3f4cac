"""Past versions of a job's definition: every change of its definition leaves the version before it."""

from tests.api.front import A_TARGET, EVERY_HOUR

LARGE = {"text": "x" * 5000}


async def versions(api, job_id, **query):
    answer = await api.get(f"/v1/jobs/{job_id}/versions", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def changed(api, job_id, patch, **headers):
    answer = await api.patch(f"/v1/jobs/{job_id}", patch, headers={"If-Match": "*", **headers})
    assert answer.status_code == 200, answer.text


async def test_version_shows_its_definition_times_and_request_id(api, clock):
    headers = {"X-Request-ID": "first"}
    body = {"target": A_TARGET, "name": "hourly", "schedule": EVERY_HOUR, "payload": LARGE, "timeout": "PT30S"}
    job_id = (await api.post("/v1/jobs", json=body, headers=headers)).json()["job_id"]
    [only] = (await versions(api, job_id))["items"]
    assert (only["version"], only["replaced_at"], only["payload"], only["owner"]) == (1, None, LARGE, "api")
    await clock.advance(60)
    await changed(api, job_id, {"queue": "mail", "payload": {"n": 1, "text": None}}, **{"X-Request-ID": "second"})
    await clock.advance(60)
    await changed(api, job_id, {"name": "daily", "timeout": None, "tags": ["a"]})

    third, second, first = (await versions(api, job_id))["items"]

    assert [one["version"] for one in (third, second, first)] == [3, 2, 1]
    assert (first["created_at"], third["replaced_at"]) == (only["created_at"], None)
    assert (first["replaced_at"], second["replaced_at"]) == (second["created_at"], third["created_at"])
    assert (first["request_id"], second["request_id"], third["request_id"]) == ("first", "second", "second")
    assert (first["payload"], second["payload"]) == (LARGE, {"n": 1})
    assert (first["queue"], second["queue"], first["target"]) == ("default", "mail", A_TARGET)
    assert (second["name"], third["name"], third["tags"]) == ("hourly", "daily", ["a"])
    assert (second["timeout"], third["timeout"]) == ("PT30S", None)
    assert first["schedule"]["trigger"]["type"] == EVERY_HOUR["trigger"]["type"]


async def test_version_shows_its_completion_callbacks(api):
    hook = {"url": "https://hooks.example/done"}
    job_id = (await api.a_job(on_end=hook))["job_id"]
    await changed(api, job_id, {"on_end": None, "on_failure": {"job": "alert"}})

    second, first = (await versions(api, job_id))["items"]

    assert (first["on_end"], first["on_failure"]) == (hook, None)
    assert (second["on_end"], second["on_failure"]) == (None, {"job": "alert"})


async def test_the_last_hundred_are_kept_and_read_page_by_page(api, database):
    job = await api.a_job()
    for number in range(1, 103):
        await changed(api, job["job_id"], {"priority": number % 9})

    found: list[int] = []
    token = None
    while not found or token:
        page = await versions(api, job["job_id"], **({"page_token": token} if token else {}))
        assert len(page["items"]) <= 20
        found += [one["version"] for one in page["items"]]
        token = page["next_page_token"]

    assert found == list(range(103, 2, -1))
    assert await database.fetchval("select count(*) from duly.job_versions") == 100


async def test_a_one_shot_has_none_and_another_tenants_are_not_there(front, api):
    shot = (await api.post("/v1/jobs", json={"target": A_TARGET})).json()["job_id"]
    job = (await api.a_job())["job_id"]
    await changed(api, job, {"priority": 1})
    stranger = await front.stranger()

    for caller, job_id in ((api, shot), (stranger, job)):
        answer = await caller.get(f"/v1/jobs/{job_id}/versions")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    other = (await api.a_job())["job_id"]
    token = (await versions(api, job, page_size=1))["next_page_token"]
    refused = await api.get(f"/v1/jobs/{other}/versions", params={"page_token": token})
    assert (refused.status_code, refused.json()["code"]) == (400, "invalid_query")
