"""Schedules declared in code, beside a function or for a target: the jobs that a worker registers when it starts."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from duly.domain.errors import InvalidArguments, InvalidOption
from duly.domain.jobs.declaration import OWNER
from duly.domain.jobs.job import Recurring, check_name
from duly.domain.triggers.at import At
from duly.domain.triggers.errors import TriggerError
from duly.domain.triggers.schedule.options import check
from duly.sdk.choices import Work
from duly.worker.handlers import Handler


class Declaration:
    """One declared schedule, checked when it is made. Raises TriggerError, InvalidArguments, InvalidOption."""

    def __init__(self, name: str, handler: Work, shape: Mapping[str, Any], arguments: Mapping[str, Any] | None) -> None:
        self.name = check_name(name, "the name of the schedule")
        self._handler = handler
        self._shape = shape
        self._arguments = arguments or {}
        self._check()

    def job(self, source: str) -> Recurring:
        """Return the job that a program, named as `module:app`, declares with it."""
        handler = self._handler
        return Recurring(
            handler.name,
            self._payload(),
            handler.queue,
            handler.priority,
            self._shape,
            self.name,
            handler.options,
            OWNER,
            source,
        )

    def _check(self) -> None:
        try:
            schedule = check(self._shape)
        except TriggerError as error:
            raise error.named(f"the schedule of {self.name}") from None
        if isinstance(schedule.trigger, At):
            raise InvalidOption(
                f"the schedule of {self.name} fires once; what is declared recurs. Submit it instead: .options(at=…)"
            )
        # An annotation may name something further down: then the arguments are checked when the worker starts.
        if self._handler.is_compiled:
            self._payload()

    def _payload(self) -> str:
        try:
            return self._handler.encode((), self._arguments)
        except InvalidArguments as error:
            raise InvalidArguments(f"{error}. A schedule gives its arguments with payload={{…}}") from None


def name_of(handler: Handler) -> str:
    """Name a schedule after its function's place, so that it keeps its name when the handler is renamed."""
    function = inspect.unwrap(handler.function)
    return f"{getattr(function, '__module__', '?')}:{getattr(function, '__name__', handler.name)}"
