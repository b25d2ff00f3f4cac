"""Secrets under a key: what opens, what does not, and what is never shown."""

import pytest

from duly.clock import Rng
from duly.domain.errors import InvalidOption
from duly.domain.targets.destination import about_secret, new_secret, signing_key
from duly.domain.targets.webhook_secret import BYTES_NEW
from duly.domain.tenancy.api_key import Secret
from duly.domain.tenancy.sealing import CannotOpen, Sealed, new_key_line, read_keyring

DRAW = Rng(7).secret
ONE, TWO = new_key_line(DRAW).reveal(), new_key_line(DRAW).reveal()
HERE = about_secret(1, "d", 1)


def a_keyring(*lines: str):
    return read_keyring("\n".join(lines), "keys.txt")


def test_sealed_secret_opens_with_its_key():
    keyring = a_keyring(ONE)

    sealed = keyring.seal(Secret("whsec_x"), HERE, DRAW)

    assert b"whsec_x" not in sealed.body
    assert keyring.open(sealed, HERE).reveal() == "whsec_x"


def test_the_same_secret_is_never_sealed_alike():
    keyring = a_keyring(ONE)
    assert keyring.seal(Secret("x"), HERE, DRAW).body != keyring.seal(Secret("x"), HERE, DRAW).body


@pytest.mark.parametrize("there", [about_secret(2, "d", 1), about_secret(1, "e", 1), about_secret(1, "d", 2)])
def test_sealed_secret_opens_only_in_its_own_row(there):
    keyring = a_keyring(ONE)
    sealed = keyring.seal(Secret("x"), HERE, DRAW)

    with pytest.raises(CannotOpen, match="the row was changed"):
        keyring.open(sealed, there)


@pytest.mark.parametrize("place", [0, 11, 12, -1])
def test_a_changed_byte_is_noticed(place):
    keyring = a_keyring(ONE)
    sealed = keyring.seal(Secret("x" * 40), HERE, DRAW)
    body = bytearray(sealed.body)
    body[place] ^= 1

    with pytest.raises(CannotOpen):
        keyring.open(Sealed(sealed.key_id, bytes(body)), HERE)


@pytest.mark.parametrize("body", [b"", b"short", b"x" * 12])
def test_text_that_was_never_sealed_does_not_open(body):
    keyring = a_keyring(ONE)
    with pytest.raises(CannotOpen):
        keyring.open(Sealed(keyring.key_id, body), HERE)


def test_a_new_key_seals_and_the_old_one_still_opens():
    before = a_keyring(ONE).seal(Secret("old"), HERE, DRAW)
    rotated = a_keyring(TWO, ONE)

    assert rotated.open(before, HERE).reveal() == "old"
    assert rotated.seal(Secret("new"), HERE, DRAW).key_id == TWO.partition(":")[0]


def test_open_error_names_the_missing_key():
    sealed = a_keyring(ONE).seal(Secret("x"), HERE, DRAW)

    with pytest.raises(CannotOpen, match=ONE.partition(":")[0]):
        a_keyring(TWO).open(sealed, HERE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# a comment\n\n",
        "no key",
        "k1:short",
        "k1:" + "A" * 44,
        f"{ONE}\nk2",
        f"{ONE}\n{ONE}",
        "k 1:" + "A" * 43 + "=",
    ],
)
def test_invalid_keyring_is_refused_without_showing_its_content(text):
    with pytest.raises(InvalidOption) as refused:
        read_keyring(text, "keys.txt")

    assert "keys.txt" in str(refused.value)
    assert ONE.partition(":")[2] not in str(refused.value)
    assert "AAAA" not in str(refused.value)


def test_a_keyring_shows_no_key():
    assert ONE.partition(":")[2] not in repr(a_keyring(ONE))


def test_signing_secret_has_the_webhook_format_and_is_masked():
    secret = new_secret(DRAW)

    assert secret.reveal().startswith("whsec_")
    assert len(signing_key(secret)) == BYTES_NEW
    assert repr(secret) == "***"


@pytest.mark.parametrize("text", ["", "whsec_", "whsec_!!!", "AAAA", "whsec_" + "AAAA" * 7, "whsec_" + "AAAA" * 22])
def test_invalid_signing_secret_is_refused(text):
    with pytest.raises(InvalidOption):
        signing_key(Secret(text))
