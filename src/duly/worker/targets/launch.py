"""The launcher: the process between a worker and a program.

Run as `python -I -S launch.py CONTROL VARIABLES FILE FILTER SCRATCH UID GID TREE CPU N GROUP [LAST …] PROGRAM …`. It
starts the program as the given user, with a session and a session keyring of its own, waits for it, and lets nothing
outlive it. Orphans of the program become children of this process, however they detached, so it can find them all. The
program's variables come through a file, and not through our own environment, which the interpreter reads and adds to.

It speaks over CONTROL. A byte from the worker asks the program to end; when the worker closes it, by choice or because
it died, everything is killed. The worker receives, as lines of JSON, what comes on STATUS_FD, and at the end the
status, as `wait` has it.

GROUP is the folder of a control group for the program, or empty. All processes in it are killed at once, their usage is
reported, and when they have used CPU milliseconds together, they are killed for that; then the group is removed.

With TREE 0 the program starts something elsewhere, which its end alone does not end; then LAST, of N words, does. This
file imports nothing of ours and next to nothing else, so that it starts quickly.
"""

import contextlib
import ctypes
import errno
import os
import re
import select
import signal
import sys
import time

FILE_FD = 10  # the descriptor of the file that the worker has written for the program
STATUS_FD = 11  # the descriptor on which a sandbox reports
FILTER_FD = 12  # the descriptor of a sandbox's seccomp filter
SCRATCH = "/dev/shm"  # noqa: S108 - covered by a file system of SCRATCH bytes, which the sandbox alone sees
SCRATCH_FOLDERS = ("tmp", "shm")
_INODE_BYTES = 4_096  # one file for so many bytes: the kernel uses about 1 KiB for each, which nothing else limits
_INODES_MIN = 64
_FREE_FD = 20
_SUBREAPER, _DUMPABLE = 36, 4
_NEW_MOUNTS, _NEW_USERS = 0x20000, 0x10000000
_MOUNT_FLAGS, _SLAVE_BELOW = 2 | 4, 1 << 19 | 1 << 14  # MS_NOSUID | MS_NODEV, MS_SLAVE | MS_REC
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING = 1
_NOT_STARTED = 127
_ENGINE_FAILED = 125
_END_SECONDS = 5.0
_LAST_SECONDS = 20.0
_SESSION = re.compile(rb'"child-pid": (\d+)')
_OURS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_GROUP_SECONDS = 1.0
_CPU_LOOK_MILLISECONDS = 100
_OF_THE_INTERPRETER = (signal.SIGPIPE, signal.SIGXFSZ)


class Start:
    """The resources of a program at its start: its files, its scratch in bytes, and its user.

    Negative: no such file, and our own user.
    """

    def __init__(self, file: int, seccomp: int, scratch: int, uid: int, gid: int) -> None:
        self.files = {FILE_FD: file, FILTER_FD: seccomp}
        self.scratch = scratch
        self.uid, self.gid = uid, gid


class Launcher:
    """One program from its start to its end."""

    def __init__(
        self, control: int, environment: dict[bytes, bytes], tree: bool, last: list[str], group: str, cpu: int
    ) -> None:
        self._control = control
        self._environment = environment
        self._tree = tree
        self._last = last
        self._group = group
        self._cpu_milliseconds = cpu if group else 0
        self._status, self._said = os.pipe()
        self._woken = -1
        self._child = 0
        self._session = 0
        self._stop_requested = False

    def start(self, program: list[str], start: Start) -> None:
        """Start the program."""
        self._woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._child = self._session = os.fork()
        if self._child == 0:
            become(program, self._environment, start, self._said, self._group)
        for number in _OURS:
            signal.signal(number, signal.SIG_IGN)  # the worker says when it is over
        let_go([self._said, *(file for file in start.files.values() if file >= 0)])

    def see_through(self) -> int:
        """Wait for the end of the program or the worker, make sure that nothing is left, and return the status."""
        ended = self._wait()
        if self._tree:
            end_all(self._group)
        elif ended is None:
            self._end_elsewhere()
        elif self._stop_requested or not os.WIFEXITED(ended) or os.WEXITSTATUS(ended) == _ENGINE_FAILED:
            run(self._last, self._environment)
        return signal.SIGKILL if ended is None else ended

    def _wait(self) -> int | None:
        """Wait until the program ends, and return its status; None: the worker has closed the connection."""
        poller = select.poll()
        for descriptor in (self._control, self._status, self._woken):
            poller.register(descriptor, select.POLLIN)
        while True:
            spoken = poller.poll(_CPU_LOOK_MILLISECONDS if self._cpu_milliseconds else None)
            # The worker last: its request may be about a sandbox whose report was not read yet.
            for descriptor, _ in sorted(spoken, key=lambda one: one[0] == self._control):
                heard = hear(descriptor)
                if descriptor == self._control and not heard:
                    return None
                if descriptor == self._control:
                    self._ask_to_end()
                elif descriptor == self._status and not heard:
                    poller.unregister(descriptor)
                elif descriptor == self._status:
                    self._pass_on(heard)
            if (ended := reaped(self._child)) is not None:
                return ended
            if self._cpu_milliseconds and cpu_milliseconds(self._group) >= self._cpu_milliseconds:
                return signal.SIGXCPU

    def leave(self) -> None:
        """Report the usage, and remove the group."""
        if self._group:
            say(self._control, used(self._group))
            remove(self._group)

    def _pass_on(self, heard: bytes) -> None:
        if match := _SESSION.search(heard):
            self._session = int(match[1])
        say(self._control, heard)

    def _ask_to_end(self) -> None:
        """Ask the program to end: inside a sandbox its session, else the sandbox would end and leave it no time."""
        self._stop_requested = True
        if not self._tree:
            os.kill(self._child, signal.SIGTERM)  # it ends what it has started elsewhere by itself
            return
        for group in (-self._session, -self._child, self._child):  # the first of them that exists
            with contextlib.suppress(ProcessLookupError):
                os.kill(group, signal.SIGTERM)
                return

    def _end_elsewhere(self) -> None:
        """End what was started elsewhere, as soon as it exists; its starter is killed only if that takes too long."""
        deadline = time.monotonic() + _END_SECONDS
        run(self._last, self._environment)
        while reaped(self._child) is None:
            if time.monotonic() > deadline:
                os.killpg(self._child, signal.SIGKILL)
            time.sleep(0.05)
            run(self._last, self._environment)


