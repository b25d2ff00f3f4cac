"""Schedules as code over HTTP: plan, apply, export."""

from typing import Any

from tests.api.test_jobs import read

FILE: dict[str, Any] = {
    "source": "shop",
    "calendars": {"holidays": {"dates": ["2026-12-25"]}},
    "jobs": {
        "report": {"target": "app:report", "schedule": {"cron": "0 8 * * *", "calendars": ["holidays"]}},
        "clean up": {"target": "app:clean", "schedule": "every day at 3am", "tags": ["night"], "paused": True},
    },
}


async def apply(api, body, **query):
    return await api.post("/v1/jobs:apply", json=body, params={key: str(value).lower() for key, value in query.items()})


async def test_a_file_is_planned_applied_changed_and_written_again(api):
    planned = await apply(api, FILE, dry_run=True)
    plan = planned.json()
    assert (planned.status_code, plan["dry_run"], plan["done"]) == (200, True, [])
    assert [(step["name"], step["kind"]) for step in plan["steps"]] == [("clean up", "create"), ("report", "create")]
    assert [(one["name"], one["kind"]) for one in plan["calendars"]] == [("holidays", "create")]
    assert (await api.get("/v1/jobs")).json()["items"] == []

    applied = (await apply(api, FILE, digest=plan["digest"])).json()

    assert [(done["name"], done["kind"]) for done in applied["done"]] == [("clean up", "create"), ("report", "create")]
    job = await read(api, applied["done"][0])
    assert (job["name"], job["status"], job["owner"], job["source"]) == ("clean up", "paused", "file", "shop")
    again = (await apply(api, FILE)).json()
    assert (again["steps"], again["unchanged"], again["done"]) == ([], 2, [])
    exported = await api.get("/v1/jobs:export")
    assert exported.status_code == 200
    assert (await apply(api, exported.json(), dry_run=True)).json()["steps"] == [], "it says the same"

    changed = {**FILE, "jobs": {"report": {**FILE["jobs"]["report"], "priority": 1}}}
    plan = (await apply(api, changed, dry_run=True)).json()
    [gone, step] = plan["steps"]
    assert (gone["name"], gone["kind"], plan["orphans"]) == ("clean up", "remove", ["clean up"])
    assert [(one["field"], one["before"], one["after"]) for one in step["differences"]] == [("priority", 5, 1)]
    assert (await apply(api, changed)).json()["orphans"] == ["clean up"]
    pruned = (await apply(api, changed, prune=True)).json()
    assert [(done["name"], done["kind"]) for done in pruned["done"]] == [("clean up", "remove")]


async def test_a_plan_that_is_no_longer_the_same_is_not_carried_out(api):
    digest = (await apply(api, FILE, dry_run=True)).json()["digest"]
    await api.put("/v1/calendars/holidays", json={"dates": ["2026-12-26"]})

    answer = await apply(api, FILE, digest=digest)

    assert (answer.status_code, answer.json()["code"]) == (409, "plan_changed")
    assert (await api.get("/v1/jobs")).json()["items"] == []


async def test_apply_adopts_a_manually_created_job_only_on_request(api):
    job = await api.a_job(name="report")
    answer = await apply(api, FILE)

    assert (answer.status_code, answer.json()["code"]) == (409, "not_the_files")
    assert "report" in answer.json()["detail"]
    assert (await apply(api, FILE, adopt=True)).status_code == 200
    assert (await read(api, job))["owner"] == "file"


async def test_apply_reports_every_error_with_its_pointer(api):
    wrong = {
        "source": "shop",
        "jobs": {
            "a/b": {"target": "app:a", "schedule": {"cron": "61 * * * *"}},
            "c": {"target": "app:c", "schedul": "every day"},
            "d": {"target": "app:d", "schedule": "every day at 9am", "payload": {"x": "\0"}},
        },
    }
    answer = await apply(api, wrong)

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_manifest")
    pointers = [error["pointer"] for error in answer.json()["errors"]]
    assert len(pointers) >= 3
    assert any(pointer.startswith("/jobs/a~1b/schedule") for pointer in pointers)
    assert any(pointer.startswith("/jobs/c") for pointer in pointers)
    assert "/jobs/d/payload" in pointers
    others: list[Any] = [
        {},
        [],
        {"source": "\0", "jobs": {}},
        {"source": "x", "jobs": []},
        {"source": "x", "jobs": {"": {}}},
    ]
    for body in others:
        assert (await apply(api, body)).status_code == 422, body
    assert (await apply(api, FILE, digest="x")).status_code == 400


