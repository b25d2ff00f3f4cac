"""The address of a Duly server, and the API key."""

from __future__ import annotations

from urllib.parse import urlsplit

from duly.domain.errors import InvalidOption
from duly.domain.tenancy.api_key import Secret
from duly.settings import load


class InvalidAddress(InvalidOption):
    """An invalid URL or API key."""


class Address:
    """A checked URL, and a key that is never shown."""

    __slots__ = ("_key", "url")

    def __init__(self, url: str | None, key: str | None) -> None:
        """Take the given values, and the rest from DULY_URL and DULY_API_KEY. Raises InvalidAddress, SettingsError."""
        settings = load() if url is None or key is None else None
        found = url if settings is None or url is not None else settings.url
        secret = key if settings is None or key is not None else settings.api_key
        self.url = _checked(found)
        self._key = None if secret is None else Secret(_printable(secret))

    def headers(self) -> dict[str, str]:
        """Return the headers that authenticate the caller."""
        return {} if self._key is None else {"Authorization": f"Bearer {self._key.reveal()}"}


def _checked(url: str | None) -> str:
    if url is None:
        raise InvalidAddress("no Duly is named; pass url=, or set DULY_URL, such as http://127.0.0.1:7300")
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
        parts = urlsplit("")
    if "@" in parts.netloc:  # not shown: it may be a password
        raise InvalidAddress("the URL of a Duly takes no user and password; pass key=, or set DULY_API_KEY")
    if not is_good or parts.query or parts.fragment:
        raise InvalidAddress(f"{url!r} is not the URL of a Duly; write it as http://127.0.0.1:7300")
    return url.rstrip("/")


def _printable(key: str) -> str:
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidAddress("the key is not one of Duly's, which look like duly_<id>_<secret>; see DULY_API_KEY")
    return key
