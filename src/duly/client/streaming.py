"""Streams: server-sent events read line by line, and resumed where the connection was lost. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from duly.client.errors import ApiError
from duly.client.requests import NoReply, Reply, unexpected
from duly.client.retry import Manners, error_in, gave_up_on, is_worth_repeating
from duly.wire.runs import LogEnd, LogLine

# The server sends a comment every 15 seconds; after three times as long the connection is considered lost.
SILENCE_SECONDS = 45.0
_LOSSES_OF_SILENCE = 2  # an interrupted stream is resumed at once, unless the server does not answer


class Event(msgspec.Struct, frozen=True):
    """An event, as in CloudEvents 1.0; `cursor` is where the stream can be resumed."""

    type: str
    id: str
    source: str
    time: datetime | None = None
    subject: str | None = None
    data: Any = None
    cursor: str = ""


T = TypeVar("T")
Read = Callable[[str, str, str], T]
OnSilence = Callable[[ApiError], None]


def read_event(name: str, text: str, cursor: str) -> Event:
    """Decode an event of the event stream."""
    return msgspec.structs.replace(msgspec.json.decode(text, type=Event), cursor=cursor)


def read_log(name: str, text: str, cursor: str) -> LogLine | LogEnd:
    """Decode an event of a log stream."""
    if name == "end":
        return msgspec.json.decode(text, type=LogEnd)
    return msgspec.json.decode(text, type=LogLine)


class Listening(Generic[T]):
    """The state of a stream: the cursor of the last event, and how long it was silent.

    `read` turns an event's name, data and cursor into the caller's value.
    """

    def __init__(self, since: str | None, manners: Manners, read: Read[T], on_silence: OnSilence | None = None) -> None:
        self._cursor = since
        self._on_silence = on_silence
        self._read = read
        self._manners = manners
        self._heard_at = manners.monotonic()
        self._losses = 0
        self._data: list[str] = []
        self._name = self._next_cursor = ""

    def headers(self) -> dict[str, str]:
        """Return the headers that ask for what came after the last event."""
        self._data, self._name, self._next_cursor = [], "", ""  # an interrupted event comes again, whole
        cursor = {} if self._cursor is None else {"Last-Event-ID": self._cursor}
        return {"Accept": "text/event-stream", **cursor}

    def hear(self, line: str) -> T | None:
        """Take a line; return the event that it completes."""
        self._heard_at, self._losses = self._manners.monotonic(), 0
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            self._next_cursor = value
        elif name == "event":
            self._name = value
        elif name == "data":
            self._data.append(value)
        return self._event() if not line and self._data else None

    def _event(self) -> T:
        text, self._data = "\n".join(self._data), []
        name, self._name = self._name, ""
        self._cursor = self._next_cursor or self._cursor
        try:
            return self._read(name, text, self._cursor or "")
        except msgspec.MsgspecError as error:
            raise unexpected(Reply(200, {}, b""), str(error)) from None

    def pause(self, lost: Reply | NoReply) -> float:
        """Return how long to wait before the stream is requested again. Raises ApiError when it is not."""
        error = error_in(lost)
        if not is_worth_repeating(lost, error):
            raise error
        self._losses += 1
        if self._losses == _LOSSES_OF_SILENCE and self._on_silence is not None:
            self._on_silence(error)
        manners = self._manners
        pause = manners.patience.pause(self._losses, manners.rng.uniform(), error.retry_after)
        if manners.monotonic() + pause >= self._heard_at + manners.patience.deadline + SILENCE_SECONDS:
            raise gave_up_on(error, self._losses)
        return pause
