"""A handler for `logging`: records of a user's loggers during a run go to that run's log."""

from __future__ import annotations

import logging

from duly.worker.context import current

_LEVELS = ((logging.ERROR, "error"), (logging.WARNING, "warning"), (logging.INFO, "info"))


class RunLogHandler(logging.Handler):
    """Appends records to the log of the run whose handler made them; others pass through.

    Add it yourself: `logging.getLogger().addHandler(duly.RunLogHandler())`. A thread that the handler starts is not
    known to belong to it, unless it runs in a copy of the handler's context.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Append a record."""
        run = current.get()
        if run is None:
            return
        level = next((name for number, name in _LEVELS if record.levelno >= number), "debug")
        try:
            run.keep_line(level, self.format(record), {"logger": record.name})
        except Exception:  # noqa: BLE001 - as every handler of `logging` does it
            self.handleError(record)
