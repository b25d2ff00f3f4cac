"""A pgbouncer in transaction mode before a scratch server."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.postgres import Postgres

PROGRAM = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
PORT = 6432
SETTINGS = """
[databases]
* = host={host} port=5432 user=duly
[pgbouncer]
listen_port = {port}
unix_socket_dir = {folder}
auth_type = any
pool_mode = transaction
default_pool_size = 4
server_round_robin = 1
logfile = {folder}/pgbouncer.log
"""


@contextmanager
def pgbouncer(postgres: Postgres) -> Iterator[str]:
    """Run it on few connections, handed out in turn. Gives the folder of its socket."""
    [host] = parse_qs(urlsplit(postgres.url()).query)["host"]
    folder = Path(tempfile.mkdtemp(prefix="pgbouncer"))
    reached = os.open(host, os.O_RDONLY | os.O_DIRECTORY)
    # It may run under an account that cannot enter the folders above the server's, so it is handed the open folder.
    known_as = f"/proc/self/fd/{reached}" if sys.platform == "linux" else host
    (folder / "pgbouncer.ini").write_text(SETTINGS.format(host=known_as, port=PORT, folder=folder))
    command = [PROGRAM, "--quiet", str(folder / "pgbouncer.ini")]
    process: subprocess.Popen[bytes] = subprocess.Popen(
        command, pass_fds=(reached,), cwd="/", **run_as_another(postgres, Path(host), folder)
    )
    try:
        wait_for(folder / f".s.PGSQL.{PORT}", process)
        yield str(folder)
    finally:
        process.terminate()
        process.wait(10)
        os.close(reached)
        shutil.rmtree(folder)


def run_as_another(postgres: Postgres, pgdata: Path, folder: Path) -> dict[str, Any]:
    """Where we are root, which pgbouncer refuses to be, choose the server's own account, and let the server admit it."""
    if os.geteuid() != 0:
        return {}
    owner = pgdata.stat()
    with (pgdata / "pg_ident.conf").open("a") as admitted:
        admitted.write(f'duly "{pwd.getpwuid(owner.st_uid).pw_name}" duly\n')
    os.kill(postgres.server.pid, signal.SIGHUP)
    os.chown(folder, owner.st_uid, owner.st_gid)
    folder.chmod(0o755)
    return {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}


def wait_for(socket: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until it listens."""
    deadline = time.monotonic() + 10
    while not socket.exists():
        assert process.poll() is None, "pgbouncer did not start"
        assert time.monotonic() < deadline, "pgbouncer does not listen"
        time.sleep(0.01)
