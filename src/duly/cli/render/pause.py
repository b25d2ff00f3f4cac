"""A pause in words: what it covers, since when, by whom, why, and what ends it."""

from __future__ import annotations

import shlex

from duly.cli.render.output import moment
from duly.domain.limits.pause import EVERYTHING, Scope
from duly.wire.queues import Hold


def told(hold: Hold) -> str:
    """Tell of a hold: what, since when, by whom, why, and what ends it."""
    scope, since = Scope(hold.tenant, hold.queue), f"since {moment(hold.held_at)} by {hold.held_by}"
    return f"{scope}, {since} ({hold.reason}): {resume_line(scope)}"


def resume_line(scope: Scope) -> str:
    """Give the command that takes a pause of this scope back."""
    if scope == EVERYTHING:
        return "duly resume --all"
    queue = [] if scope.queue is None else ["--queue", scope.queue]
    tenant = [] if scope.tenant is None else ["--tenant", str(scope.tenant)]
    return shlex.join(["duly", "resume", *queue, *tenant])
