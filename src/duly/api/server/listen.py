"""The listening socket: bound before anything else starts, and refused when others could reach it unprotected.

On loopback nothing is required. An address that others can reach requires TLS, or the setting `plain_http` because a proxy in
front speaks it; and, as soon as the database can be read, at least one API key.
"""

from __future__ import annotations

import errno
import socket
import ssl
from ipaddress import ip_address
from pathlib import Path

import msgspec

from duly.domain.errors import Refused


class WrongSettings(Refused):
    """A host, a certificate or its key with which the server cannot listen."""


class PortTaken(Refused):
    """Another process listens there."""


class Tls(msgspec.Struct, frozen=True):
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


def read_tls(certificate: Path | None, key: Path | None) -> Tls | None:
    """Take a certificate and its key, both or neither. Raises WrongSettings when they cannot be used."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing = "tls_certificate" if certificate is None else "tls_key"
        raise WrongSettings(f"{missing} is not set; TLS needs tls_certificate and tls_key, both PEM files")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_refuse_password)
    except (OSError, ValueError) as error:
        raise WrongSettings(
            f"TLS does not work with {certificate} and {key}: {error}; name a PEM certificate and its key, without a password"
        ) from None
    return Tls(certificate, key)


def listen(
    host: str,
    port: int,
    *,
    tls: Tls | None = None,
    plain_http: bool = False,
    command: str = "duly up",
    setting: str = "port",
) -> socket.socket:
    """Bind the port. Raises WrongSettings when others could listen in, PortTaken when it is taken; both name the remedy.

    `command` and `setting` (of the port) are named in the remedy.
    """
    if not is_loopback(host) and tls is None and not plain_http:
        raise WrongSettings(
            f"host {host} is reachable from other machines without encryption: use 127.0.0.1, or set tls_certificate and"
            " tls_key, or plain_http = true if a proxy in front of it speaks TLS"
        )
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(256)
    except OSError as error:
        listener.close()
        raise _refusal(error, host, port, f"{command} --{setting.replace('_', '-')}") from None
    return listener


def refuse_without_keys(host: str, *, has_keys: bool) -> None:
    """Refuse to answer others while there is no API key. Raises Refused, naming the remedy."""
    if not has_keys and not is_loopback(host):
        raise Refused(
            f"host {host} is reachable from other machines, and there is no API key yet:"
            " make one with `duly keys create --scope admin`, or use 127.0.0.1"
        )


def reach_of(host: str, tls: Tls | None) -> str:
    """Describe from where this address can be reached, and how."""
    if is_loopback(host):
        return "loopback only"
    return f"listening on {host} with TLS" if tls else f"listening on {host} without TLS, for a proxy"


def address_of(listener: socket.socket, tls: Tls | None = None) -> str:
    """Return the address people type."""
    host, port = listener.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether no other machine can reach it. Raises WrongSettings when it is no address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        raise WrongSettings(f"host {host!r} is not an address; use 127.0.0.1 or ::1, or 0.0.0.0 for all") from None


def _refuse_password() -> str:
    raise ValueError("the key has a password")


def _refusal(error: OSError, host: str, port: int, command: str) -> Refused:
    if error.errno == errno.EADDRINUSE:
        other = port + 1 if port < 65_535 else 7300
        return PortTaken(
            f"port {port} on {host} is taken by another process; stop that one, or choose another: {command} {other}"
        )
    return Refused(f"cannot listen on {host} port {port}: {error.strerror}; choose another: {command} 7300")
