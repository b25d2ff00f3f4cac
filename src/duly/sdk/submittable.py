"""What can be submitted: a handler of an app, or a target that is no function. Both are submitted in the same ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar
from uuid import UUID

from msgspec import UNSET, UnsetType

from duly.domain.duration import Duration
from duly.domain.limits.concurrency import Rate
from duly.sdk.choices import Choices, Followed, Misfire, Mode, On, Overlap, Told, Work
from duly.sdk.handle import Handle
from duly.sdk.retry import Retry
from duly.sdk.submitter import Submitter
from duly.worker.context import RunContext

if TYPE_CHECKING:
    from duly.sdk.app import App

Q = ParamSpec("Q")
T = TypeVar("T")


class Submittable(Generic[Q, T]):
    """Work of an app, and the ways to submit it."""

    def __init__(self, app: App, work: Work) -> None:
        self._app = app
        self._work = work
        self._submitter: Submitter[Q, T] = Submitter(app, work, Choices())

    @property
    def name(self) -> str:
        """The name that runs carry."""
        return self._work.name

    @property
    def queue(self) -> str:
        """The queue its runs go to, unless a submit says otherwise."""
        return self._work.queue

    @property
    def submitter(self) -> Submitter[Q, T]:
        """The way to submit it with no choices made."""
        return self._submitter

    def options(
        self,
        *,
        at: datetime | None = None,
        delay: Duration | None = None,
        every: Duration | None = None,
        cron: str | None = None,
        when: str | None = None,
        schedule: Mapping[str, Any] | None = None,
        tz: str | None = None,
        mode: Mode | None = None,
        start: datetime | str | None = None,
        end: datetime | str | None = None,
        max_runs: int | None = None,
        jitter: Duration | Mapping[str, Any] | None = None,
        misfire: Misfire | None = None,
        overlap: Overlap | None = None,
        calendars: Sequence[str | Mapping[str, Any]] | None = None,
        pause_on_failure: int | None = None,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        key: str | None = None,
        retry: Retry | None = None,
        timeout: Duration | UnsetType | None = UNSET,
        concurrency: tuple[str, int] | None = None,
        fifo: str | None = None,
        rate: Rate | None = None,
        expires_at: datetime | None = None,
        expires_after: Duration | None = None,
        tags: Sequence[str] | None = None,
        on_done: Told | None = None,
        on_dead: Told | None = None,
        request_id: str | None = None,
        traceparent: str | None = None,
        parent: RunContext | UUID | None = None,
        after: Sequence[Followed | tuple[Followed, On]] | None = None,
        connection: Any = None,
        tenant: int | None = None,
    ) -> Submitter[Q, T]:
        """Choose when and how to run it: `.options(delay="PT10M").submit(…)`.

        Once: `at`, a moment; `delay`, from now; or `when`, in English. Again and again: `every`, from `at` or the next whole
        second on; `cron` or `when`, in the zone `tz`; or `schedule`, in the full shape of docs/triggers.md. Such a schedule
        takes a `name`, `start` and `end`, `max_runs`, `jitter` ("PT5M"), `calendars`, `pause_on_failure`; `misfire` and
        `overlap`, a policy or its shape; and `every` the `mode` "fixed_delay", to count from the end of each run.

        `key`: submitted again under the same key within a day, it is stored once. `concurrency`: a key and a number, such as
        `("customer-7", 3)`: at most so many runs of that key at once. `fifo`: a key whose runs go strictly one after another.
        `rate`: `Rate("mail", 10, per="PT1S", burst=5)`: no more starts than that, across all workers. `expires_at`, a moment,
        or `expires_after` its scheduled one: what has not started by then is worthless, and ends as expired. `tags`: words to
        find it by, instead of the handler's own. `on_done` and `on_dead`: a URL, or the name of a job, that is told of each
        run's end, or of its burial. `request_id` and `traceparent`: who asked for it; its handler and whoever reads the run
        are told.
        `parent`: the run whose subtask it is, which must be under way. `after`: handles or ids of one-shots that must have
        succeeded before it runs, or pairs such as `(handle, "always")`, or `"failure"`. `connection`: the caller's own, inside
        whose transaction it is inserted. Raises InvalidOption, InvalidSchedule, TriggerError, UnknownQueue.
        """
        choices = Choices(
            at=at,
            delay=delay,
            every=every,
            cron=cron,
            when=when,
            schedule=schedule,
            tz=tz,
            mode=mode,
            start=start,
            end=end,
            max_runs=max_runs,
            jitter=jitter,
            misfire=misfire,
            overlap=overlap,
            calendars=calendars,
            pause_on_failure=pause_on_failure,
            name=name,
            queue=queue,
            priority=priority,
            key=key,
            retry=retry,
            timeout=timeout,
            concurrency=concurrency,
            fifo=fifo,
            rate=rate,
            expires_at=expires_at,
            expires_after=expires_after,
            tags=tags,
            on_done=on_done,
            on_dead=on_dead,
            request_id=request_id,
            traceparent=traceparent,
            parent=parent,
            after=after,
            connection=connection,
            tenant=tenant,
        )
        return Submitter(self._app, self._work, choices)

    async def submit(self, *args: Q.args, **kwargs: Q.kwargs) -> Handle[T]:
        """Make one run of it durable, due now. Raises Refused, DatabaseUnusable, or Unavailable when it cannot be known."""
        return await self._submitter.submit(*args, **kwargs)

    def submit_sync(self, *args: Q.args, **kwargs: Q.kwargs) -> Handle[T]:
        """Make one run of it durable, from a plain function."""
        return self._submitter.submit_sync(*args, **kwargs)

    async def submit_many(self, arguments: Sequence[Mapping[str, Any]]) -> list[Handle[T]]:
        """Make one run for each set of arguments durable: all of them or none."""
        return await self._submitter.submit_many(arguments)

    def submit_many_sync(self, arguments: Sequence[Mapping[str, Any]]) -> list[Handle[T]]:
        """Make one run for each set of arguments durable, from a plain function: all of them or none."""
        return self._submitter.submit_many_sync(arguments)
