"""A backup: a folder with a dump of the schema `duly`, and a manifest that says what it holds and proves that it is whole.

backup/              0700
    database.dump    pg_dump's own format: pg_restore reads it, too
    manifest.json    written last, with the checksums of itself and of the dump
    secrets-key      the keyring, only if that was requested

It is written under another name and renamed when it is complete, so a folder without a manifest, or under the other name,
is none. Nothing here reads a database: the programs do.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
import subprocess
from asyncio.subprocess import DEVNULL, PIPE
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import file_digest, sha256
from pathlib import Path
from typing import IO

import msgspec

from duly.domain.counting import some
from duly.domain.errors import Refused
from duly.postgres.clients import Clients
from duly.postgres.errors import ServerFailed
from duly.postgres.folder import synchronise

MANIFEST, DUMP, KEYRING = "manifest.json", "database.dump", "secrets-key"
FORMAT = 1
SCHEMA = "duly"
_COPY = re.compile(rb"COPY duly\.(\w+) \(.*\) FROM stdin;\n")
_WORDS_MAX = 2_000
# Of pg_dump 17 and newer, and unknown to older servers.
_UNKNOWN_BEFORE_17 = b"SET transaction_timeout = 0;\n"
_CHUNK = 1 << 20


class KeyProof(msgspec.Struct, frozen=True):
    """A key of the keyring at the time of the backup: its id, and a proof that shows whether another key is the same."""

    id: str
    proof: str


class Manifest(msgspec.Struct, frozen=True):
    """The contents of a backup, and what it needs."""

    format: int
    duly: str
    schema_version: int
    edition: int
    postgresql: str
    pg_dump: str
    created_at: datetime
    rows: dict[str, int]
    bytes: int
    sha256: str
    keys: list[KeyProof]
    has_keyring: bool

    @property
    def rows_total(self) -> int:
        """Return how many rows all tables have."""
        return sum(self.rows.values())


class _Sealed(msgspec.Struct):
    """The file of a manifest: the checksum is of the manifest's own bytes."""

    sha256: str
    manifest: msgspec.Raw


@contextmanager
def new_backup(folder: Path) -> Iterator[Path]:
    """Give a folder to write a backup into; it gets its name at the end, or is removed. Raises Refused if the name is taken."""
    _refuse_taken(folder)
    new = folder.with_name(f"{folder.name}.unfinished-{secrets.token_hex(4)}")
    try:
        new.mkdir(mode=0o700, parents=True)
    except OSError as error:
        raise Refused(f"{new} cannot be created: {error.strerror}; name a folder that can be written") from None
    try:
        yield new
        synchronise(new)
        _refuse_taken(folder)
        new.rename(folder)
        synchronise(folder.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)


async def dump(new: Path, clients: Clients, environment: Mapping[str, str], snapshot: str) -> Path:
    """Write the dump of one snapshot, which the caller holds. Raises ServerFailed with the program's own words."""
    file = new / DUMP
    options = ("--format=custom", "--compress=1", f"--schema={SCHEMA}", f"--snapshot={snapshot}", "--no-password")
    program = await asyncio.create_subprocess_exec(
        *clients.command("pg_dump", *options, f"--file={file}"), env=dict(environment), stdout=DEVNULL, stderr=PIPE
    )
    try:
        _, words = await program.communicate()
    except BaseException:
        program.kill()
        await program.wait()
        raise
    if program.returncode:
        raise ServerFailed(f"pg_dump failed: {words.decode(errors='replace').strip()[-_WORDS_MAX:]}")
    file.chmod(0o600)
    return file


def write_manifest(new: Path, manifest: Manifest) -> None:
    """Write the manifest, which makes the folder a backup."""
    body = msgspec.json.encode(manifest)
    sealed = _Sealed(sha256(body).hexdigest(), msgspec.Raw(body))
    write_private(new / MANIFEST, msgspec.json.encode(sealed) + b"\n")


