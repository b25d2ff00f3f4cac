"""A primary and its synchronous standby, on two ports of this machine: nothing acknowledged is lost when the primary dies."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from duly.postgres import embedded
from duly.postgres.account import account_for
from duly.postgres.binaries import Binaries, find_binaries, opened
from tests.end_to_end.house import wait_until

# The processes are killed, and not the machine: what was handed to the kernel stays.
SETTINGS = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "shared_buffers": "64MB", "fsync": "off"}


class Pair:
    """Both servers, and the one address that leads to whichever takes writes."""

    def __init__(self, folder: Path, *, is_synchronous: bool = True) -> None:
        self._folder = folder
        self._is_synchronous = is_synchronous
        self._binaries = find_binaries(None, account_for(folder / "primary"))
        if not (self._binaries.folder / "pg_basebackup").exists():
            pytest.skip(f"needs pg_basebackup in {self._binaries.folder}")
        self.ports = {"primary": free_port(), "standby": free_port()}
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports.values())
        self.url = f"postgresql://postgres@{hosts}/duly?target_session_attrs=read-write"

    def start(self) -> None:
        """Make the primary, copy it, and let each commit wait for the copy."""
        self._make("primary")
        self._binaries.run("initdb", "--username=postgres", "--auth=trust", "--no-sync", "--locale=C",
                           "--encoding=UTF8", pgdata=self._folder / "primary")  # fmt: skip
        self._serve("primary")
        self._ask("primary", "create database duly", database="postgres")
        self.add_standby("standby")
        if self._is_synchronous:
            self._ask("primary", "alter system set synchronous_standby_names = '*'")
            self._ask("primary", "select pg_reload_conf()")
        state = "sync" if self._is_synchronous else "async"
        wait_until(lambda: self._ask("primary", f"select from pg_stat_replication where sync_state = '{state}'"), 20)

    def add_standby(self, name: str) -> None:
        """Start a server that follows the primary."""
        self.ports.setdefault(name, free_port())
        self._make(name)
        copy_of(self._binaries, self.ports["primary"], self._folder / name)
        self._serve(name)

    def url_of(self, name: str, database: str = "duly") -> str:
        """Give the address of one of the two."""
        return f"postgresql://postgres@127.0.0.1:{self.ports[name]}/{database}"

    def ask(self, name: str, query: str) -> list[tuple]:
        """Run one statement on one of the two."""
        return self._ask(name, query)

    def kill(self, name: str) -> None:
        """Kill a server with all its processes."""
        server = self._servers.pop(name)
        kill_all(server.pid)
        server.wait()

    def serve(self, name: str) -> None:
        """Start a server again."""
        self._serve(name)

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a server and all its processes."""
        pid = self._servers[name].pid
        for one in [pid, *children_of(pid)]:
            with suppress(ProcessLookupError):
                os.kill(one, number)

    def fail_over(self) -> None:
        """Kill the primary with all its processes, and promote the standby."""
        self.kill("primary")
        self._ask("standby", "select pg_promote()")

    def end(self) -> None:
        """Stop whatever runs."""
        for server in self._servers.values():
            embedded.end(server)

    def _make(self, name: str) -> None:
        (self._folder / name).mkdir(mode=0o700)
        os.chown(self._folder / name, self._binaries.account.uid, self._binaries.account.gid)

    def _serve(self, name: str) -> None:
        settings = SETTINGS | {"port": str(self.ports[name])}
        with (self._folder / f"{name}.log").open("ab") as log:
            parent = embedded.parent_to_die_with()
            server = self._binaries.serve(settings, pgdata=self._folder / name, log=log, parent=parent)
        self._servers[name] = server
        wait_until(lambda: embedded.is_ready(server, self._folder / name) or self._is_standby(name), 30, what=name)

    def _is_standby(self, name: str) -> bool:
        pid_file = self._folder / name / "postmaster.pid"
        return pid_file.exists() and "standby" in pid_file.read_text()

    def _ask(self, name: str, query: str, *, database: str = "duly") -> list[tuple]:
        with psycopg.connect(self.url_of(name, database), autocommit=True) as connection:
            done = connection.execute(query.encode())
            return done.fetchall() if done.description is not None else []


def copy_of(binaries: Binaries, port: int, pgdata: Path) -> None:
    """Copy a running server into an empty folder, so that it follows the original."""
    program = str(binaries.folder / "pg_basebackup")
    with opened(pgdata) as (descriptor, name):
        origin = ["--host=127.0.0.1", f"--port={port}", "--username=postgres"]
        command = [program, *origin, "-D", name, "-R", "--checkpoint=fast", "--no-sync"]
        done = binaries.account.run(command, inherit=[descriptor])
    assert done.returncode == 0, done.stderr


def kill_all(pid: int) -> None:
    """Kill a PostgreSQL server and its processes, the first one first, as a failing machine would."""
    for one in [pid, *children_of(pid)]:
        with suppress(ProcessLookupError):  # A backend may end by itself meanwhile.
            os.kill(one, signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    """Name the processes that a process has started and that live."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # It has ended meanwhile.
            if f"\nPPid:\t{pid}\n" in status.read_text():
                found.append(int(status.parent.name))
    return found


def free_port() -> int:
    """Find a port that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def a_pair(folder: Path, *, is_synchronous: bool = True) -> Iterator[Pair]:
    """Run both."""
    pair = Pair(folder, is_synchronous=is_synchronous)
    try:
        pair.start()
        yield pair
    finally:
        pair.end()
