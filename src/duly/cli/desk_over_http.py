"""The desk of a Duly over HTTP: the same questions, asked of its API. Rows are given as the commands know them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar
from uuid import UUID

import msgspec

from duly.cli import files_over_http, rows, tenants_over_http
from duly.cli.desk import (
    Explained,
    Exported,
    File,
    JobSeen,
    Kept,
    KeyWanted,
    Living,
    Moved,
    Paused,
    Row,
    Sent,
    Stopped,
    Stretch,
)
from duly.cli.edit_over_http import amend
from duly.cli.fires import both_clocks, lines_of
from duly.cli.output import moment
from duly.cli.paging import quoted
from duly.cli.policies import policy_line
from duly.cli.target_rows import what_job_runs
from duly.client.asynchronous.client import AsyncClient
from duly.client.errors import Forbidden, NotFound
from duly.clock import host_now
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.jobs.manifest_plan import Plan
from duly.domain.limits.limit import Limit
from duly.domain.limits.pause import Hold, Scope
from duly.domain.tenancy.api_key import Secret
from duly.domain.triggers.calendars import read_calendar
from duly.domain.triggers.schedule.options import check
from duly.moves.run_again import Changes
from duly.moves.schedules.apply import Applied
from duly.moves.schedules.backfill import Asked
from duly.store.tenancy.tenants import Limits, Tenant
from duly.wire import limits as wire
from duly.wire.jobs.jobs import Fire, Job
from duly.wire.queues import HoldChange
from duly.wire.runs import BulkAnswer

T = TypeVar("T")


class HttpDesk:
    """Asks a Duly over HTTP."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def submit(self, job: Submission | Recurring, key: str) -> Sent:
        """Make a job durable, and say when it fires."""
        made = await self._client.jobs.create(
            rows.target_of_job(job), key=key, after=rows.after_of(job), **rows.fields_of(job)
        )
        what = f"{made.description}: {what_job_runs(job)} on queue {job.queue}"
        if isinstance(job, Recurring):
            fires = _builtins(made.next_fires)
            return Sent(made.job_id, False, [what, *_lines(fires, job.schedule)], made.description, fires, made.run_id)
        how = "Once, now" if job.at is None and not job.delay else "Once"
        assert made.next_run_at is not None, "a one-shot has its moment"
        at = f"{'at':6}{both_clocks(made.next_run_at)}"
        return Sent(made.job_id, False, [f"{how}: {what_job_runs(job)} on queue {job.queue}", at], run_id=made.run_id)

    async def living(self) -> list[Living] | None:
        """Name the workers that live, which only the operator may know."""
        try:
            return [Living(worker.queues, worker.handlers) async for worker in self._client.workers.list()]
        except Forbidden:
            return None

    async def jobs(
        self, filter_text: str, limit: int, sort: Literal["created", "name", "next_run_at"], *, one_shots: bool = False
    ) -> Sequence[Row]:
        """List jobs, the newest first, by name or by next fire."""
        found = self._client.jobs.list(
            filter_text or None, sort=None if sort == "created" else sort, include="one_shots" if one_shots else None
        )
        return [rows.job_in_list(job) for job in await _first(found, limit)]

    async def job_id(self, job: str) -> UUID:
        """Find a job by its id or its name."""
        try:
            return UUID(job)
        except ValueError:
            found = await _first(self._client.jobs.list(f"name:{quoted(job)} AND state:(active,paused)"), 1)
        if not found:
            raise NotFound(f"no schedule is named {job!r}; `duly jobs` lists them, and those that are over by their id")
        return found[0].job_id

    async def job(self, job_id: UUID) -> JobSeen | None:
        """Read a job that has a definition of its own."""
        try:
            job = await self._client.jobs.get(job_id)
        except NotFound:
            return None
        return None if rows.is_one_shot(job) else _seen(job)

    async def amend_job(self, job_id: UUID, change: Callable[[Recurring], Recurring]) -> int:
        """Change something about a job, and give its new version."""
        return await amend(self._client, job_id, change)

    async def pause_job(self, job_id: UUID, reason: str) -> Paused:
        """Pause a job, and name the runs that may still start."""
        answer = await self._client.jobs.pause(job_id, reason=reason)
        return Paused(answer.status if answer.changed else "already", answer.may_start)

    async def resume_job(self, job_id: UUID, *, catch_up: bool) -> str:
        """Resume a job, and say what became of that."""
        answer = await self._client.jobs.resume(job_id, catch_up=catch_up)
        return answer.status if answer.changed else "already"

    async def skip_next(self, job_id: UUID) -> str:
        """Leave the next occurrence out, and say which."""
        return f"leaves out {moment((await self._client.jobs.skip_next(job_id)).scheduled_at)}"

    async def cancel_job(self, job_id: UUID, *, purge: bool = False) -> Stopped:
        """End a job: what has not started will not; with `purge`, remove it. Say what became of that."""
        told = await self._client.jobs.delete(job_id, purge=purge)
        return Stopped(told.status, told.state, may_start=told.may_start)

    async def trigger(
        self, job_id: UUID, queue: str, payload: str | None, *, beside: bool, key: str
    ) -> tuple[UUID, str]:
        """Run a job now; give the run and where it stands."""
        arguments = None if payload is None else msgspec.json.decode(payload)
        made = await self._client.jobs.trigger(job_id, payload=arguments, beside=beside, key=key)
        return made.run_id, made.state

    async def backfill(self, job_id: UUID, stretch: Stretch, *, dry_run: bool) -> Asked:
        """Make the occurrences of a stretch again, however many they are."""
        told = await self._client.jobs.backfill(
            job_id,
            stretch.start,
            stretch.end,
            rate=stretch.rate,
            overlap=stretch.overlap,
            dry_run=dry_run,
            confirm=True,
        )
        return Asked(told.backfill_id, told.count, told.first, told.is_partial)

    async def backfills(self, job_id: UUID | None, limit: int) -> Sequence[Row]:
        """List what was made again, of one job or of all, the newest first."""
        return [msgspec.structs.asdict(one) for one in await _first(self._client.backfills.list(job_id), limit)]

    async def versions(self, job_id: UUID, limit: int) -> Sequence[Row]:
        """Show what a job's definition was, the newest version first."""
        found = await _first(self._client.jobs.versions(job_id), limit)
        return [
            {
                **msgspec.to_builtins(one, builtin_types=(datetime,)),
                "handler": rows.handler_in(one.target),
                "schedule": one.schedule or one.on_event,
            }
            for one in found
        ]

    async def cancel_backfill(self, backfill_id: UUID) -> int:
        """Stop a backfill, and say how many runs that had not begun were taken back."""
        return (await self._client.backfills.cancel(backfill_id)).taken_back

    async def runs(self, filter_text: str, limit: int) -> Sequence[Row]:
        """List runs."""
        found = await _first(self._client.runs.list(filter_text or None), limit)
        return [msgspec.structs.asdict(run) for run in found]

    async def run(self, run_id: UUID) -> dict[str, Any]:
        """Read a run, with its attempts."""
        return rows.run(await self._client.runs.get(run_id))

    async def cancel_run(self, run_id: UUID, *, children: bool) -> Stopped:
        """Cancel a run, and with `children` its subtasks; say what became of that."""
        told = await self._client.runs.cancel(run_id, children=children)
        return Stopped(told.status, told.state, told.children)

    async def run_again(self, run_id: UUID, changes: Changes, *, key: str) -> UUID:
        """Make a new run of what an ended run was; give its id."""
        payload = None if changes.payload is None else msgspec.json.decode(changes.payload)
        made = await self._client.runs.run_again(
            run_id, payload=payload, queue=changes.queue, priority=changes.priority, at=changes.at, key=key
        )
        return made.run_id

    async def log(self, run_id: UUID, *, follow: bool) -> AsyncIterator[Row]:
        """Give the lines that a run logged; with `follow`, until it has ended."""
        lines = self._client.runs.follow_logs(run_id) if follow else self._client.runs.logs(run_id)
        async for line in lines:
            yield {**msgspec.structs.asdict(line), "fields": rows.text(line.fields)}

    async def dead(self, filter_text: str, limit: int) -> Sequence[Row]:
        """List dead runs."""
        found = await _first(self._client.dead.list(filter_text or None), limit)
        return [msgspec.structs.asdict(letter) for letter in found]

    async def replay(self, run_ids: Sequence[UUID]) -> list[UUID]:
        """Give dead runs another set of attempts."""
        return await _those_found(run_ids, self._client.dead.replay)

    async def discard(self, run_ids: Sequence[UUID]) -> list[UUID]:
        """Give dead runs up for good."""
        return await _those_found(run_ids, self._client.dead.discard)

    async def edit_dead(self, run_ids: Sequence[UUID], payload: dict[str, Any]) -> list[UUID]:
        """Give dead runs other arguments."""
        return await _those_found(run_ids, lambda run_id: self._client.dead.edit(run_id, payload))

    async def dead_groups(self, filter_text: str, limit: int) -> Sequence[Row]:
        """Count dead runs by what is alike in their reasons."""
        found = await self._client.dead.groups(filter_text or None)
        return [msgspec.structs.asdict(group) for group in found[:limit]]

    async def replay_matching(
        self, filter_text: str, limit: int, after: Any, *, dry_run: bool, rate: float | None = None
    ) -> Moved:
        """Replay the dead runs that fit."""
        replay = self._client.dead.replay_matching
        answer = replay(filter_text, all=not filter_text, limit=limit, page_token=after, dry_run=dry_run, rate=rate)
        return _moved(await answer)

    async def discard_matching(self, filter_text: str, limit: int, after: Any, *, dry_run: bool) -> Moved:
        """Give the dead runs that fit up for good."""
        discard = self._client.dead.discard_matching
        answer = discard(filter_text, all=not filter_text, limit=limit, page_token=after, dry_run=dry_run)
        return _moved(await answer)

    async def edit_matching(
        self, filter_text: str, limit: int, after: Any, *, dry_run: bool, payload: dict[str, Any]
    ) -> Moved:
        """Give the dead runs that fit other arguments."""
        edit = self._client.dead.edit_matching
        answer = edit(filter_text, payload, all=not filter_text, limit=limit, page_token=after, dry_run=dry_run)
        return _moved(await answer)

    async def calendars(self) -> Sequence[Row]:
        """List calendars, as they were defined."""
        return [calendar.definition async for calendar in self._client.calendars.list()]

    async def calendar(self, name: str) -> Row:
        """Read a calendar, as it was defined."""
        return (await self._client.calendars.get(name)).definition

    async def put_calendar(self, definition: Any) -> Kept:
        """Keep a calendar, new or changed. Raises TriggerError."""
        read_calendar(definition)
        kept = await self._client.calendars.put(definition["name"], definition)
        return Kept(kept.name, kept.schedules)

    async def delete_calendar(self, name: str) -> None:
        """Forget a calendar."""
        await self._client.calendars.delete(name)

    async def users_of_calendar(self, name: str) -> Sequence[Row] | None:
        """Tell nothing: the API does not say who uses a calendar."""
        return None

    async def plan(self, file: File) -> Plan:
        """Say what applying a file would do."""
        return await files_over_http.plan(self._client, file)

    async def apply(self, file: File, *, prune: bool, adopt: bool, expected: str | None) -> Applied:
        """Apply a file, all of it or nothing."""
        return await files_over_http.apply(self._client, file, prune=prune, adopt=adopt, expected=expected)

    async def export(self, source: str | None, *, by_hand: bool) -> Exported:
        """Write the schedules of a file as that file; the API does not count what has no name and is left out."""
        return Exported(await self._client.jobs.export(source, by_hand=by_hand), [])

    async def explain(self, what: str) -> Explained:
        """Say why a run, given by its id, or a job, by its id or its name, is where it is."""
        identifier = await self.job_id(what)
        try:
            found = await self._client.jobs.explain(identifier)
        except NotFound:
            found = await self._client.runs.explain(identifier)
        sentences = [reason.text for reason in found.reasons]
        held = found.holding
        freeing = (None, None) if held is None else (held.frees, held.probable_start_at)
        return Explained(found.kind, found.id, found.state, sentences, msgspec.to_builtins(found), *freeing)

    async def workers(self) -> Sequence[Row]:
        """List the workers that live."""
        now = host_now()
        return [_worker(msgspec.structs.asdict(worker), now) async for worker in self._client.workers.list()]

    async def drain(self, worker_id: UUID, *, is_draining: bool) -> None:
        """Ask a worker to take nothing more, or to take runs again."""
        workers = self._client.workers
        await (workers.drain(worker_id) if is_draining else workers.resume(worker_id))

    async def queues(self) -> Sequence[Row]:
        """List the queues that have work or a worker, or are held by their name."""
        return [rows.queue(queue) async for queue in self._client.queues.list()]

    async def limit_queue(self, queue: str, age_limit: timedelta | None) -> None:
        """Say how old the oldest due run of a queue may be; None leaves it to the default."""
        await self._client.queues.change(queue, age_limit=None if age_limit is None else age_limit.total_seconds())

    async def keys(self, tenant: str | None, limit: int) -> Sequence[Row]:
        """List the keys of a tenant, or all that are ours to see."""
        return await tenants_over_http.keys(self._client, tenant, limit)

    async def create_key(self, tenant: str | None, wanted: KeyWanted) -> tuple[Secret, Row]:
        """Make a key of a tenant, or of our own."""
        return await tenants_over_http.create_key(self._client, tenant, wanted)

    async def revoke_key(self, key_id: str) -> None:
        """End a key for good."""
        await self._client.keys.revoke(key_id)

    async def tenants(self, limit: int) -> Sequence[Tenant]:
        """List tenants."""
        return await _first(tenants_over_http.each_tenant(self._client), limit)

    async def tenant(self, name: str) -> Tenant:
        """Find a tenant by its name or its number."""
        return await tenants_over_http.tenant_named(self._client, name)

    async def create_tenant(self, name: str, limits: Limits) -> Tenant:
        """Make a tenant."""
        made = await self._client.tenants.create(name, limits=tenants_over_http.limits_of(limits))
        return tenants_over_http.tenant_of(made)

    async def suspend_tenant(self, tenant: int) -> None:
        """Let a tenant add nothing, and its keys open nothing, for now."""
        await self._client.tenants.change(tenant, state="suspended")

    async def resume_tenant(self, tenant: int) -> None:
        """Let a suspended tenant go on."""
        await self._client.tenants.change(tenant, state="active")

    async def limit_tenant(self, tenant: int, limits: Limits) -> None:
        """Say what a tenant may have from now on."""
        await self._client.tenants.change(tenant, limits=tenants_over_http.limits_of(limits))

    async def limits(self) -> Sequence[Limit]:
        """List the limits on what is under way at once."""
        return [_limit(one) async for one in self._client.limits.list()]

    async def limit(self, scope: Scope, places: int) -> Limit:
        """Let at most so many runs of a scope be under way at once."""
        everything = scope == Scope()
        put = self._client.limits.put
        return _limit(await put(places, everything=everything, queue=scope.queue, tenant=scope.tenant))

    async def unlimit(self, scope: Scope) -> None:
        """Take the limit of a scope away."""
        await self._client.limits.remove(everything=scope == Scope(), queue=scope.queue, tenant=scope.tenant)

    async def hold(self, scope: Scope, reason: str) -> tuple[str, Sequence[Hold]]:
        """Let nothing new of a scope start."""
        everything = scope == Scope()
        pause = self._client.holds.pause
        return _held(await pause(everything=everything, queue=scope.queue, tenant=scope.tenant, reason=reason))

    async def lift(self, scope: Scope) -> tuple[str, Sequence[Hold]]:
        """Let a scope go on."""
        everything = scope == Scope()
        return _held(await self._client.holds.resume(everything=everything, queue=scope.queue, tenant=scope.tenant))


