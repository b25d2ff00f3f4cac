"""Log streams: the lines of a run as they are written, as server-sent events, until the run has ended.

A reader is only a cursor in the log: between two looks nothing is held. A reader that reconnects names the last line it got,
`attempt/number`, and gets the lines after it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from duly.api.admission import OpenRequest
from duly.api.problems import Refusal
from duly.clock import Clock
from duly.domain.errors import DulyError
from duly.log import Log
from duly.store.boxes import runs
from duly.store.connection.together import OpenSession
from duly.wire.runs import LogEnd, LogLine

HEARTBEAT_SECONDS = 15.0
LOOK_SECONDS_MIN, LOOK_SECONDS_MAX = 0.1, 1.0
_CURSOR = re.compile(r"(\d{1,9})/(\d{1,9})", re.ASCII)
_BEGIN, _HEARTBEAT = b"retry: 1000\n\n", b": alive\n\n"

Cursor = tuple[int, int]


class LogStreams:
    """The log streams of this process."""

    def __init__(self, clock: Clock, log: Log) -> None:
        self._clock = clock
        self._log = log
        self._closed = False

    async def read(
        self,
        request: OpenRequest,
        run_id: UUID,
        after: Cursor,
        open_session: OpenSession,
        is_admitted: Callable[[], Awaitable[bool]],
    ) -> AsyncIterator[bytes]:
        """Return the lines after a cursor as they come, and one event `end` after the last line of an ended run.

        `request` counts among the open streams, and is given back at the end.
        """
        cursor, pause, heartbeat_at = after, LOOK_SECONDS_MIN, self._clock.monotonic()
        try:
            yield _BEGIN
            while not self._closed and await is_admitted():
                is_over, lines = await _look(open_session, run_id, cursor)
                now = self._clock.monotonic()
                if lines:
                    cursor, pause, heartbeat_at = (lines[-1]["attempt"], lines[-1]["number"]), LOOK_SECONDS_MIN, now
                    yield b"".join(map(_line, lines))
                elif is_over:  # A run is settled after its lines, so there will be no more.
                    yield await _end(open_session, run_id)
                    return
                elif now - heartbeat_at >= HEARTBEAT_SECONDS:
                    heartbeat_at = now
                    yield _HEARTBEAT
                await self._clock.sleep(0 if is_over else pause)
                pause = min(LOOK_SECONDS_MAX, pause * 1.3)
        except DulyError as error:  # the database does not answer: the reader reconnects, with its cursor
            self._log.warning("stream_ended", error=str(error))
        finally:
            request.give_back()

    def close(self) -> None:
        """End every stream."""
        self._closed = True


def cursor_of(last_id: str) -> Cursor:
    """Parse the cursor that a reader names. Raises Refusal."""
    found = _CURSOR.fullmatch(last_id)
    if found is None:
        raise Refusal(
            "invalid_header",
            "The Last-Event-ID is not one of a log, such as 1/17: an attempt and a number.",
            remedy="Send the id of the last event received, or leave it out for all.",
        )
    return int(found[1]), int(found[2])


def reported(line: Mapping[str, Any]) -> LogLine:
    """Return a line as responses show it."""
    return LogLine(**{**line, "fields": None if line["fields"] is None else msgspec.json.decode(line["fields"])})


async def _look(open_session: OpenSession, run_id: UUID, cursor: Cursor) -> tuple[bool, Sequence[Mapping[str, Any]]]:
    async with open_session() as session:
        is_over = await runs.is_over(session, run_id)  # First: what was written before the end is read after it.
        return is_over, await runs.read_logs(session, run_id, cursor)


async def _end(open_session: OpenSession, run_id: UUID) -> bytes:
    async with open_session() as session:
        found = await runs.find(session, run_id)
    assert found is not None, "it was there when the stream began"
    return b"event: end\ndata: %b\n\n" % msgspec.json.encode(LogEnd(state=found["state"]))


def _line(line: Mapping[str, Any]) -> bytes:
    line_id = f"{line['attempt']}/{line['number']}".encode()
    return b"id: %b\nevent: line\ndata: %b\n\n" % (line_id, msgspec.json.encode(reported(line)))
