"""The states in which a run is over have one definition; SQL and the dashboard, which cannot import it, agree with it."""

import re
from pathlib import Path

from duly.domain.runs.run import FINAL_STATES, RUN_STATES

ROOT = Path(__file__).parents[2]
WORDS = re.compile(r"'(\w+)'")


def test_final_states_are_states():
    assert set(FINAL_STATES) <= set(RUN_STATES)


def test_dashboard_has_the_same_final_states():
    [listed] = re.findall(r"const FINAL = \[(.*)\]", (ROOT / "ui" / "src" / "screens" / "Run.svelte").read_text())
    assert tuple(WORDS.findall(listed)) == FINAL_STATES


def test_functions_that_name_success_and_death_name_all_final_states():
    """What is not retried any more: only completion callbacks leave out what was skipped, because nobody waits for it."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "src" / "duly" / "store").rglob("*.sql")):
        for listed in re.findall(r"became (?:not )?in \(([^)]*)\)", path.read_text()):
            states = set(WORDS.findall(listed)) - {"retrying"}
            if {"succeeded", "dead"} <= states:
                found.setdefault(path.stem, set()).update(set(FINAL_STATES) - states)

    assert len(found) > 3
    assert {name: missing for name, missing in found.items() if missing} == {"completion_callbacks": {"skipped"}}
