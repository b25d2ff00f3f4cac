"""Addresses of webhooks: their normal form, and the refusals that need no lookup.

Programs read the same address differently: `http://0x7f.1/` is a name to one and 127.0.0.1 to the other. So only
spellings with one meaning are accepted, and everything downstream gets the normal form. Whether the address may be
called is decided by the egress guard, where the call is made.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import NoReturn
from urllib.parse import quote

import msgspec

from duly.domain.errors import InvalidOption

CHARACTERS_MAX = 2_048
PORTS = {"http": 80, "https": 443}
_HOST_CHARACTERS_MAX = 253
_SHOWN_CHARACTERS_MAX = 120
_PARTS = re.compile(r"(?P<scheme>[a-zA-Z][a-zA-Z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<target>[^#]*)(?P<fragment>#.*)?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_PERCENT = re.compile(r"%(?![0-9a-fA-F]{2})")
# Characters that a path and a query may contain; everything else is percent-encoded. A percent sign is encoded already.
_TARGET_SAFE = "%/?:@!$&'()*+,;=-._~[]"


class WebhookUrl(msgspec.Struct, frozen=True):
    """An address in its normal form: an IPv6 host without brackets, `target` with its leading slash."""

    scheme: str
    host: str
    port: int
    target: str

    @property
    def origin(self) -> str:
        """Return `scheme://host[:port]`, without a default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == PORTS[self.scheme] else f":{self.port}")

    @property
    def authority(self) -> str:
        """Return the host and, unless it is the default, the port, as in a `Host` header."""
        return self.origin.partition("://")[2]

    @property
    def shown(self) -> str:
        """Write it for a log, without the query, which may contain a secret."""
        path, question, _ = self.target.partition("?")
        return f"{self.origin}{path}{'?…' if question else ''}"

    def __str__(self) -> str:
        return self.origin + self.target


def check_url(url: str) -> str:
    """Return the normal form of a webhook's address. Raises InvalidOption."""
    return str(read_url(url))


def shown_url(url: str) -> str:
    """Write an address for people, without the query, which may contain a secret; an unreadable one is cut, too."""
    try:
        return read_url(url).shown
    except InvalidOption:
        return _shown(url)


def origin_of(url: str) -> str:
    """Return `scheme://host[:port]` of a webhook's address, without a default port. Raises InvalidOption."""
    return read_url(url).origin


@lru_cache(maxsize=1_024)
def read_url(url: str) -> WebhookUrl:
    """Parse a webhook's address. Raises InvalidOption."""
    if len(url) > CHARACTERS_MAX:
        _refuse(url, f"it has {len(url):,} characters; the limit is {CHARACTERS_MAX:,}. Shorten it")
    if any(character <= " " or "\x7f" <= character <= "\xa0" or character == "\\" for character in url):
        _refuse(url, "it contains a space, a control character or a backslash; percent-encode it")
    parts = _PARTS.fullmatch(url)
    if parts is None or parts["scheme"].lower() not in PORTS:
        _refuse(url, "it must begin with http:// or https://")
    if parts["fragment"]:
        _refuse(url, "it has a #fragment, which is never sent; remove it")
    scheme = parts["scheme"].lower()
    host, port = _read_authority(url, scheme, parts["authority"])
    return WebhookUrl(scheme, host, port, _read_target(url, parts["target"]))


def _read_authority(url: str, scheme: str, authority: str) -> tuple[str, int]:
    if "@" in authority:
        _refuse(url, "it contains a user name or password; use an Authorization header instead")
    if authority.startswith("["):
        literal, bracket, rest = authority[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            _refuse(url, "its IPv6 address must stand in brackets, followed by nothing but a port")
        return _read_ipv6(url, literal), _read_port(url, scheme, rest[1:])
    name, colon, port = authority.partition(":")
    if ":" in port:
        _refuse(url, "it has more than one colon after its host; an IPv6 address stands in brackets")
    return _read_host(url, name), _read_port(url, scheme, port if colon else "")


def _read_port(url: str, scheme: str, text: str) -> int:
    if not text:
        return PORTS[scheme]
    if not _PORT.fullmatch(text) or int(text) > 65_535:
        _refuse(url, f"its port {text!r} is not a number from 1 to 65535")
    return int(text)


def _read_ipv6(url: str, literal: str) -> str:
    if "%" in literal:
        _refuse(url, "its IPv6 address has a zone id, which is valid on one machine only; remove it")
    try:
        return str(IPv6Address(literal))
    except AddressValueError as error:
        _refuse(url, f"its host {literal!r} is not an IPv6 address: {error}")


def _read_host(url: str, name: str) -> str:
    host = _ascii(url, name).removesuffix(".")
    labels = host.split(".")
    if not host or len(host) > _HOST_CHARACTERS_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        _refuse(url, f"its host {name!r} is not a host name; use letters, digits and hyphens between dots")
    if _reads_as_number(labels[-1]):
        _check_ipv4(url, host)
    return host


def _ascii(url: str, name: str) -> str:
    """Write an international name in its ASCII form; check one that claims to be in it."""
    if name.isascii() and "xn--" not in name.lower():
        return name.lower()
    import idna  # its tables load slowly, and most names need none

    try:
        return idna.encode(name, uts46=True, std3_rules=True).decode()
    except (idna.IDNAError, UnicodeError) as error:
        _refuse(url, f"its host {name!r} is not an internationalized host name: {error}")


def _reads_as_number(label: str) -> bool:
    """Return whether some program would read a host that ends so as an IPv4 address."""
    return label.isdigit() or label.startswith("0x")


def _check_ipv4(url: str, host: str) -> None:
    try:
        IPv4Address(host)
    except AddressValueError:
        _refuse(url, f"its host {host!r} is an ambiguous IPv4 address; write four decimal numbers, like 192.0.2.7")


def _read_target(url: str, target: str) -> str:
    if _PERCENT.search(target):
        _refuse(url, "it has a % outside a percent-encoding; write %25 for a literal %")
    if not target.startswith("/"):
        target = f"/{target}"
    try:
        return quote(target, safe=_TARGET_SAFE)
    except UnicodeEncodeError:
        _refuse(url, "it contains a lone surrogate; percent-encode the character")


def _refuse(url: str, why: str) -> NoReturn:
    raise InvalidOption(f"webhook url {_shown(url)!r}: {why}")


def _shown(url: str) -> str:
    """Cut possible secrets out of an address that cannot be parsed: a login before an @, and the query."""
    scheme, separator, rest = url[:CHARACTERS_MAX].partition("://")
    authority = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
    login, at, _ = authority.rpartition("@")
    before, question, _ = (rest[len(login) :] if at else rest).partition("?")
    text = f"{scheme}{separator}{'***' if at else ''}{before}{'?…' if question else ''}"
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}…"
