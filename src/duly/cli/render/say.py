"""Safe terminal output: foreign text cannot move the cursor, colour the screen, name the window or reverse the line.

Runs, receivers and callers control text in logs, reasons, names and headers. All of it passes through here on its way
to a terminal, which would obey part of it.
"""

from __future__ import annotations

import re
import signal

import click

# Control characters of both sets, bidirectional controls, line separators, and lone surrogates.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_OBEYED_IN_A_LINE = re.compile(f"[\t\n]|{_OBEYED.pattern}")
# Of these JSON itself escapes only the first set.
_OBEYED_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def say(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text, of which a terminal obeys nothing but line breaks and tabs."""
    click.echo(visible(text), err=err, nl=nl)


def visible(text: str) -> str:
    """Write control characters visibly, such as `\\x1b`; line breaks and tabs stay."""
    return _OBEYED.sub(_shown, text)


def in_one_line(text: str) -> str:
    """Write a text as one line, of which nothing is obeyed."""
    return _OBEYED_IN_A_LINE.sub(_shown, text)


def confirm(question: str) -> None:
    """Ask for a confirmation on standard error. Raises Abort unless the answer is yes."""
    # A loop would take the first Ctrl-C as a cancel of what waits, and this does not.
    heeded = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        click.confirm(question, abort=True, err=True)
    finally:
        signal.signal(signal.SIGINT, heeded)


def say_json(document: bytes) -> None:
    """Print a JSON document, of which a terminal obeys nothing; it means the same."""
    click.echo(_OBEYED_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", document.decode()))


def say_over(text: str, *, nl: bool) -> None:
    """Print a text of ours over the current line, on a terminal."""
    click.echo(f"\r{visible(text)}", err=True, nl=nl)


def _shown(found: re.Match[str]) -> str:
    match ord(found[0]):
        case 0x09:
            return "\\t"
        case 0x0A:
            return "\\n"
        case code if code < 0x100:
            return f"\\x{code:02x}"
        case code:
            return f"\\u{code:04x}"
