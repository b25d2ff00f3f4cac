"""Targets in the rows of the database, as they are shown: told apart from the other options, and without their secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from duly.domain.jobs.job import Recurring, Submission
from duly.domain.jobs.spec_of import rules_of, shown_target
from duly.domain.runs.options import NO_OPTIONS, RunOptions, plain_of
from duly.domain.targets.masking import masked_then
from duly.domain.targets.spec import told_in_short
from duly.domain.targets.words import described


def job_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Give a job's row with its target, and who is told of its runs' ends."""
    target = shown_target(row["handler"], row["options"])
    rules = rules_of(row["options"])
    told = {word: msgspec.to_builtins(rules[word]) for word in ("on_done", "on_dead")}
    return {**row, "target": target, **told, "options": _without_target(row["options"])}


def listed_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Give the row of a job in a list, or of a run, with its target in short."""
    options = row.get("options", NO_OPTIONS)
    target = told_in_short(row["handler"], options)
    return {**row, "target": target} | ({"options": _without_target(options)} if "options" in row else {})


def what_runs(row: Mapping[str, Any]) -> str:
    """Say what runs, in the words of a row."""
    target = row.get("target")
    return str(row["handler"]) if target is None else described(target)


def what_job_runs(job: Submission | Recurring) -> str:
    """Say what a job runs that is to be submitted."""
    return described(shown_target(job.handler, job.options))


def _without_target(options: RunOptions) -> str | None:
    told = plain_of(options.but(then=masked_then(options.metadata.then)))
    told.pop("target", None)
    return msgspec.json.encode(told).decode() if told else None
