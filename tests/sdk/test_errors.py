"""Errors of runs and workflows name the facts."""

from uuid import UUID

from duly import ResultNotKept, RunFailed, WorkflowFailed

RUN = {"run_id": UUID(int=1), "handler": "greet", "attempt": 0, "reason": None, "attempts": []}


def test_a_run_without_a_reason_names_none():
    error = RunFailed({**RUN, "state": "expired"})

    assert (error.state, error.reason) == ("expired", None)
    assert "None" not in str(error)
    assert str(error).endswith("is expired")


def test_a_result_that_was_not_kept_is_no_failure():
    error = ResultNotKept({**RUN, "state": "succeeded"}, "its result was too large")

    assert not issubclass(ResultNotKept, RunFailed)
    assert "succeeded" in str(error)
    assert "its result was too large" in str(error)


def test_a_node_without_a_reason_is_named_alone():
    nodes = [{"name": "fetch", "state": "expired", "reason": None}, {"name": "send", "state": "failed", "reason": "no"}]
    error = WorkflowFailed(
        {"workflow_id": UUID(int=2), "name": "nightly", "state": "failed", "reason": None, "nodes": nodes}
    )

    assert error.failed == {"fetch": None, "send": "no"}
    assert "None" not in str(error)
