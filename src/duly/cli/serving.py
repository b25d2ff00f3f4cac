"""What a worker does besides running its app: the targets that its settings allow."""

from __future__ import annotations

from duly.settings import Settings
from duly.worker.targets import Targets


def targets_of(settings: Settings) -> Targets:
    """Build the targets that a worker with these settings offers."""
    return Targets()
