"""Jobs whose target is no function, over HTTP: asked for, told without their secrets, changed, listed, exported, explained."""

from typing import Any

import msgspec
import pytest

from duly.cli.up.dispatcher import allowed_by
from duly.domain.errors import Refused
from duly.domain.targets.target import Command, Container, Webhook
from duly.domain.tenancy.sealed_options import open_target
from duly.settings import load
from duly.store.boxes.options import decode
from tests.api.front import A_TARGET, EVERY_HOUR
from tests.api.test_as_code import apply
from tests.api.test_jobs import etag, read
from tests.api.working import take
from tests.builders import a_worker, settled
from tests.kept import a_keyring

WEBHOOK: dict[str, Any] = {
    "type": "webhook",
    "url": "https://receiver.example/orders?token=1",
    "headers": {"Authorization": "Bearer x", "Accept": "text/plain"},
    "retry": [404],
    "callback_within": "PT1H",
}
SHOWN_URL = "https://receiver.example/orders?token=***"
COMMAND: dict[str, Any] = {
    "type": "command",
    "argv": ["/usr/bin/rsync", "-a", "/a", "/b"],
    "environment": {"TOKEN": "x"},
}
CONTAINER: dict[str, Any] = {"type": "container", "image": "busybox", "argv": ["echo", "hello"], "cpus": 0.5}
HANDLERS = {"webhook": "@webhook", "command": "@command:/usr/bin/rsync", "container": "@container:busybox"}


async def target_in(database, table, job_id) -> Any:
    """Give the target that is kept of a job, with its secrets opened."""
    kept = decode(
        await database.fetchval(f"select options::text from duly.{table} where job_id = $1", job_id)
    ).policy.target
    assert isinstance(kept, Webhook | Command | Container)
    return open_target(kept, 1, a_keyring)


@pytest.mark.parametrize("target", [WEBHOOK, COMMAND, CONTAINER], ids=lambda one: one["type"])
async def test_target_is_stored_in_full_and_returned_without_secrets(api, database, target):
    made = await api.a_job(target=target, name="nightly")

    told = (await read(api, made))["target"]
    kept = await target_in(database, "jobs", made["job_id"])
    secrets = {"headers", "environment", "url"} & target.keys()
    assert {name: told[name] for name in target if name not in secrets} == {
        name: value for name, value in target.items() if name not in secrets
    }
    assert "handler" not in told
    assert told.get("url") == (SHOWN_URL if target is WEBHOOK else None)
    for name in secrets:
        assert getattr(kept, name) == target[name]
    for name in secrets - {"url"}:
        assert {key: value for key, value in told[name].items() if value != "***"} == {
            key: value for key, value in target[name].items() if key == "Accept"
        }
    [listed] = (await api.get("/v1/jobs", params={"filter": f'handler:"{HANDLERS[target["type"]]}"'})).json()["items"]
    url = "https://receiver.example/orders?…" if target is WEBHOOK else None
    assert listed["target"] == {"type": target["type"], "handler": HANDLERS[target["type"]], "url": url}


async def test_webhook_is_returned_with_its_defaults(api):
    job = await read(api, await api.a_job(target={"type": "webhook", "url": "HTTPS://Receiver.example"}))

    assert job["target"] == {
        "type": "webhook",
        "url": "https://receiver.example/",
        "method": "POST",
        "headers": {},
        "final": [],
        "retry": [],
    }


async def test_a_one_shot_carries_its_target_and_its_run_tells_it_in_short(api, database):
    made = (await api.post("/v1/jobs", json={"target": WEBHOOK, "payload": {"order": 7}})).json()
    job = await read(api, made)
    run = (await api.get(f"/v1/runs/{made['run_id']}")).json()

    assert isinstance(await target_in(database, "ready", made["job_id"]), Webhook)
    assert job["target"]["headers"]["Authorization"] == "***"
    assert (run["handler"], run["payload"]) == ("@webhook", {"order": 7})
    assert run["target"] == {"type": "webhook", "handler": "@webhook", "url": "https://receiver.example/orders?…"}

    worker_id, [held] = await take(database, handler="@webhook")
    assert await settled(database, worker_id, held) == []
    ended = (await api.get(f"/v1/runs/{made['run_id']}")).json()
    assert ended["target"] == run["target"], "history keeps the address"
    assert (await read(api, made))["target"] == job["target"]