def write_private(file: Path, content: bytes) -> None:
    """Write a new file that only its owner can read, and bring it to the disk."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as writing:
        writing.write(content)
        writing.flush()
        os.fsync(writing.fileno())


def digest_of(file: Path) -> str:
    """Return the checksum of a file, after bringing it to the disk."""
    with file.open("rb") as reading:
        os.fsync(reading.fileno())
        return file_digest(reading, "sha256").hexdigest()


def read_backup(folder: Path) -> Manifest:
    """Read the manifest and compare every checksum. Raises Refused when the backup is unfinished, damaged or of a newer Duly."""
    try:
        text = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        why = "it has no manifest.json, so it was never finished" if folder.is_dir() else "there is no such folder"
        raise Refused(f"{folder} is no backup: {why}; name the folder that `duly backup` has written") from None
    except OSError as error:
        raise Refused(f"{folder} cannot be read: {error.strerror}; run as the account that wrote it") from None
    manifest = _decoded(folder, text)
    file = folder / DUMP
    found = file.stat().st_size if file.is_file() else 0
    if found != manifest.bytes:
        raise _damaged(folder, f"{DUMP} has {found:,} bytes, and its manifest says {manifest.bytes:,}")
    if digest_of(file) != manifest.sha256:
        raise _damaged(folder, f"the checksum of {DUMP} differs from the one in its manifest")
    if manifest.has_keyring and not (folder / KEYRING).is_file():
        raise _damaged(folder, f"{KEYRING} is missing")
    return manifest


def _decoded(folder: Path, text: bytes) -> Manifest:
    try:
        sealed = msgspec.json.decode(text, type=_Sealed)
        is_whole = sha256(bytes(sealed.manifest)).hexdigest() == sealed.sha256
        said = msgspec.json.decode(sealed.manifest, type=dict[str, object])
    except msgspec.DecodeError:
        is_whole, said = False, {}
    if not is_whole:
        raise _damaged(folder, f"{MANIFEST} is not as it was written")
    if said.get("format") != FORMAT:
        raise Refused(
            f"{folder} has format {said.get('format')}, and this Duly reads {FORMAT}: use the Duly that wrote it,"
            f" {said.get('duly')}, or a newer one"
        )
    return msgspec.convert(said, Manifest)


def _damaged(folder: Path, why: str) -> Refused:
    return Refused(f"{folder} is damaged: {why}. Nothing was changed; use another backup")


def _refuse_taken(folder: Path) -> None:
    if os.path.lexists(folder):
        raise Refused(f"{folder} exists, and is left as it is: name a folder that does not")


def read_through(folder: Path, manifest: Manifest, clients: Clients) -> None:
    """Read the whole dump, and compare the rows of each table with the manifest. Raises Refused, ServerFailed."""
    with _script(folder, clients) as script:
        found = _rows_in(script)
    for table, rows in manifest.rows.items():
        if found[table] != rows:
            raise _damaged(folder, f"table {table} has {some(found[table], 'row')}, and its manifest says {rows:,}")


def _rows_in(script: Iterable[bytes]) -> Counter[str]:
    found: Counter[str] = Counter()
    table = ""
    for line in script:
        if table:
            if line == b"\\.\n":
                table = ""
            else:
                found[table] += 1
        elif copying := _COPY.fullmatch(line):
            table = copying[1].decode()
    return found


def load(
    folder: Path, clients: Clients, environment: Mapping[str, str], *, before: str, after: str, is_before_17: bool
) -> None:
    """Load the dump between two texts of SQL, all of it in one transaction. Raises ServerFailed; then nothing has changed.

    A process that is killed commits nothing: only the very last line does.
    """
    loading = clients.command(
        "psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--no-password", "--output=/dev/null"
    )
    with subprocess.Popen(loading, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(environment)) as psql:
        assert psql.stdin
        assert psql.stderr
        try:
            psql.stdin.write(f"begin;\n{before}\n".encode())
            with _script(folder, clients) as script:
                begin = script.read(_CHUNK)
                psql.stdin.write(begin.replace(_UNKNOWN_BEFORE_17, b"", 1) if is_before_17 else begin)
                shutil.copyfileobj(script, psql.stdin, _CHUNK)
            psql.stdin.write(f"\n{after}\ncommit;\n".encode())
            psql.stdin.close()
        except BrokenPipeError:  # It has ended, and says why.
            with suppress(BrokenPipeError):
                psql.stdin.close()
        except BaseException:
            psql.kill()
            raise
        words = psql.stderr.read(_WORDS_MAX).decode(errors="replace").strip()
    if psql.returncode:
        raise ServerFailed(f"the backup could not be loaded, and the database is as it was; PostgreSQL said:\n{words}")


@contextmanager
def _script(folder: Path, clients: Clients) -> Iterator[IO[bytes]]:
    """Give the dump as SQL. Raises ServerFailed when the program could not read all of it."""
    command = clients.command("pg_restore", "--no-owner", "--file=-", str(folder / DUMP))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reading:
        assert reading.stdout
        assert reading.stderr
        try:
            yield reading.stdout
        except BaseException:
            reading.kill()
            raise
        words = reading.stderr.read(_WORDS_MAX).decode(errors="replace").strip()
    if reading.returncode:
        raise ServerFailed(f"pg_restore cannot read {folder / DUMP}: {words}")
