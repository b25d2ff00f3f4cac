"""Errors of a schedule for people: each a sentence, with a caret under its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duly.domain.triggers.errors import TriggerError

PREFIX = "duly: "


def explained(errors: Iterable[tuple[Mapping[str, Any], str | None]]) -> str:
    """Write errors, each with the text it is about, if known."""
    return "\n".join(line for error, expression in errors for line in _lines(error, expression))


def explained_error(error: TriggerError) -> str:
    """Write all errors of an exception, without the prefix of the first."""
    return explained((one.as_json(), one.expression) for one in error.errors).removeprefix(PREFIX)


def _lines(error: Mapping[str, Any], expression: str | None) -> Iterable[str]:
    is_placed = expression is not None and error.get("span")
    yield (
        f"{PREFIX}{error['message']}"
        if is_placed or "code" not in error
        else f"{PREFIX}{error['message']} ({error['code']})"
    )
    if expression is not None and (span := error.get("span")):
        width = max(1, min(span[1], max(len(expression), span[0] + 1)) - span[0])
        # A tab takes one column here, so that the caret stands where it should.
        yield "  " + expression.replace("\t", " ")
        yield "  " + " " * span[0] + "^" * width
    if error["hint"]:
        yield f"  try: {error['hint']}"