async def test_a_run_of_a_function_tells_its_target_too(api):
    made = (await api.post("/v1/jobs", json={"target": {"type": "function", "handler": "app:mail"}})).json()

    run = (await api.get(f"/v1/runs/{made['run_id']}")).json()

    assert run["target"] == {"type": "function", "handler": "app:mail", "url": None}


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        ({"type": "function", "handler": "@webhook"}, 422, "begins with @"),
        ({"type": "webhook", "url": "file:///etc/passwd"}, 422, "must begin with http"),
        ({"type": "webhook", "url": "https://user:pass@receiver.example"}, 422, "user name or password"),
        ({"type": "webhook", "url": "https://receiver.example", "headers": {"Host": "x"}}, 422, "set by Duly"),
        ({"type": "webhook", "url": "https://receiver.example", "callback_within": "P31D"}, 422, "callback_within"),
        (
            {"type": "webhook", "url": "https://receiver.example", "headers": {"Authorization": "***"}},
            422,
            "Send the value",
        ),
        ({"type": "webhook", "url": "https://receiver.example", "header": {}}, 422, "did you mean headers?"),
        ({"type": "command", "argv": ["/bin/rm", "-rf", "/"]}, 422, "command '/bin/rm' is not allowed"),
        ({"type": "container", "image": "alpine"}, 422, "container image 'alpine' is not allowed"),
        ({"type": "robot"}, 422, "robot"),
        ({"handler": "app:mail"}, 422, "type"),
    ],
)
async def test_invalid_or_forbidden_target_is_refused_by_every_endpoint(api, target, status, words):
    job = {"target": target, "schedule": EVERY_HOUR}
    alone = await api.post("/v1/jobs", json=job)
    named = await api.put("/v1/jobs/by-name/n", json=job)
    [line] = (await api.post("/v1/jobs:batch", content=msgspec.json.encode(job), headers=NDJSON)).text.splitlines()
    standing = await api.a_job(name="standing")
    put = await api.put(f"/v1/jobs/{standing['job_id']}", json=job, headers={"If-Match": "*"})

    for answer in (alone, named, put):
        assert answer.status_code == status, answer.text
        assert words in answer.text
        assert "pass@" not in answer.text
    assert words in line


NDJSON = {"Content-Type": "application/x-ndjson"}


async def test_a_batch_takes_targets_of_all_types(api):
    lines = [{"target": one} for one in (WEBHOOK, COMMAND, CONTAINER)]
    body = b"\n".join(map(msgspec.json.encode, lines))

    answer = await api.post("/v1/jobs:batch", content=body, headers=NDJSON)

    assert answer.headers["Duly-Accepted"] == "3"
    runs = (await api.get("/v1/runs")).json()["items"]
    assert sorted(run["handler"] for run in runs) == sorted(HANDLERS.values())


