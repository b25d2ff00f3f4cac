"""The base of handlers and targets: both are submitted in the same ways, as they are or with options."""

from __future__ import annotations

from typing import TYPE_CHECKING, ParamSpec, TypeVar, Unpack

from duly.sdk.choices import Choices, Work
from duly.sdk.keywords import Keywords
from duly.sdk.submitter import Submitter

if TYPE_CHECKING:
    from duly.sdk.app import App

Q = ParamSpec("Q")
T = TypeVar("T")


class Submittable(Submitter[Q, T]):
    """A handler or a target of an app: a submitter without options, and `options` to give some."""

    def __init__(self, app: App, work: Work) -> None:
        super().__init__(app, work, Choices(work, {}))

    @property
    def name(self) -> str:
        """The name that runs carry."""
        return self._work.name

    @property
    def queue(self) -> str:
        """The queue of its runs, unless a submit names another."""
        return self._work.queue

    def options(self, **chosen: Unpack[Keywords]) -> Submitter[Q, T]:
        """Choose when and how to run it: `.options(delay="PT10M").submit(…)`.

        A one-shot: `at`, a moment; `delay`, from now; or `when`, in English. Recurring: `every`, from `at` or the next
        whole second on; `cron` or `when`, in the zone `tz`; or `schedule`, in the full shape of docs/reference/triggers.md. Such
        a schedule takes a `name`, `start` and `end`, `max_runs`, `jitter` ("PT5M"), `calendars`, `pause_on_failure`;
        `misfire` and `overlap`, a policy or its shape; and `every` the `mode` "fixed_delay", to count from the end of
        each run.

        `key`: submitted again under the same key within a day, it is stored once. `concurrency`: a key and a number,
        such as `("customer-7", 3)`: at most so many runs of that key at once. `fifo`: a key whose runs go strictly one
        after another. `rate`: `Rate("mail", 10, per="PT1S", burst=5)`: no more starts than that, across all workers.
        `expires_at`, a moment, or `expires_after` its scheduled one: a run that has not started by then ends as
        expired. `tags`: words to find it by, instead of the handler's own. `redact`: parts of the payload that are shown
        as `***`, such as "$.card", besides the handler's own. `on_end` and `on_failure`: a URL, or the name of a job, that
        is notified of each run's end, or of its dead letter. `request_id` and `traceparent`: the request; its handler
        and readers of the run see them. `parent`: the run whose subtask it is, which must be active. `depends_on`:
        handles or ids of one-shots that must have succeeded before it runs, or pairs such as `(handle, "always")`, or
        `"failure"`. `connection`: the caller's own, inside whose transaction it is inserted. Raises
        InvalidOption, InvalidSchedule, TriggerError, UnknownQueue.
        """
        return Submitter(self._app, self._work, Choices(self._work, chosen))
