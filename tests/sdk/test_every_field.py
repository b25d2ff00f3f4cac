"""Every field of a job's spec can be said with keywords, in `options(…)` and in `edit(…)`, and means what it means over HTTP."""

from datetime import timedelta
from typing import Any, cast

import pytest

from duly import Rate, Retry
from duly.domain.jobs.spec import Concurrency, JobSpec, RetryPolicy
from duly.domain.jobs.spec_of import spec_of
from duly.sdk.changes import changed
from duly.sdk.keywords import Changes
from tests.every_field import SCHEDULE, SPECS

WHOLE, ONCE = SPECS["function"], SPECS["command"]
RULES: list[dict[str, Any]] = [
    {"error": "*Timeout", "action": "snooze", "delay": timedelta(minutes=5)},
    {"status": "4xx", "action": "dead"},
    {"exit": 75, "action": "retry"},
]
# The keywords that say a field; what a field is not said by is named below.
KEYWORDS: dict[str, dict[str, Any]] = {
    "name": {"name": "whole"},
    "queue": {"queue": "mail"},
    "priority": {"priority": 2},
    "schedule": {"schedule": SCHEDULE},
    "retry": {
        "retry": Retry(3, 2, timedelta(minutes=1), "list", "equal", ["PT1S", 3600], timedelta(hours=12), RULES),
    },
    "timeout": {"timeout": timedelta(minutes=5)},
    "concurrency": {"concurrency": ("customer-7", 3)},
    "rate_limit": {"rate": Rate("mail", 10, per="PT1M", burst=5)},
    "expires_at": {"expires_at": ONCE.expires_at},
    "expires_after": {"expires_after": 1800},
    "tags": {"tags": ["night", "eu"]},
    "redact": {"redact": ["$.card", "$..password"]},
    "on_end": {"on_end": {"url": "https://hooks.example/done", "queue": "calls"}},
    "on_failure": {"on_failure": "mourn"},
}
ELSEWHERE = {"target", "payload", "on_event"}  # the handler, its arguments; events start jobs over HTTP and in files
OF_A_SCHEDULE = [field for field in KEYWORDS if field != "expires_at"]


def test_every_field_has_its_keyword():
    assert KEYWORDS.keys() | ELSEWHERE == set(JobSpec.__struct_fields__)


def test_all_keywords_together_are_the_whole_spec(greet):
    given = {name: value for field in OF_A_SCHEDULE for name, value in KEYWORDS[field].items()}

    spec = spec_of(greet.options(**given)._choices.job)

    for field in OF_A_SCHEDULE:
        assert getattr(spec, field) == getattr(WHOLE, field), field


@pytest.mark.parametrize("field", [field for field in KEYWORDS if field not in ("name", "schedule")])
def test_keyword_sets_only_its_own_field(greet, field):
    spec = spec_of(greet.options(**KEYWORDS[field])._choices.job)
    wanted = getattr(ONCE if field == "expires_at" else WHOLE, field)

    assert getattr(spec, field) == wanted
    own = {"retry": RetryPolicy()} if field in ("timeout", "concurrency", "rate_limit") else {}
    assert spec == JobSpec(target=spec.target, **{**own, field: wanted})


@pytest.mark.parametrize("field", OF_A_SCHEDULE)
def test_an_edit_changes_the_field_and_no_other(greet, field):
    plain = greet.options(every=60, retry=Retry())._choices.job

    edited = spec_of(changed(plain, cast(Changes, KEYWORDS[field]), greet.registered))

    before = spec_of(plain)
    others = set(JobSpec.__struct_fields__) - {field}
    assert getattr(edited, field) == getattr(WHOLE, field)
    assert {other: getattr(edited, other) for other in others} == {other: getattr(before, other) for other in others}


@pytest.mark.parametrize(
    ("keyword", "field"),
    [("timeout", "timeout"), ("concurrency", "concurrency"), ("fifo", "concurrency"), ("rate", "rate_limit")]
    + [(field, field) for field in ("expires_after", "on_end", "on_failure", "name")],
)
def test_an_edit_takes_a_field_away(greet, keyword, field):
    given = {name: value for field in OF_A_SCHEDULE for name, value in KEYWORDS[field].items()}

    edited = spec_of(changed(greet.options(**given)._choices.job, cast(Changes, {keyword: None}), greet.registered))

    assert getattr(edited, field) is None


def test_a_line_is_a_concurrency_key_with_an_order(greet):
    assert spec_of(greet.options(fifo="k")._choices.job).concurrency == Concurrency(key="k", order="fifo")
