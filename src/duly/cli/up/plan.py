"""The plan of one `duly up`: its settings and flags."""

from __future__ import annotations

import msgspec

from duly.api.server.listen import Tls
from duly.settings import Settings


class Plan(msgspec.Struct, frozen=True):
    """The settings, and what was asked for beside them; `began` is when, on the monotonic clock."""

    settings: Settings
    workers: int
    demo: bool
    ephemeral: bool
    began: float
    tls: Tls | None = None
