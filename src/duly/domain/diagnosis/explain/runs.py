"""Why a run is where it is."""

from __future__ import annotations

from duly.domain.diagnosis.explain import ending, waiting
from duly.domain.diagnosis.explain.blocked import at_gate
from duly.domain.diagnosis.explain.facts import Reason, RunFacts


def explain_run(run: RunFacts) -> list[Reason]:
    """Say why a run is where it is, what matters most first."""
    match run.state:
        case "scheduled":
            return [*waiting.until_due(run), *waiting.held(run.holds)]
        case "retrying":
            backing_off = waiting.backing_off(run)
            others = [*waiting.held(run.holds), *waiting.no_worker(run.queue, run.handler, run.workers)]
            return [*(backing_off + others if backing_off else waiting.in_queue(run)), *waiting.last_error(run)]
        case "blocked":
            missing = waiting.no_worker(run.queue, run.handler, run.workers)
            return [at_gate(run), *waiting.held(run.holds), *missing]
        case "ready" if run.worker is not None:
            return [*(ending.stalled(run) or waiting.with_worker(run)), *waiting.held(run.holds)]
        case "ready":
            return waiting.in_queue(run)
        case "running":
            return [*ending.running(run), *ending.late(run)]
        case "dead":
            return [ending.dead(run), *waiting.last_error(run)]
    return [ending.ended(run), *ending.late(run)]
