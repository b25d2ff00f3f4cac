"""The words of an English schedule, read from left to right, and the refusal at the word that does not fit."""

from __future__ import annotations

import re
from typing import NoReturn

import msgspec

from duly.domain.triggers.errors import TriggerError

FORMS = (
    "every 15 minutes", "every day at 9am", "every weekday at 9:30am", "every monday and friday at 17:00", "daily", "hourly",
    "weekly on monday at noon", "on the 1st and 15th at 09:00", "first monday of the month at 9am",
    "last day of the month at midnight", "every year on march 5 at 9am", "in 20 minutes", "tomorrow at 9am",
    "next friday at 17:00", "2026-12-24 at noon",
)  # fmt: skip
_TOKEN = re.compile(r"[^ \t,]+|,")


class Token(msgspec.Struct, frozen=True):
    """A word and its place."""

    word: str
    start: int
    end: int


class Sentence:
    """The words of a text, read from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [Token(match[0].lower(), *match.span()) for match in _TOKEN.finditer(text)]
        self.at = 0

    @property
    def word(self) -> str:
        """The word that comes next; empty at the end."""
        return self.tokens[self.at].word if self.at < len(self.tokens) else ""

    def take(self) -> str:
        """Give the next word and go past it."""
        word = self.word
        self.at += 1
        return word

    def expect(self, *words: str) -> None:
        """Go past these words. Raises TriggerError at the first that is another."""
        for word in words:
            if self.word != word:
                self.refuse(f'expected "{word}"')
            self.at += 1

    def end(self) -> None:
        """Raise TriggerError if anything is left."""
        if self.at < len(self.tokens):
            self.refuse("nothing may follow here")

    def refuse(self, why: str) -> NoReturn:
        """Raise TriggerError at the next word."""
        if self.at < len(self.tokens):
            token = self.tokens[self.at]
            where, span = (
                f'stopped at "{self.text[token.start : token.end][:40]}", position {token.start + 1}',
                (token.start, token.end),
            )
        else:
            end = len(self.text.rstrip())
            where, span = "it ends too early", (end, end + 1)
        forms = _nearest_forms(self.tokens)
        message = f"text: {where}; {why}; accepted are such as {'; '.join(forms)}"
        raise TriggerError("TEXT_UNREADABLE", message, "text", forms[0], expression=self.text, span=span)


def _nearest_forms(tokens: list[Token]) -> list[str]:
    """Give the accepted forms that share most words with what was written."""
    words = {token.word for token in tokens[:30]}
    return sorted(FORMS, key=lambda form: -len(words & set(form.split())))[:3]
