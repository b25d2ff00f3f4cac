"""Rules of notifications in a file: read with the jobs, compared in their normal form, and never with a secret."""

import pytest

from duly.domain.jobs.manifest import read_manifest
from duly.domain.jobs.manifest_diff import KeptRule
from duly.domain.jobs.manifest_export import export
from duly.domain.jobs.manifest_plan import StepKind, decide_rule
from duly.domain.jobs.manifest_text import read_text
from duly.domain.notifications.rule import RULES_MAX
from duly.domain.problems import InvalidManifest

RULE = {"events": ["dead", "absent"], "channels": ["ops"]}


def a_file(**rules):
    return read_manifest({"source": "billing", "notification_rules": rules})


def a_rule(**more):
    return a_file(all={**RULE, **more}).rules["all"]


def kept(source: str | None = "billing", changed=False, **more):
    definition = a_rule(**more).definition
    return KeptRule(definition, source, None if source is None else {} if changed else definition)


def test_file_may_have_rules_alone_and_an_empty_key_counts_as_left_out():
    assert a_rule(quiet=None, filter=None).definition == a_rule().definition


def test_every_problem_of_every_rule_is_reported_with_its_line():
    text = """
source: billing
notification_rules:
  one:
    events: [burnt]
    channels: [ops]
  two:
    events: [dead]
    chanels: [ops]
  three:
    events: [dead]
    channels: [ops]
    late_after: P60D
  four: {events: [dead], channels: [ops], filter: "owner:file"}
"""
    document = read_text(text, "duly.yaml")

    with pytest.raises(InvalidManifest) as refused:
        read_manifest(document.value, document.places, "duly.yaml")

    found = {(problem.path[1], problem.line) for problem in refused.value.problems}
    assert found == {("one", 5), ("two", 7), ("two", 9), ("three", 10), ("four", 14)}


def test_file_has_as_many_rules_as_a_tenant_may_have():
    assert len(a_file(**{f"r{number}": RULE for number in range(RULES_MAX)}).rules) == RULES_MAX
    with pytest.raises(InvalidManifest, match=f"the limit is {RULES_MAX}"):
        a_file(**{f"r{number}": RULE for number in range(RULES_MAX + 1)})


@pytest.mark.parametrize(
    ("standing", "kind", "is_drift"),
    [
        (None, StepKind.CREATE, False),
        (kept(), None, False),
        (kept(late_after="PT300S", events=["absent", "dead"]), None, False),
        (kept(mode="digest"), StepKind.CHANGE, False),
        (kept(mode="digest", changed=True), StepKind.CHANGE, True),
        (kept(source=None), StepKind.ADOPT, False),
        (kept(source="shop"), StepKind.ADOPT, False),
    ],
)
def test_step_of_a_rule_that_the_file_has(standing, kind, is_drift):
    step = decide_rule("all", a_rule(), standing, "billing")

    assert (step and step.kind, bool(step and step.is_drift)) == (kind, is_drift)


def test_rule_that_the_file_no_longer_has_is_removed_unless_it_is_another_files():
    assert decide_rule("all", None, kept(source="shop"), "billing") is None
    assert decide_rule("all", None, kept(source=None), "billing") is None
    step = decide_rule("all", None, kept(changed=True), "billing")
    assert step is not None
    assert (step.kind, step.is_drift) == (StepKind.REMOVE, True)


def test_export_of_a_rule_has_what_differs_from_the_defaults_and_reads_back_the_same():
    rule = a_rule(mode="digest", quiet={"start": "22:00", "end": "07:00"})

    written = export("billing", [], {}, {"all": rule.spec})

    assert written["notification_rules"]["all"].keys() == {*RULE, "mode", "quiet"}
    assert read_manifest(written).rules["all"].definition == rule.definition
