"""Pause and resume of a scope: nothing new in it starts; waiting runs are kept, and active ones end as usual.

Claims skip what is paused, and workers hand back what they had claimed ahead, so that within a second of the response
nothing new starts.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from duly.domain.errors import InvalidOption, Refused
from duly.domain.jobs.job import check_name, check_reason
from duly.domain.limits.pause import Pause, Scope
from duly.domain.tenancy.audit import Action
from duly.moves.admin.audit import audited, record, subject_of, tenant_of
from duly.store.connection import hints
from duly.store.connection.database import Database
from duly.store.tables import pauses


class PauseAnswer(StrEnum):
    """The result of a pause or resume."""

    PAUSED = "paused"
    ALREADY = "already"  # it was paused before, and keeps its first reason
    RESUMED = "resumed"
    NOT_PAUSED = "not_paused"


class Change(msgspec.Struct, frozen=True):
    """A result, and the pauses that now cover the scope or a part of it."""

    answer: PauseAnswer
    remaining: list[Pause]


async def pause_scope(database: Database, scope: Scope, *, reason: str, paused_by: str) -> Change:
    """Pause `scope`: nothing new of it starts. Raises InvalidOption, or Refused when there are too many pauses."""
    check_scope(scope)
    answer = await _pause_scope(database, scope, check_reason(reason), check_name(paused_by, "paused_by"))
    if answer == "full":
        raise Refused(
            f"{scope} cannot be paused: {scope.rows_max} pauses exist already; resume some of them, or pause more at once:"
            " a whole queue, a whole tenant or everything"
        )
    await hints.send_pauses_changed(database)
    return await _change(database, scope, PauseAnswer.PAUSED if answer == "paused" else PauseAnswer.ALREADY)


async def resume_scope(database: Database, scope: Scope) -> Change:
    """Resume this very scope; what other pauses cover stays paused. Raises InvalidOption."""
    check_scope(scope)
    is_resumed = await _resume_scope(database, scope)
    await hints.send_pauses_changed(database)
    return await _change(database, scope, PauseAnswer.RESUMED if is_resumed else PauseAnswer.NOT_PAUSED)


@audited
async def _pause_scope(database: Database, scope: Scope, reason: str, paused_by: str) -> str:
    answer = await pauses.pause_scope(database, scope, reason, paused_by)
    created = int(answer == "paused")
    await record(
        database, tenant_of(scope), Action.PAUSE_CREATED, subject_of(scope), created, tenant=scope.tenant, reason=reason
    )
    return answer


@audited
async def _resume_scope(database: Database, scope: Scope) -> bool:
    is_resumed = await pauses.resume_scope(database, scope)
    await record(
        database, tenant_of(scope), Action.PAUSE_REMOVED, subject_of(scope), int(is_resumed), tenant=scope.tenant
    )
    return is_resumed


def check_scope(scope: Scope) -> None:
    """Check that a scope exists. Raises InvalidOption."""
    if scope.queue is not None:
        check_name(scope.queue, "queue")
    if scope.tenant is not None and not 1 <= scope.tenant < 2**31:
        raise InvalidOption(
            f"tenant {scope.tenant} is not the number of a tenant, which is 1 or more; `duly tenants` lists them"
        )


async def _change(database: Database, scope: Scope, answer: PauseAnswer) -> Change:
    return Change(answer, [one for one in await pauses.standing(database) if one.scope.touches(scope)])
