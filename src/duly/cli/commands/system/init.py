"""`duly init`: an app, its test and a configuration, to start from. It never overwrites."""

from __future__ import annotations

from pathlib import Path

import click

from duly.cli.render.say import say
from duly.domain.errors import Refused

_APP = '''\
"""Handlers: plain functions that Duly calls when they are due. `duly up` runs them; `duly worker app:app --reload` too."""

from duly import App, Run

app = App()


@app.handler
def add(a: int, b: int) -> int:
    return a + b


@app.handler
async def greet(run: Run, name: str = "world") -> str:
    run.log.info("greeting", name=name, attempt=run.attempt)
    return f"Hello, {name}!"
'''

_TEST = '''\
"""A test needs no server that runs: it gets one of its own, with a clock that it moves.

`python -m pip install pytest`, once, in the environment of Duly; `python -m pytest` runs it.
"""

from app import add, app, greet

from duly.testing import environment


def test_a_handler_is_a_plain_function():
    assert add(2, 3) == 5


def test_what_is_submitted_runs():
    with environment(app) as env:
        greet.submit_sync(name="Ada")
        [fire] = env.run_due_sync()

    assert fire.result == "Hello, Ada!"


def test_a_schedule_fires_every_minute():
    with environment(app) as env:
        add.options(every="PT1M").submit_sync(a=2, b=3)
        env.advance_sync("PT10M")

    assert [fire.result for fire in env.fires] == [5] * 11  # At once, and after each minute.
'''

_CONFIG = """\
# Settings of Duly; `duly config` lists them all, with where each came from.

app = "app:app"
# port = 7300
# database_url = "postgresql://user@host/database"    # instead of the embedded PostgreSQL in .duly
"""

_FILES = {"app.py": _APP, "test_app.py": _TEST, "duly.toml": _CONFIG}

_NEXT = """\
next:
  duly up                                     starts everything; leave it running
  duly run greet name=Ada --wait              runs a handler and shows its log and result
  duly submit add a=2 b=3 --every PT1M        runs one every minute
  python -m pip install pytest                what the test needs, and Duly does not bring along
  python -m pytest                            runs the test"""


@click.command
@click.argument("folder", default=".", type=click.Path(path_type=Path, file_okay=False))
def init(folder: Path) -> None:
    """Write an app, its test and a configuration into FOLDER. Nothing that exists is overwritten."""
    taken = [name for name in _FILES if (folder / name).exists()]
    if taken:
        raise Refused(f"{', '.join(taken)} exist already in {folder}; choose another folder: duly init NEW_FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in _FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
        say(f"wrote {folder / name}")
    say(_NEXT if folder == Path() else f"cd {folder}\n{_NEXT}")
