"""The local actor on the database: the account of this machine under which we run, and the name of the machine."""

from __future__ import annotations

import os
import pwd
import socket

from duly.domain.tenancy.audit import Actor, local_actor


def this_account() -> Actor:
    """Return the name of our account, or its number."""
    try:
        return local_actor(pwd.getpwuid(os.geteuid()).pw_name)
    except KeyError:
        return local_actor(str(os.geteuid()))


def this_host() -> str:
    """Return the name of this machine, for people."""
    return socket.gethostname()
