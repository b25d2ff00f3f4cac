"""Marks in SQL files: the columns of a run and the settings of the planner, written out."""

import pytest

from duly.store.schema import in_force
from duly.store.schema.expand import expanded, run_columns

BOXES = ("timers", "blocked", "ready", "leased", "dead")
FIRST = (
    "select attname from pg_attribute where attrelid = $1::text::regclass and attnum between 1 and $2 order by attnum"
)


@pytest.mark.parametrize("box", BOXES)
async def test_each_box_begins_with_the_columns_of_a_run(database, box):
    rows = await database.fetch(FIRST, f"duly.{box}", len(run_columns()))

    assert [row[0] for row in rows] == list(run_columns())


def test_placeholder_expands_to_the_columns_in_order():
    assert expanded("({run}, fence)") == f"({', '.join(run_columns())}, fence)"
    assert expanded("{taken.run}") == ", ".join(f"taken.{name}" for name in run_columns())
    assert expanded("{run types}").startswith("run_id uuid, job_id uuid, scheduled_at timestamptz")


def test_placeholder_change_replaces_its_column():
    text = expanded("""{run: attempt = attempt + 1, options = options || '{"has_slot": true}'}""")

    assert "tenant, attempt + 1 as attempt, priority" in text
    assert text.endswith("""payload, options || '{"has_slot": true}' as options""")
    assert text.count(" as ") == 2


def test_a_change_of_no_column_is_refused():
    with pytest.raises(AssertionError):
        expanded("{run: nothing = 1}")


def test_planner_settings_are_written_out():
    assert expanded("{planned by index, once}") == (
        "set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan"
    )


def test_applied_files_contain_no_placeholder():
    assert not [file.name for file in in_force.known() if "{run" in file.sql or "{planned" in file.sql]
