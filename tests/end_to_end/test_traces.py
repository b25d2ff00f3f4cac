"""Traces of a whole installation, received by a real OTLP receiver: one trace from the caller to the webhook's receiver."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.processes import Up, duly, running, wait_for
from tests.end_to_end.collecting import Collector, collecting
from tests.end_to_end.receiver import Receiver

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CANARY = "canary-4111-1111"
PROCESSES = 4  # of a `duly up`, of which each says once what it does not send
APP = """
from duly import App

app = App()

@app.handler
def charge(card: str, fails: bool = False) -> str:
    if fails:
        raise ValueError(f"declined {card}")
    return card
"""


@contextmanager
def installed(folder: Path, endpoint: str, **settings: str) -> Iterator[tuple[Up, httpx.Client]]:
    (folder / "shop.py").write_text(APP)
    more = {
        "DULY_LOG_FORMAT": "json",
        "DULY_LOG_LEVEL": "info",
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_EXPORTER_OTLP_HEADERS": "x-team=a%20b",
        **settings,
    }
    with running("up", "--app", "shop:app", "--port", "0", "--no-demo", cwd=folder, **more) as process:
        up = Up(process, folder)
        key = (folder / ".duly" / "api-key").read_text().strip()
        with httpx.Client(base_url=up.address, headers={"Authorization": f"Bearer {key}"}, timeout=20) as client:
            yield up, client


def submitted(client: httpx.Client, *, headers: dict[str, str] | None = None, **fields: Any) -> str:
    job = {"target": {"type": "function", "handler": "charge"}, "payload": {"card": CANARY}, **fields}
    answer = client.post("/v1/jobs", json=job, headers=headers or {})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["run_id"])


def ended(client: httpx.Client, run_id: str) -> str:
    def look() -> str | None:
        state = str(client.get(f"/v1/runs/{run_id}").json()["state"])
        return state if state in ("succeeded", "dead") else None

    return str(wait_for(look))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Iterator[tuple[Collector, Up, httpx.Client]]:
    with collecting() as collector, installed(tmp_path_factory.mktemp("traces"), collector.endpoint) as (up, client):
        yield collector, up, client


@pytest.fixture
def traced(whole) -> tuple[Collector, httpx.Client]:
    collector, _, client = whole
    return collector, client


class TestTraces:
    def test_a_one_shot_continues_the_trace_of_its_caller_from_submit_to_attempt(self, traced):
        collector, client = traced
        headers = {"traceparent": f"00-{TRACE}-{SPAN}-01", "X-Request-ID": "request-7"}
        run_id = submitted(client, headers=headers, schedule={"trigger": {"type": "at", "delay": "PT6S"}})

        spans = collector.wait_for(run_id, "submit", "stage", "claim", "attempt")
        submit = spans["duly.submit"]
        assert {span["trace"] for span in spans.values()} == {TRACE}
        assert submit["parent"] == SPAN
        assert {spans[f"duly.{name}"]["parent"] for name in ("stage", "claim", "attempt")} == {submit["id"]}
        attempt = spans["duly.attempt"]
        assert (attempt["duly.job_id"], attempt["duly.attempt"], attempt["duly.outcome"]) == (run_id, 1, "succeeded")
        assert {span["duly.request_id"] for span in (submit, attempt)} == {"request-7"}
        assert {(span["path"], span["header"], span["service"]) for span in spans.values()} == {
            ("/v1/traces", "a b", "duly")
        }

    def test_a_failed_attempt_names_its_error_and_no_value(self, traced):
        collector, client = traced
        run_id = submitted(client, payload={"card": CANARY, "fails": True}, retry={"max_attempts": 1})

        attempt = collector.wait_for(run_id, "attempt")["duly.attempt"]
        assert (attempt["failed"], attempt["duly.outcome"], attempt["error.type"]) == (
            True,
            "failed",
            "builtins.ValueError",
        )
        assert CANARY not in json.dumps(collector.spans)

    def test_a_webhook_hands_its_own_span_to_the_receiver(self, traced):
        collector, client = traced
        with Receiver() as receiver:
            target = {"type": "webhook", "url": f"{receiver.origin}/?token=secret"}
            run_id = submitted(client, target=target, headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})
            spans = collector.wait_for(run_id, "attempt", "webhook")

        webhook = spans["duly.webhook"]
        assert (webhook["parent"], webhook["http.response.status_code"]) == (spans["duly.attempt"]["id"], 200)
        assert receiver.heads[-1]["traceparent"] == f"00-{TRACE}-{webhook['id']}-01"
        assert "token" not in json.dumps(collector.spans)

    def test_each_run_of_a_schedule_has_a_trace_that_is_linked_to_its_request(self, traced):
        collector, client = traced
        headers = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
        job = {"target": {"type": "function", "handler": "charge"}, "payload": {"card": CANARY}, "name": "often"}
        job["schedule"] = {"trigger": {"type": "interval", "every": "PT1S"}, "max_runs": 20}
        job_id = client.post("/v1/jobs", json=job, headers=headers).json()["job_id"]

        def attempts() -> list[dict[str, Any]]:
            return [one for one in collector.spans if one["name"] == "duly.attempt" and one["duly.job_id"] == job_id]

        wait_for(lambda: len(attempts()) >= 2)
        first, second = attempts()[:2]
        assert first["trace"] != second["trace"]
        assert TRACE not in (first["trace"], second["trace"])
        assert first["links"] == second["links"] == [TRACE]
        stage = collector.wait_for(second["duly.run_id"], "stage")["duly.stage"]
        assert (stage["parent"], second["parent"]) == ("", stage["id"])
        client.delete(f"/v1/jobs/{job_id}")

    def test_a_trace_that_the_caller_does_not_sample_is_not_sent(self, traced):
        collector, client = traced
        quiet = submitted(client, headers={"traceparent": f"00-{TRACE}-{SPAN}-00"})
        assert ended(client, quiet) == "succeeded"
        collector.wait_for(submitted(client), "submit", "claim", "attempt")
        assert collector.of(quiet) == {}


def test_log_lines_name_the_request_the_job_the_run_and_the_attempt(whole):
    _, up, client = whole
    run_id = submitted(
        client,
        headers={"X-Request-ID": "request-8"},
        payload={"card": CANARY, "fails": True},
        retry={"max_attempts": 1},
    )
    assert ended(client, run_id) == "dead"

    def lines() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in up.process.lines if line.startswith("{")]
        return [line for line in found if line.get("request_id") == "request-8"]

    wait_for(lambda: len(lines()) >= 2)
    by_event = {line["event"]: line for line in lines()}
    assert (by_event["request_served"]["operation"], by_event["request_served"]["status"]) == ("create_job", 202)
    attempt = by_event["attempt_ended"]
    assert (attempt["run_id"], attempt["job_id"], attempt["attempt"], attempt["outcome"]) == (
        run_id,
        run_id,
        1,
        "failed",
    )
    assert CANARY not in up.process.text


@pytest.mark.parametrize("kind", ["nobody", "hangs"])
def test_a_collector_that_does_not_answer_neither_delays_a_run_nor_the_end_of_a_process(kind, tmp_path):
    with collecting(*(["hangs"] if kind == "hangs" else [])) as collector:
        endpoint = collector.endpoint if kind == "hangs" else "http://127.0.0.1:9"
        with installed(tmp_path, endpoint) as (up, client):
            began = time.monotonic()
            for run_id in [submitted(client) for _ in range(50)]:
                assert ended(client, run_id) == "succeeded"
            assert time.monotonic() - began < 20
            assert up.process.interrupt() < 15
            assert CANARY not in up.process.text


def test_an_endpoint_that_is_no_address_is_refused_with_its_variable(tmp_path):
    refused = duly("jobs", cwd=tmp_path, DULY_OTEL_ENDPOINT="collector:4318")
    assert refused.returncode != 0
    assert "DULY_OTEL_ENDPOINT" in refused.stderr


def test_the_ratio_is_a_number_from_0_to_1(tmp_path):
    refused = duly("config", cwd=tmp_path, DULY_OTEL_RATIO="2")
    assert refused.returncode != 0
    assert "DULY_OTEL_RATIO" in refused.stderr


# As where only the API of OpenTelemetry is installed, which other libraries bring.
BARE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
"""


