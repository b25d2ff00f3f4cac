"""This machine: the account under which we run, its name, and the disk of a database server that runs here."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
from datetime import datetime, timedelta
from pathlib import Path

from duly.domain.diagnosis.doctor import Disk
from duly.domain.tenancy.audit import Actor, local_actor

_START_DIFFERS_MAX = timedelta(minutes=1)  # the server writes its file at another moment than it tells


def this_account() -> Actor:
    """Return the name of our account, or its number."""
    try:
        return local_actor(pwd.getpwuid(os.geteuid()).pw_name)
    except KeyError:
        return local_actor(str(os.geteuid()))


def this_host() -> str:
    """Return the name of this machine, for people."""
    return socket.gethostname()


def disk_of(pid: int, started_at: datetime) -> Disk | None:
    """Return the fuller disk of a server's data and its write-ahead log, by one of its processes; None where it runs elsewhere.

    A process works in the server's folder. One of that number here may be another's: the server writes down its start.
    """
    try:
        folder = Path(f"/proc/{pid}/cwd").resolve(strict=True)
        written = Path(folder, "postmaster.pid").read_text(encoding="utf-8").splitlines()[2]
        if abs(started_at.timestamp() - int(written)) > _START_DIFFERS_MAX.total_seconds():
            return None
        disks = [(one, shutil.disk_usage(one)) for one in (folder, Path(folder, "pg_wal").resolve())]
    except (OSError, ValueError, IndexError):
        return None
    fuller, usage = min(disks, key=lambda each: each[1].free / max(1, each[1].total))
    return Disk(str(fuller), usage.free, usage.total)
