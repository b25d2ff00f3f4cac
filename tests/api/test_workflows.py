"""Workflows over HTTP: started whole or refused whole, looked at, stopped, held, done again and added to."""

import asyncio
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from duly.domain.runs.outcome import Failed, Succeeded
from duly.domain.targets.target import Webhook, WorkflowTarget, target_of_node
from duly.domain.tenancy.sealed_options import open_target
from duly.store.boxes.options import decode
from tests.api.front import A_TARGET
from tests.api.remote import a_remote
from tests.api.working import take, work
from tests.builders import settled
from tests.kept import a_keyring

WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
UNKNOWN = "00000000-0000-4000-8000-000000000000"
ETL: dict[str, Any] = {
    "name": "nightly",
    "tags": ["money"],
    "nodes": {
        "extract": {"target": A_TARGET, "payload": {"day": 1}},
        "load": {
            "target": A_TARGET,
            "depends_on": ["extract"],
            "payload": {"rows": {"$result": "extract", "path": ["rows"]}},
        },
        "alarm": {"target": A_TARGET, "depends_on": [{"node": "load", "on": "failure"}], "priority": 1},
        "tidy": {
            "target": A_TARGET,
            "depends_on": [{"node": "load", "on": "always"}],
            "queue": "mail",
            "tags": ["late"],
        },
    },
}


async def started(api, **fields: Any) -> dict[str, Any]:
    """Start a workflow."""
    answer = await api.post("/v1/workflows", json={**ETL, **fields})
    assert answer.status_code == 202, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def started_later(api, clock, **fields: Any) -> dict[str, Any]:
    """Start a workflow a moment after the one before."""
    await clock.advance(timedelta(seconds=1))
    return await started(api, **fields)


