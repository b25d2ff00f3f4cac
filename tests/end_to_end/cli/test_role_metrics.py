"""Every role serves its own `/metrics`, `/livez` and `/readyz` on its `metrics_port`."""

import json
import signal
import urllib.request
from contextlib import contextmanager
from urllib.error import HTTPError

from tests.cli.processes import duly, running, wait_for

SHOUT = """
from duly import App, Retry

app = App()


@app.handler(queue="figures", retry=Retry(max_attempts=1))
def shout(word: str) -> str:
    if word == "broken":
        raise ValueError(word)
    return word.upper()
"""


@contextmanager
def serving(*arguments, cwd, **more):
    """Run a role that serves its figures on a free port. Gives it and how to ask it."""
    with running(*arguments, "--metrics-port", "0", cwd=cwd, **more) as process:
        address = process.wait_for_line("metrics at").split()[2].removesuffix("/metrics,")
        yield process, lambda path: ask(address + path)


def ask(url):
    """Give the status and the text of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_a_worker_counts_its_own_runs(up):
    (up.folder / "counted.py").write_text(SHOUT)
    with serving("worker", "counted:app", cwd=up.folder) as (process, get):
        assert json.loads(get("/livez")[1])["status"] == "alive"
        wait_for(lambda: get("/readyz")[0] == 200)
        up.duly("run", "shout", "word=hey", "--queue", "figures", "--app", "counted:app", "--wait")
        up.duly("run", "shout", "word=broken", "--queue", "figures", "--app", "counted:app", "--wait")

        text = get("/metrics")[1]
        assert "duly_worker_runs_started_total 2\n" in text
        assert 'duly_worker_runs_ended_total{outcome="succeeded"} 1\n' in text
        assert 'duly_worker_runs_ended_total{outcome="failed"} 1\n' in text
        assert "duly_worker_start_delay_seconds_count 2\n" in text
        assert "duly_worker_runs_claimed_total 2\n" in text
        assert "duly_worker_settle_duration_seconds_count 2\n" in text
        assert "duly_worker_runs_held 0\n" in text
        assert 'duly_worker_slots{pool="plain"} 10\n' in text
        assert "duly_worker_loop_age_seconds" in text
        wait_for(lambda: 'duly_dead_letters_total{queue="figures"} 1\n' in get("/metrics")[1])
        text = get("/metrics")[1]
        assert 'duly_runs_total{queue="figures",outcome="succeeded"} 1\n' in text, "of the installation"
        assert 'duly_fire_skew_seconds_bucket{queue="figures",le="1.0"}' in text
        assert 'duly_queue_depth{queue="figures",lane="live"} 0\n' in text
        assert get("/elsewhere")[0] == 404
        assert process.interrupt() < 10
    assert process.process.returncode == 0


def test_a_worker_that_is_frozen_out_of_its_lease_is_not_ready(up):
    """The heartbeat is a process of its own: without it the lease runs out, and the worker takes nothing."""
    (up.folder / "counted.py").write_text(SHOUT)
    with serving("worker", "counted:app", "--lease", "PT3S", cwd=up.folder) as (process, get):
        wait_for(lambda: get("/readyz")[0] == 200)
        [heartbeat] = [child for child in process.family()[1:] if "heartbeat" in " ".join(child.cmdline())]
        heartbeat.suspend()
        try:
            status, text = wait_for(lambda: (answer := get("/readyz?verbose"))[0] == 503 and answer)
        finally:
            heartbeat.resume()
        assert status == 503
        assert {"registered", "lease"} & set(json.loads(text)["failing"])
        assert [check["says"] for check in json.loads(text)["checks"]]


def test_scheduler_metrics_show_staged_runs_and_held_shards(up):
    with serving("scheduler", cwd=up.folder) as (process, get):
        wait_for(lambda: get("/readyz")[0] == 200)
        status, text = get("/readyz?verbose")
        assert (status, json.loads(text)["failing"]) == (200, [])
        assert {check["name"] for check in json.loads(text)["checks"]} >= {"stage_age_seconds", "shards_held"}

        text = get("/metrics")[1]
        assert "duly_scheduler_shards_held" in text
        assert "duly_scheduler_tick_duration_seconds_count" in text
        assert "duly_shards_held 64\n" in wait_for(lambda: "duly_shards_held" in (seen := get("/metrics")[1]) and seen)
        assert "duly_scheduler_runs_staged_total" in text
        assert 'duly_scheduler_round_age_seconds{loop="' in text
        assert process.interrupt(signal.SIGTERM) < 10


def test_an_api_serves_its_figures_apart_and_nothing_else_there(up):
    with serving("api", "--port", "0", cwd=up.folder) as (process, get):
        assert get("/livez")[0] == 200
        assert "duly_api_requests" in get("/metrics")[1]
        assert get("/v1/jobs")[0] == 404
        assert process.interrupt(signal.SIGTERM) < 5


def test_the_workers_of_an_up_leave_the_port_to_others(up):
    """Two of them would want the same one, which stands in the settings they share."""
    (up.folder / "counted.py").write_text(SHOUT)
    with running("worker", "counted:app", "--tied", cwd=up.folder, DULY_METRICS_PORT="0") as process:
        process.wait_for_line("worker ")
        assert process.interrupt() < 10
    assert "metrics at" not in process.text


def test_a_port_that_is_taken_is_refused_with_a_remedy(up):
    with serving("scheduler", cwd=up.folder) as (process, _):
        port = process.wait_for_line("metrics at").split("/metrics")[0].rpartition(":")[2]
        said = duly("scheduler", "--metrics-port", port, cwd=up.folder)

    assert said.returncode != 0
    assert said.stdout == "", "it does not say that it runs"
    assert f"choose another: duly scheduler --metrics-port {int(port) + 1}" in said.stderr
