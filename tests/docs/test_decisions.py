"""Decision records: numbered without holes, short, with four headings; the index lists each, and every reference resolves."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RECORDS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
LINES_MAX = 60
LINE_LENGTH_MAX = 130
FOLDERS = ("docs", "scripts", "src", "tests", "ui/src")
SUFFIXES = {".md", ".py", ".sql", ".svelte", ".ts"}
HEADINGS = ["Context", "Decision", "Consequences", "Alternatives considered"]
REFERENCE = re.compile(r"decisions/([\w.-]+\.md)")
BETWEEN_RECORDS = re.compile(r"\]\((\d{4}[\w.-]*)\)")
NUMBERED = re.compile(r"\[[^\]\[]*?\b(\d{4})\b[^\]\[]*\]\([^)]*?(\d{4})-[\w.-]*\)")


def texts() -> dict[str, str]:
    """Read every file that may refer to a record."""
    below = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)
    return {str(path.relative_to(ROOT)): path.read_text() for path in (*ROOT.glob("*.md"), *below)}


def test_numbers_have_no_holes():
    assert [record.name[:4] for record in RECORDS] == [f"{number:04d}" for number in range(1, len(RECORDS) + 1)]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_a_record_is_short_and_has_the_four_headings(record):
    text = record.read_text()

    assert text.startswith(f"# {record.name[:4]}: ")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    assert len(text.splitlines()) <= LINES_MAX
    assert max(map(len, text.splitlines())) <= LINE_LENGTH_MAX


def test_the_index_lists_each_record_once_with_its_title():
    index = (ROOT / "docs/decisions/README.md").read_text()
    titles = [record.read_text().split("\n")[0].removeprefix("# ").replace(": ", " ", 1) for record in RECORDS]

    assert re.findall(r"^\| \[(.+?)\]\((.+?)\) \|", index, re.MULTILINE) == [
        (title, record.name) for title, record in zip(titles, RECORDS, strict=True)
    ]


def test_every_reference_resolves():
    known = {record.name for record in RECORDS} | {"README.md"}
    referred = {
        (name, target)
        for name, text in texts().items()
        for target in [*REFERENCE.findall(text), *(BETWEEN_RECORDS.findall(text) if "docs/decisions/" in name else [])]
    }

    assert len(referred) > len(RECORDS)
    assert {(name, target) for name, target in referred if target not in known} == set()


def test_a_link_that_shows_a_number_leads_to_that_record():
    shown = [(name, *pair) for name, text in texts().items() for pair in NUMBERED.findall(text)]

    assert [link for link in shown if link[1] != link[2]] == []
