"""The operator's egress rules: ports, and private networks by exact name."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from duly.domain.errors import InvalidOption
from duly.outbound.addresses import Address, Network, is_public, read_network

PORTS_DEFAULT = (80, 443, 8080, 8443)


class Allowance(msgspec.Struct, frozen=True):
    """A network that may be called although it is private: on one port, or on those that anything may be called on."""

    network: Network
    port: int | None = None

    def covers(self, address: Address, port: int) -> bool:
        """Return whether this very address and port are covered."""
        return address.version == self.network.version and address in self.network and self.port in (None, port)


class Egress(msgspec.Struct, frozen=True):
    """The egress rules. `loopback`: this machine, on every port, for development."""

    ports: frozenset[int] = frozenset(PORTS_DEFAULT)
    allowances: tuple[Allowance, ...] = ()
    loopback: bool = False

    def allows_port(self, port: int) -> bool:
        """Return whether any address at all may be called on this port."""
        return port in self.ports or self.loopback or any(allowance.port == port for allowance in self.allowances)

    def allows(self, address: Address, port: int) -> bool:
        """Return whether this address may be called on this port."""
        if self.loopback and address.is_loopback:
            return True
        is_usual = port in self.ports
        named = (allowance for allowance in self.allowances if is_usual or allowance.port is not None)
        return any(allowance.covers(address, port) for allowance in named) or (is_usual and is_public(address))


def read_egress(ports: Iterable[int], allow: Iterable[str], *, loopback: bool) -> Egress:
    """Parse the operator's settings. Raises InvalidOption."""
    return Egress(frozenset(ports), tuple(map(read_allowance, allow)), loopback)


def read_allowance(text: str) -> Allowance:
    """Read `10.1.0.0/16`, `10.1.2.3:9000`, `fd00::/8` or `[fd00::7]:9000`. Raises InvalidOption."""
    network, port = _split(text)
    try:
        return Allowance(read_network(network), None if port is None else _read_port(port))
    except ValueError as error:
        raise InvalidOption(
            f"egress_allow {text!r}: {error}; write a network as 10.1.0.0/16, with a port as 10.1.2.3:9000,"
            " and in IPv6 as fd00::/8 or [fd00::7]:9000"
        ) from None


def _split(text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        network, _, rest = text[1:].partition("]")
        return network, rest.removeprefix(":") if rest else None
    if text.count(":") == 1:
        network, _, port = text.partition(":")
        return network, port
    return text, None


def _read_port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65_535:
        raise ValueError(f"port {text!r} is not a number from 1 to 65535")
    return int(text)
