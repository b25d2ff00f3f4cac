"""The held runs of a worker: from their claim until their outcome is written or they were handed back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

import msgspec

from duly.domain.runs.outcome import Cancelled
from duly.domain.runs.run import Run
from duly.moves.settle import Settled
from duly.worker.heartbeat.shared_state import SharedState
from duly.worker.intake import Intake
from duly.worker.slots import Kind


class HeldRun(msgspec.Struct, gc=False):
    """A held run."""

    run: Run
    kind: Kind
    intake: Intake
    saved: str | None = None
    started: bool = False
    cancelled: bool = False  # it was asked to stop; if it was not started it never will be

    def as_cancelled(self) -> Settled:
        """Return the outcome of a run that was cancelled before its handler was called."""
        return Settled(self.run, None, None, Cancelled(), self.saved is not None)


class HeldRuns:
    """The runs that we hold, each under the fence it was claimed with: a run under another fence is unknown."""

    def __init__(self, shared_state: SharedState | None = None) -> None:
        self._held: dict[UUID, HeldRun] = {}
        self._shared_state = shared_state or SharedState()

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[HeldRun]:
        return iter(self._held.values())

    def take(self, held: HeldRun) -> None:
        """Hold a run."""
        self._held[held.run.run_id] = held

    def find(self, run_id: UUID, fence: int) -> HeldRun | None:
        """Return the held run of this very lease."""
        held = self._held.get(run_id)
        return held if held is not None and held.run.fence == fence else None

    def of(self, runs: Sequence[Run]) -> list[HeldRun]:
        """Return those of these runs that we hold."""
        return [held for run in runs if (held := self.find(run.run_id, run.fence)) is not None]

    def let_go(self, runs: Sequence[Run]) -> list[HeldRun]:
        """Drop these runs. Returns those that were held."""
        over: list[HeldRun] = []
        for run in runs:
            if (held := self.find(run.run_id, run.fence)) is not None:
                del self._held[run.run_id]
                self._shared_state.end(run.run_id, run.fence)
                over.append(held)
        return over
