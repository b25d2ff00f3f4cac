"""Explanations of a recurring job's state."""

from __future__ import annotations

import shlex
from datetime import timedelta

from duly.domain.diagnosis.explain.codes import code_of
from duly.domain.diagnosis.explain.facts import JobFacts, Reason
from duly.domain.diagnosis.explain.waiting import no_worker, nobody_stages, paused
from duly.domain.diagnosis.explain.words import moment_text, spoken
from duly.domain.limits.overload import is_shed


def explain_job(job: JobFacts) -> list[Reason]:
    """Explain the state of a job, most important first."""
    standing = {"active": _active, "paused": _paused}.get(job.state, _over)(job)
    lives = job.state in ("active", "paused")
    return [
        *standing,
        *(paused(job.pauses) if lives else []),
        *_removed(job),
        *_failing(job),
        *_last_run(job),
        *(nobody_stages(job.schedulers) if job.state == "active" and not _is_overdue(job) else []),
        *(no_worker(job.queue, job.handler, job.workers) if lives else []),
    ]


def _is_overdue(job: JobFacts) -> bool:
    return job.next_run_at is not None and job.next_run_at <= job.now


def _active(job: JobFacts) -> list[Reason]:
    if job.next_run_at is None:
        return [_without_moment(job)]
    left = job.next_run_at - job.now
    at = moment_text(job.next_run_at)
    is_ahead = left > timedelta()
    fires = Reason(
        "not_due",
        f"it fires next at {at}, in {spoken(left)}" if is_ahead else f"it was due at {at}, {spoken(left)} ago",
        {"next_run_at": job.next_run_at, "seconds": left.total_seconds()},
        resolved_by="its next occurrence" if is_ahead else "a scheduler's next round",
        probable_start_at=max(job.next_run_at, job.now),
    )
    return [*_shed(job), *(nobody_stages(job.schedulers) if _is_overdue(job) else []), *_excluded(job), fires]


def _without_moment(job: JobFacts) -> Reason:
    if job.waits_for_event:
        return Reason("not_due", "it fires at the next event of its type", resolved_by="an event of its type")
    text = "it fires again after the current run ends"
    return Reason("not_due", text, resolved_by="the end of the current run")


def _shed(job: JobFacts) -> list[Reason]:
    """Explain that due runs wait because their tenant overloads the queue."""
    overload = job.overload
    if overload is None or not is_shed(job.priority) or not _is_overdue(job):
        return []
    text = (
        f"queue {job.queue} is overloaded: its oldest run has waited for {spoken(overload.age)}, and the limit is"
        f" {spoken(overload.age_limit)}. Occurrences of priority {job.priority} are deferred until it recovers; then their"
        " misfire policy applies"
    )
    facts = {
        "queue": job.queue,
        "priority": job.priority,
        "oldest_age_seconds": overload.age.total_seconds(),
        "age_limit_seconds": overload.age_limit.total_seconds(),
    }
    age = spoken(overload.age_limit / 2)
    resolved_by = (
        f"queue {job.queue} with no run older than {age}: start more workers, or choose a more urgent priority"
    )
    return [Reason("shed", text, facts, resolved_by=resolved_by)]


def _excluded(job: JobFacts) -> list[Reason]:
    if job.excluded is None:
        return []
    names = ", ".join(job.excluded.calendars)
    text = f"its occurrence at {moment_text(job.excluded.scheduled_at)} is excluded by {names}"
    facts = {"scheduled_at": job.excluded.scheduled_at, "calendars": list(job.excluded.calendars)}
    resolved_by = f"the next occurrence that {names} permits, or another calendar"
    return [Reason("calendar", text, facts, resolved_by=resolved_by, probable_start_at=job.next_run_at)]


def _paused(job: JobFacts) -> list[Reason]:
    since = f" since {moment_text(job.paused_at)}" if job.paused_at else ""
    resume = f"duly jobs resume {shlex.quote(job.called)}"
    why = f": {job.pause_reason}" if job.pause_reason else ""
    text = f"it is paused{since}{why}; `{resume}` resumes it"
    facts = {"paused_at": job.paused_at, "reason": job.pause_reason}
    return [Reason("paused", text, facts, resolved_by=f"`{resume}`")]


def _over(job: JobFacts) -> list[Reason]:
    return [Reason(code_of(job.state, "completed"), f"it is {job.state} and will not fire again")]


def _removed(job: JobFacts) -> list[Reason]:
    if job.removed_at is None:
        return []
    text = (
        f"no worker has declared it since {moment_text(job.removed_at)}: declare it again in {job.source}, or cancel it"
    )
    return [Reason("removed_from_code", text, {"removed_at": job.removed_at, "source": job.source})]


def _failing(job: JobFacts) -> list[Reason]:
    """Count the consecutive dead runs, from the newest that has ended."""
    ended = [run for run in job.last if run["state"] in ("succeeded", "dead")]
    streak = next((number for number, run in enumerate(ended) if run["state"] != "dead"), len(ended))
    streak = max(streak, job.failures)
    if not streak:
        return []
    runs = "its last run" if streak == 1 else f"its last {streak} runs"
    return [Reason("failing", f"{runs} failed; `duly dead list` shows why", {"streak": streak})]


def _last_run(job: JobFacts) -> list[Reason]:
    begun = [run for run in job.last if run["state"] not in ("scheduled", "skipped")]
    if not begun:
        return [Reason("no_run_yet", "history holds no run of it")]
    last = begun[0]
    return [
        Reason(
            "last_run",
            f"its last run, {last['run_id']}, for {moment_text(last['scheduled_at'])}, is {last['state']}",
            {"run_id": last["run_id"], "state": last["state"], "scheduled_at": last["scheduled_at"]},
        )
    ]
