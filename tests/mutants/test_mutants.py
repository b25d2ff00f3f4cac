"""The bank stays usable: each mutant has one place and a test, and the runner tells a notice from a crash."""

import ast
import re

import pytest

from tests.mutants.__main__ import BY_SIMULATION_MIN, confirmed, sum_up
from tests.mutants.anchors import AnchorError, find_in_python, find_in_sql
from tests.mutants.bank import BANK, SIMULATION, SOURCE, Python, Sql
from tests.mutants.runner import ROOT, Fate, Memory, Trial, judge, try_mutant

TRIED = "a webhook from the future is taken"
PYTHON = '''
LIMIT = 2

class Wheel:
    size: int = 2

    def turn(self, run):
        """Größe."""  # 2 bytes a letter
        größe = (  run.fence,
                   2 )
        if größe:
            self.start( run )
            self.log()
        return größe

def turn(run):
    return run.fence
'''
QUERIES = """
-- name: start
select 2

-- name: finish
-- Ends with 1.
select 1, $1::text -- 1
"""
SQL = """
create table duly.runs (run_id uuid, primary key (run_id));
create policy of_its_tenant on duly.runs using (tenant = 1);
create or replace function duly.finish_v2(p_fence bigint) returns void language sql as $$
    select 'it''s; one' where fence = p_fence;   -- where fence = p_fence
$$;
create function duly.other() returns void language sql as $$ select 1 where fence = p_fence $$;
"""


@pytest.fixture
def source(tmp_path):
    for name, text in {"worker/wheel.py": PYTHON, "store/finish.sql": SQL, "sql/runs.sql": QUERIES}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    return tmp_path


class TestBank:
    @pytest.mark.parametrize("mutant", BANK, ids=lambda mutant: mutant.name)
    def test_mutant_finds_its_anchor_and_changes_the_source_there(self, mutant):
        edit = mutant.find()
        after = edit.apply(SOURCE)

        assert after != (SOURCE / edit.path).read_text()
        if isinstance(mutant, Python):
            ast.parse(after)

    def test_each_mutant_has_a_name_of_its_own_and_a_test_that_exists(self):
        assert len({mutant.name for mutant in BANK}) == len(BANK) >= 100
        for mutant in BANK:
            file, *names = mutant.killed_by.split("::")
            if file != SIMULATION:
                text = (ROOT / file).read_text()
                assert all(re.search(rf"(class|def) {name}\b", text) for name in names), mutant.name

    def test_anchor_error_names_the_mutant_without_an_anchor(self):
        with pytest.raises(AnchorError, match=r'mutant "lost": nothing is named Nobody\.knows'):
            Python("lost", "Nobody.knows", "1", "2").find()


class TestPythonAnchor:
    @pytest.mark.parametrize(
        ("at", "old", "new", "line"),
        [
            ("LIMIT", "2", "3", "LIMIT = (3)"),
            ("Wheel.size", "2", "3", "    size: int = (3)"),
            ("Wheel", "run.fence", "0", "        größe = (  (0),"),
            ("wheel.turn", "run.fence", "0", "    return (0)"),
            ("Wheel.turn", "(run.fence, 2)", "()", "        größe = (())"),
            ("Wheel.turn", "self.start(run)", "", "            pass"),
            (
                "Wheel.turn",
                "self.start(run)\nself.log()",
                "run = 1\nrun = 2",
                "            run = 1\n            run = 2\n",
            ),
        ],
    )
    def test_syntax_counts_and_layout_does_not(self, source, at, old, new, line):
        after = find_in_python(source, at, old, new).apply(source)

        assert line in after
        compile(after, "wheel.py", "exec")

    @pytest.mark.parametrize(
        ("at", "old", "why"),
        [
            ("Wheel.spin", "run.fence", "nothing is named Wheel.spin"),
            ("Wheel.turn", "run.lease", "found 0 times in Wheel.turn (worker/wheel.py): 'run.lease'"),
            ("turn", "run.fence", "found 2 times in turn (worker/wheel.py): 'run.fence'"),
        ],
    )
    def test_anchor_that_is_missing_or_ambiguous_is_refused(self, source, at, old, why):
        with pytest.raises(AnchorError, match=re.escape(why)):
            find_in_python(source, at, old, "None")


