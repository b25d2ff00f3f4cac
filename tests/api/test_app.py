"""Over HTTP: the status says it, the body explains it, and an error is a problem document."""

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

NAMES = {
    "duly_runs",
    "duly_dead_letters",
    "duly_fenced_outcomes",
    "duly_lease_expiries",
    "duly_queue_depth",
    "duly_queue_oldest_age_seconds",
    "duly_shards_held",
    "duly_staging_lag_seconds",
    "duly_fire_skew_seconds",
    "duly_run_duration_seconds",
    "duly_run_attempts",
    "duly_retries",
    "duly_figures_age_seconds",
}


@pytest.fixture
async def client(app):
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://duly") as opened:
        yield opened


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/readyz", "/startupz"])
async def test_in_good_order_every_question_is_answered_with_200(client, path):
    answer = await client.get(path)

    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"


async def test_readyz_names_the_failing_checks(client, parts):
    parts.pulse.lag_seconds = 99.0

    answer = await client.get("/readyz")

    assert (answer.status_code, answer.json()) == (503, {"status": "not ready", "failing": ["staging_lag_seconds"]})
    assert (await client.get("/livez")).status_code == 200, "not ready is no reason to be killed"


@pytest.mark.parametrize("query", ["verbose", "verbose=1", "x=1&verbose"])
async def test_verbose_shows_every_check_the_tick_and_the_precision(client, query):
    body = (await client.get(f"/readyz?{query}")).json()

    assert {check["name"] for check in body["checks"]} == {
        "database",
        "stage_age_seconds",
        "staging_lag_seconds",
        "pauses",
        "reaper_age_seconds",
        "round_age_seconds",
        "shards_held",
        "workers",
    }
    assert all(check["says"] for check in body["checks"])
    assert body["tick_seconds"] == 1.0
    assert "never early" in body["precision"]
    assert "checks" not in (await client.get("/readyz?verbose=0")).json()


async def test_the_start_is_over_when_it_is(client, parts):
    parts.vitals.started = False

    assert (await client.get("/startupz")).status_code == 503


async def test_metrics_can_be_read_in_both_formats(client):
    text = await client.get("/metrics")
    assert {family.name for family in parse_text(text.text)} >= NAMES
    assert text.headers["content-type"].startswith("text/plain")

    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    openmetrics = await client.get("/metrics", headers=accept)
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text")
    assert NAMES | {"duly_build"} <= {family.name for family in parse_openmetrics(openmetrics.text)}


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/startupz", "/readyz", "/readyz?verbose", "/metrics"])
async def test_head_request_returns_the_headers_of_a_get_without_its_body(client, path):
    whole, head = await client.get(path), await client.head(path)

    assert (head.status_code, head.content) == (whole.status_code, b"")
    assert head.headers["content-type"] == whole.headers["content-type"]
    assert head.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("method", "path", "code"), [("GET", "/nope", "not_found"), ("POST", "/livez", "method_not_allowed")]
)
async def test_unserved_path_or_method_returns_a_problem_document(client, method, path, code):
    answer = await client.request(method, path, headers={"X-Request-ID": "r-1"})

    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["code"], body["status"], body["instance"], body["request_id"]) == (
        code,
        answer.status_code,
        path,
        "r-1",
    )
    assert body["remedy"]


async def test_metrics_failure_hides_the_exception_text(client, metrics, monkeypatch):
    async def breaks(accept):
        raise RuntimeError("secret of the house")

    monkeypatch.setattr(metrics, "scrape", breaks)

    answer = await client.get("/metrics")

    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert "secret" not in answer.text
    assert answer.json()["request_id"]
