"""`duly workflows`: a file is submitted whole, shown as a tree, stopped, held and done again; at a database and over HTTP."""

import json
import re
from uuid import uuid4

import pytest

from tests.cli.processes import inside

FILE = """\
name: nightly
tags: [money]
nodes:
  extract:
    target: add
    payload: {a: 1, b: 2}
  load:
    target: {type: function, handler: add}
    depends_on: [extract]
    payload: {a: {$result: extract}, b: 10}
    retry: {max_attempts: 2}
  alarm:
    target: greet
    depends_on: [{node: load, on: failure}]
  tidy:
    target: greet
    depends_on: [extract, {node: load, on: always}]
    payload: {name: tidy}
"""


@pytest.fixture
def run(database_url, tmp_path):
    """Run one command on a database that holds nothing, and where nobody works."""
    return lambda *arguments: inside(*arguments, "--database-url", database_url, cwd=tmp_path)


@pytest.fixture
def submitted(run, tmp_path):
    """Submit the file, and give the workflow's id."""
    (tmp_path / "flow.yaml").write_text(FILE)
    done = run("workflows", "submit", "flow.yaml", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["workflow_id"]


def states(run, workflow_id):
    found = json.loads(run("workflows", "show", workflow_id, "--json").stdout)
    return found["state"], {node["name"]: node["state"] for node in found["nodes"]}


def test_a_workflow_is_listed_and_shown_as_a_tree(run, submitted):
    listed = run("workflows", "--tag", "money").stdout
    shown = run("workflows", "show", submitted).stdout

    assert submitted in listed
    assert "running" in listed
    assert f"workflow {submitted} 'nightly' is running" in shown
    assert "0 of 4 nodes have ended" in shown
    drawn = re.findall(r"^[│├└─ ]*(?:extract|load|alarm|tidy)\b", shown, re.MULTILINE)
    assert drawn == ["extract", "└─ load", "   ├─ alarm", "   └─ tidy"]
    assert "when load fails" in shown
    assert "after extract, when load has ended" in shown


def test_a_workflow_is_explained(run, submitted):
    said = run("explain", submitted).stdout

    assert f"workflow {submitted} is running" in said
    assert "0 of 4 nodes have ended" in said
    assert re.search(r"node extract is ready: `duly explain [0-9a-f-]{36}` says why", said)
    assert f"3 nodes behind them: `duly workflows show {submitted}` shows all of them" in said
    run("workflows", "cancel", submitted, "--reason", "wrong day")
    told = run("explain", submitted).stdout
    assert f"workflow {submitted} is cancelled" in told
    assert "wrong day" in told
    assert f"`duly workflows replay {submitted} extract` does it again" in told
    assert json.loads(run("explain", submitted, "--json").stdout)["state"] == "cancelled"
    missing = run("explain", str(uuid4()))
    assert (missing.returncode, "no run, job or workflow" in missing.stderr) == (4, True)


def test_workflow_runs_are_listed_with_their_wait_reasons(run, submitted):
    found = json.loads(run("runs", "--workflow", submitted, "--json").stdout)

    assert sorted(one["node"] for one in found) == ["alarm", "extract", "load", "tidy"]
    waiting = {one["reason"] for one in found if one["state"] == "blocked"}
    assert waiting == {f"waits for its parents in workflow {submitted}"}


def test_workflow_filters_select_and_report_an_empty_result(run, submitted):
    assert json.loads(run("workflows", "--filter", "state:running AND name:night*", "--json").stdout) != []
    assert "no workflows fit" in run("workflows", "--name", "weekly").stdout
    assert run("workflows", "--filter", "colour:blue").returncode == 1


def test_workflow_can_be_paused_resumed_cancelled_and_replayed(run, submitted):
    assert run("workflows", "pause", submitted).stdout == f"workflow {submitted} is paused\n"
    assert run("workflows", "resume", submitted).stdout == f"workflow {submitted} is running\n"
    assert (
        run("workflows", "cancel", submitted, "--reason", "wrong day").stdout == f"workflow {submitted} is cancelled\n"
    )
    refused = run("workflows", "pause", submitted)
    assert (refused.returncode, "is cancelled" in refused.stderr) == (1, True)
    replayed = run("workflows", "replay", submitted, "load")
    assert "3 nodes run again: alarm, load, tidy" in replayed.stdout
    assert states(run, submitted) == (
        "running",
        {"extract": "cancelled", "load": "ready", "alarm": "waiting", "tidy": "waiting"},
    )


def test_workflow_commands_report_outcomes_as_json(run, submitted):
    def reads(*arguments):
        return json.loads(run("workflows", *arguments, "--json").stdout)

    assert reads("pause", submitted) == [{"workflow_id": submitted, "state": "paused"}]
    assert reads("resume", submitted) == [{"workflow_id": submitted, "state": "running"}]
    assert reads("cancel", submitted) == [{"workflow_id": submitted, "state": "cancelled"}]
    again = {"workflow_id": submitted, "nodes": ["alarm", "load", "tidy"], "recreated": [], "kept": 1}
    assert reads("replay", submitted, "load", "--dry-run") == {**again, "dry_run": True}
    assert reads("replay", submitted, "load") == {**again, "dry_run": False}


def test_under_a_key_it_is_submitted_once(run, submitted):
    ids = {
        json.loads(run("workflows", "submit", "flow.yaml", "--key", "k", "--json").stdout)["workflow_id"] for _ in "ab"
    }

    assert len(ids) == 1


def test_workflow_file_errors_name_their_line(run, tmp_path):
    text = FILE.replace("depends_on: [extract]", "depends_on: [extrakt]").replace("target: greet", "target: [greet]", 1)
    (tmp_path / "wrong.yaml").write_text(text)
    shape = run("workflows", "submit", "wrong.yaml")
    (tmp_path / "wrong.yaml").write_text(FILE.replace("depends_on: [extract]", "depends_on: [extract, tidy]"))
    circle = run("workflows", "submit", "wrong.yaml")

    assert shape.returncode == 1
    assert "wrong.yaml:13:5: nodes.alarm.target: ['greet'] is not a target" in shape.stderr
    assert circle.returncode == 1
    assert "cycle: load → tidy → load" in circle.stderr
    assert "no workflows yet" in run("workflows").stdout


SHOP = """
from duly import App

app = App(queues=["default"], strict=True)


@app.handler(name="send")
def send(to: str, count: int = 1) -> str:
    return to
"""


def test_with_an_app_handlers_and_arguments_are_checked_before_anything_is_sent(run, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        "name: nightly\nnodes:\n"
        "  first: {target: send, payload: {to: a@b.example, count: many}}\n"
        "  second: {target: sned}\n"
        "  third: {target: send, queue: mial, depends_on: [first], payload: {to: {$result: first}, count: 2}}\n"
        "  fourth: {target: send, depends_on: [first], payload: {count: {$result: first}}}\n"
    )

    refused = run("workflows", "submit", "flow.yaml", "--app", "shop:app")

    assert refused.returncode == 1
    for line, words in (
        (3, "argument count is 'many': expected `int`"),
        (4, "no handler is called 'sned'"),
        (5, "mial"),
        (6, "missing a required argument: 'to'"),
    ):
        assert any(f"flow.yaml:{line}:" in one and words in one for one in refused.stderr.splitlines()), refused.stderr
    flow.write_text(
        "name: nightly\nnodes:\n"
        "  first: {target: send, payload: {to: a@b.example}}\n"
        "  second: {target: send, depends_on: [first], payload: {to: {$result: first}, count: 2}}\n"
    )
    assert run("workflows", "submit", "flow.yaml", "--app", "shop:app").returncode == 0


def test_workflow_submit_reports_every_error_of_a_file_and_the_cycle(run, tmp_path):
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "flow.yaml").write_text(
        "name: nightly\nnodes:\n"
        "  a: {target: nosuch, payload: {z: 1}}\n"
        "  b: {target: send, payload: {to: a@b.example, nam: 1}, depends_on: [c]}\n"
        "  c: {target: send, payload: {to: a@b.example, count: many}, depends_on: [b]}\n"
        "  d: {target: send, timeout: -5, payload: {to: a@b.example}}\n"
    )

    refused = run("workflows", "submit", "flow.yaml", "--app", "shop:app")

    assert refused.returncode == 1
    told = refused.stderr.splitlines()
    for line, words in (
        (3, "no handler is called 'nosuch'"),
        (4, "nam"),
        (5, "argument count is 'many'"),
        (6, "timeout"),
    ):
        assert any(f"flow.yaml:{line}:" in one and words in one for one in told), refused.stderr
    assert any("in a cycle: b → c → b" in one or "in a cycle: c → b → c" in one for one in told), refused.stderr


