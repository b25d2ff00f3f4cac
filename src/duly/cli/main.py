"""`duly`: the list of commands, and the function in which an error becomes a sentence and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from duly import __version__
from duly.cli import interrupts
from duly.cli.failures import EXIT_CODES, INTERRUPTED, REFUSED, explain
from duly.cli.lazy import LazyGroup
from duly.cli.render.say import say

SECTIONS = {
    "Run": {
        "up": ("duly.cli.up.up:up", "Start everything here: PostgreSQL, scheduler, worker, health and metrics."),
        "scheduler": ("duly.cli.up.scheduler:scheduler", "Run a scheduler."),
        "api": ("duly.cli.up.api:api", "Serve the HTTP API, health and metrics."),
        "worker": ("duly.cli.up.worker:worker", "Run a worker for an app."),
        "migrate": ("duly.cli.commands.system.migrate:migrate", "Bring the database's schema up to date."),
        "init": ("duly.cli.commands.system.init:init", "Write an app, its test and a config to start from."),
        "listen": (
            "duly.cli.commands.system.listen:listen_",
            "Receive webhooks and show them, verified, to try them out.",
        ),
        "config": ("duly.cli.commands.system.config:config", "Show every setting and where it came from."),
    },
    "Work": {
        "submit": ("duly.cli.commands.submit:submit", "Submit a job: now, later or again and again."),
        "run": ("duly.cli.commands.runs.run:run", "Submit a job for now; with --wait, show its log and result."),
        "jobs": ("duly.cli.commands.jobs.jobs:jobs", "List, show, pause, change and run schedules."),
        "runs": ("duly.cli.commands.runs.runs:runs", "List, show, cancel and replay runs."),
        "workflows": (
            "duly.cli.commands.workflows:workflows",
            "List, show, submit, cancel, pause and replay workflows.",
        ),
        "history": (
            "duly.cli.commands.runs.history:history",
            "Show runs that have ended, also archived ones.",
        ),
        "dead": ("duly.cli.commands.runs.dead:dead", "List, show, edit, replay and discard runs that gave up."),
        "pause": ("duly.cli.commands.pause:pause", "Pause everything, a queue or a tenant: nothing new starts."),
        "resume": ("duly.cli.commands.pause:resume", "Resume everything, a queue or a tenant."),
        "recover": (
            "duly.cli.commands.recover:recover",
            "Show, approve and dismiss the recovery after downtime.",
        ),
        "limits": ("duly.cli.commands.limits:limits", "Show, set and remove limits on concurrent runs."),
        "plan": ("duly.cli.commands.plan_and_apply:plan", "Show what applying a file of schedules would change."),
        "apply": ("duly.cli.commands.plan_and_apply:apply", "Apply a file of schedules."),
        "files": (
            "duly.cli.commands.files:files",
            "Show applied files, and jobs changed by hand since.",
        ),
        "export": ("duly.cli.commands.export:export", "Write the schedules as such a file."),
        "schema": ("duly.cli.commands.export:schema", "Print the JSON schema of such files, for editors."),
        "calendars": ("duly.cli.commands.calendars:calendars", "List, show, put and delete calendars."),
        "logs": ("duly.cli.commands.runs.logs:logs", "Show what a run logged."),
    },
    "Access": {
        "tenants": ("duly.cli.commands.tenants:tenants", "List, create, suspend, resume and limit tenants."),
        "keys": ("duly.cli.commands.keys:keys", "List, create and revoke API keys."),
        "cells": (
            "duly.cli.commands.system.cells:cells",
            "Run several primaries as one; move tenants between them.",
        ),
        "audit": ("duly.cli.commands.audit:audit", "Show who changed what."),
        "secrets": (
            "duly.cli.commands.system.secrets:secrets",
            "Make and rotate the keys that secrets are sealed with.",
        ),
    },
    "Inspect": {
        "next": ("duly.cli.commands.system.next:next_", "Describe a schedule and show its next fires."),
        "explain": ("duly.cli.commands.runs.explain:explain", "Explain the state of a run, a job or a workflow."),
        "queues": (
            "duly.cli.commands.queues:queues",
            "Show the backlog and workers of each queue; pause, resume, set.",
        ),
        "notify": ("duly.cli.commands.notify:notify", "Get notified of failed, late and absent runs."),
        "destinations": (
            "duly.cli.commands.destinations:destinations",
            "Show webhook destinations; limits, secrets, circuit breaker.",
        ),
        "concurrency": (
            "duly.cli.commands.concurrency:concurrency_keys",
            "Show concurrency keys; set and remove their limits.",
        ),
        "workers": ("duly.cli.commands.workers:workers", "List live workers, and drain them."),
        "top": ("duly.cli.commands.system.top:top", "Show throughput, delays, queues and workers, live."),
        "drain": ("duly.cli.commands.drain:drain", "Empty a host before its processes are stopped."),
        "doctor": (
            "duly.cli.commands.system.doctor:doctor",
            "Check this installation and suggest remedies.",
        ),
        "archive": (
            "duly.cli.commands.system.archive:archive",
            "List and verify archives of history; hold history.",
        ),
        "psql": ("duly.cli.commands.system.psql:psql", "Open the database in psql."),
        "backup": ("duly.cli.commands.system.backup:backup", "Write a backup of the database, and check one."),
        "restore": (
            "duly.cli.commands.system.restore:restore",
            "Restore a backup; nothing starts before it is approved.",
        ),
        "verify": ("duly.cli.commands.system.verify:verify", "Verify Duly's invariants on this database."),
        "bench": ("duly.bench.cli:bench", "Measure this machine."),
        "chaos": ("duly.bench.chaos.cli:chaos", "Kill parts of a temporary installation, and print a verdict."),
        "completion": ("duly.cli.commands.system.completion:completion", "Print the completion script of a shell."),
    },
}


# These have processes, folders or a terminal to tidy up when they are interrupted.
_TIDIES_UP = frozenset({"backup", "bench", "chaos", "restore", "top"})


@click.group(
    cls=LazyGroup,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=EXIT_CODES,
)
@click.version_option(__version__, "--version", prog_name="duly", message="%(prog)s %(version)s")
def cli() -> None:
    """Duly makes things happen later, on time, once.

    Settings come from flags, then DULY_* variables, then duly.toml or [tool.duly], then defaults; see `duly config`.
    """


def main() -> None:
    """Run the command line and end the process."""
    sys.exit(call(sys.argv[1:]))


def call(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    if arguments and arguments[0] in _TIDIES_UP:
        interrupts.heed()
    try:
        code = cli.main(list(arguments), prog_name="duly", standalone_mode=False)
    except click.exceptions.Exit as request:
        return request.exit_code
    except click.Abort as abort:
        if isinstance(abort.__cause__, KeyboardInterrupt):
            return INTERRUPTED
        return _say("stopped; nothing was changed", REFUSED)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has closed the pipe
        return REFUSED
    except Exception as error:  # noqa: BLE001 - the last line: a person gets a sentence, never a trace
        return _say(*explain(error))
    return code if isinstance(code, int) else 0


def _say(sentence: str, code: int) -> int:
    say(f"duly: {sentence}", err=True)
    return code
