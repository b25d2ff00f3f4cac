"""The desk of a database: moves and the store, for the first tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal
from uuid import UUID

import msgspec

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
from duly.cli.exporting import export
from duly.cli.fires import both_clocks, lines_of, next_fires, schedule_notes
from duly.cli.key_rows import key_row
from duly.cli.output import moment
from duly.cli.paging import gather
from duly.cli.patience import about_run
from duly.cli.policies import policy_line
from duly.cli.queue_rows import read_queues
from duly.cli.target_rows import job_row, listed_row, what_job_runs
from duly.clock import Rng
from duly.domain.errors import DulyError, NotFound
from duly.domain.jobs.filter import DEAD, JOBS, RUNS, parse
from duly.domain.jobs.job import Recurring, Submission
from duly.domain.jobs.manifest_plan import Plan
from duly.domain.limits.limit import Limit
from duly.domain.limits.pause import Hold, Scope
from duly.domain.runs.options import NO_OPTIONS, RunOptions
from duly.domain.runs.payload import read_anyhow
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.targets.addresses import called_by
from duly.domain.tenancy.api_key import Secret
from duly.domain.triggers.schedule.options import asked_shape
from duly.domain.triggers.schedule.summary import only_run_id, sentence
from duly.moves import replay as single
from duly.moves import submit as submitting
from duly.moves.admin import api_keys as keying
from duly.moves.admin import limit as limiting
from duly.moves.admin import pause as holding
from duly.moves.admin import tenants as letting
from duly.moves.admin.overload import limit_age
from duly.moves.bulk import dead as bulk
from duly.moves.bulk.dead import Bulk
from duly.moves.cancel import CancelledTree, cancel_run, cancel_tree, end_job
from duly.moves.run_again import Changes, run_again
from duly.moves.schedules import apply as applying
from duly.moves.schedules import backfill as backfilling
from duly.moves.schedules import pause as pauses
from duly.moves.schedules.apply import Applied
from duly.moves.schedules.backfill import Asked
from duly.moves.schedules.calendars import drop_calendar, put_calendar
from duly.moves.schedules.edit import amend
from duly.moves.schedules.purge import purge as purge_job
from duly.moves.schedules.schedule import find_job_id
from duly.moves.schedules.skip_next import skip_next
from duly.moves.submit import Accepted
from duly.moves.trigger import trigger
from duly.moves.workers.drain import drain, undrain
from duly.outbound.shapes import Check
from duly.store.boxes import runs
from duly.store.connection import hints
from duly.store.connection.database import Database, DiskFull, Unavailable
from duly.store.reads import explain as explaining
from duly.store.reads import lists, overview
from duly.store.tables import jobs, limits, schedules, workers
from duly.store.tables.jobs import Submitted
from duly.store.tenancy import api_keys, audit, tenants
from duly.store.tenancy.tenants import Limits, Tenant

HELD_BY = "the command line"
_TENANT_NAME_DEFAULT = "default"
_LOOK_SECONDS_MIN, _LOOK_SECONDS_MAX = 0.02, 0.5
_START = (0, -1)
_USERS_SHOWN = 50


class DatabaseDesk:
    """Asks the database."""

    def __init__(self, database: Database, check_call: Check) -> None:
        self._database = database
        self._check_call = check_call

    async def submit(self, job: Submission | Recurring, key: str) -> Sent:
        """Make a job durable, and say when it fires."""
        self._check_calls(job.options)
        submitted = await self._submit(job, key)
        with suppress(DulyError):  # A hint that is lost costs a moment.
            await hints.send(self._database, [hints.DUE if isinstance(job, Recurring) else job.queue])
        if isinstance(job, Recurring):
            seen = await self.job(submitted.job_id)
            assert seen is not None
            run_id = (
                only_run_id(submitted.schedule, submitted.job_id, submitted.scheduled_at)
                if isinstance(submitted, Accepted)
                else None
            )
            return Sent(submitted.job_id, submitted.replayed, seen.lines, seen.description, seen.next_fires, run_id)
        lines = one_shot_lines(job, both_clocks(submitted.scheduled_at))
        return Sent(submitted.job_id, submitted.replayed, lines, run_id=submitted.job_id)

    async def _submit(self, job: Submission | Recurring, key: str) -> Submitted:
        try:
            if isinstance(job, Recurring):
                return await submitting.submit_recurring(self._database, job, key=key)
            return await submitting.submit(self._database, job, key=key)
        except DiskFull:
            raise  # It says itself that nothing was stored.
        except Unavailable as error:
            raise Unavailable(
                f"{error}. The job may or may not be stored: submit it again with --key {key}, which stores it once"
            ) from error

    def _check_calls(self, options: RunOptions) -> None:
        """Refuse addresses that no worker with these settings would call, as the API does."""
        for url in called_by(options):
            self._check_call(url)

    async def living(self) -> list[Living] | None:
        """Name the workers that live."""
        return [
            Living(row.queues, row.handlers) for row in await workers.live(self._database) if row.until > row.read_at
        ]

    async def jobs(
        self, filter_text: str, limit: int, sort: Literal["created", "name", "next_run_at"], *, one_shots: bool = False
    ) -> Sequence[Row]:
        """List jobs, the newest first, by name or by next fire."""
        chosen = parse(filter_text, JOBS)
        if sort == "name":
            by_name = partial(lists.jobs_by_name, self._database, TENANT_DEFAULT, chosen)
            return [listed_row(row) for row in await gather(by_name, limit)]
        if sort == "next_run_at":
            by_next = partial(lists.jobs_by_next, self._database, TENANT_DEFAULT, chosen)
            return [listed_row(row) for row in await gather(by_next, limit)]
        listed = lists.jobs_and_one_shots if one_shots else lists.jobs
        read = partial(listed, self._database, TENANT_DEFAULT, chosen)
        return [listed_row(row) for row in await gather(read, limit)]

    async def job_id(self, job: str) -> UUID:
        """Find a job by its id or its name."""
        return await find_job_id(self._database, job)

    async def job(self, job_id: UUID) -> JobSeen | None:
        """Read a job that has a definition of its own."""
        found = await jobs.find(self._database, job_id)
        if found is None:
            return None
        schedule = await jobs.schedule_of_job(self._database, found)
        fires = next_fires(schedule, found)
        return JobSeen(
            {**job_row(found), "run_id": only_run_id(schedule, job_id, found["pending_at"])},
            sentence(schedule),
            policy_line(schedule, found),
            lines_of(fires, schedule.trigger.zone.name),
            schedule_notes(schedule, found),
            fires,
        )

    async def amend_job(self, job_id: UUID, change: Callable[[Recurring], Recurring]) -> int:
        """Change something about a job, and give its new version."""
        if await jobs.find(self._database, job_id) is not None:
            return await amend(self._database, job_id, change)
        from duly.cli.edit_one_shot import amend_one_shot  # It takes the API's modules, which few commands need.

        return await amend_one_shot(self._database, job_id, change)

    async def pause_job(self, job_id: UUID, reason: str) -> Paused:
        """Pause a job, and name the runs that may still start."""
        paused = await pauses.pause_naming(self._database, job_id, reason)
        return Paused(paused.answer, paused.may_start)

    async def resume_job(self, job_id: UUID, *, catch_up: bool) -> str:
        """Resume a job, and say what became of that."""
        return await pauses.resume(self._database, job_id, catch_up=catch_up)

    async def skip_next(self, job_id: UUID) -> str:
        """Leave the next occurrence out, and say which."""
        return f"leaves out {moment(await skip_next(self._database, job_id))}"

    async def cancel_job(self, job_id: UUID, *, purge: bool = False) -> Stopped:
        """End a job: what has not started will not; with `purge`, remove it. Say what became of that."""
        ended = await end_job(self._database, job_id, stop=False)
        found = await jobs.find(self._database, job_id) or await self._find_run(job_id)
        if purge:
            await purge_job(self._database, found["tenant"], job_id, found.get("name"))
        return Stopped(ended.answer.value, found["state"], may_start=ended.may_start)

    async def trigger(
        self, job_id: UUID, queue: str, payload: str | None, *, beside: bool, key: str
    ) -> tuple[UUID, str]:
        """Run a job now; give the run and where it stands."""
        made = await trigger(self._database, job_id, key=key, payload=payload, beside=beside)
        with suppress(DulyError):  # A hint that is lost costs a moment.
            await hints.send(self._database, [queue])
        return made.run_id, made.state.value

    async def backfill(self, job_id: UUID, stretch: Stretch, *, dry_run: bool) -> Asked:
        """Make the occurrences of a stretch again, however many they are."""
        return await backfilling.backfill(
            self._database,
            job_id,
            stretch.start,
            stretch.end,
            Rng(),
            rate=stretch.rate,
            overlap=stretch.overlap,
            dry_run=dry_run,
            confirm=True,
        )

    async def backfills(self, job_id: UUID | None, limit: int) -> Sequence[Row]:
        """List what was made again, of a job or of all, the newest first."""
        return [msgspec.structs.asdict(one) for one in await schedules.backfills(self._database, job_id, limit)]

    async def versions(self, job_id: UUID, limit: int) -> Sequence[Row]:
        """Show what a job's definition was, the newest version first."""
        found = await jobs.versions(self._database, TENANT_DEFAULT, job_id, limit)
        return [_version(job_row(row), row["options"].metadata.request_id) for row in found]

    async def cancel_backfill(self, backfill_id: UUID) -> int:
        """Stop a backfill, and say how many runs that had not begun were taken back."""
        return await backfilling.cancel_backfill(self._database, backfill_id)

    async def runs(self, filter_text: str, limit: int) -> Sequence[Row]:
        """List runs."""
        return await gather(partial(lists.runs, self._database, TENANT_DEFAULT, parse(filter_text, RUNS)), limit)

    async def run(self, run_id: UUID) -> dict[str, Any]:
        """Read a run, with its attempts."""
        found = await self._find_run(run_id)
        carried = await overview.arguments(self._database, run_id)
        found |= {"payload": carried.get("payload"), "options": carried.get("options", NO_OPTIONS)}
        found["payload_kept"] = bool(carried.get("is_kept"))
        found["definition"] = _definition(found, carried.get("generation") or 1)
        by = await audit.submitter(
            self._database, found["tenant"], found["run_id"], found["job_id"], found["scheduled_at"]
        )
        found["submitted_by"] = None if by is None else _submitter(by)
        found["progress"] = await runs.read_progress(self._database, run_id)
        found["checkpoint"] = await runs.checkpoint_size(self._database, run_id)
        return listed_row(found)

    async def cancel_run(self, run_id: UUID, *, children: bool) -> Stopped:
        """Cancel a run, and with `children` its subtasks; say what became of that."""
        done = (
            await cancel_tree(self._database, run_id)
            if children
            else CancelledTree(await cancel_run(self._database, run_id), 0)
        )
        return Stopped(done.answer.value, (await self._find_run(run_id))["state"], done.subtasks)

    async def run_again(self, run_id: UUID, changes: Changes, *, key: str) -> UUID:
        """Make a new run of what an ended run was; give its id."""

        def checked(job: Submission) -> Submission:
            self._check_calls(job.options)
            return job

        made = await run_again(self._database, run_id, key=key, tenant=TENANT_DEFAULT, changes=changes, check=checked)
        with suppress(DulyError):  # A hint that is lost costs a moment.
            await hints.send(self._database, [made.queue])
        return made.run_id

    async def log(self, run_id: UUID, *, follow: bool) -> AsyncIterator[Row]:
        """Give the lines that a run logged; with `follow`, until it has ended, also when the database was away meanwhile."""
        clock, patience = self._database.clock, about_run(run_id)
        after, pause = _START, _LOOK_SECONDS_MIN
        while True:
            look = partial(self._look, run_id, after)
            is_final, lines = await (patience.ask(look) if follow else look())
            for line in lines:
                after = (line["attempt"], line["number"])
                yield line
            if not lines and (is_final or not follow):
                return
            pause = _LOOK_SECONDS_MIN if lines else min(_LOOK_SECONDS_MAX, pause * 1.5)
            await clock.sleep(0 if is_final else pause)

    async def _look(self, run_id: UUID, after: tuple[int, int]) -> tuple[bool, Sequence[Row]]:
        """Say whether a run has ended, and what it has logged since."""
        is_final = (await self._find_run(run_id))["state"] in runs.FINAL
        return is_final, await runs.read_logs(self._database, run_id, after)

    async def _find_run(self, run_id: UUID) -> dict[str, Any]:
        found = await runs.find(self._database, run_id)
        if found is None:
            raise NotFound(f"no run {run_id}; `duly runs` lists them")
        return found

    async def dead(self, filter_text: str, limit: int) -> Sequence[Row]:
        """List dead runs."""
        return await gather(partial(lists.dead, self._database, TENANT_DEFAULT, parse(filter_text, DEAD)), limit)

    async def replay(self, run_ids: Sequence[UUID]) -> list[UUID]:
        """Give dead runs another set of attempts."""
        return await single.replay(self._database, run_ids)

    async def discard(self, run_ids: Sequence[UUID]) -> list[UUID]:
        """Give dead runs up for good."""
        return await single.discard(self._database, run_ids)

    async def edit_dead(self, run_ids: Sequence[UUID], payload: dict[str, Any]) -> list[UUID]:
        """Give dead runs other arguments."""
        return await bulk.edit(self._database, TENANT_DEFAULT, run_ids, payload)

    async def dead_groups(self, filter_text: str, limit: int) -> Sequence[Row]:
        """Count dead runs by what is alike in their reasons."""
        chosen = parse(filter_text, DEAD)
        return await lists.dead_groups(self._database, TENANT_DEFAULT, chosen, limit, lists.GROUPED_MAX)

    async def replay_matching(
        self, filter_text: str, limit: int, after: Any, *, dry_run: bool, rate: float | None = None
    ) -> Moved:
        """Replay the dead runs that fit."""
        chosen = parse(filter_text, DEAD)
        return _moved(
            await bulk.replay_matching(
                self._database, TENANT_DEFAULT, chosen, limit=limit, dry_run=dry_run, after=after, rate=rate
            )
        )

    async def discard_matching(self, filter_text: str, limit: int, after: Any, *, dry_run: bool) -> Moved:
        """Give the dead runs that fit up for good."""
        chosen = parse(filter_text, DEAD)
        return _moved(
            await bulk.discard_matching(
                self._database, TENANT_DEFAULT, chosen, limit=limit, dry_run=dry_run, after=after
            )
        )

    async def edit_matching(
        self, filter_text: str, limit: int, after: Any, *, dry_run: bool, payload: dict[str, Any]
    ) -> Moved:
        """Give the dead runs that fit other arguments."""
        chosen = parse(filter_text, DEAD)
        return _moved(
            await bulk.edit_matching(
                self._database, TENANT_DEFAULT, chosen, payload, limit=limit, dry_run=dry_run, after=after
            )
        )

    async def calendars(self) -> Sequence[Row]:
        """List calendars, as they were defined."""
        return list((await schedules.calendars(self._database, TENANT_DEFAULT, None)).values())

    async def calendar(self, name: str) -> Row:
        """Read a calendar, as it was defined."""
        found = (await schedules.calendars(self._database, TENANT_DEFAULT, [name])).get(name)
        if found is None:
            raise NotFound(f"no calendar is named {name!r}; `duly calendars` lists them")
        return dict(found)

    async def put_calendar(self, definition: Any) -> Kept:
        """Keep a calendar, new or changed."""
        kept = await put_calendar(self._database, definition)
        return Kept(kept.name, kept.schedules)

    async def delete_calendar(self, name: str) -> None:
        """Forget a calendar."""
        await drop_calendar(self._database, name)

    async def users_of_calendar(self, name: str) -> Sequence[Row] | None:
        """List the jobs that use a calendar, with their next moments."""
        users = await schedules.using_calendar(self._database, TENANT_DEFAULT, name, None, _USERS_SHOWN)
        return [{"job_id": user.job_id, "name": user.name, "scheduled_at": user.scheduled_at} for user in users]

    async def plan(self, file: File) -> Plan:
        """Say what applying a file would do."""
        return await applying.plan(self._database, TENANT_DEFAULT, file.manifest)

    async def apply(self, file: File, *, prune: bool, adopt: bool, expected: str | None) -> Applied:
        """Apply a file, all of it or nothing."""
        for wanted in file.manifest.jobs.values():
            self._check_calls(wanted.job.options)
        return await applying.apply(
            self._database,
            TENANT_DEFAULT,
            file.manifest,
            Rng(),
            prune=prune,
            adopt=adopt,
            expected=expected,
            by=HELD_BY,
        )

    async def export(self, source: str | None, *, by_hand: bool) -> Exported:
        """Write the schedules of a file as that file."""
        return await export(self._database, source, by_hand=by_hand)

    async def explain(self, what: str) -> Explained:
        """Say why a run, given by its id, or a job, by its id or its name, is where it is."""
        found = await explaining.job_or_run(self._database, TENANT_DEFAULT, await find_job_id(self._database, what))
        if found is None:
            raise NotFound(f"no run, job or workflow {what}; `duly runs`, `duly jobs` and `duly workflows` list them")
        sentences = [reason.text for reason in found.reasons]
        held = found.holding
        freeing = (None, None) if held is None else (held.frees, held.probable_start_at)
        return Explained(found.kind, found.id, found.state, sentences, msgspec.to_builtins(found), *freeing)

    async def workers(self) -> Sequence[Row]:
        """List the workers that live."""
        return [msgspec.structs.asdict(row) for row in await workers.live(self._database)]

    async def drain(self, worker_id: UUID, *, is_draining: bool) -> None:
        """Ask a worker to take nothing more, or to take runs again."""
        await (drain(self._database, worker_id) if is_draining else undrain(self._database, worker_id))

    async def queues(self) -> Sequence[Row]:
        """List the queues that have work or a worker, or are held by their name."""
        return await read_queues(self._database)

    async def limit_queue(self, queue: str, age_limit: timedelta | None) -> None:
        """Say how old the oldest due run of a queue may be; None leaves it to the default."""
        await limit_age(self._database, queue, age_limit, HELD_BY)

    async def keys(self, tenant: str | None, limit: int) -> Sequence[Row]:
        """List the keys of a tenant, or of all."""
        number = None if tenant is None else (await self.tenant(tenant)).tenant
        now = await self._database.read_clock()
        return [key_row(key, now) for key in await api_keys.page(self._database, number, None, limit)]

    async def create_key(self, tenant: str | None, wanted: KeyWanted) -> tuple[Secret, Row]:
        """Make a key of a tenant, or of the first."""
        owner, now = await self.tenant(tenant or _TENANT_NAME_DEFAULT), await self._database.read_clock()
        made = await keying.create_key(
            self._database,
            Rng(),
            tenant=owner.tenant,
            name=wanted.name,
            scopes=wanted.scopes,
            expires_at=None if wanted.expires is None else now + wanted.expires,
            rate=wanted.rate,
        )
        kept = await api_keys.find(self._database, made.key_id)
        assert kept is not None
        return made.text, key_row(kept, now)

    async def revoke_key(self, key_id: str) -> None:
        """End a key for good."""
        await keying.revoke_key(self._database, key_id)

    async def tenants(self, limit: int) -> Sequence[Tenant]:
        """List tenants."""
        return await tenants.page(self._database, None, limit)

    async def tenant(self, name: str) -> Tenant:
        """Find a tenant by its name or its number."""
        return await letting.tenant_named(self._database, name)

    async def create_tenant(self, name: str, limits: Limits) -> Tenant:
        """Make a tenant."""
        return await letting.create_tenant(self._database, name, limits)

    async def suspend_tenant(self, tenant: int) -> None:
        """Let a tenant add nothing, and its keys open nothing, for now."""
        await letting.suspend_tenant(self._database, tenant)

    async def resume_tenant(self, tenant: int) -> None:
        """Let a suspended tenant go on."""
        await letting.resume_tenant(self._database, tenant)

    async def limit_tenant(self, tenant: int, limits: Limits) -> None:
        """Say what a tenant may have from now on."""
        await letting.limit_tenant(self._database, tenant, limits)

    async def limits(self) -> Sequence[Limit]:
        """List the limits on what is under way at once."""
        return await limits.standing(self._database)

    async def limit(self, scope: Scope, places: int) -> Limit:
        """Let at most so many runs of a scope be under way at once."""
        if scope.tenant is not None:
            await letting.tenant_named(self._database, str(scope.tenant))
        return await limiting.limit(self._database, scope, places, set_by=HELD_BY)

    async def unlimit(self, scope: Scope) -> None:
        """Take the limit of a scope away."""
        await limiting.unlimit(self._database, scope)

    async def hold(self, scope: Scope, reason: str) -> tuple[str, Sequence[Hold]]:
        """Let nothing new of a scope start."""
        change = await holding.hold(self._database, scope, reason=reason, held_by=HELD_BY)
        return change.answer.value, change.standing

    async def lift(self, scope: Scope) -> tuple[str, Sequence[Hold]]:
        """Let a scope go on."""
        change = await holding.lift(self._database, scope)
        return change.answer.value, change.standing


