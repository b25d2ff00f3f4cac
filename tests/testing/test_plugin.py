"""The pytest plugin, as a project of its own sees it."""

import subprocess
import sys

import pytest

APP = """
from duly import App
app = App()

@app.handler
def tick() -> None: ...
"""
TEST = """
def test_it_ticks(duly_env):
    from app import tick
    tick.options(every="PT1H").submit_sync()
    duly_env.advance_sync("P1D")
    assert len(duly_env.runs(tick)) == 25

async def test_it_ticks_on_a_loop(duly_env):
    from app import tick
    await tick.options(every="PT1H").submit()
    assert len(await duly_env.advance("PT2H")) == 3
"""
SETTINGS = """
[pytest]
pythonpath = .
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""
OWN_APP = """
import pytest
from app import app

@pytest.fixture
def duly_app():
    return app
"""


@pytest.fixture
def project(tmp_path):
    """A user's project; gives what runs its tests."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "test_app.py").write_text(TEST)

    def tested(settings: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "pytest.ini").write_text(SETTINGS + settings)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin()]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    tested.folder = tmp_path  # type: ignore[attr-defined]
    return tested


def plugin() -> list[str]:
    """Name the plugin where the install is older than its entry point."""
    from importlib.metadata import entry_points

    return [] if entry_points(group="pytest11", name="duly") else ["-p", "duly.testing.plugin"]


def test_a_project_names_its_app_in_its_settings(project):
    done = project("duly_app = app:app")

    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_project_may_give_its_app_by_a_fixture(project):
    (project.folder / "conftest.py").write_text(OWN_APP)
    done = project("")

    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_plugin_explains_to_a_project_without_an_app_how_to_name_one(project):
    done = project("")

    assert "define a fixture `duly_app` that returns it, or set duly_app" in done.stdout
    assert done.returncode == 1


def test_the_plugin_costs_nothing_where_it_is_not_used():
    code = (
        "import sys, duly.testing.plugin; print([n for n in sys.modules if n.split('.')[0] in ('asyncpg', 'msgspec')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
