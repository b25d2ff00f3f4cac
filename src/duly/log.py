"""Logging: a line is an event and its fields, as JSON or as text for people.

A line that concerns a request, a job, a run or an attempt has its ids: `request_id`, `job_id`, `run_id`, `attempt`.
Lines that are logged while a request is served or a handler runs have them automatically.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

request_id: ContextVar[str | None] = ContextVar("duly_request_id", default=None)  # of the request that is served
_sources: list[Callable[[], Mapping[str, Any]]] = []


def add_ids(source: Callable[[], Mapping[str, Any]]) -> None:
    """Ask a source for ids whenever a line is written."""
    _sources.append(source)


class Log:
    """Writes events of one part of the system."""

    def __init__(self, part: str) -> None:
        self._logger = logging.getLogger(f"duly.{part}")

    @property
    def is_talkative(self) -> bool:
        """Return whether events are logged."""
        return self._logger.isEnabledFor(logging.INFO)

    def debug(self, event: str, **fields: Any) -> None:
        """Log a detail for developers."""
        self._logger.debug(event, extra={"fields": fields})

    def info(self, event: str, **fields: Any) -> None:
        """Log an event."""
        self._logger.info(event, extra={"fields": fields})

    def warning(self, event: str, **fields: Any) -> None:
        """Log a problem that was handled."""
        self._logger.warning(event, extra={"fields": fields})

    def error(self, event: str, **fields: Any) -> None:
        """Log an error that needs a person."""
        self._logger.error(event, extra={"fields": fields})


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={_on_one_line(value)}" for name, value in _fields(record).items())
        return f"{self.formatTime(record)} {record.levelname.lower():7} {record.name} {record.getMessage()} {fields}".rstrip()


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields of an event, with the ids of what it concerns; for one of a library, its exception."""
    error = record.exc_info[1] if record.exc_info else None
    known = {name: value for source in _sources for name, value in source().items()}
    if (served := request_id.get()) is not None:
        known["request_id"] = served
    return known | getattr(record, "fields", {}) | ({} if error is None else {"error": repr(error)})


def _on_one_line(value: object) -> str:
    """Write a value so that an event is one line, even if PostgreSQL's message has several."""
    return " ".join(part.strip() for part in str(value).splitlines())


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": self.formatTime(record),
            "level": record.levelname.lower(),
            "part": record.name,
            "event": record.getMessage(),
        }
        return json.dumps({**line, **_fields(record)}, default=str)


def set_up(level: str = "warning", *, as_json: bool = False) -> None:
    """Send our events to standard error, and of the HTTP server only its errors: any client can make it warn.

    Of the sender of traces likewise only errors.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if as_json else _Text())
    for name, least in (("duly", level.upper()), ("uvicorn", "ERROR"), ("opentelemetry", "ERROR")):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(least)
        logger.propagate = False
