# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""Jobs: create, read, change, end; and actions on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Unpack

from duly.client.batches import CHUNK_LINES, batches
from duly.client.definitions import (
    JobFields,
    SubmittedJob,
    Target,
    changing,
    creating,
    definition,
    replacing,
    triggering,
)
from duly.client.many import Chosen
from duly.client.requests import Id, deleting, getting, given, listing, path, posting, putting, query_of
from duly.client.synchronous.transport import Resource
from duly.domain.jobs.spec import JobSpec
from duly.wire.explanations import Explanation
from duly.wire.jobs.batches import LineResult
from duly.wire.jobs.bulk import ManyDone
from duly.wire.jobs.jobs import Job, JobSummary
from duly.wire.jobs.manifests import Applied
from duly.wire.jobs.verbs import BackfillCreated, Deleted, JobStatus, SkippedNext, TriggeredRun
from duly.wire.jobs.versions import JobVersion, MovedFire, MovedFires
from duly.wire.runs import Dependency

APPLY_SECONDS = 60.0  # the server may take so long for a large file


class Jobs(Resource):
    """Jobs. Each POST carries an idempotency key, made once for the call unless `key` is given."""

    def create(
        self,
        target: Target,
        *,
        key: str | None = None,
        wait: int | None = None,
        parent: Id | None = None,
        depends_on: Sequence[Id | Dependency] | None = None,
        **fields: Unpack[JobFields],
    ) -> SubmittedJob:
        """Create a job: durable when this returns. Without a schedule it runs now, once. Raises ApiError.

        With `wait`, this waits for the end of a one-shot, up to so many seconds; `run` is set when it came. `parent` is
        the run whose subtask a one-shot is: it waits or runs. `depends_on` are one-shots that this one depends on: by their
        ids, which must have succeeded, or as `Dependency(job=…, on="always")`.
        """
        body = {**definition(target, fields), **given(parent=parent, depends_on=depends_on)}
        return self._transport.send(creating(body, key, wait))

    def create_many(
        self, jobs: Iterable[JobSpec], *, key: str | None = None, chunk: int = CHUNK_LINES
    ) -> Iterator[LineResult]:
        """Create any number of jobs, `chunk` in a request, and yield the result of each, in order, counted from 1.

        A refused line carries its `error` and does not delay others. If a request fails as a whole, none of its lines
        was accepted, and this raises ApiError. With a `key`, the same jobs given again with the same `chunk` are
        created once.
        """
        for batch in batches(jobs, key, chunk):
            yield from self._transport.send(batch)

    def list(
        self,
        filter: str | None = None,
        *,
        page_size: int | None = None,
        sort: Literal["created", "name", "next_run_at"] | None = None,
        include: Literal["one_shots"] | None = None,
    ) -> Iterator[JobSummary]:
        """Return the jobs that match a filter, the newest first or by name; pages are read as they are needed.

        With `include`, one-shots without a name are among them.
        """
        chosen = {"filter": filter, "page_size": page_size, "sort": sort, "include": include}
        return self._transport.pages(listing(path("jobs"), JobSummary, **chosen))

    def pause_many(self, *, reason: str | None = None, **chosen: Unpack[Chosen]) -> ManyDone:
        """Pause many jobs; `next_page_token` says where to go on. Raises Invalid."""
        return self._transport.change_many("/v1/jobs:pause", chosen, reason=reason)

    def resume_many(self, *, catch_up: bool = False, **chosen: Unpack[Chosen]) -> ManyDone:
        """Resume many jobs. Raises Invalid."""
        return self._transport.change_many("/v1/jobs:resume", chosen, catch_up=catch_up)

    def delete_many(self, *, running: Literal["keep", "stop"] = "keep", **chosen: Unpack[Chosen]) -> ManyDone:
        """End many jobs. Raises Invalid."""
        return self._transport.change_many("/v1/jobs:delete", chosen, running=running)

    def get(self, job_id: Id) -> Job:
        """Read a job. Raises NotFound."""
        return self._transport.send(getting(path("jobs", job_id), Job))

    def get_by_name(self, name: str) -> Job:
        """Read the job that has this name. Raises NotFound."""
        return self._transport.send(getting(path("jobs", "by-name", name), Job))

    def explain(self, job_id: Id) -> Explanation:
        """Explain the state of a job. Raises NotFound."""
        return self._transport.send(getting(path("jobs", job_id, "explain"), Explanation))

    def versions(self, job_id: Id, *, page_size: int | None = None) -> Iterator[JobVersion]:
        """Return the versions of a job's definition, the newest first: the current one, and the last hundred before it."""
        return self._transport.pages(listing(path("jobs", job_id, "versions"), JobVersion, page_size=page_size))

    def replace(self, job_id: Id, target: Target, *, version: int | None, **fields: Unpack[JobFields]) -> Job:
        """Replace a job's definition if it still has `version`, or any version with None. Raises VersionChanged."""
        return self._transport.send(replacing(job_id, version, definition(target, fields)))

    def change(self, job_id: Id, patch: Mapping[str, Any], *, version: int | None) -> Job:
        """Change parts of a job's definition by a merge patch: None removes a part. Raises VersionChanged."""
        return self._transport.send(changing(job_id, version, patch))

    def put_by_name(self, name: str, /, target: Target, **fields: Unpack[JobFields]) -> Job:
        """Create a job of this name, or bring the existing one to this definition. Raises ApiError."""
        return self._transport.send(putting(path("jobs", "by-name", name), Job, definition(target, fields)))

    def delete(self, job_id: Id, *, running: Literal["keep", "stop"] = "keep", purge: bool = False) -> Deleted:
        """End a job: its future runs are cancelled; started ones go on, or are asked to stop.

        With `purge`, its definition, its versions and its history are removed.
        """
        return self._transport.send(deleting(path("jobs", job_id), Deleted, running=running, purge=purge or None))

    def trigger(
        self,
        job_id: Id,
        *,
        payload: Mapping[str, Any] | None = None,
        allow_overlap: bool = False,
        key: str | None = None,
    ) -> TriggeredRun:
        """Run a job now, beside its schedule, with a payload of its own if one is given."""
        body = given(payload=payload, allow_overlap=allow_overlap)
        return self._transport.send(triggering(job_id, body, key))

    def moved_fires(self, job_id: Id | None = None, *, limit: int | None = None) -> Sequence[MovedFire]:
        """Return the next fires, of a job or of all, that new time zone data has moved, the newest first."""
        return (self._transport.send(getting(path("moved-fires"), MovedFires, job_id=job_id, limit=limit))).items

    def pause(self, job_id: Id, *, reason: str | None = None) -> JobStatus:
        """Pause a job. Staged runs that have not started are taken back."""
        return self._transport.send(posting(path("jobs", job_id, "pause"), JobStatus, given(reason=reason)))

    def resume(self, job_id: Id, *, catch_up: bool = False) -> JobStatus:
        """Resume a job; with `catch_up`, the occurrences of the meantime are treated as missed."""
        return self._transport.send(posting(path("jobs", job_id, "resume"), JobStatus, {"catch_up": catch_up}))

    def skip_next(self, job_id: Id) -> SkippedNext:
        """Skip the next occurrence."""
        return self._transport.send(posting(path("jobs", job_id, "skip-next"), SkippedNext))

    def backfill(
        self,
        job_id: Id,
        from_: datetime,
        to: datetime,
        *,
        rate: float | None = None,
        overlap: Literal["queue", "allow"] | None = None,
        dry_run: bool = False,
        confirm: bool = False,
        key: str | None = None,
    ) -> BackfillCreated:
        """Create the occurrences of [from_, to) again, `rate` a second; with `dry_run` they are only counted."""
        choices = given(rate=rate, overlap=overlap, dry_run=dry_run, confirm=confirm)
        body = {"from": from_, "to": to, **choices}
        return self._transport.send(posting(path("jobs", job_id, "backfill"), BackfillCreated, body, key=key))

    def apply(
        self,
        file: Mapping[str, Any],
        *,
        dry_run: bool = False,
        prune: bool = False,
        adopt: bool = False,
        digest: str | None = None,
        key: str | None = None,
    ) -> Applied:
        """Bring the jobs of a file to its definitions, all of it or none; with `dry_run`, return the plan.

        `digest` is that of the reviewed plan: that very plan is carried out, or nothing. Raises Invalid, Conflict.
        """
        query = query_of({"dry_run": dry_run, "prune": prune, "adopt": adopt, "digest": digest})
        request = posting("/v1/jobs:apply", Applied, file, key=key, query=query, seconds_more=APPLY_SECONDS)
        return self._transport.send(request)

    def export(self, source: str | None = None, *, by_hand: bool = False) -> dict[str, Any]:
        """Export the jobs of a file as that file: applied again, it changes nothing. Raises NotFound."""
        return self._transport.send(getting("/v1/jobs:export", dict[str, Any], source=source, by_hand=by_hand))
