"""Examples of list filters are valid filters."""

from typing import get_args

import pytest

from duly.domain.jobs.filter import DEAD, JOBS, RUNS, WORKFLOWS, InvalidFilter, parse
from duly.wire.pages import DeadFilter, JobFilter, RunFilter, WorkflowFilter

LISTS = [(JobFilter, JOBS), (RunFilter, RUNS), (WorkflowFilter, WORKFLOWS), (DeadFilter, DEAD)]


@pytest.mark.parametrize(("kind", "fields"), LISTS)
def test_the_example_of_a_list_is_taken_by_it(kind, fields):
    [example] = get_args(kind)[1].examples

    assert not parse(example, fields).is_empty
    assert example in get_args(kind)[1].description


@pytest.mark.parametrize("fields", [fields for _, fields in LISTS])
@pytest.mark.parametrize("text", ["tag:a OR tag:b", "(tag:a)", ":a"])
def test_a_hint_is_taken_where_it_is_given(fields, text):
    with pytest.raises(InvalidFilter) as refused:
        parse(text, fields)

    assert refused.value.hint is not None
    assert not parse(refused.value.hint.removesuffix(" is any of them"), fields).is_empty