class TestSqlAnchor:
    @pytest.mark.parametrize(
        ("at", "old", "new", "line"),
        [
            ("finish", "where fence=p_fence", "", "    select 'it''s; one' ;   -- where fence = p_fence"),
            ("finish_v2", "'it''s; one'", "2", "    select 2 where"),
            ("finish", "$1 :: text", "1", "select 1, 1 -- 1"),
            ("runs", "primary key(run_id)", "check (true)", "(run_id uuid, check (true));"),
            ("runs", "tenant = 1", "true", "on duly.runs using (true);"),
            ("of_its_tenant", "tenant = 1", "true", "on duly.runs using (true);"),
        ],
    )
    def test_tokens_count_and_layout_does_not(self, source, at, old, new, line):
        assert line in find_in_sql(source, at, old, new).apply(source)

    @pytest.mark.parametrize(
        ("at", "old", "why"),
        [
            ("settle", "fence", "nothing is named settle"),
            ("other", "fence = 2", "found 0 times in other (store/finish.sql): 'fence = 2'"),
            ("runs", "run_id", "found 2 times in runs (store/finish.sql): 'run_id'"),
        ],
    )
    def test_anchor_that_is_missing_or_ambiguous_is_refused(self, source, at, old, why):
        with pytest.raises(AnchorError, match=re.escape(why)):
            find_in_sql(source, at, old, "null")


class TestRunner:
    def test_a_mutant_is_killed_by_its_test(self):
        [mutant] = [mutant for mutant in BANK if mutant.name == TRIED]

        trial = try_mutant(mutant)

        assert trial.fate is Fate.KILLED, trial.words

    @pytest.mark.parametrize(
        ("text", "fate"),
        [
            ("def test_it(nothing): pass", Fate.CRASHED),
            ("def test_it(nothing): pass\n\ndef test_that(): assert False", Fate.KILLED),
            (f"def test_it(): raise RuntimeError('{'far ' * 30} asyncpg.UndefinedColumnError')", Fate.CRASHED),
            ("def test_it(): pass", Fate.SURVIVED),
        ],
    )
    def test_only_a_failed_test_has_noticed(self, text, fate, tmp_path):
        (tmp_path / "test_it.py").write_text(text)

        assert judge("test_it.py", tmp_path)[0] is fate

    def test_a_test_that_fails_without_the_mutant_has_noticed_nothing(self, tmp_path):
        memory = Memory(tmp_path / "memory")
        missing = Trial(Sql("planted", "", "", "", "tests/mutants/test_missing.py"), Fate.KILLED, 1.0, "FAILED")

        assert confirmed(missing, memory).fate is Fate.RED_ANYWAY
        assert Memory(tmp_path / "memory").recall(missing.mutant) is None

    def test_a_kill_is_remembered(self, tmp_path):
        memory = Memory(tmp_path / "memory")
        killed = Trial(Sql("planted", "", "", "", "tests/api/test_worker.py"), Fate.KILLED, 1.0, "FAILED test_it")
        memory.keep("tests/api/test_worker.py", "")  # Green without the mutant.

        assert confirmed(killed, memory).fate is Fate.KILLED
        assert Memory(tmp_path / "memory").recall(killed.mutant) == "FAILED test_it"

    def test_the_simulation_must_kill_enough_mutants_alone(self):
        killed = [Trial(mutant, Fate.KILLED, 1.0, "") for mutant in BANK]
        by_simulation = [trial for trial in killed if trial.mutant.killed_by == SIMULATION]
        few = [trial for trial in killed if trial not in by_simulation[BY_SIMULATION_MIN - 1 :]]

        assert sum_up(killed, is_whole=True)[1]
        assert sum_up(few, is_whole=False)[1]
        summary, is_good = sum_up(few, is_whole=True)
        assert not is_good
        assert "9 of them by the simulation alone, of which 10 are demanded" in summary