class TestChanges:
    async def test_job_put_back_as_read_keeps_its_secrets(self, api, database):
        job = await read(api, await api.a_job(target=WEBHOOK, name="n"))
        same = {name: job[name] for name in ("target", "schedule", "name")}

        put = await api.put(f"/v1/jobs/{job['job_id']}", json=same, headers=etag(job))
        named = await api.put("/v1/jobs/by-name/n", json=same)

        assert (put.status_code, named.status_code) == (200, 200)
        assert (await target_in(database, "jobs", job["job_id"])).headers == WEBHOOK["headers"]

    async def test_a_patch_changes_a_part_of_a_target(self, api, database):
        job = await api.a_job(target=WEBHOOK)
        patch = {"target": {"method": "PUT", "headers": {"Accept": None, "X-Tenant": "a"}, "callback_within": None}}

        answer = await api.patch(f"/v1/jobs/{job['job_id']}", patch, headers={"If-Match": "*"})

        assert answer.status_code == 200, answer.text
        kept = await target_in(database, "jobs", job["job_id"])
        assert (kept.method, kept.callback_within_seconds) == ("PUT", None)
        assert kept.headers == {"Authorization": "Bearer x", "X-Tenant": "a"}

    async def test_a_secret_does_not_follow_to_another_origin(self, api, database):
        job = await api.a_job(target=WEBHOOK)
        path, every = f"/v1/jobs/{job['job_id']}", {"If-Match": "*"}

        refused = await api.patch(path, {"target": {"url": "https://attacker.example/"}}, headers=every)
        given = {"target": {"url": "https://other.example/", "headers": {"Authorization": "Bearer y"}}}
        taken = await api.patch(path, given, headers=every)

        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_option")
        assert taken.status_code == 200
        assert (await target_in(database, "jobs", job["job_id"])).headers["Authorization"] == "Bearer y"

    async def test_past_versions_of_a_job_mask_its_secrets(self, api):
        job = await api.a_job(target=WEBHOOK)
        path = f"/v1/jobs/{job['job_id']}"
        given = {"target": {"headers": {"Authorization": "Bearer y"}}}
        assert (await api.patch(path, given, headers={"If-Match": "*"})).status_code == 200

        answer = await api.get(f"{path}/versions")

        assert [one["target"]["headers"]["Authorization"] for one in answer.json()["items"]] == ["***", "***"]
        assert "Bearer" not in answer.text

    async def test_a_function_becomes_a_webhook_and_the_other_way_round(self, api, database):
        job = await api.a_job(name="n")
        path, every = f"/v1/jobs/{job['job_id']}", {"If-Match": "*"}

        webhook = await api.put(path, json={"target": WEBHOOK, "schedule": EVERY_HOUR}, headers=every)
        strays = await api.patch(path, {"target": {"type": "function", "handler": "app:mail"}}, headers=every)
        function = await api.put(
            path, json={"target": {"type": "function", "handler": "app:mail"}, "schedule": EVERY_HOUR}, headers=every
        )

        assert webhook.json()["target"]["type"] == "webhook"
        assert strays.status_code == 422, "the fields of the old type are taken away by null"
        assert function.json()["target"] == {"type": "function", "handler": "app:mail"}
        assert (await api.get(path)).json()["retry"] is None


async def test_a_schedule_fires_its_target_and_an_event_too(api, database):
    await api.a_job(target=WEBHOOK, on_event={"type": "order.paid"}, schedule=None)
    scheduled = await api.a_job(target=CONTAINER)
    event = {"specversion": "1.0", "id": "1", "source": "shop", "type": "order.paid", "data": {"order": 7}}
    headers = {"Content-Type": "application/cloudevents+json"}

    assert (await api.post("/v1/events", json=event, headers=headers)).status_code == 202
    triggered = await api.post(f"/v1/jobs/{scheduled['job_id']}/trigger", json={})

    assert triggered.status_code == 202, triggered.text
    rows = await database.fetch("select handler, options::text from duly.ready order by handler")
    assert [row[0] for row in rows] == ["@container:busybox", "@webhook"]
    assert [type(decode(row[1]).policy.target) for row in rows] == [Container, Webhook]


async def test_unroutable_run_explains_which_worker_setting_allows_it(api, database):
    await a_worker(database)
    texts = []
    for target in (WEBHOOK, COMMAND, CONTAINER):
        made = (await api.post("/v1/jobs", json={"target": target})).json()
        reasons = (await api.get(f"/v1/runs/{made['run_id']}/explain")).json()["reasons"]
        texts += [reason["text"] for reason in reasons if reason["code"] == "unroutable"]

    webhook, command, container = texts
    assert "offers @webhook; start a worker that sends webhooks: duly worker --webhooks 500" in webhook
    assert "allow /usr/bin/rsync in the setting commands of a worker" in command
    assert "allow busybox in the setting containers of a worker" in container


async def test_a_worker_over_http_offers_functions_alone(api):
    answer = await api.post(
        "/v1/worker/register", json={"name": "w", "queues": ["default"], "handlers": ["@webhook"], "slots": 1}
    )

    assert answer.status_code in (404, 422)
    assert "begins with @" in answer.text


