"""One `duly up` on a fresh app, shared by the tests that only talk to it, and the two ways to run a command."""

import pytest

from tests.cli.processes import Up, duly, inside, running

# Handlers beside those that `duly init` writes.
MORE_HANDLERS = """

@app.handler
def fail(reason: str) -> None:
    raise NonRetryable(reason)


@app.handler(queue="mail")
async def send(to: str) -> str:
    return to


@app.handler
async def wait(seconds: int) -> None:
    await asyncio.sleep(seconds)
"""


@pytest.fixture(scope="session")
def project(tmp_path_factory):
    """A folder as `duly init` writes it, with a few handlers more."""
    folder = tmp_path_factory.mktemp("project")
    assert duly("init", cwd=folder).returncode == 0
    app = (folder / "app.py").read_text().replace("import App, Run", "import App, NonRetryable, Run")
    (folder / "app.py").write_text("import asyncio\n" + app + MORE_HANDLERS)
    return folder


@pytest.fixture(scope="session")
def up(project):
    """Everything, running on that folder without the demo."""
    with running("up", "--port", "0", "--no-demo", cwd=project) as process:
        yield Up(process, project)


@pytest.fixture
def local(database_url, tmp_path):
    """Run one command on a database."""
    return lambda *arguments, **settings: inside(*arguments, "--database-url", database_url, cwd=tmp_path, **settings)


@pytest.fixture
def remote(up, tmp_path):
    """Run one command over HTTP, from a folder in which nothing runs."""
    key = (up.folder / ".duly" / "api-key").read_text().strip()
    return lambda *arguments: inside(*arguments, cwd=tmp_path, DULY_URL=up.address, DULY_API_KEY=key)
