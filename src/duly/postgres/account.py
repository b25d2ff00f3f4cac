"""The account of the embedded PostgreSQL: ours, or as root, which it refuses, the unprivileged account that owns its data."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from duly.postgres.errors import DataFolderRefused, EmbeddedError

OWN = "duly"  # the account that is for the embedded server alone, where there is one
_UNPRIVILEGED = (OWN, "postgres", "nobody")
# Nothing else of our environment is passed on: it may hold secrets, and `PG…` variables would change what runs.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


@dataclass(frozen=True, slots=True)
class Account:
    """An account of the operating system."""

    uid: int
    gid: int

    @property
    def is_ours(self) -> bool:
        """Return whether it is the one we run under."""
        return self.uid == os.geteuid()

    def run(
        self, command: Sequence[str], *, stdin: str = "", pgdata: str = "", inherit: Sequence[int] = ()
    ) -> subprocess.CompletedProcess[str]:
        """Run `command` as this account to its end. Raises PermissionError when it cannot reach the program."""
        return subprocess.run(
            command,
            input=stdin,
            encoding="utf-8",
            errors="replace",
            capture_output=True,
            check=False,
            cwd="/",
            env=ENVIRONMENT | {"PGDATA": pgdata},
            pass_fds=inherit,
            user=None if self.is_ours else self.uid,
            group=None if self.is_ours else self.gid,
            extra_groups=None if self.is_ours else [],
        )


def account_for(pgdata: Path) -> Account:
    """Choose the account of the server on `pgdata`, which need not exist yet."""
    if not pgdata.exists():
        return ourselves() if os.geteuid() != 0 else unprivileged()
    owner = pgdata.stat()
    if owner.st_uid == 0:
        raise DataFolderRefused(
            f"{pgdata} belongs to root, and PostgreSQL refuses to run as root: give it to another account, "
            f"as in `chown -R postgres: {pgdata}`"
        )
    if os.geteuid() not in (0, owner.st_uid):
        raise DataFolderRefused(f"{pgdata} belongs to {name_of(owner.st_uid)}: run as that account or as root")
    return Account(owner.st_uid, owner.st_gid)


def ourselves() -> Account:
    """Return the account we run under."""
    return Account(os.geteuid(), os.getegid())


def unprivileged() -> Account:
    """Find an account to run under instead of root."""
    for name in _UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise EmbeddedError(
        f"PostgreSQL refuses to run as root, and there is no account {', '.join(_UNPRIVILEGED[:-1])} or {_UNPRIVILEGED[-1]};"
        f" add one: useradd --system {OWN}"
    )


def name_of(uid: int) -> str:
    """Return the name of the account with this number. Both initdb and peer authentication need one."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        raise EmbeddedError(
            f"uid {uid} has no user name, which PostgreSQL needs: add it to /etc/passwd, "
            "or set DULY_DATABASE_URL to use a PostgreSQL that runs elsewhere"
        ) from None
