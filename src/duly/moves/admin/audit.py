"""The audit: records who changed what, in the transaction of the change, so that neither exists without the other.

The API, SDK and command line name their actor on the database that they pass to a move (`Database.acting_as`). A move
that people request is `audited`: with an actor it runs in one transaction, and ends with a `record` of the change.
Without one, as in the engine's own loops, nothing is written and nothing costs more. A part of a larger change is made
without an actor, and the larger change is recorded once.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

from duly.domain.limits.pause import Scope
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.tenancy.audit import Action, Actor, Subject
from duly.store.boxes import runs
from duly.store.connection.database import Database
from duly.store.connection.together import together
from duly.store.tenancy import audit

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")


def audited(
    move: Callable[Concatenate[D, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[D, P], Coroutine[Any, Any, T]]:
    """Make a move and its audit entry one transaction, if there is an actor."""

    @wraps(move)
    def in_one_transaction(database: D, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        if actor_of(database) is None or not isinstance(database, Database) or database.in_transaction:
            return move(database, *args, **kwargs)

        async def inside(opened: Any) -> T:
            return await move(opened, *args, **kwargs)

        return together(database, inside)

    return in_one_transaction


async def record(
    database: Any, tenant: int, action: Action, subject: Subject, count: int = 1, /, **detail: Any
) -> None:
    """Record an action, if anything was changed and there is an actor. Never pass it a secret or a payload."""
    actor = actor_of(database)
    if actor is not None and count > 0:
        assert database.in_transaction, f"{action} must be audited in the transaction of its change"
        await audit.record(database, tenant, actor, action, subject, count, detail)


async def record_runs(
    database: Any, action: Action, run_ids: Sequence[UUID], count: int | None = None, /, **detail: Any
) -> None:
    """Record an action on runs of one tenant, all unless `count` says otherwise. A single run is named, several are counted."""
    done = len(run_ids) if count is None else count
    found = await runs.find(database, run_ids[0]) if done and actor_of(database) else None
    if found is not None:
        subject = Subject("run", str(run_ids[0]), found["handler"]) if len(run_ids) == 1 else Subject("run")
        await record(database, found["tenant"], action, subject, done, **detail)


def actor_of(database: Any) -> Actor | None:
    """Return the actor; a caller's own connection has none."""
    return getattr(database, "actor", None)


def tenant_of(scope: Scope) -> int:
    """Return the tenant in whose audit a change of a scope is recorded: the operator's, for shared scopes."""
    return TENANT_DEFAULT if scope.tenant is None else scope.tenant


def subject_of(scope: Scope) -> Subject:
    """Return a scope as a subject: a queue, a tenant, or everything."""
    if scope.queue is not None:
        return Subject("queue", scope.queue, scope.queue)
    return Subject("everything") if scope.tenant is None else Subject("tenant", str(scope.tenant))
