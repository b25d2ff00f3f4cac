"""The page of requirements is complete, and names only tests that exist; so does that of promises, which shows each by some."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IDS = [f"R{number:02}" for number in range(1, 95)] + [f"N{number}" for number in range(1, 6)]
NOT_YET = "not yet"
TEST_NAMED = re.compile(r"`([^`]+)`")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def requirements() -> Iterator[tuple[str, str, str]]:
    """Read each line of the table as its id, its wording and what shows it."""
    for line in (ROOT / "docs" / "reference" / "requirements.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith(("| R", "| N")):
            identifier, wording, shown_by = cells
            yield identifier, wording, shown_by


def named_tests() -> list[tuple[str, str]]:
    """Pair each requirement with each test that is said to show it."""
    return [
        (identifier, name.strip().strip("`"))
        for identifier, _, shown_by in requirements()
        if shown_by != NOT_YET
        for name in shown_by.split(",")
    ]


def promises() -> list[tuple[str, list[str]]]:
    """Read each line of the table of promises as its wording and the tests that are said to show it."""
    _, _, section = (
        (ROOT / "docs" / "reference" / "promises.md").read_text().partition("| promise | shown by |\n|---|---|\n")
    )
    rows = section.partition("\n\n")[0].splitlines()
    return [(wording, TEST_NAMED.findall(shown_by)) for _, wording, shown_by, _ in (row.split("|") for row in rows)]


def missing(name: str, root: Path) -> str:
    """Say what of `path::Class::test` does not exist under `root`; "" when all of it does."""
    path, *steps = name.split("::")
    if not (root / path).is_file():
        return f"there is no file {path}"
    if not steps:
        return f"{path} names a file, not a test in it"
    if not steps[-1].startswith("test_"):
        return f"{steps[-1]} in {path} is no test"
    body = statements_of(root / path)
    for step in steps:
        found = [node for node in body if isinstance(node, Definition) and node.name == step]
        if not found:
            return f"{path} has no {step}"
        body = found[0].body
    return ""


@cache
def statements_of(file: Path) -> list[ast.stmt]:
    """Read a file once, though many requirements are shown in it."""
    return ast.parse(file.read_text()).body


def test_each_requirement_is_listed_once_and_in_order():
    assert [identifier for identifier, _, _ in requirements()] == IDS


def test_requirement_has_a_text_and_names_its_proof_or_its_absence():
    assert [identifier for identifier, wording, shown_by in requirements() if not wording or not shown_by] == []


def test_each_named_test_exists():
    absent = [f"{identifier}: {what}" for identifier, name in named_tests() if (what := missing(name, ROOT))]

    assert absent == []


def test_each_promise_names_a_test_and_each_of_these_exists():
    found = promises()

    assert len(found) > 10
    assert [wording for wording, names in found if not names] == []
    assert [what for _, names in found for name in names if (what := missing(name, ROOT))] == []


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("tests/test_story.py::test_plain", ""),
        ("tests/test_story.py::test_awaited", ""),
        ("tests/test_story.py::TestGroup::test_inside", ""),
        ("tests/test_story.py::test_inside", "tests/test_story.py has no test_inside"),
        ("tests/test_story.py::TestGroup", "TestGroup in tests/test_story.py is no test"),
        ("tests/test_story.py", "tests/test_story.py names a file, not a test in it"),
        ("tests/test_gone.py::test_plain", "there is no file tests/test_gone.py"),
    ],
)
def test_a_test_that_does_not_exist_is_noticed(tmp_path, name, complaint):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_story.py").write_text(
        "def test_plain(): ...\nasync def test_awaited(): ...\nclass TestGroup:\n    def test_inside(self): ...\n"
    )

    assert missing(name, tmp_path) == complaint
