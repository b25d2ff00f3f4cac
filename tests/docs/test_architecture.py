"""ARCHITECTURE.md walks three runs. Every file and function that it names exists, and a walk stays short."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "duly"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
ROW = re.compile(r"^\|[^|]*\| `([\w/.]+)` \| (.+) \|$", re.MULTILINE)
CHANGES = PAGE.split("## Where a change goes\n")[1].split("\n## ")[0]
PLACES = re.findall(r"`([\w.]+/[\w/.]*|\w+\.py)`", CHANGES.partition("\n|")[2])
STORED_MAX = 25
WALK_MAX = 50
ENTRIES_MAX = 24  # without the file that makes a folder a package
WALKS = ("A webhook over HTTP", "A cron fire", "A function inside the caller's transaction")
SHARED = "From ready to settled"


def section(title: str) -> list[tuple[str, list[str]]]:
    """Give the rows below a heading: each file with the functions named beside it."""
    text = PAGE.split(f"### {title}\n")[1].split("\n#")[0]
    return [(file, re.findall(r"`([\w.]+)`", functions)) for file, functions in ROW.findall(text)]


def files(title: str) -> set[str]:
    """Name the files of one walk."""
    return {file for file, _ in section(title)}


def defined_in(path: Path) -> set[str]:
    """Name everything that a file defines: functions and methods, or functions and statements of SQL."""
    text = path.read_text()
    if path.suffix == ".sql":
        return {*re.findall(r"function (duly\.\w+)", text), *re.findall(r"^-- name: (\w+)", text, re.MULTILINE)}
    return set(_names(ast.parse(text), ""))


def _names(node: ast.AST, before: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield before + child.name
            yield from _names(child, f"{before}{child.name}.")


@pytest.mark.parametrize(
    ("file", "functions"), [row for title in (*WALKS, SHARED) for row in section(title)], ids=lambda value: str(value)
)
def test_a_file_and_its_functions_exist(file, functions):
    path = SOURCE / file

    assert path.is_file()
    assert functions, "name a function"
    assert set(functions) <= defined_in(path)


@pytest.mark.parametrize("named", sorted(set(PLACES)))
def test_path_named_in_the_architecture_page_exists(named):
    root = ROOT if named.startswith(("docs/", "scripts/", "tests/", "ui/")) else SOURCE

    assert (root / named).exists()


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_is_short(title):
    assert 5 < len(files(title)) <= STORED_MAX
    assert len(files(title) | files(SHARED)) <= WALK_MAX


def test_no_folder_is_crowded():
    folders = [
        folder for folder in SOURCE.rglob("*") if folder.is_dir() and not {"static", "__pycache__"} & {*folder.parts}
    ]
    crowded = {folder.name: number for folder in (SOURCE, *folders) if (number := _entries(folder)) > ENTRIES_MAX}

    assert crowded.keys() <= {"migrations"}


def _entries(folder: Path) -> int:
    return sum(1 for entry in folder.iterdir() if entry.name not in ("__init__.py", "__pycache__"))
