"""Files of the archive: rows in Parquet, compressed with zstd, and their check.

Rows come as CSV in blocks. Each block is one row group, so memory is bounded by a few blocks however many rows there
are: the process has up to 600 MiB. The database sends a hash beside each row; the file is read back, and the hashes of
what it has must have the same sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from duly.domain.archive import COLUMNS, MOMENTS, ArchiveDamaged, ArchiveError, Contents
from duly.outbound.archive_files import NewFile

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

BLOCK_BYTES = 32 * 1024 * 1024
_PARSED_BYTES = 4 * 1024 * 1024  # at once: what is parsed stays in the caches of a processor
_ROWS_AT_ONCE = 16_384
_MEMORY = "256MB"
_REPETITIVE = ("job_id", "tenant", "outcome", "became", "queue", "handler", "priority", "worker_id", "generation")
_HASHED = ", ".join(f"make_timestamp(epoch_us({name}))::varchar" if name in MOMENTS else name for name in COLUMNS)
_SUM = f"select count(*), coalesce(sum(('0x' || left(md5(concat_ws('|', {_HASHED})), 11))::bigint), 0) from rows"  # noqa: S608


class Writer:
    """Writes blocks of rows into one file, and counts what it has written."""

    def __init__(self, new: NewFile) -> None:
        from pyarrow import parquet

        self._new = new
        self._file = parquet.ParquetWriter(
            new.stream, _schema(), compression="zstd", use_dictionary=list(_REPETITIVE), write_page_checksum=True
        )
        self._rows = self._checksum = 0
        self._runs: list[str] = []
        self._tenants: set[int] = set()

    def write(self, block: Sequence[bytes]) -> None:
        """Write a block of whole lines as one row group. Raises ArchiveError."""
        import pyarrow as pa
        import pyarrow.compute as pc

        table = pa.concat_tables(_parsed(lines) for lines in _joined(block))
        self._rows += table.num_rows
        self._checksum += pc.sum(table["hash"]).as_py()
        runs = pc.min_max(table["run_id"]).as_py()
        self._runs = [min([*self._runs[:1], runs["min"]]), max([*self._runs[1:], runs["max"]])]
        self._tenants.update(pc.unique(table["tenant"]).to_pylist())
        with self._new.explained():
            self._file.write_table(table.drop_columns("hash").cast(_schema()))

    def finish(self) -> Contents:
        """Finish the file, and return what it should have. Raises ArchiveError."""
        with self._new.explained():
            self._file.close()
        first, last = [UUID(run) for run in self._runs] or (None, None)
        return Contents(self._rows, self._checksum, self._new.finish(), first, last, sorted(self._tenants))

    def give_up(self) -> None:
        """Leave nothing of the file."""
        self._file.is_open = False
        self._new.give_up()


def read_back(stream: Any) -> tuple[int, int]:
    """Read a whole file: the number of its rows, and the sum of their hashes. Raises ArchiveDamaged.

    That is also raised when the file cannot be read to its end, because the errors do not differ.
    """
    import duckdb
    import pyarrow as pa
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(stream, page_checksum_verification=True)
        if not file.schema_arrow.equals(_schema()):
            raise ArchiveDamaged("it has other columns")
        batches = file.iter_batches(_ROWS_AT_ONCE, use_threads=True)
        with engine() as asked:
            asked.register("rows", pa.RecordBatchReader.from_batches(_schema(), batches))
            rows, checksum = asked.execute(_SUM).fetchall()[0]
    except (pa.ArrowException, OSError, duckdb.Error) as error:
        raise ArchiveDamaged(f"it is not whole: {' '.join(str(error).split())[:300]}") from None
    return int(rows), int(checksum)


def keys_in(stream: Any) -> Iterator[Sequence[tuple[UUID, int, str]]]:
    """Read the run, attempt and transaction of each row, in batches."""
    from pyarrow import parquet

    file = parquet.ParquetFile(stream, page_checksum_verification=True)
    for batch in file.iter_batches(10_000, columns=["run_id", "attempt", "xid"]):
        yield [(UUID(run), attempt, xid) for run, attempt, xid in zip(*(one.to_pylist() for one in batch), strict=True)]


@contextmanager
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open DuckDB in bounded memory, without files, network and extensions: it reads what it is given."""
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "memory_limit": _MEMORY,
        "threads": "2",
    }
    with duckdb.connect(":memory:", config=settings) as connection:
        connection.execute("set lock_configuration = true")
        yield connection


def _schema() -> pa.Schema:
    import pyarrow as pa

    types = {"text": pa.string(), "integer": pa.int32(), "bigint": pa.int64(), "moment": pa.timestamp("us", "UTC")}
    return pa.schema([(name, types[kind]) for name, kind in COLUMNS.items()])


def _joined(block: Sequence[bytes]) -> Iterator[bytes]:
    """Join lines to parts that are parsed at once."""
    part, size = list[bytes](), 0
    for lines in block:
        part.append(lines)
        size += len(lines)
        if size >= _PARSED_BYTES:
            yield b"".join(part)
            part, size = [], 0
    if part:
        yield b"".join(part)


def _parsed(lines: bytes) -> pa.Table:
    """Parse lines as the database sends them: moments in UTC without a zone, and the hash as the last column."""
    import pyarrow as pa
    from pyarrow import csv

    types = {field.name: pa.timestamp("us") if field.name in MOMENTS else field.type for field in _schema()}
    types["hash"] = pa.int64()
    try:
        return csv.read_csv(
            pa.BufferReader(lines),
            read_options=csv.ReadOptions(column_names=list(types), block_size=len(lines) + 1, use_threads=False),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=types, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        raise ArchiveError(f"rows cannot be read: {' '.join(str(error).split())[:300]}") from None
