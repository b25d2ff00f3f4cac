"""The examples of docs/workflows.md run as they stand."""

import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from duly.api.routes.workflows import compiled_workflow
from duly.domain.jobs.manifest import read_manifest, read_workflow
from duly.domain.jobs.manifest_text import read_text
from duly.domain.targets.target import Allowed, WorkflowTarget
from duly.testing import environment
from duly.wire.workflows import NewWorkflow
from tests.cli.processes import inside

PAGE = Path(__file__).parents[2] / "docs" / "workflows.md"
TEXT = PAGE.read_text()


def examples(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.fixture
def names() -> dict[str, Any]:
    """Give what the Python examples define, put together."""
    found: dict[str, Any] = {}
    for example in examples("python"):
        exec(compile(example, str(PAGE), "exec"), found)
    return found


async def test_the_test_on_the_page_passes(names):
    await names["test_the_night_is_loaded"]()


async def test_a_workflow_is_started_and_grows_as_the_page_says(names, capsys):
    async with environment(names["app"]) as env:
        await names["wf"].submit(key="nightly-2026-11-02")
        await env.run_due()
        await names["start"]()
        handle = await names["grown"].submit()
        await env.run_due()

        assert capsys.readouterr().out.splitlines() == ["succeeded", "succeeded", "24", "{'load': 24}"]
        assert await handle.status() == "succeeded"
        assert sorted(await handle.nodes()) == ["day-0", "day-1", "plan", "report"]


async def test_the_declared_schedule_starts_it_each_night(names):
    async with environment(names["app"]) as env:
        await env.advance("P1D")

        assert [fire.handler for fire in env.fires] == ["extract", "fetch", "fetch", "load"]


def test_the_files_on_the_page_are_read():
    flow, schedules = examples("yaml")
    found = read_workflow(read_text(flow, "nightly.yaml").value)
    manifest = read_manifest(read_text(schedules, "duly.yaml").value)

    assert [node.name for node in found.nodes] == ["extract", "fetch", "load", "alarm"]
    assert isinstance(manifest.jobs["nightly"].job.options.policy.target, WorkflowTarget)


def test_the_commands_on_the_page_do_what_they_say(database_url, tmp_path):
    (tmp_path / "nightly.yaml").write_text(examples("yaml")[0])
    workflow_id = ""
    [lines] = examples("sh")
    for line in lines.splitlines():
        words = [word.replace("$WORKFLOW", workflow_id) for word in shlex.split(line)]
        done = inside(*words[1:], "--database-url", database_url, cwd=tmp_path)
        assert done.returncode == 0, (line, done.stderr)
        if words[2] == "submit":
            workflow_id = done.stdout.split()[1]
        elif words[2] in ("list", "show"):
            assert workflow_id in done.stdout, line


def test_the_body_on_the_page_is_what_the_api_takes():
    [body] = examples("json")

    known = compiled_workflow(msgspec.json.decode(body, type=NewWorkflow), Allowed(), {})
    assert [node.name for node in known.nodes] == ["extract", "load", "alarm"]
