"""The bank stays usable: every mutant still applies, most are the simulation's to find, and two of them die before our eyes."""

import re

import pytest

from tests.mutants.bank import BANK, SIMULATION
from tests.mutants.runner import ROOT, Fate, copy_tree, try_mutant

SEEDS = 40
COMMENT = re.compile(r"--.*")
TRIED = ("everything of a dead worker counts as unstarted", "the next fire counts from now")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the engine."""
    root = tmp_path_factory.mktemp("mutants")
    copy_tree(root)
    return root


@pytest.mark.parametrize("mutant", BANK, ids=lambda mutant: mutant.name)
def test_it_applies(mutant, tree):
    before = (tree / mutant.file).read_text()

    mutant.apply(tree)

    assert (tree / mutant.file).read_text() != before
    (tree / mutant.file).write_text(before)


def test_each_has_a_name_of_its_own_and_a_test_that_exists():
    names = [mutant.name for mutant in BANK]

    assert len(set(names)) == len(names) >= 18
    assert sum(mutant.killed_by == SIMULATION for mutant in BANK) >= 10
    for mutant in BANK:
        file, *names = mutant.killed_by.split("::")
        if file != SIMULATION:
            text = (ROOT / file).read_text() if names else ""
            assert (ROOT / file).exists(), mutant.name
            assert all(re.search(rf"(class|def) {name}\b", text) for name in names), mutant.name


def test_each_in_sql_changes_what_is_in_force_and_no_comment(tree):
    """A function stands in one place (tests/store/test_in_force.py), so what is changed there is what runs."""
    for mutant in BANK:
        if mutant.file.endswith(".sql"):
            before = (tree / mutant.file).read_text()
            mutant.apply(tree)
            after = (tree / mutant.file).read_text()
            (tree / mutant.file).write_text(before)

            assert COMMENT.sub("", after) != COMMENT.sub("", before), mutant.name


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", [mutant for mutant in BANK if mutant.name in TRIED], ids=lambda mutant: mutant.name)
def test_the_simulation_notices(mutant):
    trial = try_mutant(mutant, SEEDS)

    assert trial.fate is Fate.KILLED, trial.words
