"""Early checks of addresses, wherever one comes in: over HTTP, from a program, on the command line.

It is the judgement of a worker with the same settings, made early: so an address that none would call is refused at
submit, and not in the run. Nothing is looked up.
"""

from __future__ import annotations

from collections.abc import Callable

from duly.domain.errors import InvalidOption
from duly.outbound.egress import Egress, read_egress
from duly.outbound.errors import NotAllowed
from duly.outbound.guard import judge
from duly.settings import Settings, SettingsError

Check = Callable[[str], None]


def egress_of(settings: Settings, *, loopback: bool | None = None) -> Egress:
    """Return the egress rules; `loopback` is the default. Raises SettingsError, saying where it was written."""
    is_said = loopback is None or settings.is_given("egress_loopback")
    try:
        return read_egress(
            settings.egress_ports,
            settings.egress_allow,
            loopback=settings.egress_loopback if is_said else bool(loopback),
        )
    except InvalidOption as error:
        raise SettingsError(f"{settings.sources['egress_allow']}: {error}") from None


def url_check(egress: Egress) -> Check:
    """Return a check that raises InvalidOption for an address that would not be called."""

    def check(url: str) -> None:
        try:
            judge(egress, url)
        except NotAllowed as error:
            raise InvalidOption(str(error)) from None

    return check
