"""The address we answer on: bound before anything else starts, and refused when others could reach it."""

from __future__ import annotations

import errno
import socket
from ipaddress import ip_address

from duly.domain.errors import Refused


class PortTaken(Refused):
    """Another process listens there."""


def listen(host: str, port: int) -> socket.socket:
    """Bind the port. Raises Refused when others could reach it, PortTaken when it is taken; both name the remedy."""
    _refuse_exposure(host)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(256)
    except OSError as error:
        listener.close()
        raise _refusal(error, host, port) from None
    return listener


def address_of(listener: socket.socket) -> str:
    """Give the address people type."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _refuse_exposure(host: str) -> None:
    try:
        is_ours = host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        raise Refused(f"host {host!r} is not an address; use 127.0.0.1 or ::1") from None
    if not is_ours:
        raise Refused(
            f"host {host} could be reached by others, and there are no API keys yet;"
            " use 127.0.0.1, and a tunnel from elsewhere"
        )


def _refusal(error: OSError, host: str, port: int) -> Refused:
    if error.errno == errno.EADDRINUSE:
        other = port + 1 if port < 65_535 else 7300
        return PortTaken(
            f"port {port} on {host} is taken by another process; stop that one, or choose another: duly up --port {other}"
        )
    return Refused(f"cannot listen on {host} port {port}: {error.strerror}; choose another: duly up --port 7300")
