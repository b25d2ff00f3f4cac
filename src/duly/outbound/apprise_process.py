"""The child process of Apprise: reads one order from standard input, sends it, and writes one report.

An audit hook of the interpreter refuses every connection to an address that the egress rules do not allow, every other
socket, every program and every file written: so no service of Apprise can do more than call out, whatever its URL asks.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import msgspec

from duly.outbound.addresses import read_address, read_network
from duly.outbound.egress import Allowance, Egress

_CALLS = frozenset({"socket.connect", "socket.sendto", "socket.sendmsg"})
_ELSEWHERE = frozenset(
    {
        *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.startfile"),
        *("socket.bind", "syslog.openlog", "syslog.syslog"),
    }
)
_WRITES = frozenset("wax+")


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


class Refusals(list[str]):
    """The calls that were refused."""


def guard(egress: Egress, refusals: Refusals) -> Callable[[str, tuple[Any, ...]], None]:
    """Return the audit hook. It raises PermissionError for what is refused."""

    def hook(event: str, given: tuple[Any, ...]) -> None:
        if event in _CALLS:
            _check_address(given[1])
        elif event in _ELSEWHERE or (event == "open" and isinstance(given[1], str) and _WRITES & set(given[1])):
            _refuse(event)

    def _check_address(address: Any) -> None:
        try:
            is_allowed = egress.allows(read_address(str(address[0])), int(address[1]))
        except (ValueError, TypeError, IndexError):
            is_allowed = False  # a name that C would look up by itself, or a socket that is no IP
        if not is_allowed:
            _refuse(f"a connection to {address}")

    def _refuse(what: str) -> None:
        refusals.append(what)
        raise PermissionError(f"{what} is not allowed")

    return hook


def _send(order: Order) -> Report:
    try:
        import apprise
    except ImportError:
        return Report("missing")
    logging.disable(logging.CRITICAL)
    asset = apprise.AppriseAsset(app_id="Duly", app_desc="Duly", async_mode=False, plugin_paths=[])
    service = apprise.Apprise.instantiate(order.url, asset=asset, suppress_exceptions=True)
    if service is None:
        return Report("unreadable")
    refusals = Refusals()
    sys.addaudithook(guard(order.egress, refusals))
    with suppress(Exception):  # whatever a service raises, its words may quote the URL
        if service.notify(body=order.body, title=order.title):
            return Report()
    return Report("refused", refusals[0]) if refusals else Report("failed")


def main() -> None:
    """Carry out the order on standard input."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    report = _send(order)
    sys.stdout.buffer.write(msgspec.json.encode(report))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