async def read(api, made) -> dict[str, Any]:
    answer = await api.get(f"/v1/workflows/{made['workflow_id']}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def states(found) -> dict[str, str]:
    """Say how each node stands."""
    return {node["name"]: node["state"] for node in found["nodes"]}


class TestStart:
    async def test_workflow_is_created_with_its_first_nodes_ready(self, api, front):
        answer = await api.post("/v1/workflows", json=ETL)

        made = answer.json()
        assert answer.status_code == 202
        assert answer.headers["location"] == f"/v1/workflows/{made['workflow_id']}"
        assert (made["name"], made["state"], made["nodes"]) == ("nightly", "running", 4)
        assert front.woken == ["default"]
        assert states(await read(api, made)) == {
            "extract": "ready",
            "load": "waiting",
            "alarm": "waiting",
            "tidy": "waiting",
        }

    async def test_workflow_repeated_under_its_idempotency_key_starts_a_single_time(self, api):
        first, again = [
            await api.post("/v1/workflows", json=ETL, headers={"Idempotency-Key": "once"}) for _ in range(2)
        ]

        assert first.json() == again.json()
        assert again.headers["idempotency-replayed"] == "true"
        assert len((await api.get("/v1/workflows")).json()["items"]) == 1

    @pytest.mark.parametrize(
        ("nodes", "pointer", "words"),
        [
            (
                {"a": {"depends_on": ["c"]}, "b": {"depends_on": ["a"]}, "c": {"depends_on": ["b"]}},
                "/nodes/a/depends_on",
                "a → b → c → a",
            ),
            ({"a": {"depends_on": ["a"]}}, "/nodes/a/depends_on/0", "depends on itself"),
            ({"a": {}, "b": {"depends_on": ["a", "never"]}}, "/nodes/b/depends_on/1", "'never', which is not a node"),
            ({"a": {"payload": {"x": {"$result": "b"}}}, "b": {}}, "/nodes/a/payload", "does not depend on"),
            ({"a b": {}}, "/nodes/a b", "is not a name"),
            ({"a": {"queue": "two\nlines"}}, "/nodes/a", "node 'a': queue"),
            ({"a": {"target": {"type": "command", "argv": ["/bin/rm"]}}}, "/nodes/a", "is not allowed"),
            ({f"n{number}": {} for number in range(1_001)}, "/nodes", "1000"),
        ],
    )
    async def test_invalid_workflow_is_refused_whole_with_its_pointer(self, api, nodes, pointer, words):
        body = {"name": "wrong", "nodes": {name: {"target": A_TARGET, **node} for name, node in nodes.items()}}
        answer = await api.post("/v1/workflows", json=body)

        problem = answer.json()
        assert (answer.status_code, problem["code"]) in ((422, "invalid_workflow"), (422, "invalid_body")), problem
        [fault] = problem["errors"]
        assert fault["pointer"].startswith(pointer)
        assert words in fault["message"]
        assert (await api.get("/v1/workflows")).json()["items"] == []
        assert (await api.get("/v1/runs")).json()["items"] == []

    async def test_a_misspelt_field_of_a_node_is_named_with_the_nearest(self, api):
        body = {"name": "wrong", "nodes": {"a": {"target": A_TARGET, "depend_on": []}}}
        [fault] = (await api.post("/v1/workflows", json=body)).json()["errors"]

        assert "did you mean depends_on?" in fault["message"]


class TestLook:
    async def test_workflow_nodes_show_states_dependencies_and_runs(self, api, database):
        made = await started(api)
        [run] = await work(database, Succeeded('{"rows": [1, 2]}'))
        found = await read(api, made)

        nodes = {node["name"]: node for node in found["nodes"]}
        assert states(found) == {"extract": "succeeded", "load": "ready", "alarm": "waiting", "tidy": "waiting"}
        assert nodes["extract"]["run_id"] == str(run.run_id)
        assert nodes["alarm"]["depends_on"] == [{"node": "load", "on": "failure"}]
        assert nodes["tidy"]["queue"] == "mail"
        assert nodes["extract"]["ended_at"] is not None
        assert (found["tags"], found["ended_at"], found["run_id"]) == (["money"], None, None)

    async def test_node_with_a_leased_run_is_running(self, api, database):
        made = await started(api)
        await take(database)

        assert states(await read(api, made))["extract"] == "running"

    async def test_a_node_is_read_with_its_payload_and_its_result(self, api, database):
        made = await started(api)
        await work(database, Succeeded('{"rows": [1, 2]}'))
        extract = (await api.get(f"/v1/workflows/{made['workflow_id']}/nodes/extract")).json()
        load = (await api.get(f"/v1/workflows/{made['workflow_id']}/nodes/load")).json()

        assert (extract["result"], extract["payload"]) == ({"rows": [1, 2]}, {"day": 1})
        assert (load["result"], load["payload"]) == (None, ETL["nodes"]["load"]["payload"])

    async def test_a_run_tells_its_workflow_and_its_node(self, api, database):
        made = await started(api)
        [waiting] = [node for node in (await read(api, made))["nodes"] if node["name"] == "load"]
        runs = [(await api.get(f"/v1/runs/{waiting['run_id']}")).json()]
        [ended] = await work(database)
        runs.append((await api.get(f"/v1/runs/{ended.run_id}")).json())

        assert [(run["workflow_id"], run["node"]) for run in runs] == [
            (made["workflow_id"], "load"),
            (made["workflow_id"], "extract"),
        ]
        plain = (await api.post("/v1/jobs", json={"target": A_TARGET})).json()
        assert (await api.get(f"/v1/runs/{plain['run_id']}")).json()["workflow_id"] is None

    async def test_its_runs_are_listed_page_by_page_and_no_others(self, api, front, clock):
        made, _other = await started(api), await started_later(api, clock)
        path = f"/v1/runs?workflow={made['workflow_id']}"

        first = (await api.get(f"{path}&page_size=3")).json()
        second = (await api.get(f"{path}&page_size=3&page_token={first['next_page_token']}")).json()
        blocked = (await api.get(f"{path}&filter=state:blocked")).json()["items"]
        by_filter = (await api.get(f"/v1/runs?filter=workflow:{made['workflow_id']}")).json()["items"]

        found = [*first["items"], *second["items"]]
        assert sorted(run["node"] for run in found) == sorted(ETL["nodes"])
        assert {run["workflow_id"] for run in found} == {made["workflow_id"]}
        assert second["next_page_token"] is None
        assert [run["run_id"] for run in by_filter] == [run["run_id"] for run in found]
        assert {run["reason"] for run in blocked} == {f"waits for its parents in workflow {made['workflow_id']}"}
        assert len(blocked) == 3
        stranger = await front.stranger()
        assert (await stranger.get(path)).json()["items"] == []

    async def test_resource_that_does_not_exist_is_not_found(self, api):
        made = await started(api)
        paths = [f"/v1/workflows/{UNKNOWN}", "/v1/workflows/none", f"/v1/workflows/{made['workflow_id']}/nodes/none"]

        assert [(await api.get(path)).status_code for path in paths] == [404, 404, 404]

    async def test_another_tenant_sees_nothing_of_it(self, api, front):
        made = await started(api)
        stranger = await front.stranger()
        path = f"/v1/workflows/{made['workflow_id']}"

        assert (await stranger.get(path)).status_code == 404
        assert (await stranger.get(f"{path}/nodes/extract")).status_code == 404
        assert (await stranger.get("/v1/workflows")).json()["items"] == []
        for verb in ("cancel", "pause", "resume"):
            assert (await stranger.post(f"{path}/{verb}")).status_code == 404
        assert (await stranger.post(f"{path}/replay", json={"node": "extract"})).status_code == 404
        assert states(await read(api, made))["extract"] == "ready"


class TestList:
    async def test_pages_come_newest_first_and_none_is_left_out(self, api, clock):
        made = [(await started_later(api, clock, name=f"flow-{number}"))["name"] for number in range(5)]
        names, token = [], None
        while True:
            query = {"page_size": 2, **({"page_token": token} if token else {})}
            page = (await api.get("/v1/workflows", params=query)).json()
            names += [item["name"] for item in page["items"]]
            token = page["next_page_token"]
            if token is None:
                break

        assert names == made[::-1]

    @pytest.mark.parametrize(
        ("text", "names"),
        [
            ("state:running", ["b", "a"]),
            ("state:(cancelled,failed)", ["c"]),
            ("name:a", ["a"]),
            ("name:b*", ["b"]),
            ("tag:one", ["b", "a"]),
            ("tag:one AND tag:two", ["b"]),
            ("tag:(two,three)", ["c", "b"]),
            ('submitted_at>"2020-01-01"', ["c", "b", "a"]),
            ('submitted_at<"2020-01-01"', []),
        ],
    )
    async def test_a_filter_chooses_by_state_name_tag_and_time(self, api, clock, text, names):
        for name, tags in {"a": ["one"], "b": ["one", "two"]}.items():
            await started_later(api, clock, name=name, tags=tags)
        made = await started_later(api, clock, name="c", tags=["three"])
        await api.post(f"/v1/workflows/{made['workflow_id']}/cancel")

        page = (await api.get("/v1/workflows", params={"filter": text})).json()

        assert [item["name"] for item in page["items"]] == names

    async def test_workflow_page_at_its_scan_limit_continues_on_the_next_page(self, api, clock, monkeypatch):
        for number in range(6):
            await started_later(api, clock, name="wanted" if number == 0 else "other")
        monkeypatch.setattr("duly.store.reads.lists.workflows.__defaults__", (None, 3))
        first = (await api.get("/v1/workflows", params={"filter": "name:wanted", "page_size": 2})).json()
        query = {"filter": "name:wanted", "page_size": 2, "page_token": first["next_page_token"]}
        second = (await api.get("/v1/workflows", params=query)).json()

        assert first["items"] == []
        assert [item["name"] for item in second["items"]] == ["wanted"]


class TestVerbs:
    async def test_cancelled_workflow_starts_no_node_and_shows_the_reason(self, api, database):
        made = await started(api)
        answer = await api.post(f"/v1/workflows/{made['workflow_id']}/cancel", json={"reason": "wrong day"})

        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
        assert await work(database) == []
        found = await read(api, made)
        assert set(states(found).values()) <= {"cancelled", "skipped"}
        assert "wrong day" in {found["reason"], *(node["reason"] for node in found["nodes"])}

    async def test_a_paused_workflow_waits_until_it_is_resumed(self, api, database, front):
        made = await started(api)
        path = f"/v1/workflows/{made['workflow_id']}"
        assert (await api.post(f"{path}/pause")).json()["state"] == "paused"
        assert await work(database) == []
        assert (await read(api, made))["state"] == "paused"

        assert (await api.post(f"{path}/resume")).json()["state"] == "running"
        assert len(await work(database)) == 1

    async def test_a_workflow_that_has_ended_cannot_be_paused(self, api):
        made = await started(api)
        path = f"/v1/workflows/{made['workflow_id']}"
        await api.post(f"{path}/cancel")
        answer = await api.post(f"{path}/pause")

        assert (answer.status_code, answer.json()["code"]) == (409, "conflict")

    async def test_failed_node_is_replayed_with_its_dependents(self, api, database):
        made = await started(api)
        path = f"/v1/workflows/{made['workflow_id']}"
        await work(database, Succeeded('{"rows": []}'))
        await work(database, Failed("broken", retryable=False))
        await work(database)
        await work(database, queue="mail")
        assert (await read(api, made))["state"] == "succeeded"

        answer = await api.post(f"{path}/replay", json={"node": "load"})

        assert (answer.status_code, answer.json()["state"]) == (202, "running")
        assert sorted(answer.json()["nodes"]) == ["alarm", "load", "tidy"]
        assert states(await read(api, made)) == {
            "extract": "succeeded",
            "load": "ready",
            "alarm": "waiting",
            "tidy": "waiting",
        }

    async def test_replay_dry_run_shows_its_effects_and_changes_nothing(self, api, database):
        made = await started(api)
        path = f"/v1/workflows/{made['workflow_id']}"
        await work(database, Succeeded('{"rows": []}'))
        await work(database, Failed("broken", retryable=False))
        await work(database)
        await work(database, queue="mail")
        before = await read(api, made)

        answer = await api.post(f"{path}/replay", json={"node": "load", "dry_run": True})

        assert (answer.status_code, answer.json()["state"], answer.json()["dry_run"]) == (200, "succeeded", True)
        assert (answer.json()["nodes"], answer.json()["recreated"], answer.json()["kept"]) == (
            ["alarm", "load", "tidy"],
            [],
            1,
        )
        assert await read(api, made) == before
        entries = (await api.get("/v1/audit", params={"action": "workflow.replayed"})).json()["items"]
        assert entries == []

    async def test_replay_of_a_running_node_conflicts_also_as_a_dry_run(self, api, database):
        made = await started(api)
        await take(database)
        for more in ({}, {"dry_run": True}):
            asked = {"node": "extract", **more}
            answer = await api.post(f"/v1/workflows/{made['workflow_id']}/replay", json=asked)

            assert (answer.status_code, answer.json()["code"]) == (409, "conflict")

    async def test_pause_that_changes_nothing_adds_no_audit_entry(self, api):
        made = await started(api)
        for verb in ("pause", "pause", "resume", "resume"):
            assert (await api.post(f"/v1/workflows/{made['workflow_id']}/{verb}")).status_code == 200

        noted = [entry["action"] for entry in (await api.get("/v1/audit")).json()["items"]]
        assert sorted(action for action in noted if action != "workflow.created") == [
            "workflow.paused",
            "workflow.resumed",
        ]

    async def test_concurrent_workflow_cancels_write_one_audit_entry(self, api, front, database):
        made = await started(api)
        await take(database)  # so that it goes on until that run has stopped
        other, path = await front.caller(), f"/v1/workflows/{made['workflow_id']}/cancel"
        async with asyncio.timeout(20), database.transaction() as blocker:
            await blocker.fetch("select from duly.workflows for no key update")
            asked = [asyncio.create_task(one.post(path, json={"reason": one.key_id})) for one in (api, other)]
            while await database.fetchval(WAITING) < 2:
                await asyncio.sleep(0.01)
        answers = [answer.json() for answer in await asyncio.gather(*asked)]

        assert [answer["state"] for answer in answers] == ["cancelling", "cancelling"]
        [entry] = (await api.get("/v1/audit", params={"action": "workflow.cancelled"})).json()["items"]
        assert entry["detail"]["reason"] == entry["actor"]["key_id"] == (await read(api, made))["reason"]


class TestAddedNodes:
    async def test_a_running_node_adds_nodes_once_and_its_children_wait_for_them(self, api, database):
        made = await started(api)
        worker_id, [run] = await take(database)
        body = {"node": "extract", "fence": run.fence, "nodes": {"more": {"target": A_TARGET}}}
        path = f"/v1/workflows/{made['workflow_id']}"
        first, again = [await api.post(f"{path}/nodes", json=body) for _ in range(2)]

        assert (first.status_code, first.json()["nodes"]) == (200, ["more"])
        assert again.json() == first.json()
        await settled(database, worker_id, run, Succeeded('{"rows": []}'))
        assert states(await read(api, made)) == {
            "extract": "succeeded",
            "more": "ready",
            "load": "waiting",
            "alarm": "waiting",
            "tidy": "waiting",
        }
        [more] = [node for node in (await read(api, made))["nodes"] if node["name"] == "more"]
        assert more["added_by"] == "extract"

    async def test_with_an_old_fence_nothing_is_added(self, api, database):
        made = await started(api)
        _, [run] = await take(database)
        body = {"node": "extract", "fence": run.fence + 1, "nodes": {"more": {"target": A_TARGET}}}
        answer = await api.post(f"/v1/workflows/{made['workflow_id']}/nodes", json=body)

        assert (answer.status_code, answer.json()["code"]) == (409, "lease_lost")
        assert "more" not in states(await read(api, made))

    async def test_added_nodes_are_checked_like_others(self, api, database):
        made = await started(api)
        _, [run] = await take(database)
        body = {"node": "extract", "fence": run.fence, "nodes": {"more": {"target": A_TARGET, "depends_on": ["tidy"]}}}
        answer = await api.post(f"/v1/workflows/{made['workflow_id']}/nodes", json=body)

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_workflow")
        assert answer.json()["errors"][0]["pointer"] == "/nodes/more/depends_on/0"


async def test_a_key_that_may_only_read_starts_nothing(front):
    reader = await front.caller("jobs:read")

    assert (await reader.post("/v1/workflows", json=ETL)).status_code == 403
    assert (await reader.get("/v1/workflows")).status_code == 200


async def test_each_node_counts_as_a_submit(front):
    slow = await front.caller(rate=0.001)
    answer = await slow.post("/v1/workflows", json=ETL)

    assert (answer.status_code, answer.json()["code"]) == (429, "rate_limited")
    assert (await slow.get("/v1/workflows")).json()["items"] == []


class TestAsTarget:
    TARGET: ClassVar[dict[str, Any]] = {"type": "workflow", "nodes": ETL["nodes"]}

    async def test_job_returns_its_workflow_target_as_requested(self, api):
        job = await api.a_job(name="nightly", target=self.TARGET, tags=["money"])
        found = (await api.get(f"/v1/jobs/{job['job_id']}")).json()

        assert found["target"]["type"] == "workflow"
        assert found["target"]["name"] == "nightly"
        assert found["target"]["nodes"] == ETL["nodes"]

    async def test_workflow_target_patch_changes_one_node(self, api):
        job = await api.a_job(name="nightly", target=self.TARGET)
        patch = {"target": {"nodes": {"load": {"priority": 1}}}}
        changed = await api.patch(f"/v1/jobs/{job['job_id']}", patch, headers={"If-Match": '"1"'})

        assert changed.status_code == 200, changed.text
        nodes = changed.json()["target"]["nodes"]
        assert (nodes["load"]["priority"], nodes["load"]["depends_on"]) == (1, ["extract"])

    async def test_secrets_of_nodes_are_masked_and_survive_a_put_back(self, api, database):
        hook = {"type": "webhook", "url": "https://shop.example/in", "headers": {"Authorization": "Bearer secret"}}
        nodes = {"call": {"target": hook}}
        job = await api.a_job(name="calls", target={"type": "workflow", "nodes": nodes})
        told = (await api.get(f"/v1/jobs/{job['job_id']}")).json()["target"]
        answer = await api.patch(f"/v1/jobs/{job['job_id']}", {"target": told}, headers={"If-Match": "*"})

        assert told["nodes"]["call"]["target"]["headers"] == {"Authorization": "***"}
        assert answer.status_code == 200, answer.text
        kept = decode(
            await database.fetchval("select options::text from duly.jobs where job_id = $1", job["job_id"])
        ).policy.target
        assert isinstance(kept, WorkflowTarget)
        node = target_of_node(kept.nodes[0])
        assert isinstance(node, Webhook)
        assert open_target(node, 1, a_keyring).headers == {"Authorization": "Bearer secret"}

    @pytest.mark.parametrize(
        ("fields", "code", "pointer"),
        [
            (
                {"nodes": {"a": {"target": A_TARGET, "depends_on": ["a"]}}},
                "invalid_workflow",
                "/target/nodes/a/depends_on/0",
            ),
            ({"nodes": {"a": {"target": A_TARGET, "queue": "two\nlines"}}}, "invalid_workflow", "/target/nodes/a"),
        ],
    )
    async def test_invalid_workflow_target_is_refused_with_its_pointer(self, api, fields, code, pointer):
        answer = await api.post("/v1/jobs", json={"target": {"type": "workflow", **fields}})

        assert (answer.status_code, answer.json()["code"]) == (422, code)
        assert answer.json()["errors"][0]["pointer"] == pointer

    async def test_node_with_a_forbidden_target_is_refused(self, api):
        nodes = {"a": {"target": {"type": "command", "argv": ["/bin/rm"]}}}
        answer = await api.post("/v1/jobs", json={"target": {"type": "workflow", "nodes": nodes}})

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")
        assert "'/bin/rm' is not allowed" in answer.json()["detail"]

    async def test_a_payload_belongs_to_the_nodes(self, api):
        answer = await api.post("/v1/jobs", json={"target": self.TARGET, "payload": {"day": 1}})

        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")


async def test_a_worker_over_http_is_handed_results_and_carries_a_workflow_to_its_end(api):
    made = await started(api)
    remote = await a_remote(api, queues=["default", "mail"])

    [extract] = await remote.claim()
    await remote.settle(extract, result={"rows": [1, 2]})
    [load] = await remote.claim()
    await remote.settle(load)
    [tidy] = await remote.claim()
    await remote.settle(tidy)

    assert (extract["workflow_id"], extract["node"], extract["parents"]) == (made["workflow_id"], "extract", {})
    assert (load["node"], load["payload"], load["parents"]) == ("load", {"rows": [1, 2]}, {"extract": {"rows": [1, 2]}})
    assert tidy["node"] == "tidy"
    found = await read(api, made)
    assert found["state"] == "succeeded"
    assert states(found)["alarm"] == "skipped"
