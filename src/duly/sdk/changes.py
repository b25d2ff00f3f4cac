"""Edits of a recurring job: the options of a submit, of which only the given ones count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from duly.domain.errors import InvalidOption
from duly.domain.jobs.compile import compile_recurring
from duly.domain.jobs.job import Recurring, check_arguments
from duly.domain.jobs.spec import JobSpec
from duly.domain.jobs.spec_of import carried_of, rules_of, spec_of, waits_of
from duly.domain.targets.spec import FunctionTarget
from duly.domain.triggers.schedule import options as asking
from duly.sdk.choices import Work
from duly.sdk.keywords import Changes, check_known, fields_of, spelled

# Fields of a job that are not among its options.
_KEEPING_OPTIONS = frozenset({"name", "queue", "priority"})
_KEPT = FunctionTarget(handler="kept")  # stands in for a target that is not read
_POLICY = frozenset({"retry", "timeout", "concurrency", "rate_limit"})


def changed(job: Recurring, changes: Changes, work: Work) -> Recurring:
    """Return a job with only the given fields changed. Raises Refused, naming the value and the remedy."""
    check_known(changes, Changes, "edit")
    if not changes:
        raise InvalidOption("nothing is to be changed; name what is, such as edit(cron=…)")
    fields = fields_of(changes)
    keeps_options = fields.keys() <= _KEEPING_OPTIONS
    spec = (
        JobSpec(target=_KEPT, queue=job.queue, priority=job.priority, name=job.name) if keeps_options else spec_of(job)
    )
    if spec.retry is None and fields.keys() & _POLICY:  # the handler's policy becomes its own
        policy = rules_of(work.options.but(own=True))
        spec = msgspec.structs.replace(spec, retry=policy["retry"], timeout=policy["timeout"])
    spec = msgspec.structs.replace(spec, **fields, **waits_of(_schedule(job, changes)))
    created = compile_recurring(spec, None, carried_of(job.options))
    kept = {"handler": job.handler, "options": job.options} if keeps_options else {}
    payload = _payload(job, changes, work)
    return msgspec.structs.replace(created, payload=payload, owner=job.owner, source=job.source, **kept)


def _schedule(job: Recurring, changes: Changes) -> Mapping[str, Any]:
    said_of_it = {option: value for option, value in changes.items() if option in asking.OPTIONS}
    return asking.amend(job.schedule, said_of_it, spelled) if said_of_it else job.schedule


def _payload(job: Recurring, changes: Changes, work: Work) -> str:
    if "arguments" not in changes:
        return job.payload
    arguments = {**msgspec.json.decode(job.payload), **check_arguments(changes["arguments"], job.handler)}
    return work.encode((), arguments)
