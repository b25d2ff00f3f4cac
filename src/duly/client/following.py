"""How often a run is looked at while its log is followed."""

from __future__ import annotations

LOOK_SECONDS = 0.5
LINGER_SECONDS = 0.8
