"""After every statement: each run stands in one box or has its record, and no occurrence comes about twice.

A look at the boxes comes before each statement and shows what the one before has left. It lists them only where the runs in them
are not those of the last look, each once; a move from one box to another, which is most of what happens, costs nothing here.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from duly.domain.runs.run_id import occurrence_id

if TYPE_CHECKING:
    from tests.simulation.world import World

# What ends a run has a record; a node that was skipped is one itself, and a map that failed is no run that could be buried. What
# was refused has ended nothing.
_ENDS = """
select run_id::text, count(*) as number from (
    select run_id from duly.attempts
     where run_id = any ($1::text[]::uuid[]) and became <> 'retrying' and outcome <> 'fenced'
       and not (became = 'dead' and (fence is not null or not coalesce(metadata ? 'node', false)))
    union all
    select run_id from duly.workflow_nodes cross join generate_series(1, 100)
     where run_id = any ($1::text[]::uuid[]) and state = 'skipped') as ended group by 1
"""
# A schedule that is paused or changed takes back what it has staged and nobody has begun: its next fire covers that moment again.
# Since the look it may have been staged anew.
_TAKEN_BACK = """
select from duly.timers where job_id = $2::text::uuid and run_id is null and scheduled_at <= $3::text::timestamptz
union all select from duly.ready where run_id = $1::text::uuid
"""


class Conservation:
    """Which runs are in the boxes, by the looks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._live: dict[str, tuple[str, str]] = {}  # of which job, and for which moment
        self._left: Counter[str] = Counter()  # how often a run has gone from the boxes: once, unless it was replayed
        self._occurrences: dict[tuple[str, str], str] = {}
        self._submitted = 0
        self.after = ""  # the statement that the next look shows

    def heed(self, slots: list[str] | None) -> None:
        """Hold the runs that stand in the boxes now, or that are the same as before, against those of the last look."""
        if slots is not None:
            rows = [tuple(place.split("|")) for place in slots]
            before, self._live = self._live, {row[1]: (row[2], row[3]) for row in rows}
            if len(self._live) < len(rows):
                self._find_in_two_boxes(rows)
            for run_id in self._live.keys() - before.keys():
                self._check_newcomer(run_id, *self._live[run_id])
            if gone := before.keys() - self._live.keys():
                self._check_ends({run_id: before[run_id] for run_id in sorted(gone)})
        if len(self._world.ledger.created) != self._submitted:
            self._check_submitted()

    def _find_in_two_boxes(self, rows: list[tuple[str, ...]]) -> None:
        for run_id, number in Counter(row[1] for row in rows).items():
            if number > 1:
                self._violate("a run stands in two boxes", run_id, *(row[0] for row in rows if row[1] == run_id))

    def _check_newcomer(self, run_id: str, job_id: str, scheduled_at: str) -> None:
        """What has ended does not come back, and what a schedule makes is named after its moment, and made once."""
        ledger = self._world.ledger
        if UUID(run_id) in ledger.final:
            self._violate("a run that has ended came back", run_id)
        if UUID(job_id) not in ledger.schedules:
            return
        if self._occurrences.setdefault((job_id, scheduled_at), run_id) != run_id:
            self._violate("an occurrence came about twice", run_id, job_id, scheduled_at)
        elif UUID(run_id) != occurrence_id(UUID(job_id), datetime.fromisoformat(scheduled_at), "schedule"):
            self._violate("a run is not named after its occurrence", run_id, scheduled_at)

    def _check_ends(self, gone: dict[str, tuple[str, str]]) -> None:
        ends = {row["run_id"]: row["number"] for row in self._world.query(_ENDS, list(gone))}
        for run_id, occurrence in gone.items():
            if ends.get(run_id, 0) > self._left[run_id]:
                self._left[run_id] += 1
            elif not self._world.query(_TAKEN_BACK, run_id, *occurrence):
                self._violate("a run left the boxes without a record", run_id, *occurrence)

    def _check_submitted(self) -> None:
        """A run that was committed is there at once."""
        created = [str(run_id) for run_id in self._world.ledger.created]
        for run_id in created[self._submitted :]:
            if run_id not in self._live and run_id not in self._left:
                self._violate("a run was lost as it was submitted", run_id)
        self._submitted = len(created)

    def _violate(self, promise: str, *about: object) -> None:
        self._world.ledger.violate(promise, *about, "after", self.after)