FILE: dict[str, Any] = {
    "source": "shop",
    "jobs": {
        "order": {"target": WEBHOOK, "schedule": "every day at 3am"},
        "copy": {"target": COMMAND, "schedule": "every day at 4am"},
        "hello": {"target": CONTAINER, "schedule": "every day at 5am"},
    },
}


class TestFiles:
    async def test_a_file_is_applied_and_exported_without_its_secrets_which_stay(self, api, database):
        applied = await apply(api, FILE)
        assert applied.status_code == 200, applied.text

        exported = (await api.get("/v1/jobs:export")).json()
        again = (await apply(api, exported)).json()

        assert exported["jobs"]["order"]["target"] == {
            **WEBHOOK,
            "url": SHOWN_URL,
            "headers": {"Authorization": "***", "Accept": "text/plain"},
        }
        assert exported["jobs"]["copy"]["target"] == {**COMMAND, "environment": {"TOKEN": "***"}}
        assert exported["jobs"]["hello"]["target"] == CONTAINER
        assert (again["steps"], again["unchanged"]) == ([], 3)
        assert (await apply(api, FILE)).json()["steps"] == [], "the values themselves are the same, too"

        exported["jobs"]["order"]["target"]["method"] = "PUT"
        exported["jobs"]["order"]["queue"] = "mail"
        changed = (await apply(api, exported)).json()
        [step] = changed["steps"]
        assert [(one["field"], one["before"], one["after"]) for one in step["differences"]] == [
            ("queue", "default", "mail"),
            ("target.method", "POST", "PUT"),
        ]
        assert (await target_in(database, "jobs", changed["done"][0]["job_id"])).headers == WEBHOOK["headers"]

    async def test_plan_shows_that_a_secret_changed_without_its_value(self, api):
        await apply(api, FILE)
        other = msgspec.json.decode(msgspec.json.encode(FILE).replace(b"Bearer x", b"Bearer y"))

        answer = await apply(api, other, dry_run=True)

        [step] = answer.json()["steps"]
        assert step["differences"] == [
            {"field": "target.headers.Authorization", "before": "***", "after": "***, another value"}
        ]
        assert "Bearer" not in answer.text

    async def test_masked_value_for_an_unknown_job_is_refused_with_its_pointer(self, api):
        order = {**FILE["jobs"]["order"], "target": {**WEBHOOK, "headers": {"Authorization": "***"}}}
        file = {"source": "shop", "jobs": {"order": order}}

        answer = await apply(api, file, dry_run=True)

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_manifest")
        [error] = answer.json()["errors"]
        assert (error["pointer"], "Send the value itself" in error["message"]) == ("/jobs/order/target", True)

    async def test_manifest_target_errors_are_reported_with_their_pointers(self, api):
        jobs = {
            "a": {"target": {"type": "webhok", "url": "x"}, "schedule": "every day at 3am"},
            "b": {"target": {"type": "webhook", "url": "ftp://x"}, "schedule": "every day at 3am"},
            "c": {"target": {"type": "command", "argv": ["/a"], "ok": ["1"]}, "schedule": "every day at 3am"},
            "d": {"target": "@webhook", "schedule": "every day at 3am"},
            "e": {"target": 7, "schedule": "every day at 3am"},
            "f": {"target": {"handler": "app:mail"}, "schedule": "every day at 3am"},
            "g": {"target": {"type": "command", "argv": ["/bin/rm"]}, "schedule": "every day at 3am"},
        }
        wrong = (await apply(api, {"source": "s", "jobs": jobs})).json()["errors"]
        forbidden = (await apply(api, {"source": "s", "jobs": {"f": jobs["f"], "g": jobs["g"]}})).json()["errors"]

        expected = [
            ("/jobs/a/target/type", "'webhok' is not a type of target"),
            ("/jobs/b/target", "webhook url 'ftp://x'"),
            ("/jobs/c/target/ok/0", "expected `int`"),
            ("/jobs/d/target", "handler '@webhook' begins with @"),
            ("/jobs/e/target", "7 is not a target"),
        ]
        assert [one["pointer"] for one in wrong] == [pointer for pointer, _ in expected]
        for one, (_, words) in zip(wrong, expected, strict=True):
            assert words in one["message"]
        [one] = forbidden
        assert one["pointer"] == "/jobs/g/target"
        assert "command '/bin/rm' is not allowed" in one["message"]


