"""Hold and lift: nothing new of what is held starts; what waits is kept, what runs ends as ever, and a lift lets it go on.

The claim refuses what is held, and workers hand back what they had claimed ahead, so that within a second of the answer
nothing new starts.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from duly.domain.errors import InvalidOption, Refused
from duly.domain.jobs.job import check_name, check_reason
from duly.domain.limits.pause import Hold, Scope
from duly.domain.tenancy.audit import Action
from duly.moves.admin.audit import audited, note, subject_of, tenant_of
from duly.store.connection import hints
from duly.store.connection.database import Database
from duly.store.tables import pauses


class HoldAnswer(StrEnum):
    """What became of the wish."""

    PAUSED = "paused"
    ALREADY = "already"  # It was paused before, and keeps its first reason.
    RESUMED = "resumed"
    NOT_PAUSED = "not_paused"


class Change(msgspec.Struct, frozen=True):
    """An answer, and the holds that stand now on the scope or on a part of it."""

    answer: HoldAnswer
    standing: list[Hold]


async def hold(database: Database, scope: Scope, *, reason: str, held_by: str) -> Change:
    """Let nothing new of `scope` start until it is lifted. Raises InvalidOption, or Refused when there are too many holds."""
    check_scope(scope)
    answer = await _hold(database, scope, check_reason(reason), check_name(held_by, "who holds it"))
    if answer == "full":
        raise Refused(
            f"{scope} cannot be paused: {scope.rows_max} pauses exist already; resume some of them, or pause more at once:"
            " a whole queue, a whole tenant or everything"
        )
    await hints.send_holds_changed(database)
    return await _change(database, scope, HoldAnswer.PAUSED if answer == "held" else HoldAnswer.ALREADY)


async def lift(database: Database, scope: Scope) -> Change:
    """Take the hold of this very scope away; what other holds cover stays held. Raises InvalidOption."""
    check_scope(scope)
    lifted = await _lift(database, scope)
    await hints.send_holds_changed(database)
    return await _change(database, scope, HoldAnswer.RESUMED if lifted else HoldAnswer.NOT_PAUSED)


@audited
async def _hold(database: Database, scope: Scope, reason: str, held_by: str) -> str:
    answer = await pauses.hold(database, scope, reason, held_by)
    held = int(answer == "held")
    await note(
        database, tenant_of(scope), Action.HOLD_PLACED, subject_of(scope), held, tenant=scope.tenant, reason=reason
    )
    return answer


@audited
async def _lift(database: Database, scope: Scope) -> bool:
    is_lifted = await pauses.lift(database, scope)
    await note(database, tenant_of(scope), Action.HOLD_LIFTED, subject_of(scope), int(is_lifted), tenant=scope.tenant)
    return is_lifted


def check_scope(scope: Scope) -> None:
    """Take a scope that can be. Raises InvalidOption."""
    if scope.queue is not None:
        check_name(scope.queue, "queue")
    if scope.tenant is not None and not 1 <= scope.tenant < 2**31:
        raise InvalidOption(
            f"tenant {scope.tenant} is not the number of a tenant, which is 1 or more; `duly tenants` lists them"
        )


async def _change(database: Database, scope: Scope, answer: HoldAnswer) -> Change:
    return Change(answer, [hold for hold in await pauses.standing(database) if hold.scope.touches(scope)])
