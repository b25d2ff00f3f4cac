# Made from ../asynchronous by tests/client/twins.py; change that one.
"""Backfills under way."""

from __future__ import annotations

from duly.client.asking import Id, deleting, getting, path
from duly.client.synchronous.line import Line
from duly.wire.verbs import BackfillCancelled, BackfillStatus


class Backfills:
    """Past occurrences that are made again."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def get(self, backfill_id: Id) -> BackfillStatus:
        """Say how far a backfill has come. Raises NotFound."""
        return self._line.ask(getting(path("backfills", backfill_id), BackfillStatus))

    def cancel(self, backfill_id: Id) -> BackfillCancelled:
        """Stop a backfill; its runs that have not begun are taken back. Raises NotFound."""
        return self._line.ask(deleting(path("backfills", backfill_id), BackfillCancelled))
