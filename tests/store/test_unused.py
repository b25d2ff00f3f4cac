"""The schema holds nothing that no code uses: each function is called, each column is read."""

import re
from pathlib import Path

from duly.store.schema import in_force
from scripts import functions_page

ROOT = Path(__file__).parents[2]
# For users' own SQL, as docs and README describe it.
FOR_USERS = {"submit"}
INSERTED = re.compile(r"insert into duly\.\w+(?: as \w+)? \([^()]*\)")
SET = re.compile(r"(\bset |,\s+)\w+ = ")


def python() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "src/duly").rglob("*.py"))


def reading() -> str:
    """Give all SQL, without comments and without the names of columns that are only written."""
    statements = [path.read_text() for path in functions_page.STATEMENTS.rglob("*.sql")]
    code = re.sub(r"--[^\n]*", "", "\n".join([*statements, *(file.sql for file in in_force.known())]))
    return SET.sub(r"\1", INSERTED.sub("", code))


def test_each_function_is_called():
    baseline, source = (functions_page.SCHEMA / "baseline.sql").read_text(), python()
    called = functions_page.callers().keys() | FOR_USERS
    every = {one.name for inside in functions_page.functions().values() for one in inside}

    def is_used(name: str) -> bool:
        in_tables = re.findall(rf"(?<!function )\bduly\.{name}\(", baseline)
        return name in called or bool(in_tables) or f"duly.{name}(" in source

    assert {name for name in every if not is_used(name)} == set()


def test_each_column_is_read():
    section = (ROOT / "tests/store/schema.txt").read_text().split("# columns\n")[1].split("\n\n")[0]
    words = set(re.findall(r"\w+", reading() + python()))
    columns = re.findall(r"^(\w+)\.\d\d (\w+)", section, re.MULTILINE)

    assert [column for column in columns if column[1] not in words] == []
