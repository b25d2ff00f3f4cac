"""Recovery after downtime."""

from __future__ import annotations

from collections.abc import Sequence

from duly.client.asynchronous.transport import AsyncLine
from duly.client.requests import deleting, getting, given, path, posting
from duly.wire.recovery import RecoveryPlan, RecoveryRule


class AsyncRecovery:
    """What was missed while no scheduler lived, and what becomes of it; for the operator."""

    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def get(self) -> RecoveryPlan:
        """Show what was missed, what becomes of it, and how far that has come."""
        return await self._line.ask(getting(path("recovery"), RecoveryPlan))

    async def approve(
        self, *, rules: Sequence[RecoveryRule] = (), rate: float | None = None, dry_run: bool = False
    ) -> RecoveryPlan:
        """Let it be made up for, by each schedule's policy or by the rules, at a rate; later the rate may be changed.

        With `dry_run` the plan is shown as it would be, and nothing is changed.
        """
        body = given(rules=list(rules), rate=rate, dry_run=dry_run or None)
        return await self._line.ask(posting(path("recovery", "approve"), RecoveryPlan, body))

    async def dismiss(self) -> RecoveryPlan:
        """Leave out what is not made yet."""
        return await self._line.ask(deleting(path("recovery"), RecoveryPlan))
