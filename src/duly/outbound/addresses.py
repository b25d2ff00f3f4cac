"""Public addresses: those that any host on the internet could call as well as we can.

The rule is our own table. The library's `is_global` considers several spellings of a private IPv4 address inside an
IPv6 one global, and knows reserved networks only as of its release.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_IPV4_RESERVED = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared by a provider's customers; some clouds' metadata
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # one cloud's host, as its machines see it: public by number only
        "169.254.0.0/16",  # link-local, and most clouds' metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments, and one cloud's metadata
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks of networks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_IPV6_GLOBAL_UNICAST = IPv6Network("2000::/3")
_IPV6_RESERVED = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "2620:4f:8000::/48",  # AS112
        "3ffe::/16",  # given back
        "3fff::/20",  # documentation
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_ISATAP_MARKS = (0x0000_5EFE, 0x0200_5EFE)  # the bits before the IPv4 address in the second half
_32_BITS = 0xFFFF_FFFF


def read_address(text: str) -> Address:
    """Parse an address, an IPv4 one embedded in IPv6 as IPv4: the socket would lead there. Raises ValueError."""
    address = ip_address(text)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def read_network(text: str) -> Network:
    """Parse a network, exactly written. Raises ValueError."""
    return ip_network(text, strict=True)


def is_public(address: Address) -> bool:
    """Return whether any host on the internet could call it as well as we can."""
    if isinstance(address, IPv4Address):
        return address.is_global and not _is_in(address, _IPV4_RESERVED)
    if address.scope_id is not None:
        return False
    inner = embedded_ipv4(address)
    if inner is not None and not is_public(inner):
        return False
    if address.ipv4_mapped is not None or address in _NAT64:
        return True
    return address in _IPV6_GLOBAL_UNICAST and not _is_in(address, _IPV6_RESERVED)


def embedded_ipv4(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address that a packet to this one would end at, where its form says so."""
    number = int(address)
    if address.ipv4_mapped is not None or address in _NAT64:
        return IPv4Address(number & _32_BITS)
    if address in _SIX_TO_FOUR:
        return IPv4Address((number >> 80) & _32_BITS)
    if (number >> 32) & _32_BITS in _ISATAP_MARKS:
        return IPv4Address(number & _32_BITS)
    return None


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)
