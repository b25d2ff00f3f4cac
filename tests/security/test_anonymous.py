"""Readers without a key learn whether we work, and nothing of what anybody does here."""

from typing import Any

import httpx
import pytest

from duly.api.admission import LoadShedding
from duly.api.app import create
from duly.api.metrics.collector import Metrics
from duly.api.metrics.labels import LABELS_MAX, OF_TENANT_MAX, Labels
from duly.domain.limits.overload import AGE_LIMIT, Overload
from duly.domain.limits.pause import Scope
from duly.log import Log
from duly.moves.admin.pause import pause_scope
from duly.store.reads.tail import Ended
from tests.api.conftest import parts_of
from tests.builders import a_ready_run, a_waiting_run
from tests.cli.processes import running, wait_for
from tests.security.doors import an_open_door

SECRET = "merger-with-initech"


@pytest.fixture
async def front(database):
    """A server with a queue whose name tells something."""
    async with an_open_door(database) as opened:
        await a_ready_run(database, queue=SECRET)
        await pause_scope(database, Scope(2, SECRET), reason="stop", paused_by="a person")
        yield opened


@pytest.mark.parametrize("path", ["/metrics", "/readyz?verbose", "/readyz?verbose=1", "/readyz?x&verbose=yes"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_details_are_refused_without_a_key(front, path, method):
    answer = await front.client.request(method, path)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert SECRET not in answer.text


@pytest.mark.parametrize("path", ["/metrics", "/readyz?verbose"])
async def test_details_are_refused_to_everybody_but_the_operator(front, path):
    others = [await front.stranger(), await front.caller("jobs:read"), await front.caller("worker")]

    answers = [await other.get(path) for other in others]

    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(403, "forbidden")] * 3
    assert not any(SECRET in answer.text for answer in answers)


@pytest.mark.parametrize("path", ["/metrics", "/readyz?verbose"])
async def test_the_operator_reads_details_with_a_key_and_with_a_session(front, path):
    operator = await front.caller()
    assert SECRET in (await operator.get(path)).text

    await front.client.post("/v1/session", json={"key": operator.key})
    assert SECRET in (await front.client.get(path)).text, "by the cookie"


@pytest.mark.parametrize(("path", "said"), [("/livez", "alive"), ("/healthz", "alive"), ("/startupz", "started")])
async def test_liveness_returns_only_its_status(front, path, said):
    assert (await front.client.get(path)).json() == {"status": said}


async def test_plain_readiness_shows_the_status_without_the_cause(front, database):
    assert (await front.client.get("/readyz")).json() == {"status": "ready"}

    await database.execute("update duly.shards set holder = null")

    answer = await front.client.get("/readyz")
    assert (answer.status_code, answer.json()) == (503, {"status": "not ready"})


async def test_an_address_of_its_own_needs_no_key(database):
    vitals = parts_of(database).vitals
    apart: Any = create(vitals, Metrics(vitals, Log("test")), Log("test"))
    await a_ready_run(database, queue=SECRET)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(apart), base_url="http://apart") as client:
        assert SECRET in (await client.get("/metrics")).text
        assert "checks" in (await client.get("/readyz?verbose")).json()
        assert (await client.get("/v1/jobs")).status_code == 404


def test_up_serves_details_on_a_separate_loopback_port_when_configured(tmp_path):
    with running("up", "--port", "0", "--no-demo", "--workers", "0", "--metrics-port", "0", cwd=tmp_path) as process:
        process.wait_for_line("ready in")
        public = process.wait_for_line("API /v1").split()[1]
        apart = process.wait_for_line("metrics  ").split()[1].removesuffix("/metrics")

        wait_for(
            lambda: httpx.get(f"{public}/readyz").json() == {"status": "ready"}
        )  # It hears of the scheduler twice a second.
        assert httpx.get(f"{public}/metrics").status_code == 401
        key = {"Authorization": f"Bearer {(tmp_path / '.duly/api-key').read_text().strip()}"}
        assert "duly_shards_held 64.0" in httpx.get(f"{public}/metrics", headers=key).text

        assert apart.startswith("http://127.0.0.1:")
        assert "duly_shards_held 64.0" in httpx.get(f"{apart}/metrics").text
        assert "checks" in httpx.get(f"{apart}/readyz?verbose").json()
        assert process.interrupt() < 10


class TestLabels:
    def test_tenant_cannot_exhaust_the_metric_labels(self):
        labels = Labels()
        for number in range(2 * LABELS_MAX):
            labels.admits(7, f"mine-{number}")

        assert labels.admits(8, "mail")
        assert sum(labels.admits(7, f"mine-{number}") for number in range(2 * LABELS_MAX)) == OF_TENANT_MAX
        assert labels.admits(7, "mail"), "a queue that has a label has it for all"

    def test_all_together_are_bounded(self):
        labels = Labels()
        admitted = sum(labels.admits(tenant, f"{tenant}-{number}") for tenant in range(100) for number in range(20))

        assert admitted == LABELS_MAX

    async def test_runs_of_a_tenant_with_many_queues_are_counted_under_other(self, database):
        totals = Metrics(parts_of(database).vitals, Log("test")).totals
        for number in range(OF_TENANT_MAX + 5):
            totals.add(Ended(7, f"queue-{number}", "succeeded", "succeeded", 0, 0, 1, 0.0, 0.0))
        totals.add(Ended(8, "mail", "succeeded", "succeeded", 0, 0, 1, 0.0, 0.0))

        assert totals.runs["other", "succeeded"] == 5
        assert totals.runs["mail", "succeeded"] == 1

    async def test_depths_and_wanted_workers_of_another_tenant_stay_visible(self, database):
        for number in range(OF_TENANT_MAX + 5):
            await a_ready_run(database, queue=f"!{number:04}")
            await a_waiting_run(database, delay=600, queue=f"!later-{number:04}")
        await a_ready_run(database, queue="mail")
        await a_waiting_run(database, delay=600, queue="reports")
        for box in ("ready", "timers"):
            await database.execute(f"update duly.{box} set tenant = case when queue like '!%' then 7 else 8 end")
        metrics = Metrics(parts_of(database).vitals, Log("test"))

        text = (await metrics.scrape(""))[0].decode()

        assert 'duly_queue_depth{queue="mail"} 1.0' in text
        assert 'duly_queue_depth{queue="other"} 5.0' in text
        assert 'duly_desired_workers{queue="reports"}' in text
        assert text.count("duly_queue_depth{") == OF_TENANT_MAX + 2

    async def test_overloads_and_refusals_of_a_tenant_share_a_label_of_that_tenant(self, database):
        metrics, shedding = Metrics(parts_of(database).vitals, Log("test")), LoadShedding(database)
        overloads = [Overload(7, f"queue-{number}", AGE_LIMIT * 2, AGE_LIMIT) for number in range(OF_TENANT_MAX + 5)]
        metrics.totals.overloads = [*overloads, Overload(8, "mail", AGE_LIMIT * 3, AGE_LIMIT)]
        for one in metrics.totals.overloads:
            shedding._counted(one, 9)

        ages = metrics.totals._overload_ages()
        [shed] = list(shedding.collect())

        assert (ages[7, "other"], ages[8, "mail"], len(ages)) == (120.0, 180.0, OF_TENANT_MAX + 2)
        counted = {(one.labels["tenant"], one.labels["queue"]): one.value for one in shed.samples}
        assert (counted["7", "other"], counted["8", "mail"]) == (5, 1)
