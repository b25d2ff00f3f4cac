"""The keyring that secrets are sealed with: the file that was named, or the one in the data folder.

`duly up` creates one for its data folder at its first start. Beside it lies the database itself, so it protects copies
of the database, such as backups, and not the folder.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from duly.clock import Rng
from duly.domain.errors import InvalidOption
from duly.domain.tenancy.sealing import NEW_KEY, Keyring, new_key_line, read_keyring
from duly.settings import Settings, SettingsError

FILE = "secrets-key"
MISSING = f"no key to seal secrets with; create one: {NEW_KEY}"


def keyring_of(settings: Settings) -> Keyring | None:
    """Return the keyring; None where there is none. Raises SettingsError when the named file cannot be read."""
    file = file_of(settings)
    if settings.secrets_key is not None:
        return _read(file, settings.sources["secrets_key"])
    # An external database has its own keyring: that of a folder would seal with a key that others do not have.
    return _read(file, str(file)) if settings.database_url is None and file.exists() else None


def file_of(settings: Settings) -> Path:
    """Return the file of the keyring: the named one, or the one in the data folder."""
    return settings.secrets_key or settings.data / FILE


def first_keyring(settings: Settings, data: Path | None, rng: Rng) -> Keyring | None:
    """Return the keyring of `duly up`: the named one, or that of its data folder, created at the first start."""
    if settings.secrets_key is not None or data is None:
        return keyring_of(settings)
    file = data / FILE
    if not file.exists():
        _make(file, rng)
    return _read(file, str(file))


def _read(file: Path, where: str) -> Keyring:
    try:
        return read_keyring(file.read_text(encoding="utf-8"), where, str(file))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsError(f"{where}: {file} cannot be read: {reason}; make one: {NEW_KEY}") from None
    except InvalidOption as error:
        raise SettingsError(str(error)) from None


def _make(file: Path, rng: Rng) -> None:
    """Write a key that only its owner can read; of two at once, one is first, and there is never half a file."""
    new = file.with_name(f"{file.name}.{rng.uuid()}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as writing:
        writing.write(new_key_line(rng.secret).reveal() + "\n")
        writing.flush()
        os.fsync(writing.fileno())
    with suppress(FileExistsError):
        os.link(new, file)
    new.unlink()
