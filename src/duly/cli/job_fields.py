"""A job that was typed, as the fields of the API."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

from duly.client.definitions import JobFields
from duly.domain.fields import non_defaults
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.jobs.spec import Target
from duly.domain.jobs.spec_of import spec_of
from duly.wire.runs import FollowedJob


def target_of_job(job: Submission | Recurring) -> Target:
    """Give the target with which a job is created."""
    return spec_of(job, is_shown=False).target


def fields_of(job: Submission | Recurring) -> JobFields:
    """Give the fields with which a job is created."""
    fields = non_defaults(spec_of(job, is_shown=False))
    return cast(JobFields, {name: value for name, value in fields.items() if name != "target"})


def after_of(job: Submission | Recurring) -> list[FollowedJob] | None:
    """Give what a job follows; None when nothing."""
    followed = job.options.metadata.after
    return [FollowedJob(job=UUID(one), on=cast(Any, on)) for one, on in followed] or None
