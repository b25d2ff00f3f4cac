"""Once under a key: what is done and what is answered are one transaction, so that asked again it is answered the same.

See docs/decisions/0016-the-front-door.md. A refusal undoes what was done, and is an answer too; failures of ours are not kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from duly.api.operations import Answer, Identity, Operation
from duly.api.refusals import Refusal, found_in
from duly.store import answers
from duly.store.answers import KeptAnswer
from duly.store.database import Database
from duly.store.session import Sessions
from duly.wire import problems
from duly.wire.problems import KINDS

Act = Callable[[Database], Awaitable[Answer]]

# What a key is not held against: it says nothing of the request itself.
_NOT_KEPT = frozenset(
    {"unauthorized", "forbidden", "rate_limited", "quota_reached", "shed", "key_in_progress", "key_reused", "conflict"}
)


async def act_once(
    sessions: Sessions,
    operation: Operation,
    identity: Identity,
    key: str,
    digest: bytes,
    act: Act,
    refusal: Callable[[Exception], Answer],
) -> Answer:
    """Act, unless the same was asked under the key before: then give that answer. Raises Refusal."""
    async with sessions.open(identity.tenant) as session:
        held = await answers.hold(session, identity.tenant, operation.name, key)
        if held.answer is not None:
            return _replayed(held.answer, digest, key)
        if not held.is_ours:
            raise _busy(key)
        try:
            async with session.savepoint():
                answer = await act(session)
        except Exception as error:
            if not _is_kept(error):
                raise
            answer = refusal(error)
        kept = KeptAnswer(digest, answer.status, {**answer.headers, "Content-Type": answer.media_type}, encoded(answer))
        if not await answers.keep(session, identity.tenant, operation.name, key, kept):
            raise _busy(key)
        return answer


def _is_kept(error: Exception) -> bool:
    found = found_in(error)
    return found is not None and found.code not in _NOT_KEPT and KINDS[found.code].status < 500


def _busy(key: str) -> Refusal:
    return Refusal("key_in_progress", f"A request with the key {key!r} is under way.", headers={"Retry-After": "1"})


def _replayed(kept: KeptAnswer, digest: bytes, key: str) -> Answer:
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
