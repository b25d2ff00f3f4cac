"""The page about the audit names every action there is, and no other."""

import re
from pathlib import Path

from duly.domain.tenancy.audit import Action

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "audit.md"
_ACTION = re.compile(r"`([a-z_]+\.[a-z_]+)`")


def test_audit_page_lists_every_action():
    page = PAGE.read_text()
    table = page.partition("## Actions")[2].partition("\n## ")[0]

    assert sorted(_ACTION.findall(table)) == sorted(Action)
