"""The run as its handler sees it."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from duly import Cancelled, InvalidOption, InvalidPayload, InvalidSchedule, LeaseLost, NonRetryable, Snooze
from duly.domain.runs.options import RunPolicy
from duly.domain.runs.progress import Progress
from duly.domain.runs.run import Run as Row
from duly.worker.context import RunContext

AT = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)


class NotedDesk:
    """Notes what it is told; the lease is lost when told so."""

    def __init__(self) -> None:
        self.noted: list[tuple[Any, ...]] = []
        self.held = True

    def log(self, run, level, message, fields):
        self.noted.append((level, message, fields))

    async def checkpoint(self, run, body):
        return self.checkpoint_sync(run, body)

    def checkpoint_sync(self, run, body):
        self.noted.append(("checkpoint", body))
        return self.held

    def progress(self, run, progress):
        self.noted.append(progress)


@pytest.fixture
def services():
    return NotedDesk()


def a_run(**policy: Any) -> Row:
    return Row(
        (0, 1),
        4,
        UUID(int=1),
        UUID(int=2),
        AT,
        AT + timedelta(seconds=1),
        AT - timedelta(days=1),
        1,
        1,
        3,
        5,
        0,
        False,
        False,
        "default",
        "greet",
        None,
        RunPolicy(**policy),
    )


def test_run_context_shows_ids_attempt_and_times(services):
    run = RunContext(a_run(), services)

    assert (run.id, run.job_id, run.attempt, run.fence) == (UUID(int=1), UUID(int=2), 3, 4)
    assert run.scheduled_at == AT
    assert run.due_at == AT + timedelta(seconds=1)
    assert run.previous_scheduled_at == AT - timedelta(days=1)


def test_the_deadline_counts_from_the_start(services):
    assert RunContext(a_run(), services, started=AT.timestamp()).deadline is None
    assert RunContext(a_run(timeout_seconds=30.0), services, started=AT.timestamp()).deadline == AT + timedelta(
        seconds=30
    )


def test_a_log_line_is_an_event_and_its_fields(services):
    run = RunContext(a_run(), services)

    run.log.info("building", customer=7)
    run.log.error("broken")

    assert services.noted == [("info", "building", {"customer": 7}), ("error", "broken", {})]


async def test_progress_stores_its_numbers_and_text(services):
    run = RunContext(a_run(), services)

    await run.progress(40, 120, "page 4")
    run.progress_sync(0.5, note="nul \0" + "x" * 2_000)

    assert services.noted == [Progress(40, 120, "page 4"), Progress(0.5, None, "nul \ufffd" + "x" * 995)]


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), 10**400, "half", True])
async def test_progress_that_is_no_number_from_0_on_is_refused(services, wrong):
    with pytest.raises(InvalidOption, match=r"progress\(40, 120\)"):
        await RunContext(a_run(), services).progress(wrong)
    with pytest.raises(InvalidOption, match="total"):
        RunContext(a_run(), services).progress_sync(1, wrong)
    assert services.noted == []


async def test_a_checkpoint_is_kept_and_read_back(services):
    run = RunContext(a_run(), services, saved='{"page": 1}')
    assert run.saved == {"page": 1}

    await run.checkpoint({"page": 2})
    assert run.saved == {"page": 2}
    run.checkpoint_sync({"page": 3})
    assert run.saved == {"page": 3}


def test_a_run_without_a_checkpoint_has_nothing_saved(services):
    run = RunContext(a_run(), services)

    assert run.saved is None
    assert not run.left_behind


async def test_checkpoint_after_lease_loss_raises_and_saves_nothing(services):
    run = RunContext(a_run(), services)
    services.held = False

    with pytest.raises(LeaseLost, match=f"run {UUID(int=1)}, fence 4"):
        await run.checkpoint(1)
    with pytest.raises(LeaseLost):
        run.checkpoint_sync(1)
    assert run.saved is None


async def test_a_checkpoint_over_the_limit_is_refused_before_it_is_sent(services):
    with pytest.raises(InvalidPayload, match=r"the checkpoint of run .* the limit is 262144"):
        await RunContext(a_run(), services).checkpoint("x" * 262_144)
    assert services.noted == []


def test_cancelled_run_raises_when_it_checks(services):
    run = RunContext(a_run(), services)
    run.raise_if_cancelled()

    run.mark_cancelled()

    assert run.cancelled
    with pytest.raises(Cancelled):
        run.raise_if_cancelled()


def test_a_snooze_knows_how_long():
    assert Snooze("PT5M").delay == timedelta(minutes=5)
    assert Snooze(2).delay == timedelta(seconds=2)
    with pytest.raises(InvalidSchedule, match="snooze 'soon' is not a duration"):
        Snooze("soon")
    with pytest.raises(InvalidSchedule, match="snooze nan is not a duration"):
        Snooze(float("nan"))
    with pytest.raises(InvalidOption, match="snooze -1 is negative"):
        Snooze(-1)


def test_non_retryable_error_keeps_its_reason():
    assert NonRetryable("no such customer").reason == str(NonRetryable("no such customer")) == "no such customer"
