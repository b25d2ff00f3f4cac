"""Which addresses are public: the table of those that somebody would like us to call."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.outbound.addresses import is_public, read_address

HOSTILE = [
    # this machine
    "127.0.0.1",
    "127.0.0.2",
    "127.255.255.255",
    "0.0.0.0",
    "0.1.2.3",
    "::1",
    "::",
    # private and shared networks
    "10.0.0.1",
    "10.255.255.255",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "192.168.255.255",
    "100.64.0.1",
    "100.127.255.255",
    "fc00::1",
    "fd12:3456:789a::1",
    "fec0::1",
    "feff::1",
    # link-local, and what clouds tell about a machine
    "169.254.0.1",
    "169.254.169.254",
    "169.254.170.2",
    "168.63.129.16",
    "100.100.100.200",
    "192.0.0.192",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%1",
    "febf::1",
    # reserved, for documentation, for measurements
    "192.0.0.8",
    "192.0.0.170",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "240.0.0.1",
    "255.255.255.255",
    "100::1",
    "2001:db8::1",
    "3fff::1",
    "5f00::1",
    "3ffe::1",
    "4000::1",
    "e000::1",
    "200::1",
    # multicast
    "224.0.0.1",
    "239.255.255.255",
    "ff02::1",
    "ff0e::1",
    # IPv4 in IPv6: mapped
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:a9fe:a9fe",
    # compatible, and its translated twin
    "::127.0.0.1",
    "::10.0.0.1",
    "::a9fe:a9fe",
    "::8.8.8.8",
    "::ffff:0:127.0.0.1",
    "::ffff:0:8.8.8.8",
    # NAT64
    "64:ff9b::127.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::c0a8:1",
    "64:ff9b:1::127.0.0.1",
    "64:ff9b:1:a9fe:a9:fe00::",
    "64:ff9b:1::8.8.8.8",
    "64:ff9b:0:1::8.8.8.8",
    # 6to4
    "2002:7f00:1::",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::",
    "2002:0a00:1::1",
    "2002:c0a8:101::1",
    # Teredo: server and, inverted, client
    "2001::1",
    "2001:0:4136:e378:8000:63bf:80ff:fffe",
    "2001:0:7f00:1::",
    # ISATAP
    "2a00:1450:4001:800:0:5efe:127.0.0.1",
    "2a00:1450:4001:800:0:5efe:a9fe:a9fe",
    "2a00:1450:4001:800:200:5efe:10.0.0.1",
    "fe80::5efe:127.0.0.1",
    # protocol assignments
    "2001:1::1",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2620:4f:8000::1",
]
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.215.14",
    "100.63.255.255",
    "100.128.0.1",
    "126.255.255.255",
    "128.0.0.1",
    "168.63.129.15",
    "172.15.255.255",
    "172.32.0.1",
    "191.255.255.255",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2a00:1450:4001:800::200e",
    "2001:4860:4860::8888",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
    "::ffff:8.8.8.8",
    "2a00:1450:4001:800:0:5efe:8.8.8.8",
]
MAPPINGS = {
    "mapped": lambda number: (0xFFFF << 32) | number,
    "NAT64": lambda number: (0x64FF9B << 96) | number,
    "6to4": lambda number: (0x2002 << 112) | (number << 80) | 1,
    "ISATAP": lambda number: (0x2A00 << 112) | (0x5EFE << 32) | number,
}


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_address_is_not_public(text):
    assert not is_public(read_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_globally_reachable_address_is_public(text):
    assert is_public(read_address(text))


@pytest.mark.parametrize("wrap", MAPPINGS.values(), ids=MAPPINGS.keys())
@given(number=st.integers(0, 2**32 - 1) | st.integers(0x0A000000, 0x0AFFFFFF) | st.integers(0x7F000000, 0x7FFFFFFF))
def test_an_ipv4_address_is_judged_alike_in_every_wrapping(wrap, number):
    assert is_public(IPv6Address(wrap(number))) == is_public(IPv4Address(number))


def test_mapped_address_is_read_as_its_ipv4_address():
    assert read_address("::ffff:192.0.2.7") == IPv4Address("192.0.2.7")
