"""The child process of Apprise: reads one order from standard input, sends it, and writes one report.

An audit hook of the interpreter refuses every connection to an address that the egress rules do not allow, every other
socket, every program, every change of a file, and from the send on every read of a file that is no installed code: so no
service of Apprise can do more than call out, whatever its URL asks. It is there before the order is read, and until then
nothing may be called at all.
"""

from __future__ import annotations

import logging
import mimetypes
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from duly.outbound.addresses import read_address, read_network
from duly.outbound.egress import Allowance, Egress

_CALLS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_ELSEWHERE = frozenset(
    {
        *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty"),
        *("os.startfile", "os.kill", "os.killpg", "pty.spawn", "socket.bind", "syslog.openlog", "syslog.syslog"),
        *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.utime"),
        *("os.chmod", "os.chown", "os.chflags", "os.lockf", "os.setxattr", "os.removexattr", "sqlite3.connect"),
    }
)
_WRITES = frozenset("wax+")
_SYSTEM_FILES = (os.devnull, "/etc/hosts", "/etc/resolv.conf", "/usr/share/zoneinfo", *mimetypes.knownfiles)
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Order(msgspec.Struct, frozen=True):
    """A notification to send, and the egress rules in words."""

    url: str
    title: str
    body: str
    ports: tuple[int, ...]
    allowances: tuple[tuple[str, int | None], ...]
    loopback: bool

    @property
    def egress(self) -> Egress:
        """The egress rules."""
        allowances = tuple(Allowance(read_network(network), port) for network, port in self.allowances)
        return Egress(frozenset(self.ports), allowances, self.loopback)

    def __repr__(self) -> str:
        return "Order(…)"


class Report(msgspec.Struct, frozen=True):
    """The result; `detail` is for our log."""

    problem: Literal["missing", "unreadable", "refused", "failed"] | None = None
    detail: str = ""


class Guard:
    """The audit hook. It raises PermissionError for what is refused, and keeps it; without egress rules, every call is."""

    def __init__(self, egress: Egress | None = None) -> None:
        self.egress = egress
        self.readable: frozenset[str] | None = None  # files, and folders with all that is below them; None: every file
        self.refusals: list[str] = []

    def __call__(self, event: str, given: tuple[Any, ...]) -> None:
        """Judge one event of the interpreter."""
        if event in _CALLS:
            self._check_address(given[1])
        elif event in _ELSEWHERE:
            self._refuse(event)
        elif event == "open":
            self._check_file(*given)

    def report(self, problem: Literal["unreadable", "failed"]) -> Report:
        """Report a problem, or what was refused, which caused it."""
        return Report("refused", self.refusals[0]) if self.refusals else Report(problem)

    def _check_address(self, address: Any) -> None:
        try:
            is_allowed = self.egress is not None and self.egress.allows(read_address(str(address[0])), int(address[1]))
        except (ValueError, TypeError, IndexError):
            is_allowed = False  # a name that C would look up by itself, or a socket that is no IP
        if not is_allowed:
            self._refuse(f"a connection to {address}")

    def _check_file(self, path: Any, mode: Any, flags: Any) -> None:
        if _is_for_writing(mode, flags) or not (isinstance(path, int) or self._is_readable(path)):
            self._refuse("open")  # without its name, which is of the URL

    def _is_readable(self, path: Any) -> bool:
        if self.readable is None:
            return True
        real = Path(os.path.realpath(os.fsdecode(path)))
        return not self.readable.isdisjoint(map(str, (real, *real.parents)))

    def _refuse(self, what: str) -> None:
        self.refusals.append(what)
        raise PermissionError(f"{what} is not allowed")


def _is_for_writing(mode: Any, flags: Any) -> bool:
    """Return whether a file is opened for more than reading; os.open() gives flags and no mode."""
    return (isinstance(mode, str) and bool(_WRITES & set(mode))) or bool(int(flags) & _WRITE_FLAGS)


def _installed() -> frozenset[str]:
    """Return the files and folders that a service may read: code, of which some is imported late, and system configuration."""
    return frozenset(os.path.realpath(path) for path in (*sys.path, *_SYSTEM_FILES) if path)


def _send(order: Order, guard: Guard) -> Report:
    try:
        import apprise
        import requests  # noqa: F401 - used by most services; when imported it binds a socket, to see whether there is IPv6
    except ImportError:
        return Report("missing")
    logging.disable(logging.CRITICAL)
    guard.refusals.clear()  # those of the imports concern no notification
    guard.readable = _installed()  # templates and key files that a URL names are files of the worker, or of its host
    asset = apprise.AppriseAsset(app_id="Duly", app_desc="Duly", async_mode=False, plugin_paths=[])
    service = apprise.Apprise.instantiate(order.url, asset=asset, suppress_exceptions=True)
    if service is None:
        return guard.report("unreadable")
    with suppress(Exception):  # whatever a service raises, its words may quote the URL
        if service.notify(body=order.body, title=order.title):
            return Report()
    return guard.report("failed")


def main() -> None:
    """Carry out the order on standard input."""
    sys.dont_write_bytecode = True
    guard = Guard()
    sys.addaudithook(guard)
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    guard.egress = order.egress
    report = _send(order, guard)
    sys.stdout.buffer.write(msgspec.json.encode(report))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
