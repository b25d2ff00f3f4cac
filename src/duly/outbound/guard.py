"""The egress guard: it turns a URL into a pin, the checked addresses that a call may be made to, or refuses.

A name is looked up once. Each address it has must be one that may be called, because the owner of the name chooses which of
them we would get. The transport connects to the pin and looks nothing up.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from duly.domain.targets.webhook_url import WebhookUrl, read_url
from duly.log import Log
from duly.outbound.addresses import Address, read_address
from duly.outbound.egress import Egress
from duly.outbound.errors import NotAllowed, NotFound
from duly.outbound.resolver import Resolver, Unresolved

_JUDGED_MAX = 1_024


class Pin(msgspec.Struct, frozen=True):
    """A checked destination of a call: the URL, and the addresses to connect to, in this order. Only the guard makes one."""

    url: WebhookUrl
    addresses: tuple[Address, ...]


def judge(egress: Egress, text: str) -> tuple[WebhookUrl, Address | None]:
    """Judge a URL by itself: its port, and the address that it names instead of a host, which is returned.

    Nothing is looked up, so this works wherever a URL comes in. Raises InvalidOption, NotAllowed.
    """
    url = read_url(text)
    literal = _literal(url)
    if not egress.allows_port(url.port) or (literal and not egress.allows(literal, url.port)):
        raise NotAllowed(
            f"{url.origin} is not allowed: {_why_not(egress, url, literal)};"
            " the operator can allow it with the settings egress_ports, egress_allow and egress_loopback",
            f"port {url.port}",
        )
    return url, literal


class Guard:
    """Decides about every outbound call."""

    def __init__(self, egress: Egress, resolver: Resolver, log: Log) -> None:
        self._egress = egress
        self._resolver = resolver
        self._log = log
        # The rules do not change while we live, so verdicts are cached.
        self._judged = lru_cache(_JUDGED_MAX)(self._judge)
        self._checked = lru_cache(_JUDGED_MAX)(self._check)

    def _judge(self, text: str) -> tuple[WebhookUrl, Pin | None]:
        """Parse the URL, and pin it if it names an address itself."""
        url, literal = judge(self._egress, text)
        return url, None if literal is None else Pin(url, (literal,))

    def check(self, text: str) -> None:
        """Refuse a URL that is not allowed by itself, before anything is done for it. Raises InvalidOption, NotAllowed."""
        self._judged(text)

    async def pin(self, text: str, tenant: int) -> Pin:
        """Return the addresses that may be called. Raises InvalidOption, NotAllowed, NotFound."""
        url, pin = self._judged(text)
        if pin is not None:
            return pin
        try:
            found = await self._resolver.addresses_of(url.host, tenant)
            return Pin(url, self._checked(tuple(found), url.port))
        except (Unresolved, ValueError) as error:
            raise self._not_found(url, tenant, str(error)) from None

    def _check(self, found: tuple[str, ...], port: int) -> tuple[Address, ...]:
        """Read the addresses of a name. Raises ValueError when one of them may not be called, or is none."""
        addresses = tuple(dict.fromkeys(map(read_address, found)))
        for address in addresses:
            if not self._egress.allows(address, port):
                raise ValueError(f"it resolves to {address}, which is not allowed on port {port}")
        return addresses

    def _not_found(self, url: WebhookUrl, tenant: int, detail: str) -> NotFound:
        self._log.warning("egress_refused", origin=url.origin, tenant=tenant, reason=detail)
        return NotFound(
            f"{url.origin} is not allowed: its host was not found, or resolves to a forbidden address",
            detail,
        )


def _why_not(egress: Egress, url: WebhookUrl, literal: Address | None) -> str:
    if literal is None or url.port not in egress.ports:
        ports = ", ".join(map(str, sorted(egress.ports)))
        return f"port {url.port} is not an allowed port; default ports are {ports}"
    return f"address {literal} is not an allowed address"


def _literal(url: WebhookUrl) -> Address | None:
    """Return the address that a URL names instead of a host."""
    if ":" in url.host or url.host[-1].isdigit():
        try:
            return read_address(url.host)
        except ValueError:  # A name such as `web1`.
            return None
    return None
