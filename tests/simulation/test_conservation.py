"""Breaches of conservation are noticed with the very next statement, whoever sends it."""

import pytest

from tests.simulation.story import telling

COLUMNS = """job_id, scheduled_at, due_at, previous_scheduled_at, generation, tenant, attempt, priority, losses, suspect,
             payload_stored, queue, handler, payload, options"""


def noticed(server, story, script, *arguments):
    """Do something behind everybody's back, and give what is noticed of it."""
    before = story.world.statements
    server.execute(script.format(*arguments))
    story.until(lambda: story.world.ledger.violation)
    assert story.world.statements == before + 1
    return story.world.ledger.violation.promise


@pytest.mark.parametrize("statement", ["delete from duly.timers where run_id = '{}'", "truncate duly.timers"])
def test_conservation_reports_a_run_that_leaves_the_boxes_without_a_record(simulated_server, statement):
    with telling(simulated_server) as story:
        run_id = story.submit("quick", delay=30)

        assert noticed(simulated_server, story, statement, run_id) == "a run left the boxes without a record"


@pytest.fixture
def swallowing(simulated_server):
    """A table that takes rows and keeps none."""
    simulated_server.execute("""
        create function duly.swallow() returns trigger language plpgsql as 'begin return null; end';
        create trigger swallow before insert on duly.timers for each row execute function duly.swallow()""")
    yield
    simulated_server.execute("drop function duly.swallow() cascade")


def test_a_run_that_was_answered_for_and_is_not_there(simulated_server, swallowing):
    with (
        telling(simulated_server) as story,
        pytest.raises(AssertionError, match="a run was lost as it was submitted"),
    ):
        story.submit("quick", delay=30)


def test_a_run_in_two_boxes(simulated_server):
    with telling(simulated_server) as story:
        run_id = story.submit("quick", delay=30)
        twice = f"""insert into duly.ready (run_id, {COLUMNS})
                    select run_id, {COLUMNS} from duly.timers where run_id = '{{}}'"""

        assert noticed(simulated_server, story, twice, run_id) == "a run stands in two boxes"


def test_conservation_check_detects_a_duplicate_occurrence(simulated_server):
    with telling(simulated_server, schedules=1, storm_seconds=20) as story:
        story.until(lambda: story.world.query("select from duly.ready where job_id in (select job_id from duly.jobs)"))
        again = f"""insert into duly.ready (run_id, {COLUMNS})
                    select gen_random_uuid(), {COLUMNS} from duly.ready
                     where job_id in (select job_id from duly.jobs) limit 1"""

        assert noticed(simulated_server, story, again) == "an occurrence came about twice"


def test_conservation_check_detects_a_run_that_returns_after_its_end(simulated_server):
    with telling(simulated_server) as story:
        run_id = story.submit("quick")
        story.until(lambda: run_id in story.world.ledger.final)
        story.passes(0.5)
        back = f"""insert into duly.ready (run_id, {COLUMNS})
                   select run_id, job_id, scheduled_at, due_at, null, 1, tenant, attempt, 5, 0, false, false, queue, handler,
                          null, null
                     from duly.attempts where run_id = '{{}}'"""

        assert noticed(simulated_server, story, back, run_id) == "a run that has ended came back"
