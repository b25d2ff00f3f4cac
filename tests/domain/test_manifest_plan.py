"""Plans of files, name by name."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from duly.domain.jobs.manifest import read_manifest
from duly.domain.jobs.manifest_diff import Kept, differences
from duly.domain.jobs.manifest_plan import Pausing, StepKind, decide, make_plan
from duly.domain.runs.options import NO_OPTIONS, options_of

AT = datetime(2026, 11, 2, 9, tzinfo=UTC)
FILE = read_manifest({"source": "s", "jobs": {"j": {"target": "greet", "schedule": {"every": "PT5M"}}}})


def kept(**more):
    """Give the job of that name as this file has made it, unless told otherwise."""
    given = {
        "job_id": UUID(int=1),
        "name": "j",
        "owner": "file",
        "source": "s",
        "state": "active",
        "pause_reason": None,
        "version": 1,
        "applied": 1,
        "handler": "greet",
        "payload": "{}",
        "queue": "default",
        "priority": 5,
        "options": NO_OPTIONS,
        "schedule": None,
        "every_seconds": 300,
        "anchor_at": AT,
    }
    return Kept(**{**given, **more})


def step(found, *, paused=None, declared=False):
    job = {"target": "greet", "schedule": {"every": "PT5M"}, "paused": paused}
    wanted = read_manifest({"source": "s", "jobs": {"j": job}}).jobs["j"]
    return decide("j", wanted, found, "s", declared)


@pytest.mark.parametrize(
    ("found", "kind", "is_drift"),
    [
        (None, StepKind.CREATE, False),
        (kept(), None, False),
        (kept(version=3), None, False),  # Changed, and changed back.
        (kept(queue="mail"), StepKind.CHANGE, False),
        (kept(queue="mail", version=2), StepKind.CHANGE, True),
        (kept(state="completed"), None, False),
        (kept(state="completed", every_seconds=60), StepKind.CREATE, False),
        (kept(state="cancelled"), StepKind.CREATE, True),
        (kept(state="cancelled", applied=None), StepKind.CREATE, False),  # The file took it out itself.
        (kept(owner="api", source=None, applied=None), StepKind.ADOPT, False),
        (kept(source="other"), StepKind.ADOPT, False),
        (kept(owner="code", source="app:app"), StepKind.ADOPT, False),
    ],
)
def test_a_job_that_the_file_names(found, kind, is_drift):
    decided = step(found)
    assert (decided and decided.kind, bool(decided and decided.is_drift)) == (kind, is_drift)


def test_plan_refuses_a_job_that_a_running_program_declares():
    decided = step(kept(owner="code", source="app:app"), declared=True)
    assert decided is not None
    assert decided.kind is StepKind.REFUSE
    assert step(kept(), declared=True) is None, "what is the file's already stays the file's"


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (kept(), StepKind.REMOVE),
        (kept(state="paused"), StepKind.REMOVE),
        (kept(state="completed"), None),
        (kept(state="cancelled"), None),
        (kept(source="other"), None),
        (kept(owner="api", source=None), None),
        (kept(owner="code", source="s"), None),
        (None, None),
    ],
)
def test_a_job_that_the_file_names_no_more(found, kind):
    decided = decide("j", None, found, "s", False)
    assert (decided and decided.kind) == kind


@pytest.mark.parametrize(
    ("state", "paused", "pausing"),
    [
        ("active", None, None),
        ("paused", None, None),
        ("active", False, None),
        ("paused", True, None),
        ("active", True, Pausing.PAUSE),
        ("paused", False, Pausing.RESUME),
    ],
)
def test_plan_changes_a_pause_only_if_the_manifest_sets_it(state, paused, pausing):
    decided = step(kept(state=state, pause_reason="why"), paused=paused)
    assert (decided and decided.pausing) == pausing


def test_job_removed_from_code_resumes_when_a_file_adopts_it():
    removed = kept(owner="code", source="app:app", state="paused", pause_reason="removed from code")
    assert (decided := step(removed))
    assert decided.pausing is Pausing.RESUME
    assert (decided := step(kept(owner="code", source="app:app", state="paused", pause_reason="a person's")))
    assert decided.pausing is None


def test_a_digest_tells_plans_apart():
    def digest(file, **standing):
        return make_plan(file, {"j": kept(**standing)} if standing else {}, {}, (), {}).digest

    other = read_manifest({"source": "s", "jobs": {"j": {"target": "greet", "schedule": {"every": "PT6M"}}}})
    found = [
        digest(FILE),
        digest(other),
        digest(FILE, queue="a"),
        digest(FILE, queue="b"),
        digest(FILE, queue="a", version=2),
    ]
    assert len(set(found)) == len(found)
    assert digest(FILE) == digest(FILE)


def test_options_of_its_own_differ_from_none():
    [difference, *_] = differences(kept(options=options_of(own=True)), FILE.jobs["j"].job)
    assert difference.field == "retry"


def test_unreadable_stored_schedule_is_compared_in_its_stored_form():
    stored = '{"trigger": {"type": "cron", "expr": "0 1 * * *", "tz": "Gone/Zone"}}'
    [difference] = differences(kept(schedule=stored, every_seconds=None, anchor_at=None), FILE.jobs["j"].job)
    assert difference.before == {"type": "cron", "expr": "0 1 * * *", "tz": "Gone/Zone"}
