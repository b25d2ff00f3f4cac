"""A workflow in a file: as the target of a job, and in a file of its own."""

from typing import Any
from uuid import UUID

import msgspec
import pytest

from duly.domain.fields import non_defaults
from duly.domain.jobs.manifest import read_manifest, read_workflow
from duly.domain.jobs.manifest_diff import Kept, differences
from duly.domain.jobs.manifest_export import export
from duly.domain.jobs.manifest_text import read_text
from duly.domain.jobs.spec_of import workflow_spec_of
from duly.domain.problems import InvalidManifest
from duly.domain.runs.options import NO_OPTIONS
from duly.domain.targets.target import Allowed, WorkflowTarget
from duly.domain.tenancy.sealed_options import seal_options
from duly.domain.tenancy.sealing import Keyring

FILE = """\
source: shop
defaults: {queue: night, tags: [shop], on_failure: https://hooks.example/dead}
jobs:
  nightly:
    schedule: every day at 2am
    target:
      type: workflow
      nodes:
        extract: {target: extract, payload: {day: 1}, retry: {max_attempts: 2}}
        page:
          target: fetch
          map: {$result: extract, path: [pages]}
          depends_on: [extract]
          payload: {url: {$item: true}}
        load: {target: load, depends_on: [page], queue: big, payload: {rows: {$result: page}}}
        call:
          target: {type: webhook, url: "https://shop.example/in", headers: {Authorization: Bearer x}}
          depends_on: [{node: load, on: always}]
"""


def read(text: str = FILE):
    document = read_text(text, "duly.yaml")
    return read_manifest(document.value, document.places, "duly.yaml")


def sealed(job, standing=NO_OPTIONS):
    """Give a job as it is kept."""
    options = seal_options(job.options, 1, lambda: Keyring({"a": bytes(32)}), standing)
    return msgspec.structs.replace(job, options=options)


def faults(text: str) -> list[str]:
    """Say what is wrong with a file."""
    with pytest.raises(InvalidManifest) as refused:
        read(text)
    return str(refused.value).splitlines()


def target(manifest) -> WorkflowTarget:
    found = manifest.jobs["nightly"].job.options.policy.target
    assert isinstance(found, WorkflowTarget)
    return found


def test_a_job_starts_a_workflow_of_its_own_name_and_tags():
    manifest = read()
    nodes = {node["name"]: node for node in target(manifest).nodes}

    assert (manifest.jobs["nightly"].job.handler, target(manifest).name) == ("@workflow", "nightly")
    assert target(manifest).tags == ("shop",)
    assert {name: node["queue"] for name, node in nodes.items()} == {
        "extract": "night",
        "page": "night",
        "load": "big",
        "call": "night",
    }
    assert nodes["page"]["map"] == {"node": "extract", "path": ["pages"]}
    assert "callbacks" not in nodes["extract"]["options"], "who is told is said of the workflow as a whole"


def test_exported_workflow_job_equals_the_stored_job():
    standing = sealed(kept(read()))
    written = export("shop", [standing], {})
    again = sealed(read_manifest(written).jobs["nightly"].job, standing.options)

    assert written["jobs"]["nightly"]["target"]["nodes"]["call"]["target"]["headers"] == {"Authorization": "***"}
    assert differences(standing, again) == ()


def kept(manifest) -> Kept:
    """Give the job as it stands after the file was applied."""
    job = manifest.jobs["nightly"].job
    return Kept(
        job_id=UUID(int=1),
        name="nightly",
        owner="file",
        source="shop",
        state="active",
        pause_reason=None,
        version=1,
        applied=1,
        handler=job.handler,
        payload=job.payload,
        queue=job.queue,
        priority=job.priority,
        options=job.options,
        schedule=msgspec.json.encode(job.schedule).decode(),
        every_seconds=None,
        anchor_at=None,
    )