@pytest.fixture
def bare(tmp_path) -> dict[str, str]:
    """Give the environment of a process without the extra."""
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "sitecustomize.py").write_text(BARE)
    return {"PYTHONPATH": str(tmp_path / "bare")}


def test_collector_that_was_given_to_duly_is_refused_without_the_extra(bare, tmp_path):
    refused = duly("jobs", cwd=tmp_path, DULY_OTEL_ENDPOINT="http://127.0.0.1:9", **bare)
    assert refused.returncode != 0
    assert "pip install 'duly[otel]'" in refused.stderr


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "collector:4317"])
def test_collector_of_the_platform_without_the_extra_costs_a_process_one_warning(bare, endpoint, tmp_path):
    more = bare if endpoint.startswith("http") else {}
    quiet = duly("config", cwd=tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, **more)
    assert (quiet.returncode, "traces_not_sent" in quiet.stderr) == (0, False), "it sends nothing anyhow"

    with installed(tmp_path, endpoint, **more) as (up, client):
        for run_id in [submitted(client) for _ in range(5)]:
            assert ended(client, run_id) == "succeeded"
        up.process.interrupt()
    lines = [json.loads(line) for line in up.process.lines if "traces_not_sent" in line]
    assert 1 <= len(lines) <= PROCESSES
    assert all("OTEL_EXPORTER_OTLP_ENDPOINT is set" in line["reason"] for line in lines)