async def test_two_tenants_may_apply_one_file(front, api):
    stranger = await front.stranger()
    for caller in (api, stranger):
        assert (await apply(caller, FILE)).status_code == 200
        assert len((await caller.get("/v1/jobs")).json()["items"]) == 2


async def test_export_returns_the_existing_jobs_of_a_source(api):
    assert (await api.get("/v1/jobs:export")).status_code == 404
    await api.a_job(name="by hand")
    written = (await api.get("/v1/jobs:export", params={"by_hand": "true"})).json()
    assert list(written["jobs"]) == ["by hand"]
    for source in ("a", "b"):
        body = {"source": source, "jobs": {source: {"target": "app:a", "schedule": "every day at 9am"}}}
        assert (await apply(api, body)).status_code == 200
    assert (await api.get("/v1/jobs:export")).status_code == 422, "which of the two?"
    assert list((await api.get("/v1/jobs:export", params={"source": "a"})).json()["jobs"]) == ["a"]


async def test_the_zone_of_a_period_is_read_exported_and_planned_as_it_was_given(api):
    trigger = {"type": "interval", "every": "PT15M", "tz": "Europe/Paris"}
    made = await api.a_job(name="often", schedule={"trigger": trigger})
    assert made["next_fires"][0]["offset"] in ("+01:00", "+02:00")
    job = await read(api, made)
    assert job["schedule"] == {"trigger": trigger}

    exported = (await api.get("/v1/jobs:export?by_hand=true")).json()
    assert exported["jobs"]["often"]["schedule"]["tz"] == "Europe/Paris"
    assert (await apply(api, exported, adopt=True, dry_run=True)).json()["steps"][0]["differences"] == []

    file = {"source": "shop", "jobs": {"short": {"target": "app:a", "schedule": {"every": "PT1H", "tz": "Asia/Tokyo"}}}}
    applied = (await apply(api, file)).json()
    assert (await read(api, applied["done"][0]))["schedule"]["trigger"]["tz"] == "Asia/Tokyo"
    assert (await apply(api, file, dry_run=True)).json()["steps"] == []


async def test_rules_of_a_file_are_planned_applied_exported_and_pruned(api):
    rule = {"events": ["dead"], "channels": ["ops"], "mode": "digest"}
    file = {"source": "shop", "notification_rules": {"all": rule}}
    refused = await apply(api, file, dry_run=True)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_manifest")
    assert [one["pointer"] for one in refused.json()["errors"]] == ["/notification_rules/all/channels/0"]
    await api.put("/v1/channels/ops", json={"kind": "webhook", "url": "https://hooks.example/in?token=hush"})

    plan = (await apply(api, file, dry_run=True)).json()
    assert [(one["name"], one["kind"]) for one in plan["rules"]] == [("all", "create")]
    assert (await apply(api, file, digest=plan["digest"])).status_code == 200

    stored = (await api.get("/v1/notification-rules/all")).json()
    assert (stored["source"], stored["is_drifted"]) == ("shop", False)
    exported = (await api.get("/v1/jobs:export")).json()
    assert exported["notification_rules"] == {"all": rule}
    assert "hush" not in str(exported)
    again = (await apply(api, exported)).json()
    assert (again["rules"], again["unchanged"]) == ([], 1)
    await api.put("/v1/notification-rules/all", json={**rule, "mode": "every"})
    summary = (await api.get("/v1/files/shop")).json()
    assert (summary["rules"], summary["drifted_rules"], summary["drifted"]) == (1, 1, 0)
    empty = {"source": "shop"}
    assert (await apply(api, empty)).json()["orphan_rules"] == ["all"]
    assert (await apply(api, empty, prune=True)).status_code == 200
    assert (await api.get("/v1/notification-rules/all")).status_code == 404
