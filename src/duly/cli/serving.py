"""What a worker does besides running its app: the targets that its settings allow."""

from __future__ import annotations

from duly.cli import programs
from duly.settings import Settings
from duly.worker.targets import Targets


def targets_of(settings: Settings, name: str) -> Targets:
    """Build the targets that a worker of this name with these settings offers. Raises Refused for what cannot work here."""
    handlers, parts = programs.of(settings, name)
    return Targets(handlers, parts)
