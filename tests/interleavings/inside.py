"""Steps inside the functions of the database: a move is one call there, but several statements, each with its own snapshot.

The functions are made anew with a step before each of their statements. A step says that it is reached, and waits for a lock that
the stepper holds until it lets it go; whoever is not stepped passes through. Where two moves have too many orders, those with few
turns are tried: a turn is that one who could go on stands still and the other goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import asyncpg

from tests.interleavings.stepper import Order, Side

# Each step has a key of its own, so that none is taken twice: drawn from the side's sequence, which no rollback turns back.
_PREPARE = """
create sequence duly.test_steps_left;
create sequence duly.test_steps_right;
create function duly.test_step() returns void language plpgsql as $$
declare
    v_steps text := nullif(current_setting('duly.test_steps', true), '');
    v_key   bigint;
begin
    if v_steps is not null then
        v_key := nextval(v_steps::regclass);
        raise notice 'step %', v_key;
        perform pg_advisory_xact_lock_shared(v_key);
    end if;
end $$
"""
_FUNCTIONS = """
select proname, pg_get_functiondef(oid) from pg_proc
 where pronamespace = 'duly'::regnamespace and proname ~ $1 and prokind = 'f' and prorettype <> 'trigger'::regtype
   and prolang = (select oid from pg_language where lanname = 'plpgsql')
"""
_STEP = "perform duly.test_step(); "
_TOKEN = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"[^\"]*\"|[a-z_][\w$]*|[();]|\s+|.", re.DOTALL | re.IGNORECASE)
_OPENERS = {"begin", "then", "else", "loop"}  # A statement begins behind these, and behind each semicolon.
_GOING_ON = {
    "end",
    "else",
    "elsif",
    "exception",
    "when",
}  # These close a block or go on with one, so no step may stand before them.
_TABLES_AND_FUNCTIONS = "duly"  # What reads or writes anything names it with its schema.
_OF_THE_LAST = {"found", "diagnostics"}  # What asks how the statement before ended must follow it.
_KEYS = 100
_numbers = count(1)


async def put_steps(connection: Any, names: str) -> dict[str, int]:
    """Make anew the functions whose names fit, with steps in them. Gives how many each has."""
    await connection.execute(_PREPARE)
    stepped = {}
    for name, definition in await connection.fetch(_FUNCTIONS, names):
        text = with_steps(definition)
        await connection.execute(text)
        stepped[name] = text.count(_STEP)
    return stepped


def with_steps(definition: str) -> str:
    """Put a step before each statement of a function that reads or writes, on whatever level of its blocks."""
    head, tag, body = re.split(r"(AS \$\w*\$)", definition, maxsplit=1)
    touching = [
        place for place, words in _statements(body) if _TABLES_AND_FUNCTIONS in words and not words & _OF_THE_LAST
    ]
    for place in reversed(touching):
        body = body[:place] + _STEP + body[place:]
    return head + tag + body


def _statements(body: str) -> Iterator[tuple[int, set[str]]]:
    """Give where each statement begins and the words in it: of one with others inside, those before the first of them."""
    tokens = [(found.start(), found[0].lower()) for found in _TOKEN.finditer(body)]
    words = [(place, word) for place, word in tokens if not word.isspace() and not word.startswith(("--", "/*"))]
    first = next(number for number, (_, word) in enumerate(words) if word == "begin")  # Before it come declarations.
    begin, opens, cases = None, "", 0
    seen: set[str] = set()
    for place, word in words[first + 1 :]:
        if begin is None:
            begin, opens = place, word
        elif word == "case" and opens != "end":
            cases += 1  # of an expression, which has its own `then`, `else` and `end`
        elif word == "end" and cases:
            cases -= 1
        seen.add(word)
        if word == ";" or (word in _OPENERS and not cases):
            if opens not in _GOING_ON:
                yield begin, seen
            begin, seen = None, set()


class InnerSide(Side):
    """A side that also stands still at the steps inside of functions."""

    def __init__(self, name: str, url: str, keeper: Any, **more: Any) -> None:
        super().__init__(name, url, **more)
        self._keeper = keeper
        self._key: int | None = None

    async def connect(self, kept: asyncpg.Connection[asyncpg.Record] | None = None) -> None:
        """Open the connection, and hear of the steps on it."""
        await super().connect(kept)
        self.connection.add_log_listener(self._hear)
        await self.connection.execute(f"set duly.test_steps = 'duly.test_steps_{self.name}'")

    async def take_keys(self) -> None:
        """Hold the keys of the next steps."""
        first = next(_numbers) * _KEYS
        await self._keeper.execute(f"select setval('duly.test_steps_{self.name}', {first}, false)")
        await self._keeper.execute(
            f"select pg_advisory_lock(key) from generate_series({first}, {first + _KEYS - 1}) as key"
        )

    def _hear(self, _: object, message: asyncpg.PostgresLogMessage) -> None:
        if message.message and message.message.startswith("step "):
            self._key = int(message.message.removeprefix("step "))
            assert self._key % _KEYS < _KEYS - 1, "more steps than keys"
            self.stopped.set()

    async def go(self) -> None:
        """Take the next step, wherever it is."""
        if self._key is None:
            await super().go()
            return
        key, self._key = self._key, None
        self.stopped.clear()
        await self._keeper.execute(f"select pg_advisory_unlock({key})")


class FewTurns(Order):
    """One way through the tree of choices, on which nobody is made to stand still more often than allowed."""

    def __init__(self, choices: Sequence[str], turns_max: int) -> None:
        super().__init__(list(choices))
        self._turns_max = turns_max

    def choose(self, ready: list[Side]) -> Side:
        """Say who goes next; whoever went last where nothing is planned."""
        wanted = self.planned[len(self.taken)] if len(self.taken) < len(self.planned) else None
        last = self.taken[-1] if self.taken else "left"
        names = [side.name for side in ready]
        name = next(name for name in (wanted, last, names[0]) if name in names)
        self.taken.append(name)
        self.free.append(len(ready) == 2)
        return ready[names.index(name)]

    def following(self) -> list[str] | None:
        """Give the choices of the next order to try; None when this was the last."""
        for at in reversed(range(len(self.taken))):
            other = "right" if self.taken[at] == "left" else "left"
            if self.free[at] and self._is_untried(at) and self._turns(at) + (at > 0) <= self._turns_max:
                return [*self.taken[:at], other]
        return None

    def _is_untried(self, at: int) -> bool:
        """Whoever goes on was tried first."""
        return self.taken[at] == (self.taken[at - 1] if at else "left")

    def _turns(self, before: int) -> int:
        return sum(self.free[at] and self.taken[at] != self.taken[at - 1] for at in range(1, before))
