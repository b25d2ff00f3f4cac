"""Idempotency keys: what is done and what is answered are one transaction, so that asked again it is answered the same.

See docs/decisions/0016-the-front-door.md. Only the answer of a request that was carried out is kept: one that was refused, or
failed, has changed nothing and leaves its key free.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from duly.api.operations import Answer, Identity, Operation
from duly.api.refusals import Refusal
from duly.store.connection.database import Database
from duly.store.connection.session import Sessions
from duly.store.tenancy import answers
from duly.store.tenancy.answers import KeptAnswer
from duly.wire import problems

Act = Callable[[Database], Awaitable[Answer]]


async def act_once(
    sessions: Sessions, operation: Operation, identity: Identity, key: str, digest: bytes, act: Act
) -> Answer:
    """Act, unless the same was asked under the key before: then give that answer. Raises Refusal, and what acting raises."""
    async with sessions.open(identity.tenant) as session:
        held = await answers.hold(session, identity.tenant, operation.name, key)
        if held.answer is not None:
            return replayed(held.answer, digest, key)
        if not held.is_ours:
            raise busy(key)
        answer = await act(session)
        kept = KeptAnswer(digest, answer.status, {**answer.headers, "Content-Type": answer.media_type}, encoded(answer))
        if not await answers.keep(session, identity.tenant, operation.name, key, kept):
            raise busy(key)
        return answer


def busy(key: str) -> Refusal:
    """Say that a request with a key is under way."""
    return Refusal("key_in_progress", f"A request with the key {key!r} is under way.", headers={"Retry-After": "1"})


def replayed(kept: KeptAnswer, digest: bytes, key: str) -> Answer:
    """Give an answer that was given before under a key. Raises Refusal when the key was used for another request."""
    if kept.body_hash != digest:
        raise Refusal("key_reused", f"The key {key!r} was used for another request in the last 24 hours.")
    headers = {name: value for name, value in kept.headers.items() if name != "Content-Type"}
    return Answer(
        kept.status, kept.body, {**headers, "Idempotency-Replayed": "true"}, media_type=kept.headers["Content-Type"]
    )


def encoded(answer: Answer) -> bytes:
    """Write the body of an answer."""
    if answer.body is None:
        return b""
    return answer.body if isinstance(answer.body, bytes) else problems.encode(answer.body)
