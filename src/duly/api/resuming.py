"""Requests that are done in parts, under an idempotency key: asked again, they go on where they were.

How far a request has come is kept in the transaction of each part, so that the two cannot differ; when all is done its answer is
kept, as for any other request. See docs/http-api.md.
"""

from __future__ import annotations

from typing import Any

import msgspec

from duly.api.once import busy, encoded, replayed
from duly.api.operations import Answer
from duly.moves.bulk.jobs_and_runs import Done, Place
from duly.store.connection.database import Database
from duly.store.tenancy import answers
from duly.store.tenancy.answers import KeptAnswer

IN_PROGRESS = 102  # the status under which progress stands in place of an answer


class Progress(msgspec.Struct, frozen=True):
    """How far a request has come: all that was done, and the position behind it."""

    done: Done
    after: Place | None


class Resume:
    """One request under its key. `progress`: how far an earlier try came."""

    def __init__(self, tenant: int, route: str, key: str, digest: bytes) -> None:
        self._at = (tenant, route, key)
        self._key = key
        self._digest = digest
        self._seen: bytes | None = None
        self.progress: Progress | None = None

    async def begin(self, session: Database) -> Answer | None:
        """Learn how far an earlier try came, or give its answer if it was done. Raises Refusal."""
        kept = await self._hold(session)
        if kept is None:
            return None
        if kept.status != IN_PROGRESS or kept.body_hash != self._digest:
            return replayed(kept, self._digest, self._key)
        self._seen = kept.body
        self.progress = msgspec.json.decode(kept.body, type=Progress)
        return None

    async def keep(self, session: Database, done: Done, place: Place | None) -> None:
        """Keep how far it has come. Raises Refusal when another try under the same key has gone on meanwhile."""
        written = msgspec.json.encode(Progress(done, place))
        await self._write(session, IN_PROGRESS, {}, written)
        self._seen = written

    async def end(self, session: Database, answer: Answer) -> None:
        """Keep the answer, for whoever asks again."""
        await self._write(session, answer.status, {"Content-Type": answer.media_type}, encoded(answer))

    async def _write(self, session: Database, status: int, headers: dict[str, Any], body: bytes) -> None:
        kept = await self._hold(session)
        if (None if kept is None else kept.body) != self._seen:
            raise busy(self._key)
        if not await answers.keep(session, *self._at, KeptAnswer(self._digest, status, headers, body)):
            raise busy(self._key)

    async def _hold(self, session: Database) -> KeptAnswer | None:
        held = await answers.hold(session, *self._at)
        if not held.is_ours:
            raise busy(self._key)
        return held.answer
