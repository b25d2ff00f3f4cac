"""A network of machines on this machine: network namespaces behind one bridge, and the faults of that network.

The faults are rules of the bridge: what it does not forward is lost, and neither side is told. The namespaces are named for
this process, so those of one that was killed are recognised by the next, and removed with every process in them.
It needs root, `ip` and `nft`.
"""

import ctypes
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, Self

PREFIX = "10.88.0"
MASK = 24
Direction = Literal["from", "to", "both"]
_NEW_NETWORK = 0x40000000
_OURS = re.compile(r"duly-(\d+)-\w+")
_CHAIN = "bridge faults forward"
_libc = ctypes.CDLL(None, use_errno=True)


def missing() -> str:
    """Say what a network of machines lacks here; empty when it lacks nothing."""
    programs = [name for name in ("ip", "nft", "cc", "setpriv") if shutil.which(name) is None]
    return (
        "needs root and the Debian packages iproute2, nftables, util-linux and gcc"
        if programs or os.geteuid() != 0
        else ""
    )


class Network:
    """Machines by name, each with one address."""

    def __init__(self) -> None:
        self._switch = _namespace("switch")
        self._addresses: dict[str, str] = {}
        self._faults: dict[str, list[str]] = {}

    def __enter__(self) -> Self:
        remove_leftovers()
        _run("ip", "netns", "add", self._switch)
        try:
            _run("ip", "-n", self._switch, "link", "add", "name", "bridge", "type", "bridge")
            _run("ip", "-n", self._switch, "link", "set", "bridge", "up")
            self._rule(
                "add table bridge faults",
                f"add chain {_CHAIN} {{ type filter hook forward priority 0; }}",
            )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for machine in self._addresses:
            _remove(_namespace(machine))
        _remove(self._switch)

    def add(self, machine: str) -> str:
        """Plug in a machine, and return its address; one that was there before has its address again."""
        name = _namespace(machine)
        address = self._addresses.setdefault(machine, f"{PREFIX}.{len(self._addresses) + 1}")
        _run("ip", "netns", "add", name)
        _run(
            "ip",
            "-n",
            self._switch,
            "link",
            "add",
            "name",
            machine,
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            name,
        )
        _run("ip", "-n", self._switch, "link", "set", "dev", machine, "master", "bridge", "up")
        _run("ip", "-n", name, "addr", "add", f"{address}/{MASK}", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run("ip", "-n", name, "link", "set", device, "up")
        return address

    @contextmanager
    def inside(self, machine: str) -> Iterator[None]:
        """Be on a machine: sockets, processes and threads that this thread makes meanwhile are there, and stay there."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{_namespace(machine)}", os.O_RDONLY)
        try:
            _enter(there)
            yield
        finally:
            _enter(home)
            os.close(there)
            os.close(home)

    def partition(self, machine: str, direction: Direction = "both") -> None:
        """Lose all that comes from a machine, goes to it, or both."""
        self._fault(machine, direction, "drop")

    def lose(self, machine: str, percent: int) -> None:
        """Lose so many packets of a hundred in each direction, by chance."""
        self._fault(machine, "both", f"numgen random mod 100 < {percent} drop")

    def heal(self, machine: str) -> None:
        """Lose nothing of a machine any more."""
        self._faults.pop(machine, None)
        self._apply()

    def remove(self, machine: str) -> None:
        """Take a machine away as a power cut does: no process and no connection of it says a word any more."""
        self.partition(machine)
        _remove(_namespace(machine))
        self.heal(machine)

    def _fault(self, machine: str, direction: Direction, verdict: str) -> None:
        sides = {"from": ("iifname",), "to": ("oifname",), "both": ("iifname", "oifname")}[direction]
        self._faults[machine] = [f"{side} {machine} {verdict}" for side in sides]
        self._apply()

    def _apply(self) -> None:
        rules = [f"add rule {_CHAIN} {rule}" for rules in self._faults.values() for rule in rules]
        self._rule(f"flush chain {_CHAIN}", *rules)

    def _rule(self, *commands: str) -> None:
        _run("ip", "netns", "exec", self._switch, "nft", "\n".join(commands))


def remove_leftovers() -> None:
    """Remove the machines of processes that are dead."""
    for name in _run("ip", "netns", "list").split():
        if (found := _OURS.fullmatch(name)) and not Path(f"/proc/{found[1]}").exists():
            _remove(name)


def _namespace(machine: str) -> str:
    return f"duly-{os.getpid()}-{machine}"


def _remove(name: str) -> None:
    if Path(f"/run/netns/{name}").exists():
        _kill(name)
        _run("ip", "netns", "delete", name)


def _kill(name: str) -> None:
    """Kill a machine's processes; those that they had started meanwhile, too."""
    while pids := _run("ip", "netns", "pids", name).split():
        others = [int(pid) for pid in pids if int(pid) != os.getpid() and _state(pid) not in "ZX"]
        if not others:
            return
        for pid in others:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _state(pid: str) -> str:
    """Return the state of a process; one that is gone is dead."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "X"
    return stat[stat.rindex(")") + 2]


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout
