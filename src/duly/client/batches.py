"""Batches of jobs: split into requests, and their responses numbered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from duly.client.definitions import written
from duly.client.requests import NDJSON, ApiRequest, Reply, path, unexpected
from duly.domain.jobs.spec import JobSpec
from duly.wire.jobs.batches import LINES_MAX, LineResult

CHUNK_LINES = 5_000
_CHUNK_BYTES = 8_388_608
_SECONDS_MORE = 60.0  # the server may take so long for a batch
_decoder = msgspec.json.Decoder(LineResult)


def batches(
    jobs: Iterable[JobSpec], key: str | None, lines: int = CHUNK_LINES
) -> Iterator[ApiRequest[list[LineResult]]]:
    """Split jobs into requests of so many lines; under a key, the same jobs split the same way are created once."""
    assert 1 <= lines <= LINES_MAX
    for number, (first, body) in enumerate(_chunks(jobs, lines)):
        yield ApiRequest(
            method="POST",
            path=path() + "jobs:batch",
            read=_reader(first),
            body=body,
            media_type=NDJSON,
            key=None if key is None else f"{key}/{number}",
            seconds_more=_SECONDS_MORE,
        )


def _chunks(jobs: Iterable[JobSpec], lines: int) -> Iterator[tuple[int, bytes]]:
    """Yield each chunk with the number of its first line, counted from 1 over all."""
    first, chunk, size = 1, list[bytes](), 0
    for job in jobs:
        line = written(job)
        if chunk and (len(chunk) == lines or size + len(line) > _CHUNK_BYTES):
            yield first, b"\n".join(chunk)
            first, chunk, size = first + len(chunk), [], 0
        chunk.append(line)
        size += len(line) + 1
    if chunk:
        yield first, b"\n".join(chunk)


def _reader(first: int) -> Callable[[Reply], list[LineResult]]:
    def read(reply: Reply) -> list[LineResult]:
        try:
            answers = _decoder.decode_lines(reply.body)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise unexpected(reply, str(error)) from None
        return [msgspec.structs.replace(answer, line=answer.line + first - 1) for answer in answers]

    return read
