"""Every field of a job's spec can be typed, in `duly submit` and in `duly jobs edit`, and means what it means over HTTP."""

import json
from typing import Any

import click
import pytest

from duly.cli.commands.jobs.edit import changed, edit_job
from duly.cli.commands.submit import submit
from duly.cli.flags.submission import read
from duly.domain.jobs.compile import compile_recurring
from duly.domain.jobs.spec import Callback, JobSpec, RetryPolicy
from duly.domain.jobs.spec_of import spec_of
from tests.every_field import SCHEDULE, SPECS

WHOLE = SPECS["function"]
# The flags that say a field, beside the words of a command.
FLAGS: dict[str, list[str]] = {
    "name": ["--name", "whole"],
    "queue": ["--queue", "mail"],
    "priority": ["--priority", "2"],
    "schedule": ["--schedule", json.dumps(SCHEDULE)],
    "retry": [
        *("--retry-delay", "PT1S", "--retry-delay", "3600", "--max-attempts", "3", "--retry-base", "2"),
        *("--retry-cap", "PT1M", "--retry-jitter", "equal", "--max-age", "PT12H"),
        *("--on-error", "*Timeout=snooze:PT5M", "--on-error", "4xx=dead", "--on-error", "exit:75=retry"),
    ],
    "timeout": ["--timeout", "300"],
    "concurrency": ["--concurrency", "customer-7=3"],
    "rate_limit": ["--rate", "mail=10/PT1M", "--burst", "5"],
    "expires_after": ["--expires-after", "PT30M"],
    "expires_at": ["--expires-at", "2026-12-01T12:00:00Z"],
    "tags": ["--tag", "night", "--tag", "eu"],
    "redact": ["--redact", "$.card", "--redact", "$..password"],
    "on_failure": ["--on-failure", "mourn"],
    "on_end": ["--on-end", "https://hooks.example/done"],
    "payload": ["name=a"],
    "target": ["--webhook", "https://hooks.example/in"],
}
ELSEWHERE = {"on_event"}  # events start jobs over HTTP and in files
NOT_EDITED = {"target", "expires_at"}  # another target is another job; a schedule has no one moment
OF_A_SCHEDULE = [field for field in FLAGS if field not in ("expires_at", "target")]


def typed(command: click.Command, *arguments: str) -> dict[str, Any]:
    """Parse what was typed as a command does."""
    return dict(command.make_context(command.name, list(arguments), resilient_parsing=False).params)


def submitted(*flags: str) -> JobSpec:
    """Give the spec of a job that is submitted."""
    return spec_of(read(typed(submit, "greet", *flags), None))


def wanted(field: str) -> Any:
    if field == "on_end":
        return Callback(url="https://hooks.example/done")
    return getattr(SPECS["command"] if field == "expires_at" else WHOLE, field)


def test_every_field_has_its_flag():
    assert FLAGS.keys() | ELSEWHERE == set(JobSpec.__struct_fields__)


def test_all_flags_together_are_the_whole_spec():
    spec = submitted(*(flag for field in OF_A_SCHEDULE for flag in FLAGS[field]))

    for field in OF_A_SCHEDULE:
        assert getattr(spec, field) == wanted(field), field


@pytest.mark.parametrize("field", [field for field in FLAGS if field not in ("name", "schedule", "target")])
def test_flag_sets_only_its_own_field(field):
    own = {"retry": RetryPolicy()} if field in ("timeout", "concurrency", "rate_limit") else {}

    assert submitted(*FLAGS[field]) == JobSpec(target=WHOLE.target, **{**own, field: wanted(field)})


@pytest.mark.parametrize("field", sorted(set(FLAGS) - NOT_EDITED))
def test_an_edit_changes_the_field_and_no_other(field):
    trigger = {"type": "cron", "expr": "0 1 * * *"}
    before = JobSpec(target=WHOLE.target, name="old", schedule={"trigger": trigger}, retry=RetryPolicy())
    given = {name: value for name, value in typed(edit_job, "old", *FLAGS[field]).items() if value not in (None, ())}

    depends_on = spec_of(compile_recurring(changed(before, given, None), None))

    others = set(JobSpec.__struct_fields__) - {field}
    assert getattr(depends_on, field) == wanted(field)
    assert {other: getattr(depends_on, other) for other in others} == {
        other: getattr(before, other) for other in others
    }
