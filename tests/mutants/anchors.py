"""Find the place that a mutant changes: a definition by its name, and a piece of syntax in it.

Neither file nor layout counts: Python is compared as a syntax tree, SQL as a sequence of tokens. `Wheel.insert` names a function,
class or assignment of Python by the end of its dotted name, so `wheel.Wheel.insert` tells two apart. `settle` names a function,
table or named statement of SQL, with or without its version; a table names its indexes and policies too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")
Token = re.Match[str]
_TOKEN = re.compile(r"--[^\n]*|/\*.*?\*/|\s+|'(?:[^']|'')*'|\$\w*\$|\w+(?:\.\d+)?|.", re.DOTALL)
_QUERY = re.compile(r"-- name: (\w+)")
_CREATED = re.compile(
    r"(?:create|alter) (?:or replace |unique |unlogged )*\w+ (?:duly \. )?(\w+)(?: (?:\w+ )*?on duly \. (\w+))?"
)
_VERSION = re.compile(r"_v\d+$")


class AnchorError(Exception):
    """The place of a mutant is missing, or there are several."""


class Edit(NamedTuple):
    """New text for a part of a file."""

    path: Path
    start: int
    end: int
    text: str

    def apply(self, source: Path) -> str:
        """Return the text of the file below `source` with the change made."""
        before = (source / self.path).read_text()
        return before[: self.start] + self.text + before[self.end :]


def find_in_python(source: Path, at: str, old: str, new: str) -> Edit:
    """Find an expression, or statements in a row. Raises AnchorError unless they stand there exactly once."""
    pattern = ast.parse(old).body
    is_expression = _is_expression(pattern) and _is_expression(ast.parse(new).body)
    wanted = _dump(pattern)
    edits, paths = [], set()
    for path in _files(source, "py", at):
        for node in _definitions(source / path, at):
            paths.add(path)
            for found in _expressions(node) if is_expression else _rows(node, len(pattern)):
                if _dump(found) == wanted:
                    indented = (new or "pass").replace("\n", "\n" + " " * found[0].col_offset)
                    edits.append(Edit(path, *_span(source / path, found), f"({new})" if is_expression else indented))
    return _only(edits, paths, at, old)


def find_in_sql(source: Path, at: str, old: str, new: str) -> Edit:
    """Find a sequence of tokens. Raises AnchorError unless it stands there exactly once."""
    wanted = [token[0] for token in _tokens(old)]
    edits, paths = [], set()
    for path in _files(source, "sql", at):
        for tokens in (tokens for names, tokens in _statements(source / path) if at in names):
            paths.add(path)
            edits += [
                Edit(path, found[0].start(), found[-1].end(), new)
                for found in _windows(tokens, len(wanted))
                if [token[0] for token in found] == wanted
            ]
    return _only(edits, paths, at, old)


def _only(edits: list[Edit], paths: set[Path], at: str, old: str) -> Edit:
    if not paths:
        raise AnchorError(f"nothing is named {at}")
    if len(edits) != 1:
        raise AnchorError(f"found {len(edits)} times in {at} ({', '.join(map(str, sorted(paths)))}): {old!r}")
    return edits[0]


@cache
def _read(path: Path) -> str:
    return path.read_text()


@cache
def _all_files(source: Path, suffix: str) -> list[Path]:
    return [path.relative_to(source) for path in sorted(source.rglob(f"*.{suffix}"))]


def _files(source: Path, suffix: str, at: str) -> list[Path]:
    name = at.rpartition(".")[2]
    hint = re.compile(rf"\b(?:def|class) {name}\b|^ *{name} ?[:=]" if suffix == "py" else name, re.MULTILINE)
    texts = ((path, _read(source / path)) for path in _all_files(source, suffix))
    return [path for path, text in texts if name in text and hint.search(text)]


def _windows(row: Sequence[T], length: int) -> Iterator[Sequence[T]]:
    return (row[start : start + length] for start in range(len(row) - length + 1))


# Python.


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(_read(path))


def _definitions(path: Path, at: str) -> Iterator[ast.AST]:
    waiting: list[tuple[str, ast.AST]] = [("." + ".".join(path.with_suffix("").parts), _tree(path))]
    while waiting:
        outer, node = waiting.pop()
        for child in ast.iter_child_nodes(node):
            if (name := _name(child)) and f"{outer}.{name}".endswith(f".{at}"):
                yield child
            elif not isinstance(child, ast.expr):
                waiting.append((f"{outer}.{name}" if name else outer, child))


def _name(node: ast.AST) -> str:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
    return ""


def _is_expression(body: list[ast.stmt]) -> bool:
    return len(body) == 1 and isinstance(body[0], ast.Expr)


def _expressions(node: ast.AST) -> Iterator[list[ast.expr]]:
    return ([inner] for inner in ast.walk(node) if isinstance(inner, ast.expr))


def _rows(node: ast.AST, length: int) -> Iterator[Sequence[ast.stmt]]:
    for inner in ast.walk(node):
        for field in ("body", "orelse", "finalbody"):
            if isinstance(row := getattr(inner, field, None), list):
                yield from _windows(row, length)


def _dump(nodes: Sequence[ast.AST]) -> list[str]:
    return [ast.dump(node.value if isinstance(node, ast.Expr) else node) for node in nodes]


def _span(path: Path, nodes: Sequence[ast.expr] | Sequence[ast.stmt]) -> tuple[int, int]:
    """Give offsets in the text: the columns of a syntax tree count bytes."""
    lines = _read(path).encode().split(b"\n")
    first, last = nodes[0], nodes[-1]
    slots = (first.lineno, first.col_offset), (last.end_lineno or 0, last.end_col_offset or 0)
    start, end = (len(b"\n".join([*lines[: line - 1], lines[line - 1][:column]]).decode()) for line, column in slots)
    return start, end


# SQL.


def _tokens(text: str) -> list[Token]:
    return [token for token in _TOKEN.finditer(text) if not token[0].isspace() and token[0][:2] not in ("--", "/*")]


@cache
def _statements(path: Path) -> list[tuple[set[str], list[Token]]]:
    """Cut a file into statements, at each named query and each semicolon outside a body, and name them."""
    found: list[tuple[set[str], list[Token]]] = [(set(), [])]
    in_body = False
    for token in _TOKEN.finditer(_read(path)):
        if query := _QUERY.match(token[0]):
            found.append(({query[1]}, []))
        elif _tokens(token[0]):
            found[-1][1].append(token)
            in_body ^= token[0].startswith("$") and len(token[0]) > 1
            if token[0] == ";" and not in_body:
                found.append((set(), []))
    for names, tokens in found:
        if created := _CREATED.match(" ".join(token[0] for token in tokens[:20])):
            names.update(form for name in created.groups("") for form in (name, _VERSION.sub("", name)))
    return found
