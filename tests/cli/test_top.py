"""`duly top`: one screen of the installation, over HTTP and locally, that renews itself and ends cleanly."""

import fcntl
import io
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import termios
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest
from rich.console import Console

from duly.cli.render.top import Look, Shown, screen
from duly.wire.figures import Overview, Point
from duly.wire.queues import Queue, Worker
from tests.builders import RNG
from tests.cli.processes import DULY, environment, inside, wait_for

AT = datetime(2026, 11, 2, 9, tzinfo=UTC)
ALT_SCREEN_LEFT = "\x1b[?1049l"


def a_look(*, queues: int = 1, workers: int = 1, name: str = "mail") -> Look:
    point = Point(AT, 120, 100, 20, 5, 1, 0, 0, 0, 0.8, 0.003, 0.012, 0.053, 0.1, 0.2, 0.3)
    overview = Overview(AT, 0.0, None, 12.5, 20, 7, False, 1, False, [], [])
    return Look(
        overview=overview,
        recent=point,
        queues=[Queue(f"{name}{n}", 7, 3.0, 1, 10, False, 60.0, False, 1, []) for n in range(queues)],
        workers=[
            Worker(RNG.uuid(), f"{name}{n}", "0", None, ["mail"], [], [], 10, {}, AT, 14.0, 2, False, None, [])
            for n in range(workers)
        ],
        system=None,
    )


def shown(look: Look | None, *, width: int = 80, height: int | None = 24, error: str | None = None) -> list[str]:
    written = io.StringIO()
    console = Console(file=written, width=width, highlight=False)
    console.print(screen(Shown("http://duly.example", look, error, AT if error else None), width, height))
    return written.getvalue().splitlines()


def test_figures_queues_and_workers_fit_eighty_columns():
    lines = shown(a_look())

    assert max(map(len, lines)) <= 80
    assert any("12.5/s" in line for line in lines)
    assert any("p50 3 ms" in line and "p95 12 ms" in line and "p99 53 ms" in line for line in lines)
    assert any("mail0" in line and "7" in line for line in lines)


@pytest.mark.parametrize("height", [10, 24, 50])
def test_many_queues_and_workers_stay_within_the_terminal_and_are_counted(height):
    lines = shown(a_look(queues=40, workers=40), height=height)

    assert len(lines) <= max(height, 17)
    assert sum("more" in line for line in lines) == 2


def test_names_from_outside_cannot_move_the_cursor():
    assert "\x1b" not in "\n".join(shown(a_look(name="mail\x1b[2J")))


def test_server_that_does_not_answer_is_shown_above_the_last_look():
    lines = shown(a_look(), error="connection refused")

    assert "no answer since 2026-11-02 09:00:00Z" in lines[1]
    assert any("mail0" in line for line in lines)


def test_one_look_locally_and_over_http(local, remote):
    found: dict[str, object] = {}
    for duly in (local, remote):
        looked = duly("top")
        assert looked.returncode == 0, looked.stderr
        assert "start delay" in looked.stdout
        found = json.loads(duly("top", "--json", "--once").stdout)
        assert {"runs_per_second", "start_delay_seconds", "queues", "workers", "schedulers", "findings"} <= found.keys()
    assert found["shards_held"] == 64


def test_key_of_a_tenant_shows_what_it_may(remote, up, tmp_path):
    assert remote("tenants", "create", "acme").returncode == 0
    created = remote("keys", "create", "--tenant", "acme", "--scope", "jobs:read", "--name", "reader", "--json")
    key = json.loads(created.stdout)["key"]

    looked = inside("top", "--json", "--once", cwd=tmp_path, DULY_URL=up.address, DULY_API_KEY=key)

    assert looked.returncode == 0, looked.stderr
    assert json.loads(looked.stdout)["findings"] is None


def test_wrong_key_is_refused(up, tmp_path):
    refused = inside("top", cwd=tmp_path, DULY_URL=up.address, DULY_API_KEY="duly_wrong")

    assert refused.returncode == 1
    assert "key" in refused.stderr


@contextmanager
def a_terminal(*arguments, cwd, **more):
    """Run a command on a terminal of 80 columns and 24 lines. Gives the process, the terminal, and what was written."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [*DULY, *arguments]
    process = subprocess.Popen(
        command,
        cwd=cwd,
        stdin=its,
        stdout=its,
        stderr=its,
        env=environment(TERM="xterm", **more),
        start_new_session=True,
    )
    written: list[str] = []

    def read() -> None:
        try:
            while chunk := os.read(ours, 65_536):
                written.append(chunk.decode(errors="replace"))
        except OSError:
            pass

    threading.Thread(target=read, daemon=True).start()
    try:
        yield process, ours, its, written
    finally:
        process.kill()
        process.wait()
        os.close(its)


@pytest.mark.parametrize("way_out", ["q", "ctrl-c"])
def test_screen_renews_itself_and_leaves_the_terminal_as_it_was(way_out, up, tmp_path):
    key = (up.folder / ".duly" / "api-key").read_text().strip()
    where = {"DULY_URL": up.address, "DULY_API_KEY": key}
    with a_terminal("top", "--interval", "0.5", cwd=tmp_path, **where) as (process, ours, its, written):
        before = termios.tcgetattr(its)
        wait_for(lambda: "".join(written).count("start delay") >= 2)
        assert termios.tcgetattr(its) != before

        if way_out == "q":
            os.write(ours, b"q")
        else:
            process.send_signal(signal.SIGINT)

        assert process.wait(10) == (0 if way_out == "q" else 130)
        wait_for(lambda: ALT_SCREEN_LEFT in "".join(written))
        assert "Traceback" not in "".join(written)
        assert termios.tcgetattr(its) == before


def test_server_that_goes_away_and_comes_back_is_seen(up, tmp_path):
    key = (up.folder / ".duly" / "api-key").read_text().strip()
    door = Door(int(urlsplit(up.address).port or 0))
    where = {"DULY_URL": f"http://127.0.0.1:{door.port}", "DULY_API_KEY": key}
    command = [*DULY, "top", "--json", "--interval", "0.5"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(**where), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            door.open()
            assert "queues" in json.loads(process.stdout.readline())
            door.shut()
            while "error" not in json.loads(process.stdout.readline()):
                pass
            door.open()
            while "queues" not in json.loads(process.stdout.readline()):
                pass
        finally:
            process.terminate()
            door.shut()


class Door:
    """A way to a port, which can be shut: then nobody answers, and who had come through is cut off."""

    def __init__(self, behind: int) -> None:
        self._behind = behind
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self._held: list[socket.socket] = []

    def open(self) -> None:
        listener = socket.create_server(("127.0.0.1", self.port))
        self._held.append(listener)
        threading.Thread(target=self._let_in, args=[listener], daemon=True).start()

    def shut(self) -> None:
        for held in self._held:
            with suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)
            held.close()
        self._held.clear()

    def _let_in(self, listener: socket.socket) -> None:
        try:
            while True:
                outer, _ = listener.accept()
                inner = socket.create_connection(("127.0.0.1", self._behind))
                self._held += [outer, inner]
                for source, sink in ((outer, inner), (inner, outer)):
                    threading.Thread(target=self._pass_on, args=[source, sink], daemon=True).start()
        except OSError:
            pass

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                sink.sendall(data)
        except OSError:
            pass
