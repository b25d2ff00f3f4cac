"""Faults that the simulation has found, each as a test of its own."""

import pytest

from duly.moves.cancel import CancelAnswer
from tests.simulation.story import LEASE_SECONDS, telling


def test_a_step_back_of_the_clock_does_not_make_a_started_run_look_unstarted(simulated_server):
    with telling(simulated_server) as story:
        story.passes(5)
        run_id = story.submit("long", "quick")
        story.until(lambda: story.executions(run_id))
        story.world.clock_offset -= 600
        story.passes(LEASE_SECONDS)

        story.world.crash(story.worker)
        story.ends()

        assert story.executions(run_id) == [(1, "died"), (2, "succeeded")]


def test_a_step_forwards_of_the_clock_does_not_either(simulated_server):
    with telling(simulated_server) as story:
        run_id = story.submit("long", "quick", delay=4)
        story.until(lambda: run_id in story.world.ledger.leases)
        story.world.clock_offset += 3600
        story.until(lambda: story.executions(run_id))

        story.world.crash(story.worker)
        story.ends()

        assert story.executions(run_id) == [(1, "died"), (2, "succeeded")]


def test_a_cancel_outlives_the_worker_that_read_it(simulated_server):
    with telling(simulated_server) as story:
        run_id = story.submit("stubborn", "quick")
        story.until(lambda: story.executions(run_id))
        assert story.cancel(run_id) is CancelAnswer.REQUESTED
        story.passes(1.6)  # It has looked, however long it may rest between two looks, and asked the handler to stop.

        story.world.crash(story.worker)
        story.ends()

        assert story.executions(run_id) == [(1, "died")]
        assert story.world.ledger.final[run_id] == "cancelled"


def test_suspects_that_wait_for_their_turn_are_not_handed_to_and_fro(simulated_server):
    with telling(simulated_server, workers=2) as story:
        for _ in range(8):
            story.submit("slow", "long")
        story.until(lambda: len(story.world.ledger.running()) == 8)
        for role in story.world.roles:
            if role.name.startswith("worker") and role.process is not None:
                story.world.crash(role.process)
        story.until(lambda: story.world.ledger.running())
        before = story.world.statements

        story.passes(10)

        assert story.world.statements - before < 800  # what maintenance asks in that time is about 600


def test_run_cancelled_after_a_clock_step_back_is_ended_for_later_requests(simulated_server):
    with telling(simulated_server) as story:
        run_id = story.submit("fail", base=4, concurrency=("door", 1))  # At a gate nobody holds it before it is due.
        story.until(lambda: story.world.ledger.earliest[run_id] > story.world.ledger.created[run_id].due_at)
        story.world.crash(story.worker)
        story.world.clock_offset -= 30

        assert story.cancel(run_id) is CancelAnswer.CANCELLED
        assert story.cancel(run_id) is CancelAnswer.TOO_LATE
        story.ends()


def test_loss_reported_again_after_a_lost_reply_is_recorded_once(simulated_server):
    with telling(simulated_server) as story:
        run_id = story.submit("crash", "crash", "quick")
        story.until(lambda: story.world.query("select from duly.attempts"))  # The reaper has told of the first.
        story.world.network.plot["leased.settle"] = "lost_reply"

        story.ends()

        assert story.executions(run_id) == [(1, "died"), (2, "crashed"), (3, "succeeded")]


def test_clock_step_forward_expires_no_worker_that_sends_heartbeats(simulated_server):
    with telling(simulated_server) as story:
        run_id = story.submit("long", "quick")
        story.until(lambda: story.executions(run_id))
        beats = story.beats()
        story.until(lambda: story.beats() > beats)

        story.world.clock_offset += 3600  # Before the next beat it asks for more, and is told that its lease has ended.
        story.ends()

        assert story.executions(run_id) == [(1, "succeeded")]


@pytest.mark.parametrize("phase", range(8))
def test_the_runs_of_a_dead_worker_start_again_within_the_lease_and_two_seconds(simulated_server, phase):
    lease = 2.05  # Longer than so many looks of the reaper, by little: it has to look once more.
    with telling(simulated_server, workers=2, lease_seconds=lease) as story:
        story.passes(1 + phase / 8)
        run_ids = [story.submit("long", "quick") for _ in range(4)]
        story.until(lambda: len(story.world.ledger.running()) == 4)
        beats = story.beats()
        story.until(lambda: story.beats() > beats)
        died_at = story.world.now
        for process in {item.process for item in story.world.ledger.running()}:
            story.world.crash(process)
        story.world.calm()  # Others take their place.

        story.until(lambda: all(len(story.executions(run_id)) == 2 for run_id in run_ids))

        assert story.world.now - died_at <= lease + 2


def test_a_retry_sooner_than_the_poll_does_not_wait_for_it(simulated_server):
    with telling(simulated_server) as story:
        run_id = story.submit("fail", "fail", "fail", "quick")
        story.ends()

        assert max(story.pauses(run_id)) < 0.4  # A failure may take 0.3 s.


def test_run_waiting_for_a_concurrency_key_starts_before_the_next_poll(simulated_server):
    with telling(simulated_server) as story:
        inside = story.submit("long", concurrency=("door", 1))
        waiting = [story.submit("quick", concurrency=("door", 1)) for _ in range(4)]
        story.ends()

        assert story.executions(inside) == [(1, "succeeded")]
        assert max(story.pauses(*waiting)) < 0.3  # What is quick takes 0.2 s at most.
