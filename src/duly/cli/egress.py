"""What the settings say about calls that leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from duly.api.listening import is_loopback
from duly.clock import SystemClock
from duly.log import Log
from duly.outbound.guard import Guard
from duly.outbound.resolver import SystemResolver
from duly.outbound.shapes import Check, egress_of, url_check
from duly.settings import Settings

if TYPE_CHECKING:
    from duly.outbound.calling import Caller


def caller_of(settings: Settings) -> Caller:
    """Build the way out, for one loop. Raises SettingsError."""
    from duly.outbound.calling import Caller
    from duly.outbound.transport import PinnedTransport  # Takes a while to import, and not everybody calls out.

    log = Log("outbound")
    return Caller(Guard(egress_of(settings), SystemResolver(SystemClock()), log), PinnedTransport(), log)


def submitted_check(settings: Settings) -> Check:
    """Give what refuses addresses in what is submitted to the database itself. Raises SettingsError.

    The server of a `duly up` is for development, and so may be called what its own door takes.
    """
    loopback = may_call_loopback(settings) if settings.database_url is None else None
    return url_check(egress_of(settings, loopback=loopback))


def may_call_loopback(settings: Settings) -> bool:
    """Say whether the workers of a `duly up` may call this machine: what was chosen, else only if nobody else can reach us."""
    return settings.egress_loopback if settings.is_given("egress_loopback") else is_loopback(settings.host)
