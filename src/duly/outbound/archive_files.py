"""The files of the archive, below a folder or in an S3-compatible store.

A file is whole or it is not there under its name: in a folder it is written beside its place, synchronised and then
renamed; a store shows an object when its upload is complete. Errors name the place and what to do, never a credential.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from duly.domain.archive import INSTALL, ArchiveDamaged, ArchiveError, ArchivePlace

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_PARTIAL = ".partial"
_READ_BYTES = 8 * 1024 * 1024
_CONNECT_SECONDS, _REQUEST_SECONDS, _TRIES = 5.0, 20.0, 3


class ArchiveFiles:
    """The files of one archive. Safe in threads. Raises ArchiveError."""

    def __init__(self, place: ArchivePlace) -> None:
        self.place = place
        self._opened: FileSystem | None = None

    def create(self, location: str) -> NewFile:
        """Open a file to write."""
        with self.explained("written", location):
            if self.place.is_s3:
                return NewFile(self, location, self._files.open_output_stream(self._path(location)))
            path = Path(self._path(location) + _PARTIAL)
            path.parent.mkdir(parents=True, exist_ok=True)
            return NewFile(self, location, path.open("wb"))

    @contextmanager
    def reading(self, location: str) -> Iterator[Any]:
        """Open a file to read. Raises ArchiveDamaged, where there is none."""
        with self.explained("read", location), self._files.open_input_file(self._path(location)) as stream:
            yield stream

    def read_all(self, location: str) -> None:
        """Read every byte of a file: it is there, and its store answers. Raises ArchiveDamaged, where there is none."""
        with self.reading(location) as stream:
            while stream.read(_READ_BYTES):
                pass

    def size(self, location: str) -> int | None:
        """Return the size of a file in bytes; None where there is none."""
        with self.explained("read", location):
            found = self._files.get_file_info(self._path(location))
            return found.size if found.is_file else None

    def delete(self, location: str) -> None:
        """Delete a file, and what is left of its writing; one that is not there is no error."""
        with self.explained("deleted", location):
            paths = [self._path(location)]
            if not self.place.is_s3:
                paths.append(paths[0] + _PARTIAL)
            for path in paths:
                with suppress(FileNotFoundError):
                    self._files.delete_file(path)

    def put_in_place(self, location: str) -> None:
        """Give a file that was written beside its place its name, durably."""
        path = Path(self._path(location))
        Path(self._path(location) + _PARTIAL).rename(path)
        _synchronise_folders(path.parent, Path(self.place.root))

    @property
    def _files(self) -> FileSystem:
        if self._opened is None:
            self._opened = _open(self.place)
        return self._opened

    def _path(self, location: str) -> str:
        return f"{self.place.root}/{location}"

    @contextmanager
    def explained(self, done: str, location: str) -> Iterator[None]:
        """Say of an error in this block what could not be done, to which file, and what to do about it."""
        try:
            yield
        except (OSError, _arrow_error()) as error:
            where = self.place.text(location)
            kind = ArchiveDamaged if done == "read" and isinstance(error, FileNotFoundError) else ArchiveError
            raise kind(f"{where} cannot be {done}: {self._words(error)}. {self._remedy(error)}") from None

    def _words(self, error: Exception) -> str:
        """Return an error in one line, without credentials."""
        text = " ".join(str(error).split())
        for key in (self.place.access_key, self.place.secret_key):
            if key is not None:
                text = text.replace(key.reveal(), "***")
        return text[:500]

    def _remedy(self, error: Exception) -> str:
        if isinstance(error, FileNotFoundError):
            return "Restore it, or correct archive_url"
        if isinstance(error, OSError) and error.errno in (ENOSPC, EDQUOT, EFBIG):
            return "Free space there"
        if self.place.is_s3:
            return "Check archive_url, archive_endpoint, archive_region and the credentials, and that the store answers"
        return "Check archive_url and the rights of this process"


class NewFile:
    """A file that is being written to `stream`; it is there under its name when it is finished."""

    def __init__(self, files: ArchiveFiles, location: str, stream: Any) -> None:
        self._files = files
        self._location = location
        self.stream = stream

    def explained(self) -> AbstractContextManager[None]:
        """Say of an error in this block which file could not be written, and what to do about it."""
        return self._files.explained("written", self._location)

    def finish(self) -> int:
        """Put the file in its place, durably. Returns its size in bytes."""
        with self.explained():
            if not self._files.place.is_s3:
                _synchronise(self.stream)
            self.stream.close()
            if not self._files.place.is_s3:
                self._files.put_in_place(self._location)
        return self._files.size(self._location) or 0

    def give_up(self) -> None:
        """Leave nothing of it, as far as that is possible now."""
        with suppress(Exception):
            self.stream.close()
        with suppress(ArchiveError):
            self._files.delete(self._location)


def check_installed() -> None:
    """Check that what the archive needs is installed. Raises ArchiveError."""
    try:
        import duckdb
        import pyarrow.fs
    except ImportError as error:
        raise ArchiveError(f"an archive needs {error.name}, which is not installed: {INSTALL}") from None
    assert duckdb.__version__
    assert pyarrow.fs.S3FileSystem


def _open(place: ArchivePlace) -> FileSystem:
    from pyarrow import fs

    if not place.is_s3:
        return fs.LocalFileSystem()
    return fs.S3FileSystem(
        access_key=None if place.access_key is None else place.access_key.reveal(),
        secret_key=None if place.secret_key is None else place.secret_key.reveal(),
        region=place.region,
        endpoint_override=place.endpoint,
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_REQUEST_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_TRIES),
        allow_bucket_creation=False,
        allow_bucket_deletion=False,
    )


def _arrow_error() -> type[Exception]:
    from pyarrow import ArrowException

    error: type[Exception] = ArrowException
    return error


def _synchronise(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _synchronise_folders(folder: Path, root: Path) -> None:
    """Make the names of new files and folders durable, up to the folder of the archive."""
    while True:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if folder == root or root not in folder.parents:
            return
        folder = folder.parent