class TestSql:
    async def test_a_target_is_submitted_in_sql_and_read_over_http(self, api, database):
        run_id = await database.fetchval(
            "select duly.submit('@webhook', '{\"order\": 7}', options => $1::text::jsonb)",
            msgspec.json.encode({"target": {"type": "webhook", "url": "https://receiver.example/?a=b"}}).decode(),
        )

        run, job = (await api.get(f"/v1/runs/{run_id}")).json(), (await api.get(f"/v1/jobs/{run_id}")).json()
        assert run["target"]["url"] == "https://receiver.example/?…"
        assert job["target"] == {
            "type": "webhook",
            "url": "https://receiver.example/?a=b",
            "method": "POST",
            "headers": {},
            "final": [],
            "retry": [],
        }

    @pytest.mark.parametrize("target", ["7", "null", '"webhook"', "[]"])
    async def test_a_target_that_is_no_object_is_refused(self, database, target):
        with pytest.raises(Refused):
            await database.fetchval(
                "select duly.submit('@webhook', options => $1::text::jsonb)", f'{{"target": {target}}}'
            )

    @pytest.mark.parametrize("target", ['{"type": "robot", "arm": 1}', '{"type": "webhook", "url": 7}', "{}"])
    async def test_unreadable_target_is_shown_by_its_type_alone(self, api, database, target):
        options = f'{{"target": {target}, "tags": ["a"]}}'
        run_id = await database.fetchval("select duly.submit('@webhook', options => $1::text::jsonb)", options)

        job, run = [await api.get(f"/v1/{what}/{run_id}") for what in ("jobs", "runs")]
        explained = await api.get(f"/v1/runs/{run_id}/explain")

        assert (job.status_code, run.status_code, explained.status_code) == (200, 200, 200)
        assert (job.json()["target"], job.json()["tags"]) == ({"type": "webhook"}, ["a"])
        assert run.json()["target"] == {"type": "webhook", "handler": "@webhook", "url": None}


class TestForbiddenAddresses:
    """What the guard refuses by the URL alone is refused where it comes in."""

    @pytest.fixture(autouse=True)
    def guarded(self, front, monkeypatch, tmp_path):
        settings = load({}, {}, tmp_path)
        monkeypatch.setattr(
            front.door, "services", msgspec.structs.replace(front.door.services, allowed=allowed_by(settings))
        )

    @pytest.mark.parametrize(
        "url", ["http://127.0.0.1/", "http://[::1]/", "http://10.0.0.7/x", "https://hooks.example:22/"]
    )
    async def test_they_are_refused_wherever_they_come_in(self, api, database, url):
        bodies = {
            "/v1/jobs": [
                {"target": {"type": "webhook", "url": url}},
                {"target": {"type": "webhook", "url": url}, "schedule": EVERY_HOUR},
                {"target": A_TARGET, "on_end": {"url": url}},
                {"target": A_TARGET, "on_failure": {"url": url}},
            ],
            "/v1/destinations": [{"url": url}],
        }
        for path, several in bodies.items():
            for body in several:
                answer = await api.post(path, json=body)
                assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option"), answer.text
                assert "is not allowed" in answer.json()["detail"]
                assert "egress_allow" in answer.json()["detail"]
        file = {"source": "shop", "jobs": {"x": {"target": {"type": "webhook", "url": url}, "schedule": "hourly"}}}
        applied = await api.post("/v1/jobs:apply", json=file)
        assert (applied.status_code, applied.json()["code"]) == (422, "invalid_manifest"), applied.text
        assert await database.fetchval("select count(*) from duly.destinations") == 0

    async def test_names_and_public_addresses_are_taken(self, api):
        for url in ("https://hooks.example/x", "http://93.184.215.14/"):
            answer = await api.post("/v1/jobs", json={"target": {"type": "webhook", "url": url}})
            assert answer.status_code == 202, answer.text
