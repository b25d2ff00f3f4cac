"""Submitting: the arguments become a payload, the options a job, and the store's answer a handle.

Every submit carries a key. After a commit whose outcome is unknown it is repeated under the same key, so it is stored
once or not at all.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

import msgspec

from duly.clock import moment_of
from duly.domain.errors import InvalidArguments, InvalidOption, InvalidPayload
from duly.domain.jobs.job import check_arguments
from duly.domain.runs.options import NO_OPTIONS, RunOptions
from duly.domain.runs.run import HORIZON
from duly.domain.runs.run_id import BATCH_MAX
from duly.domain.targets.addresses import called_by
from duly.domain.triggers.on_event import NEVER
from duly.moves import submit as moves
from duly.sdk.choices import Choices, Work
from duly.sdk.handle import Handle, Handles
from duly.store.connection import callers
from duly.store.connection.database import Connection, Database, DiskFull, Unavailable
from duly.store.connection.hints import DUE
from duly.store.tables.jobs import Submitted
from duly.worker.handlers import Handler

if TYPE_CHECKING:
    from duly.sdk.app import App

Q = ParamSpec("Q")
T = TypeVar("T")
_RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0)

Send = Callable[[Connection, str], Coroutine[Any, Any, Sequence[Submitted]]]


class Submitter(Generic[Q, T]):
    """Work of an app with its options, perhaps none, and the ways to submit it.

    Its attributes are private, because a handler is one too and carries the attributes of its function. `Workflow`
    reads them.
    """

    def __init__(self, app: App, work: Work, choices: Choices) -> None:
        app.check_queue(choices.job.queue)
        self._app = app
        self._work = work
        self._choices = choices

    async def submit(self, *args: Q.args, **kwargs: Q.kwargs) -> Handle[T]:
        """Submit one job: durable when this returns.

        Raises Refused, DatabaseUnusable, or Unavailable when the outcome is unknown.
        """
        return (await self._submit(self._one(args, kwargs)))[0]

    def submit_sync(self, *args: Q.args, **kwargs: Q.kwargs) -> Handle[T]:
        """Submit one job, from a plain function."""
        return self._submit_sync(self._one(args, kwargs))[0]

    async def submit_many(self, arguments: Iterable[Mapping[str, Any]]) -> Sequence[Handle[T]]:
        """Submit one job for each set of arguments: all of them or none."""
        return await self._submit(self._many(arguments))

    def submit_many_sync(self, arguments: Iterable[Mapping[str, Any]]) -> Sequence[Handle[T]]:
        """Submit one job for each set of arguments, from a plain function: all of them or none."""
        return self._submit_sync(self._many(arguments))

    def _one(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Send:
        payload = self._work.encode(args, kwargs)
        self._check_calls(self._choices.job.options)
        if self._choices.recurring is not None:
            job = msgspec.structs.replace(self._choices.recurring, payload=payload)
            return lambda connection, key: _listed(
                moves.submit_recurring(connection, job, key=key, tenant=self._tenant)
            )
        shot = self._choices.shot(payload)
        return lambda connection, key: _listed(moves.submit(connection, shot, key=key, tenant=self._tenant))

    def _many(self, arguments: Iterable[Mapping[str, Any]]) -> Send:
        if self._choices.recurring is not None:
            raise InvalidOption("submit_many takes one-shots; submit each schedule by itself")
        if isinstance(arguments, Mapping):
            raise InvalidArguments("submit_many takes a list of mappings, one for each job")
        arguments = arguments if isinstance(arguments, Sequence) else list(arguments)
        if len(arguments) > BATCH_MAX:
            raise InvalidOption(f"submit_many takes at most {BATCH_MAX:,} sets of arguments, not {len(arguments):,}")
        payloads = self._payloads(arguments)
        self._check_calls(self._choices.job.options)
        job = self._choices.shot("")
        return lambda connection, key: moves.submit_alike(connection, job, payloads, key=key, tenant=self._tenant)

    def _payloads(self, arguments: Sequence[Mapping[str, Any]]) -> list[str]:
        """Encode each set of arguments. Raises InvalidArguments or InvalidPayload, with its number."""
        together = self._work.encode_together(arguments) if isinstance(self._work, Handler) else None
        if together is not None:
            return together
        return [self._payload(number, kwargs) for number, kwargs in enumerate(arguments)]

    def _payload(self, number: int, kwargs: Mapping[str, Any]) -> str:
        try:
            return self._work.encode((), check_arguments(kwargs, self._work.name))
        except (InvalidArguments, InvalidPayload) as error:
            raise type(error)(f"arguments[{number}]: {error}") from None

    def _check_calls(self, options: RunOptions) -> None:
        if options is not NO_OPTIONS:
            self._app.connections.check_calls(called_by(options))

    async def _submit(self, send: Send) -> Handles[T]:
        key = self._key()
        if (caller := self._choices.given.get("connection")) is not None:
            connection = callers.awaited(caller, self._app.connections.keyring)
            return self._handles(key, await send(connection, key))
        submitted, hint = await self._store(send, key)
        if hint:
            await self._wake(hint)
        return self._handles(key, submitted)

    async def _store(self, send: Send, key: str) -> tuple[Sequence[Submitted], str | None]:
        """Store it. Returns the hint that is still to be sent, too."""
        # A program's submits are recorded with their runs; a schedule has an audit entry.
        is_schedule = self._choices.recurring is not None
        database = await self._app.connections.database(is_audited=is_schedule)
        submitted = await send_until_answered(database, self._checked(send), key, "job")
        if is_schedule:
            return submitted, DUE if _is_soon(submitted[0], moment_of(database.clock.now())) else None
        # One answer of a batch is as good as all.
        return submitted, self._choices.job.queue if submitted and submitted[0].needs_hint else None

    async def _wake(self, hint: str) -> None:
        (await self._app.connections.waker()).wake(hint)

    def _checked(self, send: Send) -> Send:
        """Check first that the tenant exists. It is not checked on a caller's own connection, which may have no right to."""

        async def checked(connection: Connection, key: str) -> Sequence[Submitted]:
            await self._app.connections.check_tenant(self._tenant)
            return await send(connection, key)

        return checked

    def _submit_sync(self, send: Send) -> Handles[T]:
        key, background = self._key(), self._app.background
        if (caller := self._choices.given.get("connection")) is not None:
            connection = callers.plain(caller, self._app.connections.keyring)
            return self._handles(key, callers.at_once(send(connection, key)))
        submitted, hint = background.run_here(self._store(send, key))
        if hint:
            background.start(self._wake(hint))
        return self._handles(key, submitted)

    def _handles(self, key: str, submitted: Sequence[Submitted]) -> Handles[T]:
        return Handles(self._app, self._work, key, submitted)

    def _key(self) -> str:
        return str(self._choices.given.get("key") or secrets.token_urlsafe(16))

    @property
    def _tenant(self) -> int:
        return int(self._choices.given.get("tenant", self._app.tenant))


async def send_until_answered(
    database: Database, send: Callable[[Database, str], Awaitable[T]], key: str, what: str
) -> T:
    """Submit under a key, again while the outcome is unknown. Raises Unavailable when that stays so."""
    for pause in (*_RETRY_SECONDS, None):
        try:
            return await send(database, key)
        except DiskFull:
            raise  # nothing was stored, and disk space does not come back in a moment
        except Unavailable as error:
            if pause is None:
                raise Unavailable(
                    f"{error}, tried {len(_RETRY_SECONDS) + 1} times. The {what} may or may not be stored:"
                    f" submit it again with key={key!r}, which stores it once"
                ) from error
            await database.clock.sleep(pause)
    raise AssertionError("unreachable")


def _is_soon(submitted: Submitted, now: datetime) -> bool:
    return submitted.scheduled_at != NEVER and submitted.scheduled_at - now <= HORIZON


async def _listed(submitting: Awaitable[Submitted]) -> Sequence[Submitted]:
    return [await submitting]
