"""The statements of migrations, and the locks that each takes: read from its text, before anything is run.

The modes are PostgreSQL's. A statement that is not recognised is unknown, and said to be so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

MOMENT, GROWS, UNKNOWN, NO_TIME = "a moment", "grows with the table", "not known", ""
_TOKEN = re.compile(r"--[^\n]*|\$(\w*)\$.*?\$\1\$|'(?:[^']|'')*'|;", re.DOTALL)
_T = r"(?:only )?(?:if (?:not )?exists )?(?:only )?(?:duly\.)?(\w+)"
_SCANS = re.compile(
    r"\b(?:add (?:constraint|primary key|unique|check|foreign key|exclude)|set not null|type|set data type|set logged|attach"
    r"|default (?:gen_random_uuid|random|clock_timestamp|nextval))\b"
)
_NOT_VALID = re.compile(r"\bnot valid\b|\busing index\b")


class Step(msgspec.Struct, frozen=True):
    """A statement: the strongest lock that it takes, on which table, and how long it keeps it."""

    statement: str
    lock: str | None
    table: str | None
    takes: str


# The first pattern that a statement begins with decides.
_KINDS: tuple[tuple[str, str | None, str], ...] = (
    (rf"create (?:unique )?index concurrently .*?\bon {_T}", "SHARE UPDATE EXCLUSIVE", GROWS),
    (rf"create (?:unique )?index .*?\bon {_T}", "SHARE", GROWS),
    (rf"drop index concurrently {_T}", "SHARE UPDATE EXCLUSIVE", MOMENT),
    (rf"drop index {_T}", "ACCESS EXCLUSIVE", MOMENT),
    (rf"alter index {_T}", "SHARE UPDATE EXCLUSIVE", MOMENT),
    (rf"alter table {_T} validate constraint", "SHARE UPDATE EXCLUSIVE", GROWS),
    (rf"alter table {_T} (?:set|reset) \(", "SHARE UPDATE EXCLUSIVE", MOMENT),
    (rf"alter table {_T} (?:enable|disable) trigger", "SHARE ROW EXCLUSIVE", MOMENT),
    (rf"alter table {_T}", "ACCESS EXCLUSIVE", MOMENT),
    (rf"drop (?:table|view) {_T}", "ACCESS EXCLUSIVE", MOMENT),
    (rf"create (?:constraint )?trigger .*?\bon {_T}", "SHARE ROW EXCLUSIVE", MOMENT),
    (rf"create or replace (?:constraint )?trigger .*?\bon {_T}", "SHARE ROW EXCLUSIVE", MOMENT),
    (rf"(?:drop trigger|create policy|drop policy|alter policy) .*?\bon {_T}", "ACCESS EXCLUSIVE", MOMENT),
    (rf"(?:update|delete from|insert into) {_T}", "ROW EXCLUSIVE", GROWS),
    (r"(?:create|drop|alter) (?:or replace )?(?:table|function|view|type|schema|sequence|domain)\b", None, NO_TIME),
    (r"(?:grant|revoke|comment|set)\b", None, NO_TIME),
)


def statements(sql: str) -> list[str]:
    """Split a migration into its statements, without comments."""
    return [one for one in (" ".join(part.split()) for part in _parts(sql)) if one]


def _parts(sql: str) -> Iterator[str]:
    part, at = "", 0
    for token in _TOKEN.finditer(sql):
        part += sql[at : token.start()]
        at = token.end()
        if token[0] == ";":
            yield part
            part = ""
        elif not token[0].startswith("--"):
            part += token[0]
    yield part + sql[at:]


def steps(sql: str) -> list[Step]:
    """Return what each statement of a migration locks."""
    return [_step(statement) for statement in statements(sql)]


def _step(statement: str) -> Step:
    text = statement.lower()
    for pattern, lock, takes in _KINDS:
        found = re.match(pattern, text)
        if found is not None:
            table = found[1] if found.groups() else None
            scans = text.startswith("alter table") and _SCANS.search(text) and not _NOT_VALID.search(text)
            return Step(statement, lock, table, GROWS if scans else takes)
    return Step(statement, UNKNOWN, None, UNKNOWN)