def _limit(told: wire.Limit) -> Limit:
    return Limit(Scope(told.tenant, told.queue), told.places, told.running, told.set_by, told.set_at)


async def _first(listed: AsyncIterator[T], limit: int) -> list[T]:
    found: list[T] = []
    async for one in listed:
        found.append(one)
        if len(found) == limit:
            break
    return found


async def _those_found(run_ids: Sequence[UUID], move: Callable[[UUID], Awaitable[object]]) -> list[UUID]:
    moved = []
    for run_id in run_ids:
        try:
            await move(run_id)
        except NotFound:
            continue
        moved.append(run_id)
    return moved


def _seen(job: Job) -> JobSeen:
    row = rows.job(job)
    if job.schedule is None:  # It waits for events.
        return JobSeen(row, job.description, "", [])
    fires = _builtins(job.next_fires)
    return JobSeen(
        row,
        job.description,
        policy_line(check(job.schedule), row),
        _lines(fires, job.schedule),
        next_fires=fires,
    )


def _builtins(fires: Sequence[Fire]) -> list[dict[str, Any]]:
    return [msgspec.structs.asdict(fire) for fire in fires]


def _lines(fires: Sequence[Row], schedule: Any) -> list[str]:
    return lines_of(fires, check(schedule).trigger.zone.name)


def _moved(answer: BulkAnswer) -> Moved:
    return Moved(answer.matched, answer.moved, answer.sample, answer.next_page_token)


def _held(change: HoldChange) -> tuple[str, list[Hold]]:
    holds = [Hold(Scope(one.tenant, one.queue), one.reason, one.held_by, one.held_at) for one in change.standing]
    return change.status, holds


def _worker(row: dict[str, Any], now: datetime) -> dict[str, Any]:
    return {**row, "read_at": now, "until": now + timedelta(seconds=row["lease_seconds_left"])}
