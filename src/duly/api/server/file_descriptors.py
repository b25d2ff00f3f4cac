"""File descriptors: how many this process may open, and how many of them are left for connections."""

from __future__ import annotations

import resource

# For the pools of database connections, the loop, listeners, logs and short-lived files.
RESERVED = 128
_ENOUGH = 65_536


def raise_limit() -> None:
    """Raise the soft limit to the hard one, or to what is enough for us.

    Only for a process that starts no programs of others: those inherit it, and some cannot have descriptors above 1,023.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def left_for_connections() -> int:
    """Return how many connections can be open while there is a reserve for all else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, (_ENOUGH if soft == resource.RLIM_INFINITY else soft) - RESERVED)
