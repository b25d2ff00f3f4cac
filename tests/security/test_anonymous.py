"""Readers without a key learn whether we work, and nothing of what anybody does here."""

from typing import Any

import httpx
import pytest

from duly.api.admission import LoadShedding
from duly.api.app import create
from duly.api.metrics.collector import Metrics
from duly.domain.diagnosis.labels import LABELS_MAX, OF_TENANT_MAX, Labels
from duly.domain.limits.overload import AGE_LIMIT, Overload
from duly.domain.limits.pause import Scope
from duly.log import Log
from duly.moves.admin.pause import pause_scope
from tests.api.conftest import parts_of
from tests.builders import a_ready_run, a_waiting_run
from tests.cli.processes import running, wait_for
from tests.security.doors import an_open_door

SECRET = "merger-with-initech"
# Of tenant 7 one in each of many queues, of tenant 8 one in `mail`.
ENDED = """
insert into duly.attempts (run_id, job_id, scheduled_at, due_at, started_at, finished_at, fence, tenant, attempt, outcome, became,
                           queue, handler)
select gen_random_uuid(), gen_random_uuid(), now, now, now, now, 1, tenant, 1, 'succeeded', 'succeeded', queue, 'greet'
  from (select duly.clock_now() as now) as clock,
       (select 7, 'queue-' || number from generate_series(1, $1) as number union all select 8, 'mail') as ended(tenant, queue)
"""
OVERLOADED = """
insert into duly.overloads (tenant, queue, oldest_due_at, recorded_at)
select tenant, queue, now - age, now
  from (select duly.clock_now() as now) as clock,
       (select 7, 'queue-' || number, interval '120 s' from generate_series(1, $1) as number
        union all select 8, 'mail', interval '180 s') as overloaded(tenant, queue, age)
"""


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
    apart: Any = create(vitals, Metrics(vitals.database, Log("test")), Log("test"))
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
        assert "duly_shards_held 64\n" in httpx.get(f"{public}/metrics", headers=key).text

        assert apart.startswith("http://127.0.0.1:")
        assert "duly_shards_held 64\n" in httpx.get(f"{apart}/metrics").text
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
        metrics = Metrics(database, Log("test"), every=0)
        await metrics.look()
        await database.execute(ENDED, OF_TENANT_MAX + 5)

        for _ in range(2):  # A label that was given stays with its queue.
            text = (await metrics.scrape(""))[0].decode()
            assert 'duly_runs_total{queue="other",outcome="succeeded"} 5' in text
            assert 'duly_runs_total{queue="mail",outcome="succeeded"} 1' in text

    async def test_depths_and_wanted_workers_of_another_tenant_stay_visible(self, database):
        for number in range(OF_TENANT_MAX + 5):
            await a_ready_run(database, queue=f"!{number:04}")
            await a_waiting_run(database, delay=600, queue=f"!later-{number:04}")
        await a_ready_run(database, queue="mail")
        await a_waiting_run(database, delay=600, queue="reports")
        for box in ("ready", "timers"):
            await database.execute(f"update duly.{box} set tenant = case when queue like '!%' then 7 else 8 end")
        metrics = Metrics(database, Log("test"))

        text = (await metrics.scrape(""))[0].decode()

        assert 'duly_queue_depth{queue="mail",lane="live"} 1' in text
        assert 'duly_queue_depth{queue="other",lane="live"} 5' in text
        assert 'duly_desired_workers{queue="reports"}' in text
        assert text.count('lane="live"') == 2 * (OF_TENANT_MAX + 2)

    async def test_overloads_and_refusals_of_a_tenant_share_a_label_of_that_tenant(self, database):
        metrics, shedding = Metrics(database, Log("test")), LoadShedding(database)
        metrics.add(shedding)
        await database.execute(OVERLOADED, OF_TENANT_MAX + 5)
        for tenant, queue in await database.fetch("select tenant, queue from duly.overloads"):
            shedding._counted(Overload(tenant, queue, AGE_LIMIT * 2, AGE_LIMIT), 9)

        text = (await metrics.scrape(""))[0].decode()

        assert 'duly_queue_overload_age_seconds{tenant="7",queue="other"} 120.0' in text
        assert 'duly_queue_overload_age_seconds{tenant="8",queue="mail"} 180.0' in text
        assert text.count("duly_queue_overloaded{") == OF_TENANT_MAX + 2
        assert 'duly_api_shed_submissions_total{tenant="7",queue="other"} 5' in text
        assert 'duly_api_shed_submissions_total{tenant="8",queue="mail"} 1' in text
