"""Webhooks, commands and containers of an app: submitted as a handler is, and run by a worker whose operator allows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Unpack

from duly.domain.errors import InvalidOption
from duly.domain.jobs.job import check_name, check_priority
from duly.domain.runs.options import options_of
from duly.domain.runs.run import PRIORITY_DEFAULT
from duly.domain.targets.spec import Called, read_target
from duly.domain.targets.target import handler_of
from duly.domain.triggers.errors import shown
from duly.sdk.choices import UncheckedWork, handler_options
from duly.sdk.declaration import Declaration
from duly.sdk.keywords import Declared, check_known, shape_of
from duly.sdk.submittable import Submittable

if TYPE_CHECKING:
    from duly.sdk.app import App


class Target(Submittable[..., Any]):
    """A target of an app other than its own functions. Its payload is given by keywords, or as one mapping."""

    def __init__(self, app: App, target: Called, queue: str) -> None:
        kept = read_target(target)
        super().__init__(app, UncheckedWork(handler_of(kept), options_of(target=kept), check_name(queue, "queue")))
        self._target = kept

    def declare(self, name: str, **declared: Unpack[Declared]) -> None:
        """Give it a schedule of this name, which the app's workers register when they start, as a handler's own.

        Raises InvalidOption, UnknownQueue, TriggerError, InvalidSchedule, InvalidPayload.
        """
        check_known(declared, Declared, "a declared schedule")
        shape = shape_of(declared)
        if shape is None:
            raise InvalidOption(f"the schedule {name!r} does not say when; give cron=, every=, when= or schedule=")
        queue, priority = declared.get("queue"), declared.get("priority")
        chosen = self.queue if queue is None else check_name(queue, "queue")
        self._app.check_queue(chosen)
        options = handler_options(declared).but(target=self._target)
        work = UncheckedWork(
            self.name, options, chosen, PRIORITY_DEFAULT if priority is None else check_priority(priority)
        )
        self._app.declare(Declaration(name, work, shape, declared.get("payload")))

    def __repr__(self) -> str:
        return f"<Target {self.name}>"


def check_list(values: object, what: str) -> tuple[str, ...]:
    """Check a list of texts; one text alone is none. Raises InvalidOption."""
    if isinstance(values, str) or not isinstance(values, Sequence) or not all(isinstance(one, str) for one in values):
        raise InvalidOption(f'{what} {shown(values)} is not a list of texts; give one, such as ["/bin/echo", "hello"]')
    return tuple(values)
