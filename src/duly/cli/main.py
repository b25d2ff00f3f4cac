"""`duly`: the list of commands, and the one place where an error becomes a sentence and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from duly import __version__
from duly.cli.failures import EXIT_CODES, INTERRUPTED, REFUSED, explain
from duly.cli.lazy import LazyGroup
from duly.cli.say import say

SECTIONS = {
    "Run": {
        "up": ("duly.cli.up:up", "Start everything here: PostgreSQL, scheduler, worker, health and metrics."),
        "scheduler": ("duly.cli.scheduler:scheduler", "Run a scheduler."),
        "api": ("duly.cli.api:api", "Serve the HTTP API, health and metrics."),
        "worker": ("duly.cli.worker:worker", "Run a worker for an app."),
        "migrate": ("duly.cli.migrate:migrate", "Bring the database's schema up to date."),
        "init": ("duly.cli.init:init", "Write an app, its test and a config to start from."),
        "listen": ("duly.cli.listen:listen_", "Receive webhooks and show them, verified, to try them out."),
        "config": ("duly.cli.config:config", "Show every setting and where it came from."),
    },
    "Work": {
        "submit": ("duly.cli.submit:submit", "Submit a job: now, later or again and again."),
        "run": ("duly.cli.run:run", "Submit a job for now; with --wait, show its log and result."),
        "jobs": ("duly.cli.jobs:jobs", "List, show, pause, change and run schedules."),
        "runs": ("duly.cli.runs:runs", "List, show, cancel and replay runs."),
        "workflows": ("duly.cli.workflows:workflows", "List, show, submit, cancel, pause and replay workflows."),
        "dead": ("duly.cli.dead:dead", "List, show, edit, replay and discard runs that gave up."),
        "pause": ("duly.cli.pause:pause", "Stop: nothing new starts, of everything, a queue or a tenant."),
        "resume": ("duly.cli.pause:resume", "Let it go on."),
        "recover": ("duly.cli.recover:recover", "Show, approve and dismiss what is made up for after downtime."),
        "limits": ("duly.cli.limits:limits", "Show, set and remove limits on what is under way at once."),
        "plan": ("duly.cli.as_code:plan", "Show what applying a file of schedules would change."),
        "apply": ("duly.cli.as_code:apply", "Bring the schedules to what a file says."),
        "files": ("duly.cli.files:files", "Show which files were applied, and what was changed by hand since."),
        "export": ("duly.cli.export:export", "Write the schedules as such a file."),
        "schema": ("duly.cli.export:schema", "Print the JSON schema of such files, for editors."),
        "calendars": ("duly.cli.calendars:calendars", "List, show, put and delete calendars."),
        "logs": ("duly.cli.logs:logs", "Show what a run logged."),
    },
    "Admit": {
        "tenants": ("duly.cli.tenants:tenants", "List, create, suspend, resume and limit tenants."),
        "keys": ("duly.cli.keys:keys", "List, create and revoke API keys."),
        "audit": ("duly.cli.audit:audit", "Show who changed what."),
        "secrets": ("duly.cli.secrets:secrets", "Make and rotate the keys that secrets are sealed with."),
    },
    "Look": {
        "next": ("duly.cli.next:next_", "Say what a schedule means and when it fires."),
        "explain": ("duly.cli.explain:explain", "Say why a run or a job is where it is."),
        "queues": ("duly.cli.queues:queues", "Show what waits in each queue and who serves it; pause, resume, set."),
        "destinations": (
            "duly.cli.destinations:destinations",
            "Show where webhooks go and how it is; limits, secrets, breaker.",
        ),
        "gates": ("duly.cli.gates:gates", "Show the keys that hold runs back; set and lift their limits."),
        "workers": ("duly.cli.workers:workers", "List the workers that live, and drain them."),
        "doctor": ("duly.cli.doctor:doctor", "Say what is wrong with this installation, and what to do about it."),
        "psql": ("duly.cli.psql:psql", "Open the database in psql."),
        "verify": ("duly.cli.verify:verify", "Check that no promise is broken."),
        "bench": ("duly.bench.cli:bench", "Measure this machine."),
        "completion": ("duly.cli.completion:completion", "Print the completion script of a shell."),
    },
}


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
    """Run one command and give its exit code."""
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # The reader has gone: flush to nobody.
        return REFUSED
    except Exception as error:  # noqa: BLE001 - the last line: a person gets a sentence, never a trace
        return _say(*explain(error))
    return code if isinstance(code, int) else 0


def _say(sentence: str, code: int) -> int:
    say(f"duly: {sentence}", err=True)
    return code
