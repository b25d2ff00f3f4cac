"""Every table that is no box is on the page about them, and the page names no others."""

import re
from pathlib import Path

from scripts import functions_page

ROOT = Path(__file__).parents[2]
BOXES = {"timers", "blocked", "ready", "leased", "dead", "attempts"}


def test_each_table_is_on_the_page():
    section = (ROOT / "tests/store/schema.txt").read_text().split("# tables\n")[1].split("\n\n")[0]
    tables = {line.split()[0] for line in section.splitlines() if " of " not in line} - BOXES
    page = (ROOT / "docs/reference/tables.md").read_text()
    named = {
        name for cell in re.findall(r"^\| (`[^|]+) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)
    }

    assert named == tables


def test_the_page_of_functions_is_as_the_files_are():
    assert functions_page.PAGE.read_text() == functions_page.page(), "run `python scripts/functions_page.py`"
