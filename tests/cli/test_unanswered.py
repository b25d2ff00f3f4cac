"""Commands that get no answer say so soon, say what may have been done, and advise only what they can do."""

import signal
import socket
import subprocess
import threading
import time
from contextlib import contextmanager

import pytest

from duly.cli import client as connecting
from tests.cli.processes import DULY, PATIENCE_SECONDS, environment, inside

KEY = "duly_aaaaaaaaaaaa_" + "b" * 43
A_RUN = "00000000-0000-4000-8000-000000000000"


@contextmanager
def a_silent_server(*, hangs_up: bool):
    """Take requests in and answer none: hang up on each, or keep it waiting. Gives the URL, and an event of the first."""
    heard, kept = threading.Event(), []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                kept.append(connection)
                connection.recv(65_536)
                heard.set()
                if hangs_up:
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", heard
        listener.shutdown(socket.SHUT_RDWR)
    for connection in kept:
        connection.close()


def test_read_from_an_address_without_a_listener_fails_fast_with_a_remedy(tmp_path, unused_tcp_port):
    began = time.monotonic()

    said = inside("jobs", cwd=tmp_path, DULY_URL=f"http://127.0.0.1:{unused_tcp_port}", DULY_API_KEY=KEY)

    assert time.monotonic() - began < 5.0
    assert said.returncode == 3
    assert f"No answer from http://127.0.0.1:{unused_tcp_port}: connection refused" in said.stderr
    assert "See that DULY_URL is right" in said.stderr


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (("dead", "replay", A_RUN), "look with `duly audit`"),
        (("pause", "--all"), "look with `duly audit`"),
        (("submit", "greet", "--key", "mine"), "retry with --key mine"),
        (("runs", "rerun", A_RUN), "retry with --key "),
    ],
)
def test_a_key_is_advised_only_where_a_flag_takes_one(tmp_path, monkeypatch, command, advice):
    monkeypatch.setattr(connecting, "_DEADLINE_SECONDS", 0.2)

    with a_silent_server(hangs_up=True) as (url, _):
        said = inside(*command, cwd=tmp_path, DULY_URL=url, DULY_API_KEY=KEY)

    assert said.returncode == 3
    assert "may or may not have been done" in said.stderr
    assert advice in said.stderr
    assert "with the key" not in said.stderr


@pytest.mark.parametrize(
    ("command", "is_write"), [(("pause", "--all"), True), (("submit", "greet"), True), (("jobs",), False)]
)
def test_interrupted_write_reports_an_unknown_outcome(tmp_path, command, is_write):
    with a_silent_server(hangs_up=False) as (url, heard):
        settings = environment(DULY_URL=url, DULY_API_KEY=KEY)
        process = subprocess.Popen(
            [*DULY, *command], cwd=tmp_path, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert heard.wait(PATIENCE_SECONDS)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)

    assert (process.returncode, stdout) == (130, "")
    assert ("may or may not have been done" in stderr) == is_write
    assert ("`duly audit`" in stderr) == is_write