def one_shot_lines(job: Submission, at: str) -> list[str]:
    """Say when a one-shot runs."""
    how = "Once, now" if job.at is None and not job.delay else "Once"
    return [f"{how}: {what_job_runs(job)} on queue {job.queue}", f"{'at':6}{at}"]


def _moved(found: Bulk) -> Moved:
    return Moved(found.matched, found.moved, found.sample, found.after)


def _definition(found: Mapping[str, Any], version: int) -> dict[str, Any]:
    """Show the definition that a run uses or used in the words of the API, without its secrets."""
    from duly.api.definitions import run_definition  # Most commands do without it.

    told: dict[str, Any] = msgspec.to_builtins(
        run_definition(found["handler"], found["options"], version), builtin_types=(datetime,)
    )
    return told


def _submitter(by: audit.Submitter) -> dict[str, Any]:
    """Show who submitted a run in the words of the API."""
    actor = by.actor
    known = {"kind": actor.kind, "key_id": actor.key_id, "name": actor.name, "action": by.action, "at": by.at}
    return {**known, "request_id": actor.request_id}


def _version(row: Row, request_id: str | None) -> Row:
    """Show a version in the words of the API."""
    return {
        **{
            name: row[name]
            for name in ("made_at", "replaced_at", "owner", "source", "name", "handler", "target", "queue", "priority")
        },
        "version": row["generation"],
        "request_id": request_id,
        "schedule": asked_shape(row["schedule"], row["every_seconds"]),
        "payload": None if row["payload"] is None else read_anyhow(row["payload"]),
        "options": row["options"],
    }
