"""Limits: at most so many runs of a scope run at once, from the next claim on.

Active runs go on. Workers hand back what they have not started of a scope whose limit is new or lower, and claim it
again under the limit; so within two seconds no more runs start than there are slots.
"""

from __future__ import annotations

from duly.domain.errors import NotFound, Refused
from duly.domain.jobs.job import check_name
from duly.domain.limits.limit import Limit, check_slots, described_setter
from duly.domain.limits.pause import Scope
from duly.domain.tenancy.audit import Action
from duly.moves.admin.audit import audited, record, subject_of, tenant_of
from duly.moves.admin.pause import check_scope
from duly.store.connection import hints
from duly.store.connection.database import Database
from duly.store.tables import limits


async def limit(database: Database, scope: Scope, slots: int, *, set_by: str, is_operator: bool = True) -> Limit:
    """Let at most `slots` runs of `scope` run at once. Raises InvalidOption, Refused."""
    check_scope(scope)
    by = described_setter(check_name(set_by, "set_by"), is_operator=is_operator)
    if not await _put(database, scope, check_slots(slots), by, is_operator=is_operator):
        await _check_not_operators(database, scope, is_operator=is_operator)
        raise Refused(
            f"{scope} cannot have a limit: {scope.rows_max} others are set; delete some, or limit a whole queue or tenant"
        )
    await hints.send_pauses_changed(database)
    return await _found(database, scope)


async def unlimit(database: Database, scope: Scope, *, is_operator: bool = True) -> None:
    """Remove the limit of this very scope; others stay. Raises InvalidOption, NotFound, Refused."""
    check_scope(scope)
    if not await _remove(database, scope, is_operator=is_operator):
        await _check_not_operators(database, scope, is_operator=is_operator)
        raise NotFound(f"no limit of {scope}; `duly limits` lists them")
    await hints.send_pauses_changed(database)


@audited
async def _put(database: Database, scope: Scope, slots: int, set_by: str, *, is_operator: bool) -> bool:
    before = await limits.find(database, scope)
    is_put = await limits.put(database, scope, slots, set_by, is_operator=is_operator)
    changed = int(is_put and (before is None or before.slots != slots))
    detail = {"tenant": scope.tenant, "slots": slots}
    await record(database, tenant_of(scope), Action.LIMIT_SET, subject_of(scope), changed, **detail)
    return is_put


@audited
async def _remove(database: Database, scope: Scope, *, is_operator: bool) -> bool:
    is_removed = await limits.remove(database, scope, is_operator=is_operator)
    subject, removed = subject_of(scope), int(is_removed)
    await record(database, tenant_of(scope), Action.LIMIT_REMOVED, subject, removed, tenant=scope.tenant)
    return is_removed


async def _check_not_operators(database: Database, scope: Scope, *, is_operator: bool) -> None:
    standing = None if is_operator else await limits.find(database, scope)
    if standing is not None and standing.is_of_operator:
        raise Refused(
            f"{scope} has a limit of {standing.slots}, set by {standing.set_by}; only the operator can change it: ask"
            " for that, or limit your jobs with a concurrency key"
        )


async def _found(database: Database, scope: Scope) -> Limit:
    found = await limits.find(database, scope)
    if found is None:
        raise NotFound(f"no limit of {scope}: it was removed as soon as it was set")
    return found
