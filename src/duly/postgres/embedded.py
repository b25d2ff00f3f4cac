"""A PostgreSQL of our own, for those who have none: started by us on one data folder, and stopped by us.

It can be reached only over a Unix socket in a private folder, and only by the account that started it, as a role without
special rights. It stops when the process that started it dies, in whatever way. Should it survive even so, the next start on
the same folder stops it and starts it anew rather than adopt it: then its settings are today's, and it has a parent again.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Self

from duly.postgres.account import account_for
from duly.postgres.binaries import Binaries, find_binaries
from duly.postgres.errors import DataFolderHeld, DataFolderRefused, ServerFailed
from duly.postgres.folder import DATABASE, ROLE, Folder, admit_callers, make_roles
from duly.postgres.processes import (
    POLL_SECONDS,
    PidFile,
    answers,
    command_of,
    is_alive,
    is_attached,
    lives_on,
    living_on,
    read_pid_file,
    wait_until,
)
from duly.postgres.settings import CLUSTER_NAME, memory_of_machine, server_settings
from duly.postgres.unix_socket import SOCKET, address, make_socket_folder, remove_socket_folder

Server = subprocess.Popen[bytes]
OnWait = Callable[[float, str], None]
"""A callback for each second of a long start: seconds passed, and the server's last message."""

_STOP_SECONDS = 8.0
_LOG_BYTES_MAX = 1_000_000
_LOG_LINES_SHOWN = 10


class Embedded:
    """One running server on one data folder."""

    def __init__(self, folder: Folder, programs: Binaries, settings: Mapping[str, str], lock: int) -> None:
        self.version = programs.version
        self._folder = folder
        self._programs = programs
        self._socket_folder = make_socket_folder(folder.pgdata, programs.account)
        self._settings = {**settings, "unix_socket_directories": self._socket_folder}
        self._lock = lock
        self._server: Server | None = None

    @property
    def url(self) -> str:
        """The address for the engine's role."""
        return address(self._folder.pgdata, self._socket_folder, role=ROLE, database=DATABASE)

    @property
    def pid(self) -> int:
        """The number of the server's first process."""
        assert self._server is not None
        return self._server.pid

    @property
    def is_running(self) -> bool:
        """Return whether the server lives."""
        return self._server is not None and self._server.poll() is None

    def revive(self, on_wait: OnWait | None = None) -> None:
        """Start the server if it does not live; returns when it takes connections, however long its recovery."""
        if not self.is_running:
            clear_away(self._folder.pgdata, self._folder.pgdata / self._socket_folder / SOCKET)
            make_roles(self._folder.pgdata, self._programs)
            self._server = serve(self._folder, self._programs, self._settings, on_wait)

    def stop(self) -> None:
        """Stop the server in good order; if it takes too long, at once, and it recovers at its next start."""
        if self._lock < 0:
            return
        if self._server is not None:
            end(self._server)
        remove_socket_folder(self._socket_folder)
        os.close(self._lock)
        self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(
    data: Path,
    *,
    binaries: Path | None = None,
    durable: bool = True,
    settings: Mapping[str, str] | None = None,
    on_wait: OnWait | None = None,
) -> Embedded:
    """Start a server on the folder `data`, created if it is new; call it from the main thread, before there is a loop.

    A server left over from a process that was killed is stopped first. Raises an `EmbeddedError` that names the remedy.
    """
    folder = Folder(data)
    lock = folder.lock()
    try:
        programs = make_ready(folder, binaries, durable=durable)
        room = shutil.disk_usage(folder.pgdata).free
        chosen = server_settings(durable=durable, memory=memory_of_machine(), room=room) | dict(settings or {})
        embedded = Embedded(folder, programs, chosen, lock)
        embedded.revive(on_wait)
    except BaseException:
        os.close(lock)
        raise
    return embedded


def attach(data: Path) -> str | None:
    """Return the address of the server that runs on the folder `data`; None when there is none, or none yet."""
    pgdata = Folder(data).pgdata
    try:
        found = read_pid_file(pgdata)
    except PermissionError as error:
        raise DataFolderRefused(f"{error}: run as the account that started the server") from error
    if found is None or found.status != "ready" or not lives_on(found.pid, pgdata):
        return None
    return address(pgdata, found.socket_folder, role=ROLE, database=DATABASE)


def make_ready(folder: Folder, binaries: Path | None, *, durable: bool) -> Binaries:
    """Bring the folder into a state in which a server can start on it, and give the programs for it."""
    folder.remove_leftovers()
    found = folder.major()
    programs = find_binaries(binaries, account_for(folder.pgdata))
    if found is None:
        folder.initialise(programs, durable=durable)
    else:
        folder.refuse_other_version(found, programs)
        admit_callers(folder.pgdata, programs.account)
    return programs