def test_a_plan_names_the_nodes_that_differ_and_no_secret():
    before = kept(read())
    depends_on = read(FILE.replace("queue: big", "queue: small").replace("Bearer x", "Bearer y"))
    found = {one.field: one for one in differences(before, depends_on.jobs["nightly"].job)}

    assert list(found) == ["target.nodes.load", "target.nodes.call"]
    assert found["target.nodes.load"].after["queue"] == "small"
    assert "Bearer" not in msgspec.json.encode(list(found.values())).decode()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "depends_on: [page]",
            "depends_on: [pages]",
            ":15:43: jobs.nightly.target.nodes.load.depends_on[0]: node 'load' depends on 'pages'",
        ),
        ("depends_on: [extract]", "depends_on: [load]", "in a cycle: load → page → load"),
        (
            "$result: page",
            "$result: call",
            "jobs.nightly.target.nodes.load.payload: node 'load' uses the result",
        ),
        (
            "queue: big",
            "queu: big",
            "jobs.nightly.target.nodes.load.queu: 'queu' is not a key here; did you mean queue?",
        ),
        ("type: workflow", "type: workflows", "'workflows' is not a type of target; did you mean workflow?"),
        ("on: always", "on: sometimes", "use success, failure or always"),
        (
            "    target:\n      type",
            "    payload: {a: 1}\n    target:\n      type",
            "a job that starts a workflow takes no payload",
        ),
    ],
)
def test_workflow_error_in_a_manifest_names_its_path(old, new, said):
    assert old in FILE
    assert any(said in line for line in faults(FILE.replace(old, new, 1))), faults(FILE.replace(old, new, 1))


def test_node_commands_are_checked_against_the_allowed_commands():
    text = FILE.replace("target: load", "target: {type: command, argv: [/bin/rm]}")

    read(text).check_allowed(Allowed(commands={"/bin/rm": ()}))
    with pytest.raises(InvalidManifest, match="command '/bin/rm' is not allowed"):
        read(text).check_allowed(Allowed())


def test_a_workflow_of_its_own_is_read_and_written_as_http_asks_for_it():
    value: dict[str, Any] = {
        "name": "once",
        "on_end": "https://hooks.example/done",
        "nodes": {"first": {"target": "extract"}, "second": {"target": "load", "depends_on": ["first"]}},
    }

    assert non_defaults(workflow_spec_of(read_workflow(value))) == {
        "name": "once",
        "on_end": {"url": "https://hooks.example/done"},
        "nodes": {
            "first": {"target": {"type": "function", "handler": "extract"}},
            "second": {"target": {"type": "function", "handler": "load"}, "depends_on": ["first"]},
        },
    }


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "is not a mapping"),
        ({"name": "x"}, "nodes is missing"),
        ({"name": "x", "nodes": {}}, "give at least one node"),
        ({"name": "x", "nodes": {"a": {}}}, "target is missing"),
        ({"name": "", "nodes": {"a": {"target": "t"}}}, "name"),
        ({"name": "x", "nodes": {"a": {"target": "t"}}, "tag": []}, "did you mean tags?"),
    ],
)
def test_a_file_that_is_no_workflow_is_refused(value, said):
    with pytest.raises(InvalidManifest) as refused:
        read_workflow(value)

    assert said in str(refused.value)


def test_manifest_reports_each_node_with_an_unknown_dependency_or_field():
    nodes = {
        "a": {"target": "t", "depends_on": ["x"]},
        "b": {"target": "t", "depends_on": ["y"]},
        "c": {"target": "t", "retries": 3},
        "d": {"target": "t", "depends_on": ["c"]},
    }
    with pytest.raises(InvalidManifest) as refused:
        read_workflow({"name": "w", "nodes": nodes})

    told = str(refused.value)
    assert "x → a" in told
    assert "y → b" in told
    assert "retries" in told
    assert "'c', which is no node" not in told, "it is one, though it cannot be read"


def test_a_result_of_no_node_is_refused_with_those_that_there_are():
    nodes = {"a": {"target": "t"}, "b": {"target": "t", "depends_on": ["a"], "payload": {"x": {"$result": "zz"}}}}
    with pytest.raises(InvalidManifest, match=r"the result of 'zz', which is not a node of this workflow; there are a"):
        read_workflow({"name": "w", "nodes": nodes})
