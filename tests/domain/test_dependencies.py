"""Dependencies of a one-shot, as they are written."""

from uuid import UUID

import pytest

from duly.domain.errors import InvalidOption
from duly.domain.runs.dependencies import DEPENDENCIES_MAX, check_dependencies, read_dependency

JOB = UUID(int=7)


def test_jobs_are_taken_in_their_order_as_runs_carry_them():
    assert check_dependencies([(JOB, "success"), (str(UUID(int=8)).upper(), "always")]) == (
        (str(JOB), "success"),
        (str(UUID(int=8)), "always"),
    )
    assert check_dependencies([]) == ()


@pytest.mark.parametrize(("typed", "on"), [("", "success"), (":failure", "failure"), (":always", "always")])
def test_a_job_is_typed_with_or_without_its_end(typed, on):
    assert read_dependency(f"{JOB}{typed}") == (str(JOB), on)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ([("nightly", "success")], "'nightly' is not a job id"),
        ([(JOB, "maybe")], "success, failure or always"),
        ([(JOB, "success"), (JOB, "always")], f"job {JOB} twice"),
        ([(UUID(int=number), "success") for number in range(DEPENDENCIES_MAX + 1)], "names 101 jobs; the limit is 100"),
    ],
)
def test_invalid_dependency_is_refused_with_a_remedy(asked, words):
    with pytest.raises(InvalidOption, match=words):
        check_dependencies(asked)
