"""The bank stays usable: every mutant still applies, most are the simulation's to find, and two of them die before our eyes."""

import re

import pytest

from tests.mutants.bank import BANK, SIMULATION
from tests.mutants.runner import ROOT, Fate, copy_tree, try_mutant

SEEDS = 40
FUNCTION = re.compile(r"^create (?:or replace )?function duly\.(\w+)\(", re.MULTILINE)
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


def test_each_in_sql_changes_the_definition_that_is_in_force():
    """A function is written anew by later migrations, and what it was before is never run."""
    in_force = {
        name: str(path.relative_to(ROOT))
        for path in sorted((ROOT / "src/duly/store/migrations").glob("*.sql"))
        for name in FUNCTION.findall(path.read_text())
    }

    out_of_force = [
        (mutant.name, function, in_force[function])
        for mutant in BANK
        if mutant.file.endswith(".sql")
        for function in [mutant.function or function_around(mutant)]
        if function and in_force[function] != mutant.file
    ]

    assert out_of_force == []


def function_around(mutant):
    """Name the function in which the mutant's text stands; None where it is the definition of a table or a view."""
    text = (ROOT / mutant.file).read_text()
    place = text.index(mutant.old)
    before = [found for found in FUNCTION.finditer(text) if found.start() < place]
    if not before or text.index("$$;", before[-1].start()) < place:
        return None
    return before[-1].group(1)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", [mutant for mutant in BANK if mutant.name in TRIED], ids=lambda mutant: mutant.name)
def test_the_simulation_notices(mutant):
    trial = try_mutant(mutant, SEEDS)

    assert trial.fate is Fate.KILLED, trial.words
