"""`duly drain`: what is left on a machine, and how it says so."""

import json

import pytest

from duly.store.connection.local import this_host


@pytest.fixture
def drainable(up):
    """Let the machine work again, whatever a test left."""
    yield up
    up.duly("drain", "--undo")


def test_drained_machine_is_reported_empty_and_works_again_after_undo(drainable):
    up = drainable
    said = up.duly("drain", "--json")
    assert said.returncode == 0, said
    told = json.loads(said.stdout)
    assert (told["host"], told["is_draining"], told["is_empty"]) == (this_host(), True, True)
    assert {one["role"] for one in told["processes"]} == {"scheduler", "worker"}
    assert "host_drained" in up.duly("doctor").stdout

    assert up.duly("drain", "--undo").returncode == 0
    assert "host_drained" not in up.duly("doctor").stdout


def test_machine_on_which_nothing_runs_cannot_be_drained(up):
    said = up.duly("drain", "nowhere")

    assert (said.returncode, "nowhere" in said.stderr) == (4, True)
