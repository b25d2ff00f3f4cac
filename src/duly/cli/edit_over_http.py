"""Edits of a job over HTTP: it is read, changed as a person asks, and put back if it is still of the version that was read."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import msgspec

from duly.cli import rows
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import VersionChanged
from duly.clock import host_now
from duly.domain.errors import InvalidOption, Unsettled
from duly.domain.jobs.compile import compile_recurring
from duly.domain.jobs.job import Recurring
from duly.domain.jobs.spec import JobSpec
from duly.wire.jobs.jobs import Job

_LOOKS_MAX = 10


async def amend(client: AsyncClient, job_id: UUID, change: Callable[[Recurring], Recurring]) -> int:
    """Change something about a job, and give its new version. Raises NotFound, DeclaredInCode, Unsettled."""
    for _ in range(_LOOKS_MAX):
        standing = await client.jobs.get(job_id)
        wanted = change(recurring_of(standing))
        fields = rows.fields_of(wanted)
        try:
            return (
                await client.jobs.replace(job_id, rows.target_of_job(wanted), version=standing.version, **fields)
            ).version
        except VersionChanged:  # Somebody was faster: what was typed is changed in what they have made of it.
            continue
    raise Unsettled(f"job {job_id}")


def recurring_of(job: Job) -> Recurring:
    """Give the definition of a job that the API tells."""
    told = msgspec.to_builtins(job)
    stated = {name: told[name] for name in JobSpec.__struct_fields__ if told.get(name) is not None}
    try:
        definition = msgspec.convert(stated, JobSpec)
    except msgspec.ValidationError as error:
        raise InvalidOption(
            f"this job cannot be changed with this version of Duly, but with a newer one: {error}"
        ) from None
    return compile_recurring(definition, host_now())
