# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""Recovery after downtime."""

from __future__ import annotations

from collections.abc import Sequence

from duly.client.requests import deleting, getting, given, path, posting
from duly.client.synchronous.transport import Line
from duly.wire.recovery import RecoveryPlan, RecoveryRule


class Recovery:
    """What was missed while no scheduler lived, and what becomes of it; for the operator."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def get(self) -> RecoveryPlan:
        """Show what was missed, what becomes of it, and how far that has come."""
        return self._line.ask(getting(path("recovery"), RecoveryPlan))

    def approve(
        self, *, rules: Sequence[RecoveryRule] = (), rate: float | None = None, dry_run: bool = False
    ) -> RecoveryPlan:
        """Let it be made up for, by each schedule's policy or by the rules, at a rate; later the rate may be changed.

        With `dry_run` the plan is shown as it would be, and nothing is changed.
        """
        body = given(rules=list(rules), rate=rate, dry_run=dry_run or None)
        return self._line.ask(posting(path("recovery", "approve"), RecoveryPlan, body))

    def dismiss(self) -> RecoveryPlan:
        """Leave out what is not made yet."""
        return self._line.ask(deleting(path("recovery"), RecoveryPlan))
