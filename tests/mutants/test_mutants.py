"""The bank stays usable: every mutant still applies, most are the simulation's to find, and two of them die before our eyes."""

import re

import msgspec
import pytest

from tests.mutants.__main__ import BY_SIMULATION_MIN, sum_up
from tests.mutants.bank import BANK, BOXES, FOUND, SIMULATION, Mutant
from tests.mutants.runner import ROOT, Baseline, Fate, Memory, Trial, copy_tree, judge, try_mutant

SEEDS = 40
COMMENT = re.compile(r"--.*")
TRIED = ("everything of a dead worker counts as unstarted", "the host's name is the worker's identity")


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


def noticing(name):
    return Mutant("planted", "some.py", "", "", name)


@pytest.mark.parametrize(
    ("text", "fate"),
    [
        ("def test_it(nothing): pass", Fate.CRASHED),
        ("def test_it(nothing): pass\n\ndef test_that(): assert False", Fate.KILLED),
        ("import nothing", Fate.CRASHED),
        (f"def test_it(): raise RuntimeError('{'far ' * 30} asyncpg.exceptions.UndefinedColumnError')", Fate.CRASHED),
    ],
)
def test_only_a_test_that_fails_has_noticed(text, fate, tmp_path):
    (tmp_path / "test_it.py").write_text(text)

    assert judge(noticing("test_it.py"), tmp_path)[0] is fate


def test_a_mutant_may_declare_that_it_is_noticed_before_a_test_begins(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it(nothing): pass")

    assert judge(msgspec.structs.replace(noticing("test_it.py"), in_setup=True), tmp_path)[0] is Fate.KILLED


def test_a_test_that_is_red_without_the_mutant_has_noticed_nothing(tmp_path):
    memory = Memory(tmp_path / "memory")
    memory.keep_baseline(FOUND, "FAILED")
    [mutant] = [mutant for mutant in BANK if mutant.name == TRIED[0]]

    assert Baseline(memory).red(msgspec.structs.replace(mutant, killed_by=FOUND), "FAILED ...") == "FAILED"


def test_what_is_asked_of_the_tree_without_a_mutant_is_remembered_where_it_is_green(tmp_path):
    memory = Memory(tmp_path / "memory")
    green, red = noticing("tests/domain/test_hold.py"), noticing("tests/domain/test_nothing.py")

    assert Baseline(memory).red(green, "") == ""
    assert Baseline(memory).red(red, "")

    again = Memory(tmp_path / "memory")
    assert again.recall_baseline(green.killed_by) == ""
    assert again.recall_baseline(red.killed_by) is None


def test_what_does_not_even_migrate_shows_nothing():
    mutant = Mutant(
        "no SQL", BOXES, "create table duly.timers (", "create tabel duly.timers (", "tests/domain/test_hold.py"
    )

    trial = try_mutant(mutant)

    assert trial.fate is Fate.CRASHED
    assert trial.words.endswith("it does not even migrate")


def test_the_whole_bank_asks_for_enough_that_the_simulation_finds_alone():
    killed = [Trial(mutant, Fate.KILLED, 1.0, "") for mutant in BANK]
    few = [trial for trial in killed if trial.mutant.killed_by != SIMULATION] + [
        trial for trial in killed if trial.mutant.killed_by == SIMULATION
    ][: BY_SIMULATION_MIN - 1]

    assert sum_up(killed, is_whole=True)[1]
    assert sum_up(few, is_whole=False)[1]
    summary, is_good = sum_up(few, is_whole=True)
    assert not is_good
    assert "9 of them by the simulation alone, of which 10 are demanded" in summary
