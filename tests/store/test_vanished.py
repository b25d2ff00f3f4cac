"""A server that vanishes without a word, as a machine that has lost its power: the connection to it is over in seconds."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
import pytest

from duly.postgres.clients import variables
from duly.store.connection.database import is_connection_lost
from duly.store.connection.hosts import VANISHED_SECONDS, Hosts

SLACK_SECONDS = 5.0  # between two questions of the system, and for a busy machine
NETWORK = f"10.213.{os.getpid() % 250}"
HERE, THERE = f"{NETWORK}.1", f"{NETWORK}.2"
LINK = f"duly{os.getpid()}"
# Leads from a network of its own to the server's socket, which is a file and knows no networks.
FORWARDER = """
import asyncio, sys

async def pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)

async def serve(reader, writer):
    to_server = await asyncio.open_unix_connection(sys.argv[1])
    await asyncio.gather(pump(reader, to_server[1]), pump(to_server[0], writer))

async def main():
    await asyncio.start_server(serve, "0.0.0.0", 5432)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""


class Machine:
    """Another machine, as far as the network knows."""

    def __init__(self, pid: int) -> None:
        self._inside = ["nsenter", f"--net=/proc/{pid}/ns/net", "ip"]

    def join(self) -> None:
        """Lay a cable to it."""
        pid = self._inside[1].split("/")[2]
        run("ip", "link", "add", LINK, "type", "veth", "peer", "name", "eth0", "netns", pid)
        run("ip", "address", "add", f"{HERE}/30", "dev", LINK)
        run("ip", "link", "set", LINK, "up")
        run(*self._inside, "address", "add", f"{THERE}/30", "dev", "eth0")
        run(*self._inside, "link", "set", "eth0", "up")

    def vanish(self) -> None:
        """Answer nothing any more. Its address stays known, so nothing is refused either."""
        link = run(*self._inside, "-oneline", "link", "show", "eth0").split("link/ether ")[1].split()[0]
        run("ip", "neighbour", "replace", THERE, "lladdr", link, "nud", "permanent", "dev", LINK)
        run(*self._inside, "address", "del", f"{THERE}/30", "dev", "eth0")


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@contextmanager
def a_machine(socket: str) -> Iterator[Machine]:
    """Start a machine that has a PostgreSQL, which is ours."""
    if os.geteuid() != 0 or any(shutil.which(name) is None for name in ("unshare", "nsenter", "ip")):
        pytest.skip("needs root, unshare, nsenter and ip, to make a network namespace")
    forwarder = subprocess.Popen(
        ["unshare", "--net", sys.executable, "-c", FORWARDER, socket], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert forwarder.stdout is not None
        assert forwarder.stdout.readline() == b"ready\n"
        machine = Machine(forwarder.pid)
        machine.join()
        yield machine
    finally:
        subprocess.run(["ip", "link", "delete", LINK], check=False, capture_output=True)
        forwarder.kill()
        forwarder.communicate()


async def test_statement_ends_soon_after_its_server_has_vanished(postgres):
    named = variables(postgres.url(), {})
    with a_machine(f"{named['PGHOST']}/.s.PGSQL.{named['PGPORT']}") as machine:
        url = f"postgresql://{named['PGUSER']}@{THERE}:5432/{named['PGDATABASE']}"
        connection = await Hosts(url).connect(timeout=5.0)
        asked = asyncio.create_task(connection.fetch("select pg_sleep(120)"))
        await asyncio.sleep(0.5)
        machine.vanish()
        began = time.monotonic()
        with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)) as ended:
            await asyncio.wait_for(asked, 60)

    assert is_connection_lost(ended.value)
    assert not isinstance(ended.value, TimeoutError) or "110" in str(ended.value)
    assert time.monotonic() - began < VANISHED_SECONDS + SLACK_SECONDS
