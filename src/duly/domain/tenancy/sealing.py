"""Sealing: secrets that must be read again are encrypted under a key that is stored elsewhere.

AES-256-GCM. The place of a secret is its associated data, so that one copied into another row does not open. A keyring
is a text of lines `id:base64 of 32 bytes`: the first key seals, every key opens, so a new key is put in front of the
others.

A text inside a definition is sealed in place, as `sealed:KEY ID:base64`. Its nonce is computed from the text and its
place, so that the same text in the same place is sealed the same, and two definitions are compared without opening one.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from hashlib import sha256
from hmac import digest as hmac_digest
from typing import TYPE_CHECKING

import msgspec

from duly.domain.errors import InvalidOption, Refused
from duly.domain.tenancy.api_key import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # loaded at the first sealing or opening

KEY_BYTES = 32
NONCE_BYTES = 12
NEW_KEY = "`duly secrets new-key > FILE`, and name that file in DULY_SECRETS_KEY"
SETTING = "the file of DULY_SECRETS_KEY"
SEALED = "sealed:"
_NONCES = b"duly: nonces of sealed texts"
_SEALED = re.compile(SEALED + r"([A-Za-z0-9_-]{1,64}):([A-Za-z0-9_-]{38,})")
_LINE = re.compile(r"([A-Za-z0-9_-]{1,64}):([A-Za-z0-9+/]{43}=)")


class Sealed(msgspec.Struct, frozen=True):
    """A sealed secret, and the id of its key."""

    key_id: str
    body: bytes


class CannotOpen(Refused):
    """A sealed secret whose key is not in the keyring, or that was tampered with."""


class Keyring:
    """The keys, by id; it prints none of them."""

    def __init__(self, keys: Mapping[str, bytes], file: str = SETTING) -> None:
        assert keys
        self.file = file
        self._keys = dict(keys)
        self._first = next(iter(self._keys))

    def __repr__(self) -> str:
        return f"Keyring({', '.join(self._keys)})"

    @property
    def key_id(self) -> str:
        """The key that seals."""
        return self._first

    @property
    def key_ids(self) -> list[str]:
        """The ids of all keys, the one that seals first."""
        return list(self._keys)

    def seal(self, secret: Secret, about: bytes, draw: Callable[[int], bytes]) -> Sealed:
        """Seal a secret that belongs to `about`, with a nonce from a secure source."""
        nonce = draw(NONCE_BYTES)
        body = nonce + _cipher(self._keys[self._first]).encrypt(nonce, secret.reveal().encode(), about)
        return Sealed(self._first, body)

    def seal_text(self, text: str, about: bytes, key_id: str | None = None) -> str:
        """Seal a text that belongs to `about` in place; with the first key, unless one is named."""
        chosen = key_id or self._first
        key = self._keys[chosen]
        whole = len(about).to_bytes(8) + about + text.encode()
        nonce = hmac_digest(hmac_digest(key, _NONCES, sha256), whole, sha256)[:NONCE_BYTES]
        body = urlsafe_b64encode(nonce + _cipher(key).encrypt(nonce, text.encode(), about)).decode()
        return f"{SEALED}{chosen}:{body.rstrip('=')}"

    def open_text(self, sealed: str, about: bytes) -> str:
        """Open a text that was sealed for `about`. Raises CannotOpen."""
        found = _SEALED.fullmatch(sealed)
        if found is None:
            raise CannotOpen("a sealed value is corrupt: its row was changed; send the value again")
        body = urlsafe_b64decode(found[2] + "=" * (-len(found[2]) % 4))
        return self.open(Sealed(found[1], body), about).reveal()

    def has(self, key_id: str) -> bool:
        """Return whether a key is in the keyring."""
        return key_id in self._keys

    def derived(self, purpose: bytes) -> list[bytes]:
        """Derive from each key, the first one first, a key for one purpose, which reveals nothing of it."""
        return [hmac_digest(key, purpose, sha256) for key in self._keys.values()]

    def open(self, sealed: Sealed, about: bytes) -> Secret:
        """Open a secret that was sealed for `about`. Raises CannotOpen."""
        from cryptography.exceptions import InvalidTag

        key = self._keys.get(sealed.key_id)
        if key is None:
            raise CannotOpen(
                f"a secret is sealed with key {sealed.key_id!r}, and the keyring has {', '.join(self._keys)};"
                f" restore that key's line in {self.file}, behind the first, and restart"
            )
        nonce, body = sealed.body[:NONCE_BYTES], sealed.body[NONCE_BYTES:]
        try:
            return Secret(_cipher(key).decrypt(nonce, body, about).decode())
        except (InvalidTag, ValueError):
            raise CannotOpen(
                f"a secret cannot be decrypted with key {sealed.key_id!r}: another key has that id, or the row"
                " was changed; restore the key, or rotate the secret"
            ) from None


FindKeyring = Callable[[], Keyring | None]  # called only where something is to be sealed or opened


def no_keyring() -> Keyring | None:
    """Return no keyring."""
    return None


def sealing_key_of(text: str) -> str | None:
    """Return the id of the key that a text is sealed with; None: it is not sealed."""
    found = _SEALED.fullmatch(text) if text.startswith(SEALED) else None
    return None if found is None else found[1]


def is_sealed(text: str) -> bool:
    """Return whether a text is sealed."""
    return sealing_key_of(text) is not None


def read_keyring(text: str, where: str, file: str = SETTING) -> Keyring:
    """Parse the keyring of a file. Raises InvalidOption, naming the line and never its content."""
    keys: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line.strip())
        if found is None or len(key := _decoded(found[2])) != KEY_BYTES:
            raise InvalidOption(
                f"{where}, line {number}, is not `id:base64 of {KEY_BYTES} bytes`; create one: {NEW_KEY}"
            )
        if found[1] in keys:
            raise InvalidOption(f"{where}, line {number}: key {found[1]!r} is there twice; give each key its own id")
        keys[found[1]] = key
    if not keys:
        raise InvalidOption(f"{where} contains no key; create one: {NEW_KEY}")
    return Keyring(keys, file)


def new_key_line(draw: Callable[[int], bytes]) -> Secret:
    """Draw a key, as a line of a keyring."""
    return Secret(f"k{draw(4).hex()}:{b64encode(draw(KEY_BYTES)).decode()}")


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except NotBase64:
        return b""


def _cipher(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)
