"""Idempotency keys: a change and its response are one transaction, so a repeated request gets the same response.

See docs/decisions/0036-one-write-path.md. Only the response of a request that was carried out is stored: one that was
refused, or failed, has changed nothing and leaves its key free. A request that is done in several transactions stores
its progress in each of them, and goes on from there when it is repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from duly.api.operations import Operation
from duly.api.problems import Refusal
from duly.api.response import Response
from duly.moves.bulk import Done, Position
from duly.store.connection.database import Database
from duly.store.connection.together import OpenSession, in_session
from duly.store.tenancy import answers
from duly.store.tenancy.answers import KeptAnswer

Act = Callable[[Database], Awaitable[Response]]
IN_PROGRESS = 102  # the status that marks progress in position of a response


class Progress(msgspec.Struct, frozen=True):
    """The progress of a request in parts: the result so far, and the position after it."""

    done: Done
    after: Position | None


class KeyedRequest:
    """A request under its idempotency key. `progress`: of an earlier try."""

    def __init__(self, tenant: int, route: str, key: str, digest: bytes) -> None:
        self._at = (tenant, route, key)
        self.key = key
        self._digest = digest
        self._seen: bytes | None = None
        self.progress: Progress | None = None

    async def begin(self, session: Database) -> Response | None:
        """Lock the key until the transaction ends. Return the response of an earlier try that was carried out.

        Raises Refusal when another try is under way, or when the key was used for another request.
        """
        state = await answers.lock(session, *self._at)
        found = state.answer
        if found is not None and (found.status != IN_PROGRESS or found.body_hash != self._digest):
            return self._replayed(found)
        if not state.is_ours:
            raise self._busy()
        if found is not None:
            self._seen, self.progress = found.body, msgspec.json.decode(found.body, type=Progress)
        return None

    async def store(self, session: Database, response: Response) -> None:
        """Store the response in the transaction that took the key. Raises Refusal when another try was faster."""
        await self._store(
            session, response.status, {**response.headers, "Content-Type": response.media_type}, response.encoded()
        )

    async def store_progress(self, session: Database, done: Done, position: Position | None) -> None:
        """Store the progress. Raises Refusal when another try under the same key has gone on meanwhile."""
        await self._relock(session)
        written = msgspec.json.encode(Progress(done, position))
        await self._store(session, IN_PROGRESS, {}, written)
        self._seen = written

    async def store_last(self, session: Database, response: Response) -> None:
        """Store the response in place of the progress, in a transaction of its own. Raises Refusal as `store_progress` does."""
        await self._relock(session)
        await self.store(session, response)

    async def _relock(self, session: Database) -> None:
        state = await answers.lock(session, *self._at)
        if not state.is_ours or (None if state.answer is None else state.answer.body) != self._seen:
            raise self._busy()

    async def _store(self, session: Database, status: int, headers: Mapping[str, str], body: bytes) -> None:
        if not await answers.keep(session, *self._at, KeptAnswer(self._digest, status, headers, body)):
            raise self._busy()

    def _replayed(self, kept: KeptAnswer) -> Response:
        if kept.body_hash != self._digest:
            raise Refusal("key_reused", f"The key {self.key!r} was used for another request in the last 24 hours.")
        headers = {name: value for name, value in kept.headers.items() if name != "Content-Type"}
        return Response(
            kept.status, kept.body, {**headers, "Idempotency-Replayed": "true"}, media_type=kept.headers["Content-Type"]
        )

    def _busy(self) -> Refusal:
        words = f"A request with the key {self.key!r} is in progress."
        return Refusal("key_in_progress", words, headers={"Retry-After": "1"})


async def perform(
    operation: Operation, request: KeyedRequest | None, act: Act, database: Database, open_session: OpenSession
) -> Response:
    """Act in a transaction, unless the same was done under the request's key before: then return that response.

    Operations without a transaction of their own act on `database`. Raises Refusal, and what acting raises.
    """

    async def act_once(session: Database) -> Response:
        before = None if request is None else await request.begin(session)
        if before is not None:
            return before
        response = await act(session)
        if request is not None:
            await request.store(session, response)
        return response

    if operation.in_session or (request is not None and not operation.is_resumable):
        return await in_session(open_session, act_once)
    before = None if request is None else await in_session(open_session, request.begin)
    return before or await act(database)
