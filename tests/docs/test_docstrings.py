"""Docstrings begin with the noun or the verb, so that a reader knows at once what they are about."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import duly

SOURCE = Path(duly.__file__).parent
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
OBLIQUE = re.compile(r"(what|who|whoever|whose|those|how|that|where|which|why)\b|it is\b.*\bthat\b", re.IGNORECASE)


def test_no_docstring_begins_with_a_question_word():
    oblique = [f"{where}: {text}" for where, text in _docstrings() if OBLIQUE.match(text)]

    assert oblique == []


def test_docstring_rule_matches_oblique_openings_only():
    assert OBLIQUE.match("What a job was: the versions of its definition.")
    assert OBLIQUE.match("It is the claim that decides.")
    assert not OBLIQUE.match("Past versions of a job's definition.")
    assert not OBLIQUE.match("Whether a run may start.")


def _docstrings() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
                yield f"{path.relative_to(SOURCE)}:{getattr(node, 'name', '')}", text.splitlines()[0]
