"""Become PostgreSQL: drop to its account, ask to be stopped when the parent dies, and replace this program by it.

Run as a script of its own, because all of this has to happen between fork and exec, where a process with threads may not
run Python: `launcher.py PARENT UID GID PROGRAM ARGUMENT…`. PARENT is 0 when the server may outlive it.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(parent: int, uid: int, gid: int, command: list[str]) -> None:
    """Turn this process into `command`; returns only by dying."""
    if uid != os.geteuid():
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if parent:
        # After the change of account, which clears it. A fast shutdown: PostgreSQL closes its files in good order.
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != parent:
            sys.exit("the process that started PostgreSQL has died")
    os.execv(command[0], command)  # noqa: S606 - becoming another program is the purpose


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
