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
        """Say something only a developer wants."""
        self._logger.debug(event, extra={"fields": fields})

    def info(self, event: str, **fields: Any) -> None:
        """Say what happened."""
        self._logger.info(event, extra={"fields": fields})

    def warning(self, event: str, **fields: Any) -> None:
        """Say what went wrong and was survived."""
        self._logger.warning(event, extra={"fields": fields})

    def error(self, event: str, **fields: Any) -> None:
        """Say what went wrong and needs a person."""
        self._logger.error(event, extra={"fields": fields})


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={_on_one_line(value)}" for name, value in getattr(record, "fields", {}).items())
        return f"{self.formatTime(record)} {record.levelname.lower():7} {record.name} {record.getMessage()} {fields}".rstrip()


def _on_one_line(value: object) -> str:
    """Write a value so that an event is one line, also where PostgreSQL has explained itself in several."""
    return " ".join(part.strip() for part in str(value).splitlines())


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        line = {
            "at": self.formatTime(record),
            "level": record.levelname.lower(),
            "part": record.name,
            "event": record.getMessage(),
        }
        return json.dumps({**line, **fields}, default=str)


def set_up(level: str = "warning", *, as_json: bool = False) -> None:
    """Send our events to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if as_json else _Text())
    logger = logging.getLogger("duly")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
