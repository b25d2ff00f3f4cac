"""Bring the table of attack files in docs/explanation/security.md up to date: `python -m tests.security`.

The number of cases comes from pytest's collection. A file without a row gets one, with the first sentence of its docstring for
what it asserts, and a row without a file goes; areas and sentences that stand are kept.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "security.md"
HEAD = "| area | attack file | cases | asserted |\n|---|---|---|---|\n"
_COUNT = re.compile(r"^tests/security/(test_\w+\.py): (\d+)$", re.MULTILINE)
_ROW = re.compile(r"^\| (?P<area>.*?) \| `(?P<file>test_\w+\.py)` \| \d+ \| (?P<asserted>.*) \|$")


def counted() -> dict[str, int]:
    """Ask pytest how many cases each file has, those of `make proof` left out."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider", "tests/security"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {file: int(cases) for file, cases in _COUNT.findall(told)}


def renewed(page: str, cases: dict[str, int]) -> str:
    """Return the page with these numbers of cases."""
    before, _, rest = page.partition(HEAD)
    table, _, after = rest.partition("\n\n")
    rows = [row for line in table.splitlines() if (row := _ROW.match(line)) and row["file"] in cases]
    told = [(row["area"], row["file"], row["asserted"]) for row in rows]
    told += [("", file, sentence_of(file)) for file in sorted(cases.keys() - {row["file"] for row in rows})]
    lines = [f"| {area} | `{file}` | {cases[file]} | {asserted} |" for area, file, asserted in told]
    return f"{before}{HEAD}{chr(10).join(lines)}\n\n{after}"


def sentence_of(file: str) -> str:
    """Return the first line of a file's docstring."""
    text = ast.get_docstring(ast.parse((ROOT / "tests" / "security" / file).read_text())) or ""
    return text.partition("\n")[0]


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text(), counted()))
