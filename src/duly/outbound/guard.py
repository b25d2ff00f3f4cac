"""The egress guard: it turns a URL into a pin, the checked addresses that a call may be made to, or refuses.

A name is looked up once. Each address it has must be one that may be called, because whoever owns the name chooses which of
them we would get. The transport connects to the pin and looks nothing up.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from duly.domain.webhook_url import WebhookUrl, read_url
from duly.log import Log
from duly.outbound.addresses import Address, read_address
from duly.outbound.egress import Egress
from duly.outbound.errors import NotAllowed, NotFound
from duly.outbound.resolver import Resolver, Unresolved


class Pin(msgspec.Struct, frozen=True):
    """Where a call may go: the URL, and the checked addresses to connect to, in this order. Only the guard makes one."""

    url: WebhookUrl
    addresses: tuple[Address, ...]


class Guard:
    """Decides about every call out."""

    def __init__(self, egress: Egress, resolver: Resolver, log: Log) -> None:
        self._egress = egress
        self._resolver = resolver
        self._log = log

    def check_url(self, text: str) -> WebhookUrl:
        """Judge what the URL says by itself, without looking anything up. Raises InvalidOption, NotAllowed."""
        url = read_url(text)
        literal = _literal(url)
        if not self._egress.allows_port(url.port) or (literal and not self._egress.allows(literal, url.port)):
            raise NotAllowed(
                f"{url.origin} may not be called: {self._why_not(url, literal)};"
                " ask the operator, whose settings egress_ports and egress_allow decide it",
                f"port {url.port}",
            )
        return url

    async def pin(self, text: str, tenant: int) -> Pin:
        """Give the addresses that may be called. Raises InvalidOption, NotAllowed, NotFound."""
        url = self.check_url(text)
        literal = _literal(url)
        if literal is not None:
            return Pin(url, (literal,))
        try:
            found = await self._resolver.addresses_of(url.host, tenant)
        except Unresolved as error:
            raise self._not_found(url, tenant, str(error)) from None
        return Pin(url, self._checked(url, tenant, found))

    def _checked(self, url: WebhookUrl, tenant: int, found: Sequence[str]) -> tuple[Address, ...]:
        try:
            addresses = tuple(dict.fromkeys(map(read_address, found)))
        except ValueError as error:
            raise self._not_found(url, tenant, str(error)) from None
        for address in addresses:
            if not self._egress.allows(address, url.port):
                raise self._not_found(url, tenant, f"it leads to {address}, which may not be called on port {url.port}")
        return addresses

    def _not_found(self, url: WebhookUrl, tenant: int, detail: str) -> NotFound:
        self._log.warning("egress_refused", origin=url.origin, tenant=tenant, reason=detail)
        return NotFound(
            f"{url.origin} may not be called: its host was not found, or leads to an address that webhooks are not sent to",
            detail,
        )

    def _why_not(self, url: WebhookUrl, literal: Address | None) -> str:
        if literal is None or url.port not in self._egress.ports:
            ports = ", ".join(map(str, sorted(self._egress.ports)))
            return f"port {url.port} is not one that webhooks are sent to; usual ones are {ports}"
        return f"address {literal} is not one that webhooks are sent to"


def _literal(url: WebhookUrl) -> Address | None:
    """Give the address that a URL names instead of a host."""
    if ":" in url.host or url.host[-1].isdigit():
        try:
            return read_address(url.host)
        except ValueError:  # A name such as `web1`.
            return None
    return None
