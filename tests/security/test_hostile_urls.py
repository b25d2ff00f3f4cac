"""The guard: which URLs may be called, by whose word, and what those who may not learn of it."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest

from duly.domain.errors import InvalidOption
from duly.log import Log
from duly.outbound.egress import Egress, read_allowance, read_egress
from duly.outbound.errors import NotAllowed, NotFound, OutboundError
from duly.outbound.guard import Guard, judge
from tests.outbound.servers import TENANT, Names
from tests.security.test_addresses import HOSTILE

PUBLIC = "93.184.215.14"
# By what they say themselves: these never get as far as a name server.
HOSTILE_URLS = [
    "http://127.0.0.1/",
    "http://127.0.0.1:80/",
    "https://127.0.0.1/",
    "http://localhost.:22/",
    "http://127.1/",
    "http://127.0.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0x0.0x0.0x1/",
    "http://0177.0.0.1/",
    "http://017700000001/",
    "http://00000177.0.0.1/",
    "http://127.000.000.001/",
    "http://0/",
    "http://0.0.0.0/",
    "http://[::]/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[0000::0001]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[fe80::1%25lo]/",
    "http://[::1%lo]/",
    "http://１２７.0.0.1/",
    "http://①②⑦.⓪.⓪.①/",
    "http://127。0。0。1/",
    "http://127｡0｡0｡1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://169.254.169.254:80/",
    "http://2852039166/latest/meta-data/",
    "http://0xa9fea9fe/",
    "http://0251.0376.0251.0376/",
    "http://169.16689662/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[2002:a9fe:a9fe::]/",
    "http://[fd00:ec2::254]/",
    "http://168.63.129.16/",
    "http://100.100.100.200/",
    "http://192.0.0.192/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://100.64.0.1/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
    "http://user@93.184.215.14/",
    "http://93.184.215.14@127.0.0.1/",
    "http://93.184.215.14#@127.0.0.1/",
    "http://127.0.0.1#@93.184.215.14/",
    "http://93.184.215.14\\@127.0.0.1/",
    "http://127.0.0.1\\.example.com/",
    "http://127.0.0.1\t/",
    "http://127.0.0.1%00.example.com/",
    "http://127.0.0.1%2f.example.com/",
    "http://%31%32%37.0.0.1/",
    "http:// 127.0.0.1/",
    "http://93.184.215.14:22/",
    "http://93.184.215.14:25/",
    "http://93.184.215.14:5432/",
    "http://93.184.215.14:6379/",
    "http://93.184.215.14:0/",
    "http://93.184.215.14:65616/",
    "http://93.184.215.14:80:22/",
    "http://93.184.215.14:-80/",
    "http://example.com:22/",
    "http://example.com:6379/",
    "ftp://93.184.215.14/",
    "file:///etc/passwd",
    "file://127.0.0.1/etc/passwd",
    "gopher://127.0.0.1:6379/_SET",
    "dict://127.0.0.1:11211/",
    "ldap://127.0.0.1/",
    "unix:///var/run/docker.sock",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
    "jar:http://127.0.0.1!/",
    "data:text/plain,x",
    "//127.0.0.1/",
    "127.0.0.1",
    "http:/127.0.0.1/",
    "http:127.0.0.1",
    "http:///127.0.0.1/",
    "http://\n127.0.0.1/",
    "http://[::1]x.example/",
    "http://[::1]:80@93.184.215.14/",
    "http://::1/",
    "http://[127.0.0.1]/",
    "http://1.1.1.1 &@2.2.2.2# @3.3.3.3/",
]


def a_guard(egress: Egress | None = None, **answers):
    names = Names(**answers)
    return Guard(egress or Egress(), names, Log("test")), names


def test_the_tables_are_long_enough():
    assert len(set(HOSTILE)) + len(set(HOSTILE_URLS)) >= 160


@pytest.mark.parametrize("url", HOSTILE_URLS)
async def test_a_hostile_url_is_refused_before_anything_is_looked_up(url):
    guard, names = a_guard()
    with pytest.raises((NotAllowed, InvalidOption)):
        await guard.pin(url, TENANT)
    assert names.asked == []


@pytest.mark.parametrize("address", HOSTILE)
async def test_a_name_that_leads_to_a_hostile_address_is_refused(address):
    guard, _ = a_guard(evil_example=[[address]])
    with pytest.raises(NotFound):
        await guard.pin("http://evil.example/", TENANT)


@pytest.mark.parametrize("address", HOSTILE)
async def test_host_with_a_public_and_a_hostile_address_is_refused(address):
    for addresses in ([PUBLIC, address], [address, PUBLIC]):
        guard, _ = a_guard(evil_example=[addresses])
        with pytest.raises(NotFound):
            await guard.pin("http://evil.example/", TENANT)


async def test_a_name_is_looked_up_once_and_pinned():
    guard, names = a_guard(good_example=[[PUBLIC, "2606:4700::1111"], ["127.0.0.1"]])

    pin = await guard.pin("https://good.example/hook", TENANT)

    assert pin.addresses == (IPv4Address(PUBLIC), IPv6Address("2606:4700::1111"))
    assert str(pin.url) == "https://good.example/hook"
    assert names.asked == ["good.example"]


async def test_a_mapped_answer_is_pinned_as_the_address_it_leads_to():
    guard, _ = a_guard(good_example=[[f"::ffff:{PUBLIC}", PUBLIC]])
    assert (await guard.pin("http://good.example/", TENANT)).addresses == (IPv4Address(PUBLIC),)


async def test_a_written_address_is_looked_up_nowhere():
    guard, names = a_guard()
    assert (await guard.pin(f"http://{PUBLIC}/", TENANT)).addresses == (IPv4Address(PUBLIC),)
    assert names.asked == []


async def test_an_answer_that_is_no_address_is_refused():
    guard, _ = a_guard(odd_example=[["not an address"]])
    with pytest.raises(NotFound):
        await guard.pin("http://odd.example/", TENANT)


ALLOWED = [
    ("10.1.0.0/16", "10.1.2.3", 443, True),
    ("10.1.0.0/16", "10.1.2.3", 9000, False),
    ("10.1.0.0/16", "10.2.2.3", 443, False),
    ("10.1.2.3", "10.1.2.3", 80, True),
    ("10.1.2.3", "10.1.2.4", 80, False),
    ("10.1.2.3:9000", "10.1.2.3", 9000, True),
    ("10.1.2.3:9000", "10.1.2.3", 9001, False),
    ("10.1.2.3:9000", "10.1.2.3", 80, False),
    ("10.1.0.0/16:9000", "10.1.2.3", 9000, True),
    ("10.1.2.3:9000", PUBLIC, 9000, False),
    ("fd00::/8", "fd12::1", 443, True),
    ("fd00::/8", "fe80::1", 443, False),
    ("[fd00::/8]:9000", "fd12::1", 9000, True),
    ("[fd00::/8]:9000", "fd12::1", 443, False),
    ("[fd00::7]:9000", "fd00::7", 9000, True),
    ("127.0.0.1:7400", "::ffff:127.0.0.1", 7400, True),
    ("127.0.0.1:7400", "::1", 7400, False),
    ("10.1.0.0/16", "64:ff9b::a01:203", 443, False),
    ("10.1.0.0/16", "2002:a01:203::", 443, False),
]


@pytest.mark.parametrize(("entry", "address", "port", "is_allowed"), ALLOWED)
async def test_private_networks_open_only_as_far_as_the_operator_allows(entry, address, port, is_allowed):
    guard, _ = a_guard(Egress(allowances=(read_allowance(entry),)), inner_example=[[address]])
    if is_allowed:
        assert (await guard.pin(f"http://inner.example:{port}/", TENANT)).addresses
    else:
        with pytest.raises(OutboundError):
            await guard.pin(f"http://inner.example:{port}/", TENANT)


@pytest.mark.parametrize(
    "entry",
    ["", "10.1.2.3/16", "10.1.2.3:0", "10.1.2.3:x", "10.1.2.3:", "example.com", "[fd00::/8]:", "10.1.2/24", "*"],
)
def test_inexact_egress_allowance_is_refused(entry):
    with pytest.raises(InvalidOption, match=r"egress_allow .* with a port as 10\.1\.2\.3:9000"):
        read_allowance(entry)


async def test_in_development_loopback_is_allowed_on_every_port_and_nothing_else_is():
    guard, _ = a_guard(
        read_egress([80], [], loopback=True), localhost=[["::1", "127.0.0.1"]], inner_example=[["10.0.0.1"]]
    )
    assert len((await guard.pin("http://localhost:7400/", TENANT)).addresses) == 2
    assert (await guard.pin("http://127.0.0.1:7400/", TENANT)).addresses
    for url in ("http://10.0.0.1/", "http://inner.example/", f"http://{PUBLIC}:7400/", "http://[64:ff9b::7f00:1]/"):
        with pytest.raises(OutboundError):
            await guard.pin(url, TENANT)


async def test_a_tenant_cannot_tell_a_name_that_is_not_there_from_one_that_leads_inside():
    guard, _ = a_guard(inner_example=[["10.0.0.1"]], mixed_example=[[PUBLIC, "169.254.169.254"]])
    said = set()
    for name in ("inner.example", "mixed.example", "nowhere.example"):
        with pytest.raises(NotFound) as error:
            await guard.pin(f"http://{name}/", TENANT)
        said.add(str(error.value).replace(name, "NAME"))
        assert "10.0.0.1" not in str(error.value)
    assert len(said) == 1


async def test_a_port_that_is_not_allowed_is_named_with_those_that_are():
    guard, _ = a_guard()
    with pytest.raises(NotAllowed, match=r"http://example\.com:22 is not allowed: port 22 .* 80, 443, 8080, 8443"):
        await guard.pin("http://example.com:22/", TENANT)


@pytest.mark.parametrize("url", HOSTILE_URLS)
def test_hostile_url_is_refused_without_a_name_server(url):
    """The same rule where a URL comes in as where it is called."""
    with pytest.raises((InvalidOption, NotAllowed)):
        judge(Egress(), url)


def test_url_that_the_operator_allows_is_accepted_on_input():
    for allowed in ("http://hooks.example/", f"http://{PUBLIC}:8443/", "https://10.1.2.3/"):
        judge(read_egress((80, 443, 8443), ["10.1.0.0/16"], loopback=False), allowed)
    judge(read_egress((443,), [], loopback=True), "http://127.0.0.1:7400/")
