"""The description in the hands of others' tools: a linter, and generators of clients, one of which makes a job."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.openapi import FILE, ROOT
from tests.security.served import Served

pytestmark = pytest.mark.timeout(300)  # The tools take long on busy cores.
BIN = Path(sys.executable).parent
SPECTRAL = ROOT / "tests" / "api" / "spectral"
OPERATIONS = [
    operation["operationId"]
    for methods in json.loads(FILE.read_text())["paths"].values()
    for operation in methods.values()
]


def ran(*command):
    """Run a tool, and give what it says; it must end well."""
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PATH": path})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def of_node(folder, name):
    """Give a tool of Node that is installed in a folder."""
    tool = folder / "node_modules" / ".bin" / name
    if not tool.exists():
        pytest.skip(f"{name} is not installed; make test does it where there is npm")
    return tool


def test_spectral_finds_nothing():
    tool = of_node(SPECTRAL, "spectral")

    ran(tool, "lint", "--ruleset", SPECTRAL / "ruleset.yaml", "--fail-severity", "warn", FILE)


def test_openapi_typescript_takes_every_operation(tmp_path):
    tool = of_node(ROOT / "ui", "openapi-typescript")

    said = ran(tool, FILE, "--output", tmp_path / "types.ts")

    assert "warn" not in said.lower()
    types = (tmp_path / "types.ts").read_text()
    assert [name for name in OPERATIONS if f"    {name}: {{" not in types] == []


@pytest.fixture(scope="module")
def client_package(tmp_path_factory):
    """A Python client, made without a warning."""
    folder = tmp_path_factory.mktemp("made")
    ran(
        *(BIN / "openapi-python-client", "generate", "--fail-on-warning", "--meta", "none"),
        *("--path", FILE, "--output-path", folder / "made_client"),
    )
    sys.path.insert(0, str(folder))
    yield folder / "made_client"
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def served(postgres):
    """The API on a socket."""
    postgres.create_database("clients")
    opened = Served(postgres.url("clients"))
    opened.start()
    yield opened
    opened.stop()
    postgres.drop_database("clients")


def test_a_python_client_has_every_operation(client_package):
    made = {file.stem for file in client_package.glob("api/*/*.py")}

    assert [name for name in OPERATIONS if name not in made] == []


def test_a_python_client_creates_reads_and_cancels_a_job(client_package, served):
    package = importlib.import_module(client_package.name)
    models = importlib.import_module(f"{client_package.name}.models")
    create, read, delete = [
        importlib.import_module(f"{client_package.name}.api.jobs.{name}")
        for name in ("create_job", "read_job", "delete_job")
    ]
    key = served.run(served.front.caller()).key
    target = models.FunctionTarget(type_="function", handler="reports:build")
    schedule = models.Schedule.from_dict({"trigger": {"type": "cron", "expr": "0 9 * * *"}})

    with package.AuthenticatedClient(base_url=served.url, token=key) as client:
        made = create.sync(client=client, body=models.NewJob(name="nightly", target=target, schedule=schedule))
        before = read.sync(made.job_id, client=client)
        delete.sync(made.job_id, client=client)
        after = read.sync(made.job_id, client=client)

    assert (before.name, before.status, before.target.handler) == ("nightly", "active", "reports:build")
    assert after.status == "cancelled"
