"""The PostgreSQL of `duly up`: the embedded one, kept alive, or the one that was named."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from duly.cli.render.say import say
from duly.cli.render.screen import short_path
from duly.domain.errors import Refused
from duly.log import Log
from duly.postgres import embedded
from duly.postgres.account import OWN, account_for, name_of
from duly.postgres.embedded import Embedded
from duly.postgres.folder import Folder
from duly.settings import Settings, redacted


class Postgres:
    """A database to run on. `data` is the folder of the embedded one."""

    def __init__(
        self, url: str, data: Path | None = None, *, server: Embedded | None = None, durable: bool = True
    ) -> None:
        self.url = url
        self.data = data
        self._server = server
        self._durable = durable

    @property
    def words(self) -> str:
        """Say which it is."""
        if self._server is None or self.data is None:
            return f"at {redacted(self.url)}"
        return f"{self._server.version} embedded, data in {short_path(self.data / 'postgres')}"

    @property
    def shared_account(self) -> str | None:
        """Say which account runs it that runs other programs too, which may read the database; None: ours, or its own."""
        if self.data is None or os.geteuid() != 0:
            return None
        pgdata = self.data / "postgres"
        name = name_of(account_for(pgdata).uid)
        if name == OWN:
            return None
        moved = f" && chown -R {OWN}: {shlex.quote(short_path(pgdata))}" if self._durable else ""
        remedy = f"stop it, then useradd --system {OWN}{moved}"
        return f"{name}: its other programs may read the database; for an account of its own, {remedy}"

    def way_in(self, settings: Settings) -> str:
        """Return the command that opens it in psql, from this folder; without an address, which may hold a password."""
        if self.data is None:
            is_typed = settings.sources["database_url"].startswith("--")
            return "duly psql --database-url …" if is_typed else "duly psql"
        is_found = self.data == settings.data and not settings.sources["data"].startswith("--")
        return "duly psql" if is_found else f"duly psql --data {short_path(self.data)}"

    def revive(self, log: Log) -> None:
        """Start the embedded server again if it has died; it must be called on the main thread, whose end ends it."""
        if self._server is None or self.data is None or not _has_died(self._server.pid):
            return
        log.error("postgres_died", data=str(self.data))
        self._server.stop()
        self._server = embedded.start(self.data, durable=self._durable)
        assert self._server.url == self.url
        log.warning("postgres_restarted", data=str(self.data))

    def stop(self) -> None:
        """Stop the embedded server."""
        if self._server is not None:
            self._server.stop()


@contextmanager
def running(settings: Settings, *, ephemeral: bool) -> Iterator[Postgres]:
    """Give a database that runs, and stop it at the end if it is ours."""
    if settings.database_url:
        yield Postgres(settings.database_url)
        return
    with _folder(settings, ephemeral) as data:
        server = embedded.start(data, durable=not ephemeral, on_wait=_show_wait)
        postgres = Postgres(server.url, data, server=server, durable=not ephemeral)
        try:
            yield postgres
        finally:
            postgres.stop()


def reset(settings: Settings, *, is_sure: bool) -> None:
    """Remove the data of the embedded server, after asking. Raises Refused, DataFolderRefused, DataFolderHeld."""
    if settings.database_url:
        raise Refused(
            "--reset empties the embedded data folder, but DULY_DATABASE_URL names another database; unset it"
        )
    folder = Folder(settings.data)
    if folder.major() is None:  # It refuses what Duly has not made, before a question is asked.
        return
    lock = folder.lock()
    try:
        if not is_sure:
            click.confirm(
                f"Remove every job, run and log in {short_path(folder.pgdata)} for good?", abort=True, err=True
            )
        folder.remove_cluster()
        folder.log.unlink(missing_ok=True)
    finally:
        os.close(lock)


def refuse_if_held(settings: Settings) -> None:
    """Raise DataFolderHeld, saying by whom, when another process runs on the data folder."""
    if not settings.database_url and settings.data.exists():
        os.close(Folder(settings.data).lock())


@contextmanager
def _folder(settings: Settings, ephemeral: bool) -> Iterator[Path]:
    if not ephemeral:
        yield settings.data
        return
    data = Path(tempfile.mkdtemp(prefix="duly-"))
    try:
        yield data
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _has_died(pid: int) -> bool:
    """Look at our child without taking its status away from the task that waits for it."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _show_wait(seconds: float, words: str) -> None:
    say(f"  postgres    recovering, {seconds:.0f} s: {words}", err=True)
