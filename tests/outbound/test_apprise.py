"""Apprise in its child process: it calls what is allowed, and nothing else, whatever its URL asks."""

import subprocess
import sys

import pytest

from duly.outbound.apprise import Apprise
from duly.outbound.calling import DeadlinePassed
from duly.outbound.egress import Egress, read_allowance
from duly.outbound.errors import BadAnswer, NotAllowed
from tests.outbound.servers import answer, answering, serving

SCHEMES = ("json", "syslog")


async def delivered(url, *allow, seconds=15.0, schemes=SCHEMES):
    apprise = Apprise(schemes, Egress(allowances=tuple(map(read_allowance, allow))))
    await apprise.deliver(url.partition("://")[0], url, "title", "body", seconds=seconds)


async def test_service_is_called_at_an_allowed_address():
    async with answering(answer(200)) as (port, asked):
        await delivered(f"json://127.0.0.1:{port}/in", f"127.0.0.1:{port}")

    assert b'"title": "title"' in asked.requests[0]


async def test_address_that_is_not_allowed_is_not_called():
    async with answering(answer(200)) as (port, asked):
        with pytest.raises(NotAllowed) as refused:
            await delivered(f"json://127.0.0.1:{port}/hush")

    assert (asked.connections, "hush" in str(refused.value)) == (0, False)


async def test_scheme_that_is_not_named_is_not_allowed():
    with pytest.raises(NotAllowed, match="apprise_schemes"):
        await delivered("json://127.0.0.1/in", schemes=("slack",))


async def test_url_that_apprise_cannot_read_is_an_error():
    with pytest.raises(BadAnswer, match="cannot read"):
        await delivered("json://")


async def test_service_that_hangs_is_killed_at_the_deadline():
    async def hang(reader, writer):
        await reader.read()

    async with serving(hang) as port:
        with pytest.raises(DeadlinePassed):
            await delivered(f"json://127.0.0.1:{port}/in", f"127.0.0.1:{port}", seconds=2.0)


GUARDED = """
import os, pathlib, shutil, socket, subprocess, sys
from duly.outbound.apprise_process import Guard, _installed
from duly.outbound.egress import Egress
sys.addaudithook(guard := Guard())
try:
    {}
except PermissionError as error:
    print("refused", error)
"""


def guarded(statement, folder):
    """Run a statement in a process of its own, under a guard that has no egress rules yet."""
    return subprocess.run(
        [sys.executable, "-c", GUARDED.format(statement)], capture_output=True, text=True, cwd=folder, check=True
    ).stdout


@pytest.mark.parametrize(
    "statement",
    [
        "os.open('new', os.O_WRONLY | os.O_CREAT)",
        "os.open('kept', os.O_RDWR)",
        "os.open('kept', os.O_RDONLY | os.O_TRUNC)",
        "open('kept', 'r+')",
        "open('new', 'wb')",
        "pathlib.Path('new').touch()",
        "os.remove('kept')",
        "os.rename('kept', 'new')",
        "os.symlink('kept', 'new')",
        "os.truncate('kept', 0)",
        "os.chmod('kept', 0)",
        "os.mkdir('new')",
        "shutil.copy('kept', 'new')",
        "socket.socket().connect(('127.0.0.1', 9))",
        "socket.socket().bind(('127.0.0.1', 0))",
        "subprocess.run(['true'])",
        "os.system('true')",
        "os.fork()",
    ],
)
def test_guard_refuses_to_write_files_start_programs_and_call(tmp_path, statement):
    (tmp_path / "kept").write_text("kept")

    assert guarded(statement, tmp_path).startswith("refused")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("kept", "kept")]


@pytest.mark.parametrize("statement", ["os.open('kept', os.O_RDONLY)", "open('kept')", "import wave"])
def test_guard_lets_files_be_read(tmp_path, statement):
    (tmp_path / "kept").write_text("kept")

    assert guarded(statement, tmp_path) == ""


@pytest.mark.parametrize(("statement", "answer"), [("open('kept')", "refused"), ("import wave", "")])
def test_guard_lets_only_code_be_read_by_a_service(tmp_path, statement, answer):
    (tmp_path / "kept").write_text("kept")
    closed = f"guard.readable = _installed(); {statement}"

    assert guarded(closed, tmp_path).partition(" ")[0].strip() == answer


async def test_template_that_the_url_names_is_not_read_from_the_worker(tmp_path):
    (tmp_path / "kept").write_text('{"type": "message", "attachments": [{"contentType": "hush"}]}')
    async with answering(answer(200)) as (port, asked):
        url = f"workflows://127.0.0.1:{port}/{'a' * 32}/{'b' * 43}/?template={tmp_path}/kept"
        with pytest.raises(NotAllowed, match="a file") as refused:
            await delivered(url, f"127.0.0.1:{port}", schemes=("workflows",))

    assert (asked.connections, str(tmp_path) in str(refused.value)) == (0, False)


async def test_service_that_does_not_call_out_is_refused_even_if_its_scheme_is_allowed():
    with pytest.raises(NotAllowed):
        await delivered("syslog://")