def test_resource_that_does_not_exist_is_not_found(run, submitted):
    unknown = str(uuid4())

    for command in (["show", unknown], ["cancel", unknown], ["replay", unknown, "a"], ["replay", submitted, "none"]):
        assert run("workflows", *command).returncode == 4, command
    assert run("workflows", "show", submitted, "--result", "none").returncode == 4


@pytest.fixture(params=["database", "http"])
def desk(request, up, tmp_path):
    """Run one command at a `duly up`: in its folder, or from elsewhere over HTTP."""
    key = (up.folder / ".duly" / "api-key").read_text().strip()
    if request.param == "database":
        return lambda *arguments: inside(*arguments, cwd=up.folder)
    return lambda *arguments: inside(*arguments, cwd=tmp_path, DULY_URL=up.address, DULY_API_KEY=key)


def test_workflow_file_runs_passes_results_and_reports_its_outcome(desk, tmp_path):
    (tmp_path / "flow.yaml").write_text(FILE)
    done = desk("workflows", "submit", str(tmp_path / "flow.yaml"), "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    workflow_id = done.stdout.split()[1]

    state, nodes = states(desk, workflow_id)
    assert (state, nodes) == (
        "succeeded",
        {"extract": "succeeded", "load": "succeeded", "alarm": "skipped", "tidy": "succeeded"},
    )
    assert desk("workflows", "show", workflow_id, "--result", "load").stdout == "13\n"
    assert "4 of 4 nodes have ended" in desk("workflows", "show", workflow_id, "--watch").stdout


def test_failed_workflow_reports_its_reason_end_to_end(desk, tmp_path):
    flow = {"name": "broken", "nodes": {"first": {"target": "fail", "payload": {"reason": "no disk"}}}}
    (tmp_path / "flow.json").write_text(json.dumps(flow))
    done = desk("workflows", "submit", str(tmp_path / "flow.json"), "--wait")

    assert done.returncode == 1
    assert "'broken' is failed" in done.stdout
    assert "no disk" in done.stdout