def become(program: list[str], environment: dict[bytes, bytes], start: Start, said: int, group: str) -> None:
    """Replace this process by the program; errors go to the program's standard error."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (*_OURS, *_OF_THE_INTERPRETER, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        if group:
            write(f"{group}/cgroup.procs", b"0")
        _assign({**start.files, STATUS_FD: said} if start.files[FILE_FD] >= 0 else {})
        leave_keys()
        if start.uid >= 0:
            os.setgroups([])
            os.setresgid(start.gid, start.gid, start.gid)
            os.setresuid(start.uid, start.uid, start.uid)
        if start.scratch:
            make_scratch(start.scratch)
        os.execve(program[0], program, environment)  # noqa: S606 - there is never a shell
    except OSError as error:
        os.write(2, f"{program[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(_NOT_STARTED)


def _assign(descriptors: dict[int, int]) -> None:
    """Move a sandbox's files to the descriptors that it expects."""
    import fcntl

    given = {at: descriptor for at, descriptor in descriptors.items() if descriptor >= 0}
    kept = {at: fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FREE_FD) for at, descriptor in given.items()}
    for descriptor in given.values():
        os.close(descriptor)
    for at, descriptor in kept.items():
        os.dup2(descriptor, at)


def leave_keys() -> None:
    """Replace the worker's session keyring by an empty one.

    Where keyrings are off or forbidden, the program has none either.
    """
    number = _KEYCTL.get(os.uname().machine)
    if number is None:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, _JOIN_SESSION_KEYRING, None) < 0 and ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM):
        raise OSError(ctypes.get_errno(), f"a session keyring: {os.strerror(ctypes.get_errno())}")


def make_scratch(size: int) -> None:
    """Mount a file system of a size, in bytes and in files, that only this process and its successor can see.

    A sandbox limits its own only in bytes. It takes a user namespace, as the sandbox itself does, and so no privilege.
    """
    libc, uid, gid = ctypes.CDLL(None, use_errno=True), os.geteuid(), os.getegid()
    options = b"mode=0755,size=%d,nr_inodes=%d" % (size, max(size // _INODE_BYTES, _INODES_MIN))
    # After a change of user the files of a process in /proc belong to root, until it allows others to read it.
    checked(libc.prctl(_DUMPABLE, 1, 0, 0, 0), "prctl")
    checked(libc.unshare(_NEW_USERS | _NEW_MOUNTS), "user namespace")
    write("/proc/self/setgroups", b"deny")
    write("/proc/self/uid_map", b"%d %d 1" % (uid, uid))
    write("/proc/self/gid_map", b"%d %d 1" % (gid, gid))
    checked(libc.mount(None, b"/", None, _SLAVE_BELOW, None), "mount /")
    checked(libc.mount(b"tmpfs", SCRATCH.encode(), b"tmpfs", _MOUNT_FLAGS, options), f"mount {SCRATCH}")
    for name in SCRATCH_FOLDERS:
        os.mkdir(f"{SCRATCH}/{name}")  # noqa: PTH102 - quick to start
        os.chmod(f"{SCRATCH}/{name}", 0o1777)  # noqa: PTH101, S103 - as a /tmp is


def checked(answer: int, what: str) -> None:
    """Check the answer of the C library. Raises OSError."""
    if answer != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def let_go(descriptors: list[int]) -> None:
    """Close the program's own descriptors: a reader of its output must see the end of it."""
    for descriptor in descriptors:
        os.close(descriptor)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)


def close_all_but(kept: set[int]) -> None:
    """Close descriptors that the worker has leaked: some event loops do."""
    for entry in list(os.scandir("/proc/self/fd")):
        if int(entry.name) not in kept:
            with contextlib.suppress(OSError):
                os.close(int(entry.name))


def variables_in(file: int) -> dict[bytes, bytes]:
    """Read the program's environment."""
    with open(file, "rb") as stream:
        pairs = [entry.partition(b"=") for entry in stream.read().split(b"\0") if entry]
    return {name: value for name, _, value in pairs}


def reaped(child: int) -> int | None:
    """Reap ended processes, and return the status of `child` if it is among them."""
    ended = None
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0] != 0:
            if found[0] == child:
                ended = found[1]
    return ended


