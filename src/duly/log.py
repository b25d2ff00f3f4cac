"""Logging: a line is an event and its fields, as JSON or as text for people."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any


class Log:
    """Writes events of one part of the system."""

    def __init__(self, part: str) -> None:
        self._logger = logging.getLogger(f"duly.{part}")

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
    """Return the fields of an event; for one of a library, its exception."""
    error = record.exc_info[1] if record.exc_info else None
    return getattr(record, "fields", {}) | ({} if error is None else {"error": repr(error)})


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
    """Send our events to standard error, and of the HTTP server only its errors: any client can make it warn."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if as_json else _Text())
    for name, least in (("duly", level.upper()), ("uvicorn", "ERROR")):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(least)
        logger.propagate = False
