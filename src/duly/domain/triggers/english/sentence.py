"""The words of an English schedule, read from left to right, and the error at the word that does not fit."""

from __future__ import annotations

import re
from typing import NoReturn

import msgspec

from duly.domain.triggers.errors import TriggerError

_TOKEN = re.compile(r"[^ \t,]+|,")


class Token(msgspec.Struct, frozen=True):
    """A word and its position."""

    word: str
    start: int
    end: int


class Sentence:
    """The words of a text, read from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [Token(match[0].lower(), *match.span()) for match in _TOKEN.finditer(text)]
        self.at = 0
        # A time of day that came first, until its days have been read.
        self.time: tuple[int, int] | None = None

    @property
    def word(self) -> str:
        """The next word; empty at the end."""
        return self.tokens[self.at].word if self.at < len(self.tokens) else ""

    def take(self) -> str:
        """Return the next word and advance."""
        word = self.word
        self.at += 1
        return word

    def expect(self, *words: str) -> None:
        """Skip these words. Raises TriggerError at the first that differs."""
        for word in words:
            if self.word != word:
                self.refuse(f'expected "{word}"')
            self.at += 1

    def end(self) -> None:
        """Raise TriggerError if any word is left."""
        if self.at < len(self.tokens):
            self.refuse("nothing may come after this")

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
        raise TriggerError("TEXT_UNREADABLE", f"text: {where}; {why}", "text", expression=self.text, span=span)
