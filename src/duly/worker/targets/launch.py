"""The process between a worker and what it starts.

Run as `python -I -S launch.py CONTROL VARIABLES FILE UID GID TREE N [LAST …] PROGRAM …`. It starts the program as the given user
in a session of its own, waits for it, and lets nothing outlive it. Orphans of the program become children of this process,
whatever they did to leave it, so it can find them all. When the worker hangs up, by choice or because it died, everything is
killed. N words name a last command, which runs when all else is over. The program's variables come through a file, and not
through our own environment, which the interpreter reads and adds to.

It speaks lines of JSON over CONTROL: `{"pid": …}` once the program is started, whatever comes on STATUS_FD, and at the end
`{"status": …}` as `wait` gave it. It imports nothing of ours and next to nothing else, so that it starts quickly.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

FILE_FD = 10  # Where the program finds what the worker has written for it alone.
STATUS_FD = 11  # Where a sandbox may say how it gets on.
_FREE_FD = 20
_SUBREAPER = 36
_NOT_STARTED = 127
_END_SECONDS = 5.0
_LAST_SECONDS = 20.0


def main(
    control: int, variables: int, file: int, user: tuple[int, int], tree: bool, last: list[str], program: list[str]
) -> None:
    """Start the program, see it through, and say how it ended."""
    close_all_but({0, 1, 2, control, variables, file})
    os.set_inheritable(control, False)
    environment = variables_in(variables)
    woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # The worker says when it is over.
    if tree and ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    status, said = os.pipe()
    child = os.fork()
    if child == 0:
        become(program, environment, file, said, *user)
    let_go([said, *([file] if file >= 0 else [])])
    say(control, b'{"pid": %d}\n' % child)
    ended = supervise(child, control, status, woken)
    if tree:
        end_all()
    elif ended is None:
        os.killpg(child, signal.SIGKILL)
    if last:
        run_last(last, environment)
    say(control, b'{"status": %d}\n' % (signal.SIGKILL if ended is None else ended))


def close_all_but(kept: set[int]) -> None:
    """Close what the worker has handed down without meaning to: some event loops do."""
    for entry in list(os.scandir("/proc/self/fd")):
        if int(entry.name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(entry.name))


def variables_in(file: int) -> dict[bytes, bytes]:
    """Read the program's environment."""
    with open(file, "rb") as stream:
        pairs = [entry.partition(b"=") for entry in stream.read().split(b"\0") if entry]
    return {name: value for name, _, value in pairs}


def become(program: list[str], environment: dict[bytes, bytes], file: int, said: int, uid: int, gid: int) -> None:
    """Turn this process into the program; what goes wrong is said where the program would have spoken."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        _place(file, said)
        if uid >= 0:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        os.execve(program[0], program, environment)  # noqa: S606 - there is never a shell
    except OSError as error:
        os.write(2, f"{program[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(_NOT_STARTED)


def _place(file: int, said: int) -> None:
    """Put what a sandbox reads and writes where it looks for it."""
    import fcntl

    if file < 0:
        return
    kept, aside = (fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FREE_FD) for descriptor in (file, said))
    os.close(file)
    os.dup2(kept, FILE_FD)
    os.dup2(aside, STATUS_FD)


def let_go(descriptors: list[int]) -> None:
    """Close what belongs to the program alone: who reads its output is to see the end of it."""
    for descriptor in descriptors:
        os.close(descriptor)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)


def supervise(child: int, control: int, status: int, woken: int) -> int | None:
    """Wait until the program ends and give its status; None: the worker has hung up."""
    poller = select.poll()
    for descriptor in (control, status, woken):
        poller.register(descriptor, select.POLLIN)
    while True:
        for descriptor, _ in poller.poll():
            if descriptor == control:
                return None
            if descriptor == woken:
                os.read(woken, 512)
            elif heard := os.read(status, 65_536):
                say(control, heard)
            else:
                poller.unregister(status)
        if (ended := reaped(child)) is not None:
            return ended


def reaped(child: int) -> int | None:
    """Bury whoever has died, and give the status of `child` if it is among them."""
    ended = None
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0] != 0:
            if found[0] == child:
                ended = found[1]
    return ended


def end_all() -> None:
    """Kill everything below this process. What is stopped cannot fork, so each round leaves fewer."""
    deadline = time.monotonic() + _END_SECONDS
    while (found := below(os.getpid())) and time.monotonic() < deadline:
        stopped: set[int] = set()
        while fresh := found - stopped:
            send(fresh, signal.SIGSTOP)
            stopped |= fresh
            found = below(os.getpid())
        send(stopped, signal.SIGKILL)
        time.sleep(0.002)
        reaped(0)


def send(pids: set[int], number: signal.Signals) -> None:
    """Send a signal to each that still lives."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def below(root: int) -> set[int]:
    """Find every living descendant of a process."""
    children: dict[int, list[int]] = {}
    for pid, parent in living():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    line = [root]
    while line:
        for pid in children.get(line.pop(), ()):
            found.add(pid)
            line.append(pid)
    return found


def living() -> list[tuple[int, int]]:
    """List each process that is not dead yet, with its parent."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry.name}/stat", "rb") as file:  # noqa: PTH123 - quick to start
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state not in (b"Z", b"X"):
                    found.append((int(entry.name), int(parent)))
    return found


def run_last(command: list[str], environment: dict[bytes, bytes]) -> None:
    """Run the last command, for a while at most."""
    child = os.posix_spawn(command[0], command, environment)
    deadline = time.monotonic() + _LAST_SECONDS
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)


def say(control: int, line: bytes) -> None:
    """Tell the worker, if it still is there."""
    with contextlib.suppress(OSError):
        os.write(control, line)


if __name__ == "__main__":
    _control, _variables, _file, _uid, _gid, _tree, _count = map(int, sys.argv[1:8])
    _words = sys.argv[8:]
    main(_control, _variables, _file, (_uid, _gid), bool(_tree), _words[:_count], _words[_count:])
