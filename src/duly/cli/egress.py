"""What the settings say about calls that leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duly.api.listening import is_loopback
from duly.clock import SystemClock
from duly.domain.errors import InvalidOption
from duly.log import Log
from duly.outbound.egress import Egress, read_egress
from duly.outbound.guard import Guard
from duly.outbound.resolver import SystemResolver
from duly.settings import Settings, SettingsError

if TYPE_CHECKING:
    from duly.outbound.calling import Caller


def caller_of(settings: Settings) -> Caller:
    """Build the way out, for one loop. Raises SettingsError."""
    from duly.outbound.calling import Caller
    from duly.outbound.transport import AiohttpTransport  # Takes a while to import, and not everybody calls out.

    log = Log("outbound")
    return Caller(Guard(egress_of(settings), SystemResolver(SystemClock()), log), AiohttpTransport(), log)


def egress_of(settings: Settings) -> Egress:
    """Read what may be called. Raises SettingsError, saying where it was written."""
    try:
        return read_egress(settings.egress_ports, settings.egress_allow, loopback=settings.egress_loopback)
    except InvalidOption as error:
        raise SettingsError(f"{settings.sources['egress_allow']}: {error}") from None


def may_call_loopback(settings: Settings) -> bool:
    """Say whether the workers of a `duly up` may call this machine: what was chosen, else only if nobody else can reach us."""
    return settings.egress_loopback if settings.is_given("egress_loopback") else is_loopback(settings.host)
