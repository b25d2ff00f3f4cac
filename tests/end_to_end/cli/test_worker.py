"""`duly worker` and `duly init` in other terminals."""

import json
import signal
import subprocess
import sys

import pytest

from tests.cli.processes import duly, environment, running

SHOUT = """
from duly import App

app = App()


@app.handler(queue="far")
def shout(word: str) -> str:
    return word.upper()
"""


def test_a_worker_in_another_terminal_finds_the_up_of_this_folder(up):
    (up.folder / "other.py").write_text(SHOUT)
    with running("worker", "other:app", cwd=up.folder) as process:
        assert "serves default, far with shout" in process.wait_for_line("worker ")
        assert process.wait_for_line("it sends webhooks to this machine, too, as the `duly up` of this folder does")
        said = up.duly("run", "shout", "word=hey", "--queue", "far", "--app", "other:app", "--wait")
        assert said.stdout == '"HEY"\n'
        assert process.interrupt() < 10
    assert process.process.returncode == 0
    assert not [row for row in json.loads(up.duly("workers", "--json").stdout) if "shout" in row["handlers"]]


SPLITTING = """
from duly import App, Retry

app = App()


@app.handler(queue="split")
def part() -> None: ...


@app.handler(queue="split", retry=Retry(max_attempts=1))
def in_thread() -> str:
    return str(part.submit_sync().job_id)


@app.handler(queue="split", retry=Retry(max_attempts=1), timeout="PT30S")
def in_child() -> str:
    return str(part.submit_sync().job_id)
"""


def test_handler_submissions_use_the_database_of_the_worker_command_line(up, tmp_path):
    for folder in (up.folder, tmp_path):
        (folder / "splitting.py").write_text(SPLITTING)
    typed = ("worker", "splitting:app", "--data", str(up.folder / ".duly"))
    with running(*typed, cwd=tmp_path, DULY_URL="http://127.0.0.1:9") as process:
        process.wait_for_line("with in_child, in_thread, part")
        for handler in ("in_thread", "in_child"):
            said = up.duly("run", handler, "--app", "splitting:app", "--wait")
            assert said.returncode == 0, said.stderr
            assert up.duly("runs", "show", json.loads(said.stdout)).returncode == 0
        assert process.interrupt() < 10


def test_worker_freezes_imported_objects_for_the_garbage_collector(up):
    (up.folder / "spared.py").write_text(
        "import gc\nfrom duly import App\napp = App()\n\n\n@app.handler(queue='spared')\n"
        "async def spared() -> bool:\n    return gc.get_freeze_count() > 10_000\n"
    )
    with running("worker", "spared:app", cwd=up.folder) as process:
        process.wait_for_line("with spared")
        said = up.duly("run", "spared", "--queue", "spared", "--app", "spared:app", "--wait")
        assert said.stdout == "true\n"
        assert process.interrupt() < 10


STUBBORN = """
import asyncio, contextlib, time

from duly import App

app = App()


@app.handler(queue="stubborn")
def in_thread() -> None:
    print("begun", flush=True)
    time.sleep(600)


@app.handler(queue="stubborn")
async def on_loop() -> None:
    print("begun", flush=True)
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(600)


@app.handler(queue="stubborn")
async def holds_the_loop() -> None:
    print("begun", flush=True)
    time.sleep(600)


@app.handler(queue="stubborn")
async def in_a_thread_of_its_own() -> None:
    print("begun", flush=True)
    await asyncio.to_thread(time.sleep, 600)
"""


@pytest.mark.parametrize("handler", ["in_thread", "on_loop", "holds_the_loop", "in_a_thread_of_its_own"])
def test_a_worker_that_is_stopped_ends_though_its_handler_does_not(up, handler):
    """It would go on without a lease, beside whoever runs it again."""
    (up.folder / "stubborn.py").write_text(STUBBORN)
    with running("worker", "stubborn:app", "--grace", "PT0.5S", cwd=up.folder) as process:
        process.wait_for_line("with ")
        up.duly("submit", handler, "--queue", "stubborn", "--app", "stubborn:app")
        process.wait_for_line("begun")
        assert process.interrupt(signal.SIGTERM) < 20
    assert process.process.returncode == 0, process.text


def test_reload_starts_again_when_the_source_changes_and_survives_a_mistake(up):
    source = up.folder / "fresh.py"
    text = "from duly import App\napp = App()\n\n\n@app.handler\ndef {name}() -> str:\n    return '{name}'\n"
    source.write_text(text.format(name="first"))
    with running("worker", "fresh:app", "--reload", cwd=up.folder) as process:
        process.wait_for_line("with first")
        source.write_text("this is no python")
        process.wait_for_line("fresh:app cannot be imported: SyntaxError")
        source.write_text(text.format(name="second"))
        process.wait_for_line("with second")
        assert up.duly("run", "second", "--app", "fresh:app", "--wait").stdout == '"second"\n'
        assert process.interrupt() < 10


def test_worker_reports_an_invalid_app_in_one_sentence(up):
    (up.folder / "empty.py").write_text("from duly import App\napp = App()\n")
    for path, words in [
        ("nowhere:app", "there is no module 'nowhere'"),
        ("app:nothing", "has no app named 'nothing'"),
        ("app", "module:name"),
        ("empty:app", "has no handler"),
    ]:
        said = up.duly("worker", path)
        assert said.returncode == 1, said
        assert words in said.stderr
        assert len(said.stderr.splitlines()) == 1


def test_worker_without_an_app_explains_how_to_name_an_app(tmp_path):
    said = duly("worker", cwd=tmp_path)

    assert said.returncode == 2
    assert "duly worker app:app" in said.stderr


def test_init_writes_a_project_that_runs_and_never_overwrites_it(tmp_path):
    said = duly("init", "new", cwd=tmp_path)
    assert said.returncode == 0
    assert "python -m pip install pytest " in said.stdout, "an installed Duly does not bring it along"
    folder = tmp_path / "new"
    assert sorted(path.name for path in folder.iterdir()) == ["app.py", "duly.toml", "test_app.py"]
    assert 'app = "app:app"' in (folder / "duly.toml").read_text()

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"]
    tested = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=60)
    assert tested.returncode == 0, tested.stdout

    (folder / "app.py").write_text("mine")
    again = duly("init", "new", cwd=tmp_path)
    assert again.returncode == 1
    assert "app.py" in again.stderr
    assert (folder / "app.py").read_text() == "mine"


def test_a_scheduler_of_its_own_shares_the_shards(up):
    with running("scheduler", "--name", "second", cwd=up.folder) as process:
        process.wait_for_line("scheduler second runs")
        assert process.interrupt() < 10
    assert process.process.returncode == 0