def adopt_orphans() -> None:
    """Become the subreaper of all descendants."""
    checked(ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0), "prctl")


def end_all(group: str) -> None:
    """Kill everything below this process. A stopped process cannot fork, so each round leaves fewer."""
    if group:
        with contextlib.suppress(OSError):
            write(f"{group}/cgroup.kill", b"1")
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
    """Return every living descendant of a process."""
    children: dict[int, list[int]] = {}
    for pid, parent in living():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    pending = [root]
    while pending:
        for pid in children.get(pending.pop(), ()):
            found.add(pid)
            pending.append(pid)
    return found


def living() -> list[tuple[int, int]]:
    """Return each living process, with its parent."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry.name}/stat", "rb") as file:  # noqa: PTH123 - quick to start
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state not in (b"Z", b"X"):
                    found.append((int(entry.name), int(parent)))
    return found


def write(path: str, value: bytes) -> None:
    """Write to a file of a control group."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, value)
    finally:
        os.close(descriptor)


def numbers_in(path: str) -> dict[bytes, int]:
    """Read a file of a control group: names and numbers, or one number without a name; empty where it does not exist."""
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:  # noqa: PTH123 - quick to start
        pairs = [line.rpartition(b" ") for line in file.read().splitlines()]
        return {name: int(number) for name, _, number in pairs}
    return {}


def cpu_milliseconds(group: str) -> int:
    """Return the CPU time that all processes of a group have used together."""
    return numbers_in(f"{group}/cpu.stat").get(b"usage_usec", 0) // 1_000


def used(group: str) -> bytes:
    """Report the usage of all processes of a group."""
    peak = numbers_in(f"{group}/memory.peak").get(b"")
    ooms = numbers_in(f"{group}/memory.events").get(b"oom_kill", 0)
    usage = b'{"used": {"cpu_seconds": %.3f, "memory_peak_bytes": %s, "out_of_memory": %s}}\n'
    return usage % (
        cpu_milliseconds(group) / 1_000,
        b"null" if peak is None else b"%d" % peak,
        b"true" if ooms else b"false",
    )


def remove(group: str) -> None:
    """Remove a group, as soon as its last process is reaped."""
    deadline = time.monotonic() + _GROUP_SECONDS
    while True:
        try:
            os.rmdir(group)  # noqa: PTH106 - quick to start
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                return
            reaped(0)
            time.sleep(0.005)
        else:
            return


def run(command: list[str], environment: dict[bytes, bytes]) -> None:
    """Run a command of ours, with a time limit."""
    child = os.posix_spawn(command[0], command, environment)
    deadline = time.monotonic() + _LAST_SECONDS
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.01)


def hear(descriptor: int) -> bytes:
    """Read what there is. Empty: the other end is closed, or broken, as by a worker that died before it had read everything."""
    try:
        return os.read(descriptor, 4_096)
    except ConnectionResetError:
        return b""


def say(control: int, line: bytes) -> None:
    """Send to the worker, if it still exists."""
    with contextlib.suppress(OSError):
        os.write(control, line)


def main(numbers: list[int], words: list[str]) -> None:
    """Start the program, see it to its end, and report its status."""
    control, variables, file, seccomp, scratch, uid, gid, tree, cpu, count = numbers
    group, *words = words
    close_all_but({0, 1, 2, control, variables, file, seccomp})
    os.set_inheritable(control, False)
    if tree:
        adopt_orphans()
    launcher = Launcher(control, variables_in(variables), bool(tree), words[:count], group, cpu)
    launcher.start(words[count:], Start(file, seccomp, scratch, uid, gid))
    status = launcher.see_through()
    launcher.leave()
    say(control, b'{"status": %d}\n' % status)


if __name__ == "__main__":
    main([int(number) for number in sys.argv[1:11]], sys.argv[11:])
