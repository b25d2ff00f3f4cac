"""The archive by the settings: where it is, and that what it needs is installed."""

from __future__ import annotations

from datetime import timedelta

from duly.cli.flags.settings import span
from duly.domain.archive import ArchiveError, ArchivePlace, read_place
from duly.domain.errors import InvalidOption
from duly.outbound.archive_files import ArchiveFiles, check_installed
from duly.settings import Settings, SettingsError


def archive_of(settings: Settings) -> ArchiveFiles | None:
    """Return the archive; None: history is not archived. Raises SettingsError."""
    if settings.archive_url is None:
        return None
    source = settings.sources["archive_url"]
    place = _place(settings, settings.archive_url, source)
    try:
        check_installed()
    except ArchiveError as error:
        raise SettingsError(f"{source}: {error}") from None
    return ArchiveFiles(place)


def archives_kept(settings: Settings) -> timedelta | None:
    """Return how long archives are kept; None: for ever. Raises SettingsError."""
    return None if settings.archive_retention is None else span(settings, "archive_retention")


def _place(settings: Settings, url: str, source: str) -> ArchivePlace:
    try:
        return read_place(
            url,
            endpoint=settings.archive_endpoint,
            region=settings.archive_region,
            access_key=settings.archive_access_key,
            secret_key=settings.archive_secret_key,
        )
    except InvalidOption as error:
        raise SettingsError(f"{source}: {error}") from None
