"""Callback tokens: ours are known, and nothing else is, not even by one character."""

from uuid import UUID

import pytest

from duly.clock import Rng
from duly.domain.runs.callback_token import CallbackTokens
from duly.domain.tenancy.sealing import new_key_line, read_keyring

RUN = UUID("018f0000-0000-8000-8000-0000000000ab")
LINES = [new_key_line(Rng(seed).secret).reveal() for seed in (1, 2)]


def tokens(*lines: str) -> CallbackTokens:
    """Give what knows the tokens of a keyring of these lines."""
    return CallbackTokens(read_keyring("\n".join(lines), "test"))


def test_a_token_names_one_attempt_of_one_run():
    known = tokens(LINES[0])

    assert known.read(known.make(RUN, 42)) == (RUN, 42)
    assert known.make(RUN, 42) != known.make(RUN, 43)


def test_a_token_with_any_character_changed_is_none():
    known = tokens(LINES[0])
    token = known.make(RUN, 42)
    changed = [
        token[:at] + other + token[at + 1 :] for at in range(len(token)) for other in "0A_-" if token[at] != other
    ]
    # The last character of 32 bytes in base64 holds two bits of nothing, so it is compared as text, and not as bytes.
    assert [one for one in changed if known.read(one) is not None] == []


NONE = [
    "",
    "cb_",
    "x" * 1_000,
    f"cb_{RUN.hex}_42",
    f"cb_{RUN.hex}_42_",
    f"cb_{RUN}_42_{'A' * 43}",
    f"cb_{RUN.hex}_42_{'é' * 43}",
]


@pytest.mark.parametrize("token", NONE)
def test_text_that_is_not_a_callback_token_reads_as_none(token):
    assert tokens(LINES[0]).read(token) is None


def test_a_fence_of_another_attempt_cannot_be_put_in():
    known = tokens(LINES[0])
    token = known.make(RUN, 42)

    assert known.read(token.replace("_42_", "_43_")) is None


@pytest.mark.parametrize("fence", ["042", "+42", " 42", "9223372036854775808"])
def test_a_fence_has_one_spelling(fence):
    known = tokens(LINES[0])
    _, run, _, mac = known.make(RUN, 42).split("_", 3)

    assert known.read(f"cb_{run}_{fence}_{mac}") is None


def test_callback_token_stays_valid_until_its_key_leaves_the_keyring():
    before, after, gone = tokens(LINES[0]), tokens(LINES[1], LINES[0]), tokens(LINES[1])
    token = before.make(RUN, 42)

    assert after.read(token) == (RUN, 42)
    assert after.make(RUN, 42) == gone.make(RUN, 42) != token
    assert gone.read(token) is None


def test_callback_tokens_show_no_key_in_their_repr():
    assert repr(tokens(LINES[0])) == "CallbackTokens(1 keys)"
