"""The audit: who changed what."""

from __future__ import annotations

from duly.api import paging
from duly.api.operations import Call, Routes
from duly.api.problems import Refusal
from duly.api.response import Response
from duly.domain.tenancy.audit import Action, Entry, Wanted
from duly.domain.wanted import suggest_name
from duly.store.tenancy import audit
from duly.store.tenancy.audit import Position
from duly.wire.audit import AuditActor, AuditEntry, AuditList, AuditQuery, AuditSubject

routes = Routes("audit", reads="admin")


@routes.add("GET /v1/audit", responses={200: AuditList}, in_session=False, may_lag=True)
async def list_audit(call: Call[AuditQuery, None]) -> Response:
    """List changes, the newest first: who made each, when, and to what.

    Every request that has changed something is one entry, written with the change itself. Entries are never altered, and go
    by age alone.
    """
    requested, wanted = call.query, _wanted(call.query)
    tenant = call.tenant_or(
        requested.tenant, "The audit of another tenant is for the operator: use an admin key of the first tenant."
    )
    of = f"audit {tenant} {wanted}"
    after = paging.position(requested.page_token, of, Position)
    page = await _page(call, tenant, wanted, after)
    return paging.page(AuditList, [_shown(entry) for entry in page.entries], page.after, of)


async def _page(call: Call[AuditQuery, None], tenant: int, wanted: Wanted, after: Position | None) -> audit.Page:
    """Read one's own in a session, and another's, for the operator, beside it."""
    if tenant != call.tenant:
        return await audit.page(call.database, tenant, wanted, call.query.page_size, after)
    async with call.open() as session:
        return await audit.page(session, tenant, wanted, call.query.page_size, after)


def _wanted(requested: AuditQuery) -> Wanted:
    if requested.action is not None and requested.action not in [*Action]:
        raise Refusal(
            "invalid_query", f"Unknown action {requested.action!r}; {suggest_name(requested.action, [*Action])}"
        )
    return Wanted(requested.actor, requested.action, requested.subject, requested.since, requested.until)


def _shown(entry: Entry) -> AuditEntry:
    return AuditEntry.of(
        entry,
        actor=AuditActor.of(entry.actor),
        subject=AuditSubject.of(entry.subject),
        request_id=entry.actor.request_id,
    )
