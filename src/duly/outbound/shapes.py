"""What an address shows by itself, judged wherever one comes in: over HTTP, from a program, on the command line.

It is the judgement of a worker with the same settings, made early: so an address that none would call is refused to whoever
names it, and not to their run. Nothing is looked up.
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
    """Read what may be called; `loopback` is for where nobody has said it. Raises SettingsError, saying where it was written."""
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
    """Return what refuses an address that would not be called, by raising InvalidOption."""

    def check(url: str) -> None:
        try:
            judge(egress, url)
        except NotAllowed as error:
            raise InvalidOption(str(error)) from None

    return check