def clear_away(pgdata: Path, socket: Path) -> None:
    """Stop a server that outlived its starter, and remove pid files that PostgreSQL would mistake for a living one's."""
    pid_file = pgdata / "postmaster.pid"
    if not pid_file.exists():
        return
    stop_orphans(pgdata)
    found = read_pid_file(pgdata)
    # PostgreSQL itself sees through a file that names nobody, but not through the number of another process or an empty file.
    if found is None or is_alive(found.pid):
        refuse_if_in_use(pgdata, socket, found)
        socket.with_name(f"{SOCKET}.lock").unlink(missing_ok=True)
        pid_file.unlink(missing_ok=True)


def stop_orphans(pgdata: Path) -> None:
    """Stop the PostgreSQL processes on `pgdata`: by way of the first, if it lives; failing that, each of them at once."""
    found = read_pid_file(pgdata)
    if found and lives_on(found.pid, pgdata):
        refuse_if_not_ours(pgdata, found.pid)
        os.kill(found.pid, signal.SIGINT)
    if wait_until(lambda: not living_on(pgdata), _STOP_SECONDS):
        return
    for pid in living_on(pgdata):
        os.kill(pid, signal.SIGQUIT)
    if not wait_until(lambda: not living_on(pgdata), _STOP_SECONDS):
        raise DataFolderHeld(f"{pgdata} is in use by PostgreSQL processes that do not stop: {living_on(pgdata)}")


def refuse_if_not_ours(pgdata: Path, pid: int) -> None:
    """Refuse to stop a server that another has started on our folder."""
    command = command_of(pid)
    if f"cluster_name={CLUSTER_NAME}" not in command:
        raise DataFolderHeld(
            f"{pgdata} is in use by a PostgreSQL not started by Duly, process {pid} ({command}): stop it"
        )


def refuse_if_in_use(pgdata: Path, socket: Path, found: PidFile | None) -> None:
    """Refuse when a server answers on the socket or uses the shared memory, though we cannot see who."""
    if answers(socket) or (found and is_attached(found.shared_memory_id)):
        raise DataFolderHeld(f"{pgdata} is in use by a PostgreSQL in another container or host: stop it there")


def serve(folder: Folder, programs: Binaries, settings: Mapping[str, str], on_wait: OnWait | None) -> Server:
    """Start the server, and wait until it takes connections."""
    with open_log(folder.log) as log:
        begin = log.tell()
        server = programs.serve(settings, pgdata=folder.pgdata, log=log, parent=parent_to_die_with())
    try:
        wait_until_ready(server, folder, begin, on_wait)
    except BaseException:
        end(server)
        raise
    return server


def parent_to_die_with() -> int:
    """Name this process, or 0 where the kernel would take the end of a mere thread for its death."""
    is_main = threading.current_thread() is threading.main_thread()
    return os.getpid() if is_main and sys.platform == "linux" else 0


def open_log(path: Path) -> IO[bytes]:
    """Open the server's log at its end; one that has grown large is renamed first."""
    if path.exists() and path.stat().st_size > _LOG_BYTES_MAX:
        path.rename(path.with_suffix(".log.1"))
    log = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600), "ab")
    log.seek(0, os.SEEK_END)
    return log


def wait_until_ready(server: Server, folder: Folder, begin: int, on_wait: OnWait | None) -> None:
    """Wait until the server takes connections, for as long as it lives: a recovery takes its time."""
    started, notified_at = time.monotonic(), 0.0
    while not is_ready(server, folder.pgdata):
        if server.poll() is not None:
            words = "\n".join(last_lines(folder.log, begin))
            raise ServerFailed(f"PostgreSQL did not start on {folder.pgdata}; it said:\n{words}")
        waited = time.monotonic() - started
        if on_wait and waited - notified_at >= 1.0:
            notified_at = waited
            on_wait(waited, "".join(last_lines(folder.log, begin)[-1:]))
        time.sleep(POLL_SECONDS)


def is_ready(server: Server, pgdata: Path) -> bool:
    """Return whether the server has declared itself ready."""
    found = read_pid_file(pgdata)
    return found is not None and found.pid == server.pid and found.status == "ready"


def last_lines(log: Path, begin: int) -> list[str]:
    """Return the last lines of the log, none from before the byte `begin`."""
    with log.open("rb") as file:
        file.seek(max(begin, file.seek(0, os.SEEK_END) - 8192))
        return file.read().decode(errors="replace").splitlines()[-_LOG_LINES_SHOWN:]


def end(server: Server) -> None:
    """Stop the server: in good order, then at once, but never so that its processes are left behind."""
    for request in (signal.SIGINT, signal.SIGQUIT):
        server.send_signal(request)
        try:
            server.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        return
    raise ServerFailed(f"PostgreSQL, process {server.pid}, does not stop")
