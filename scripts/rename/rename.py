"""Rename identifiers of the whole tree to the words of the field: `rename.py ROOT`. A second run changes nothing."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from engine import Tree, comment_at, fits, swap  # noqa: E402

PY = ("*.py",)
SQL = ("*.sql",)
UI = ("ui/src/*",)
SRC = ("src/duly/*",)


def main(root: Path) -> None:
    tree = Tree(root)
    for old, new in MOVES:
        tree.move(old, new)
    tree.load()
    paths(tree)
    for group in (
        public_words,
        dependencies,
        retry_rules,
        callbacks,
        concurrency,
        pauses,
        slots,
        others,
        engine_words,
        test_names,
    ):
        group(tree)
    tree.save()
    print(f"{len(tree.changed)} files changed")


def paths(tree: Tree) -> None:
    """Follow moved files where they are imported, or named by their paths."""
    named: dict[str, str] = {}
    stems: dict[str, str] = {}
    for old, new in MOVES:
        for prefix in ("", "src/duly/", "tests/", "src/duly/store/"):
            if old.startswith(prefix):
                named[old.removeprefix(prefix)] = new.removeprefix(prefix)
        if old.endswith(".py"):
            before, after = (".".join(Path(path).with_suffix("").parts).removeprefix("src.") for path in (old, new))
            named[before] = after
            was, now = Path(old).stem, Path(new).stem
            if was.startswith("test_"):
                stems[was] = now
            else:
                parent = before.rpartition(".")[0].replace(".", r"\.")
                tree.code({was: now}, PY, where=rf"from {parent} import (?:\([^)]*|[^\n(]*)\b{was}\b", strings=False)
    joined = "|".join(sorted(map(re.escape, named), key=len, reverse=True))
    tree.regex(rf"(?<![\w./])(?:{joined})(?![\w])", lambda match: named[match[0]])
    tree.words(stems)


MOVES = [
    ("src/duly/store/schema/functions/runs/aside.sql", "src/duly/store/schema/functions/runs/unroutable.sql"),
    ("src/duly/store/schema/functions/runs/follow.sql", "src/duly/store/schema/functions/runs/dependencies.sql"),
    ("src/duly/store/schema/functions/runs/tell.sql", "src/duly/store/schema/functions/runs/completion_callbacks.sql"),
    ("src/duly/store/schema/functions/runs/park.sql", "src/duly/store/schema/functions/runs/await_destination.sql"),
    (
        "src/duly/store/schema/functions/workflows/workflow_errands.sql",
        "src/duly/store/schema/functions/workflows/workflow_tasks.sql",
    ),
    ("src/duly/moves/tell.py", "src/duly/moves/completion_callbacks.py"),
    ("src/duly/domain/workflows/told.py", "src/duly/domain/workflows/described.py"),
    ("src/duly/bench/scenarios/strangers.py", "src/duly/bench/scenarios/unroutable.py"),
    ("src/duly/worker/targets/turns.py", "src/duly/worker/targets/reservations.py"),
    ("tests/worker/targets/test_turns.py", "tests/worker/targets/test_reservations.py"),
    ("tests/worker/test_turns.py", "tests/worker/test_loop_turns.py"),
    ("tests/moves/test_aside.py", "tests/moves/test_unroutable.py"),
    ("tests/interleavings/test_aside.py", "tests/interleavings/test_unroutable.py"),
    ("tests/store/test_aside_plans.py", "tests/store/test_unroutable_plans.py"),
    ("tests/simulation/strangers.py", "tests/simulation/unroutable.py"),
    ("tests/moves/test_follow.py", "tests/moves/test_dependencies.py"),
    ("tests/interleavings/test_followers.py", "tests/interleavings/test_dependents.py"),
    ("tests/simulation/followers.py", "tests/simulation/dependents.py"),
    ("tests/store/test_follower_plans.py", "tests/store/test_dependency_plans.py"),
    ("tests/domain/test_then.py", "tests/domain/test_completion_callbacks.py"),
    ("tests/moves/test_tell.py", "tests/moves/test_completion_callbacks.py"),
    ("tests/domain/test_hold.py", "tests/domain/test_pause.py"),
    ("tests/moves/test_hold.py", "tests/moves/test_pause.py"),
    ("tests/worker/test_holds.py", "tests/worker/test_pauses.py"),
    ("tests/end_to_end/test_holds.py", "tests/end_to_end/test_pauses.py"),
    ("tests/moves/test_note.py", "tests/moves/test_audit.py"),
    ("tests/schedules/test_coming.py", "tests/schedules/test_upcoming.py"),
    ("tests/schedules/test_overtaken.py", "tests/schedules/test_retry_on_conflict.py"),
    ("tests/worker/test_apart.py", "tests/worker/test_isolated.py"),
    ("tests/worker/test_crew.py", "tests/worker/test_process_pool.py"),
    ("tests/worker/test_desk.py", "tests/worker/test_run_records.py"),
    ("tests/worker/test_pulse.py", "tests/worker/test_heartbeat.py"),
    ("tests/store/again.py", "tests/store/gathered.py"),
    ("src/duly/wire/gates.py", "src/duly/wire/concurrency_keys.py"),
    ("src/duly/cli/commands/gates.py", "src/duly/cli/commands/concurrency.py"),
    ("src/duly/bench/scenarios/gates.py", "src/duly/bench/scenarios/concurrency_keys.py"),
    (
        "src/duly/store/schema/functions/tenancy/gates.sql",
        "src/duly/store/schema/functions/tenancy/concurrency_keys.sql",
    ),
    ("src/duly/moves/run_again.py", "src/duly/moves/rerun.py"),
    ("ui/src/parts/Coming.svelte", "ui/src/parts/Upcoming.svelte"),
    ("ui/src/parts/After.svelte", "ui/src/parts/Dependencies.svelte"),
    ("tests/domain/test_gate.py", "tests/domain/test_concurrency_key.py"),
    ("tests/moves/test_gates.py", "tests/moves/test_concurrency_keys.py"),
    ("tests/api/test_gates.py", "tests/api/test_concurrency_keys.py"),
    ("tests/cli/test_gates.py", "tests/cli/test_concurrency_keys.py"),
    ("tests/interleavings/test_gates.py", "tests/interleavings/test_concurrency_keys.py"),
    ("tests/end_to_end/flow/test_gates_under_fire.py", "tests/end_to_end/flow/test_concurrency_keys_under_load.py"),
    ("tests/api/test_run_again.py", "tests/api/test_rerun.py"),
    ("tests/api/test_after.py", "tests/api/test_dependencies.py"),
    ("tests/cli/test_after.py", "tests/cli/test_dependencies.py"),
    ("tests/sdk/test_after.py", "tests/sdk/test_dependencies.py"),
    ("tests/domain/test_after.py", "tests/domain/test_dependencies.py"),
]


def public_words(tree: Tree) -> None:
    """Identifiers that mean one thing wherever they stand."""
    tree.words(
        {
            # operations
            "list_gates": "list_concurrency_keys",
            "read_gate": "read_concurrency_key",
            "limit_gate": "limit_concurrency_key",
            "lift_gate": "unlimit_concurrency_key",
            "list_holds": "list_pauses",
            "read_coming": "read_upcoming",
            "make_key": "create_key",
            "make_tenant": "create_tenant",
            "end_key": "revoke_key",
            "keep_calendar": "put_calendar",
            "take_in_event": "accept_event",
            # schemas
            "GateLimits": "ConcurrencyKeyLimits",
            "GateList": "ConcurrencyKeyList",
            "GateRate": "ConcurrencyKeyRate",
            "AsyncGates": "AsyncConcurrencyKeys",
            "AsyncHolds": "AsyncPauses",
            "HoldList": "PauseList",
            "HoldChange": "PauseChange",
            "HoldRequest": "ScopedPause",
            "LiftRequest": "ScopedResume",
            "HoldAnswer": "PauseAnswer",
            "HoldingCode": "BlockerCode",
            "ComingFires": "UpcomingFires",
            "ComingMinute": "UpcomingMinute",
            "FollowedJob": "Dependency",
            "BackfillAsked": "BackfillCreated",
            "BulkAnswer": "BulkResponse",
            "LineAnswer": "LineResult",
            "EventTaken": "EventAccepted",
            "EventsTaken": "EventsAccepted",
            "KeptCalendar": "SavedCalendar",
            "MadeKey": "CreatedKey",
            "RunAgain": "Rerun",
            "RunAgainRequest": "RerunRequest",
            "ToldRule": "ApprovedRule",
            "UnexpectedAnswer": "UnexpectedResponse",
            # fields
            "on_done": "on_end",
            "on_dead": "on_failure",
            "waiting_turn": "waiting_for_rate",
            "unknown_handlers": "unroutable",
            "schedules_held": "schedules_waiting",
            "made_at": "created_at",
            "taken_back": "recalled",
            "turned_away_total": "rejected_total",
            "again_of": "rerun_of",
            "GATE_PLACES_MAX": "CONCURRENCY_SLOTS_MAX",
            "limit_places": "limit_slots",
            "has_places": "has_slots",
            # codes
            "gate_concurrency": "concurrency_limit",
            "gate_fifo": "fifo_order",
            "gate_rate": "rate_limit",
            "blocked_parent": "dependency",
            "breaker_open": "circuit_open",
            "held_ahead": "leased_ahead",
            "awaits_receiver": "awaiting_callback",
            "no_worker_has_handler": "unroutable",
            "everything_held": "everything_paused",
            "queue_held": "queue_paused",
            "dead_lately": "dead_recently",
            "host_clock_apart": "host_clock_differs",
            "clock_apart": "clock_differs",
            "staging_late": "staging_delayed",
            "GATE_LIMITED": "CONCURRENCY_KEY_LIMITED",
            "GATE_LIFTED": "CONCURRENCY_KEY_UNLIMITED",
            "HOLD_PLACED": "PAUSE_CREATED",
            "HOLD_LIFTED": "PAUSE_REMOVED",
            "EVENT_TAKEN": "EVENT_ACCEPTED",
            "CALENDAR_KEPT": "CALENDAR_SAVED",
            "RUN_AGAIN": "RUN_RERUN",
            # metrics
            "duly_holds": "duly_pauses",
            "duly_parked_runs": "duly_waiting_webhook_runs",
            "duly_worker_turn_age_seconds": "duly_worker_loop_age_seconds",
        }
    )
    tree.regex(r"\bgate\.limited\b", "concurrency_key.limited")
    tree.regex(r"\bgate\.lifted\b", "concurrency_key.unlimited")
    tree.regex(r"\bhold\.placed\b", "pause.created")
    tree.regex(r"\bhold\.lifted\b", "pause.removed")
    tree.regex(r"\brun\.run_again\b", "run.rerun")
    tree.regex(r"\bevent\.taken\b(?!\()", "event.accepted", but=("*.sql",))
    tree.regex(r"\bcalendar\.kept\b", "calendar.saved")
    tree.regex(
        r"from duly\.moves\.admin\.api_keys import create_key, revoke_key",
        "from duly.moves.admin import api_keys as moves",
        ("src/duly/api/routes/keys.py",),
    )
    tree.regex(r"await (create_key|revoke_key)\(", r"await moves.\1(", ("src/duly/api/routes/keys.py",))
    tree.regex(
        r"from duly\.moves\.schedules\.calendars import drop_calendar, put_calendar",
        "from duly.moves.schedules import calendars as moves",
        ("src/duly/api/routes/schedules.py",),
    )
    tree.regex(r"await (drop_calendar|put_calendar)\(", r"await moves.\1(", ("src/duly/api/routes/schedules.py",))
    # paths, commands, flags
    tree.regex(r'"/gates/"', '"/concurrency-keys/"', PY)
    tree.regex(r"/v1/gates\b", "/v1/concurrency-keys")
    tree.regex(r"/v1/holds\b", "/v1/pauses")
    tree.regex(r"/v1/coming\b", "/v1/upcoming")
    tree.regex(r"(/v1/runs/[^\s`'\"]*/)run-again\b", r"\1rerun")
    tree.regex(r"/run-again\b", "/rerun")
    tree.regex(r"\bduly gates lift\b", "duly concurrency unlimit")
    tree.regex(r"\bduly gates\b", "duly concurrency")
    tree.regex(r"\bduly runs again\b", "duly runs rerun")
    tree.regex(r"--on-done\b", "--on-end")
    tree.regex(r"--on-dead\b", "--on-failure")
    tree.regex(r"--places\b", "--slots")
    tree.regex(r"--beside\b", "--allow-overlap")
    tree.regex(r"\brun_again\b", "rerun")
    tree.regex(r"\brun_again_sync\b", "rerun_sync")


AFTER_PY = (
    "src/duly/domain/workflows/*.py",
    "src/duly/domain/jobs/compile.py",
    "src/duly/domain/jobs/manifest.py",
    "src/duly/domain/jobs/spec.py",
    "src/duly/domain/jobs/spec_of.py",
    "src/duly/domain/runs/options.py",
    "src/duly/cli/commands/runs/runs.py",
    "src/duly/cli/flags/submission.py",
    "src/duly/cli/commands/submit.py",
    "src/duly/cli/render/workflow.py",
    "src/duly/sdk/workflow.py",
    "src/duly/sdk/keywords.py",
    "src/duly/sdk/choices.py",
    "src/duly/client/asynchronous/jobs.py",
    "src/duly/client/synchronous/jobs.py",
    "src/duly/bench/scenarios/workflows.py",
    "src/duly/wire/workflows.py",
    "src/duly/wire/jobs/jobs.py",
    "src/duly/wire/runs.py",
    "src/duly/api/routes/job_edits.py",
    "src/duly/api/views/runs.py",
    "src/duly/moves/workflows/workflows.py",
    "tests/api/test_dependencies.py",
    "tests/cli/test_dependencies.py",
    "tests/sdk/test_dependencies.py",
    "tests/domain/test_dependencies.py",
    "tests/moves/test_follow.py",
    "tests/moves/test_dependencies.py",
    "tests/interleavings/test_followers.py",
    "tests/interleavings/test_dependents.py",
    "tests/simulation/followers.py",
    "tests/simulation/dependents.py",
    "tests/simulation/graphs.py",
    "tests/graphs.py",
    "tests/store/test_follower_plans.py",
    "tests/store/test_dependency_plans.py",
    "tests/domain/test_workflow.py",
    "tests/domain/test_manifest_workflow.py",
    "tests/api/test_workflows.py",
    "tests/testing/test_workflows.py",
    "tests/sdk/test_workflows.py",
    "tests/api/test_shedding.py",
    "tests/end_to_end/flow/test_workflow_torture.py",
    "tests/moves/test_workflows.py",
    "tests/store/test_workflow_plans.py",
    "tests/dashboard/test_workflows.py",
    "tests/cli/test_every_field.py",
    "tests/api/test_every_field.py",
    "tests/api/test_one_shot_changes.py",
    "tests/store/test_options.py",
    "tests/every_field.py",
    "tests/dashboard/figures.py",
    "tests/sdk/test_every_field.py",
    "tests/cli/test_workflows.py",
)


def dependencies(tree: Tree) -> None:
    tree.words(
        {
            "AFTER_MAX": "DEPENDENCIES_MAX",
            "check_after": "check_dependencies",
            "read_after": "read_dependency",
            "is_after": "is_depends_on",
            "but_after": "without_dependencies",
        }
    )
    tree.code({"After": "DependsOn"}, PY)
    tree.regex(r"^    after: Sequence\[UUID", "    depends_on: Sequence[UUID", ("tests/builders.py",))
    tree.regex(
        r"\"after\": tuple\((.*) for one in after\)",
        r'"depends_on": tuple(\1 for one in depends_on)',
        ("tests/builders.py",),
    )
    tree.code({"after": "depends_on"}, AFTER_PY)
    tree.regex(
        r"--after(?= JOB|\",|[ =]\$|[ =][0-9a-f{<\$]| is for)",
        "--depends-on",
        (
            "src/duly/cli/commands/submit.py",
            "src/duly/cli/flags/submission.py",
            "tests/cli/*",
            "docs/*",
            "README.md",
            "tests/docs/*",
            "ARCHITECTURE.md",
        ),
    )
    lists = r"(?=\[|edges\b|running\b|\(\"|\(\(|parents\b)"
    tree.regex(r"([\"'])after\1: " + lists, r"\1depends_on\1: ")
    tree.regex(r"(?<![\w.])after=" + lists, "depends_on=")
    tree.regex(r"(?<![\w.`-])after: (?=\[)", "depends_on: ")
    tree.regex(r"(?<=/)after(?=/|\")", "depends_on", ("tests/*", "docs/*.md"))
    tree.regex(
        r"(\bbody|\bnode|\bmetadata|\bone|\brun|\bjob|\?)\.after\b(?!\()",
        r"\1.depends_on",
        (
            "src/duly/api/routes/jobs.py",
            "src/duly/api/routes/workflows.py",
            "src/duly/store/tables/workflows.py",
            "src/duly/store/boxes/runs.py",
            "ui/src/*",
            "src/duly/cli/commands/runs/runs.py",
            "tests/*",
        ),
        but=(
            "tests/moves/test_dead.py",
            "tests/moves/test_apply.py",
            "ui/src/screens/File.svelte",
            "tests/api/breaking.py",
        ),
    )
    tree.regex(r"\]\.depends_on\b", "].after", ("tests/domain/test_manifest_workflow.py",))
    tree.regex(r"'\{\"after\": '", "'{\"depends_on\": '", ("tests/*",))
    tree.regex(r"(nodes\.\w+)\.after\[", r"\1.depends_on[", ("tests/*", "docs/*"))
    tree.regex(r":15:38:", ":15:43:", ("tests/domain/test_manifest_workflow.py",))
    tree.regex(
        r"\[\"done\", \"dead\"\]",
        '["end", "failure"]',
        ("tests/domain/test_target.py", "tests/domain/test_then.py", "tests/domain/test_completion_callbacks.py"),
    )
    tree.regex(r"\bdepends_on = page\.depends_on\b", "depends_on = page.after", ("tests/moves/test_workflows.py",))
    tree.regex(
        r"\"after\"",
        '"depends_on"',
        (
            "src/duly/api/routes/jobs.py",
            "src/duly/api/views/jobs.py",
            "src/duly/api/routes/workflows.py",
            "src/duly/store/boxes/runs.py",
        ),
    )
    tree.regex(r"\bafter=\[", "depends_on=[", ("src/duly/api/*",))
    tree.regex(
        r"\b(page|one|it|first|found|difference|change|changed)\.depends_on\b(?= ==|\)|,|:| is)",
        r"\1.after",
        ("tests/domain/test_manifest_workflow.py", "tests/moves/test_workflows.py"),
    )
    tree.regex(r"'after'", "'depends_on'", SQL)
    tree.regex(r"(message = format\(|then format\(|else format\()'after ", r"\1'depends_on ", SQL)
    tree.regex(r"parent, after and own", "parent, depends_on and own", SQL)
    # The dashboard.
    tree.regex(r"'after'", "'depends_on'", ("ui/src/lib/workflows.ts",))
    tree.regex(r"\bafter = \[\], map \} = told as \{ after\?", "depends_on = [], map } = told as { depends_on?", UI)
    tree.regex(r"name, after: after\.map", "name, depends_on: depends_on.map", UI)
    tree.regex(r"\bimport After from '([^']*)/After\.svelte'", r"import Dependencies from '\1/Dependencies.svelte'", UI)
    tree.regex(r"<After after=", "<Dependencies dependencies=", UI)
    tree.regex(r"<Dependencies after=", "<Dependencies dependencies=", UI)
    tree.regex(r"\{ after \}: \{ after: Dependency\[\] \}", "{ dependencies }: { dependencies: Dependency[] }", UI)
    tree.regex(
        r"\{#each after as one, number\}", "{#each dependencies as one, number}", ("ui/src/parts/Dependencies.svelte",)
    )


THEN_PY = (
    "src/duly/api/routes/workflows.py",
    "src/duly/domain/jobs/compile.py",
    "src/duly/domain/jobs/manifest.py",
    "src/duly/domain/jobs/manifest_diff.py",
    "src/duly/domain/jobs/spec_of.py",
    "src/duly/domain/runs/options.py",
    "src/duly/domain/targets/*.py",
    "src/duly/domain/tenancy/sealed_options.py",
    "src/duly/domain/workflows/*.py",
    "src/duly/moves/admin/seal.py",
    "src/duly/sdk/workflow.py",
    "src/duly/store/tables/workflows.py",
    "src/duly/store/tenancy/sealed.py",
    "src/duly/store/boxes/*.py",
    "src/duly/domain/runs/callbacks.py",
    "tests/builders.py",
    "tests/domain/test_then.py",
    "tests/domain/test_completion_callbacks.py",
    "tests/moves/test_tell.py",
    "tests/moves/test_completion_callbacks.py",
    "tests/domain/test_sealed_options.py",
    "tests/domain/test_manifest_workflow.py",
    "tests/store/test_options.py",
    "tests/domain/test_manifest.py",
    "tests/domain/test_target.py",
    "tests/api/test_callbacks.py",
    "tests/moves/*.py",
    "tests/store/*.py",
    "tests/interleavings/*.py",
    "tests/simulation/*.py",
    "tests/security/*.py",
    "tests/sdk/*.py",
    "tests/flow/*.py",
    "tests/schedules/*.py",
    "tests/worker/*.py",
)


def callbacks(tree: Tree) -> None:
    """Completion callbacks: `then` of options, `done` and `dead` within."""
    tree.regex(
        r"^    callbacks = \{(?=\"on_end\": (?:then|callbacks)\.)",
        "    by_name = {",
        ("src/duly/domain/jobs/manifest_diff.py",),
    )
    tree.regex(
        r"for name, callback in callbacks\.items\(\)",
        "for name, callback in by_name.items()",
        ("src/duly/domain/jobs/manifest_diff.py",),
    )
    tree.code({"Then": "Callbacks"}, PY, but=("*retry_rules.py", "*/client/*"))
    tree.words(
        {
            "check_then": "check_callbacks",
            "masked_then": "masked_callbacks",
            "then_tell": "callbacks",
            "are_told": "are_callbacks",
        }
    )
    tree.regex(r"\bthen\.done\b", "then.end", PY)
    tree.regex(r"\bthen\.dead\b", "then.failure", PY)
    tree.regex(r"(\bCallbacks\()done=", r"\1end=", PY)
    tree.regex(r"(\bCallbacks\((?:[^()]|\([^()]*\))*\b)dead=", r"\1failure=", PY)
    tree.regex(r"^    done: Callback", "    end: Callback", ("src/duly/domain/runs/callbacks.py",))
    tree.regex(r"^    dead: Callback", "    failure: Callback", ("src/duly/domain/runs/callbacks.py",))
    tree.regex(r"([\"'])then\1: ?\{([\"'])done\2", r"\1then\1: {\2end\2", PY)
    tree.regex(r"([\"'])then\1: ?\{([\"'])dead\2", r"\1then\1: {\2failure\2", PY)
    tree.regex(r"\bthen=\{\"done\"", 'then={"end"', ("tests/*.py",))
    tree.regex(r"\bthen=\{\"dead\"", 'then={"failure"', ("tests/*.py",))
    tree.regex(r"(->>?|\? |array\[)'then'", r"\1'callbacks'", ("tests/*.py",))
    tree.regex(r"(->>?|\? |array\[)'after'", r"\1'depends_on'", ("tests/*.py",))
    tree.regex(r"(->>?|\? |array\[)'gate'", r"\1'concurrency'", ("tests/*.py",))
    tree.code({"then": "callbacks"}, THEN_PY, kinds="py")
    tree.regex(r"([\"'])then\1: (?=\{)", r"\1callbacks\1: ", PY)
    tree.regex(r"array\['done', 'dead'\]", "array['end', 'failure']", SQL)
    tree.regex(r"v_when = 'dead'", "v_when = 'failure'", SQL)
    tree.regex(
        r"(is_retry_rule|p_value - array\[|p_value->>)([^\n]*)",
        lambda m: m[0].replace("'then'", "'action'").replace("'bury'", "'dead'"),
        SQL,
    )
    tree.regex(r"'then'", "'callbacks'", SQL)
    tree.regex(r"\bp_then\b", "p_callbacks", SQL)
    tree.regex(r"\bv_then\b", "v_callbacks", SQL)
    tree.regex(r"target, then,", "target, callbacks,", SQL)


RULES_PY = (
    "src/duly/domain/runs/retry_rules.py",
    "src/duly/domain/runs/lifecycle.py",
    "src/duly/domain/jobs/spec.py",
    "src/duly/cli/flags/job.py",
    "src/duly/sdk/retry.py",
    "tests/domain/test_retry_rules.py",
    "tests/domain/test_lifecycle.py",
    "tests/domain/test_retry.py",
    "tests/cli/test_retries.py",
    "tests/api/test_retries.py",
    "tests/store/test_retry_options.py",
    "tests/worker/test_rules.py",
    "tests/every_field.py",
    "tests/sdk/test_every_field.py",
    "tests/cli/test_every_field.py",
)


def retry_rules(tree: Tree) -> None:
    tree.words({"THENS": "ACTIONS"}, PY)
    tree.code({"then": "action"}, RULES_PY, kinds="py")
    tree.code({"Then": "Action"}, ("src/duly/domain/runs/retry_rules.py",))
    tree.regex(r"([\"'])then\1: (?=[\"'](?:retry|bury|snooze|dead|drop)|verb)", r"\1action\1: ")
    tree.regex(r"(?<![\w\"'`])then: (?=retry|bury|snooze)", "action: ")
    tree.regex(r"([\"'])bury\1", r"\1dead\1")
    tree.regex(r"=bury\b(?!\()", "=dead")
    tree.regex(r"action: bury\b", "action: dead")
    tree.regex(r"WHAT=THEN", "WHAT=ACTION")
    tree.regex(r"retry, bury, snooze", "retry, dead, snooze")
    tree.regex(r"then (None|'drop'); it is", r"action \1; it is", ("tests/*",))
    tree.regex(r"says then \{", "says action {", ("src/duly/domain/runs/retry_rules.py",))
    tree.regex(r"says bury and", "says dead and")
    tree.regex(r"`then` is `bury`", "`action` is `dead`")


def concurrency(tree: Tree) -> None:
    """The keys that limit how many runs are under way."""
    tree.code({"Gate": "ConcurrencyKey", "Gates": "ConcurrencyKeys"}, PY)
    tree.code({"gates": "concurrency_keys"}, ("src/duly/cli/commands/concurrency.py",), strings=False)
    tree.regex(
        r'"gates": \(\s*"duly\.cli\.commands\.(?:gates|concurrency):gates"',
        '"concurrency": ("duly.cli.commands.concurrency:concurrency_keys"',
        ("src/duly/cli/main.py",),
    )
    tree.regex(r"duly\.wire\.gates\b", "duly.wire.concurrency_keys", PY)
    tree.regex(r'path\("gates"', 'path("concurrency-keys"', PY)
    tree.regex(r'Routes\("gates"', 'Routes("concurrency keys"', PY)
    tree.regex(r'@concurrency_keys\.command\("lift"\)', '@concurrency_keys.command("unlimit")', PY)
    tree.regex(r"async def lift\(client", "async def unlimit(client", ("src/duly/cli/commands/concurrency.py",))
    tree.regex(r"\bdef lift\(self, key", "def unlimit(self, key", ("src/duly/client/*",))
    tree.regex(r"\.gates\b", ".concurrency_keys", ("src/duly/client/*", "src/duly/cli/*", "tests/*"))
    tree.regex(r"concurrency_keys\.lift\(", "concurrency_keys.unlimit(", PY)
    tree.code(
        {"gates": "concurrency_keys"},
        ("src/duly/bench/*.py", "tests/bench/*.py", "tests/cli/test_commands.py", "tests/cli/test_main.py"),
    )
    tree.regex(
        r"async def lift\(database: Database, tenant: int, key",
        "async def unlimit(database: Database, tenant: int, key",
        ("src/duly/moves/admin/concurrency_keys.py",),
    )
    tree.regex(r"\bmoves\.lift\(", "moves.unlimit(", ("src/duly/api/routes/limits.py",))
    tree.words(
        {
            "gate_routes": "concurrency_key_routes",
            "_shown_gate": "_shown_key",
            "check_gate": "check_concurrency_key",
            "at_gate": "at_concurrency_key",
            "is_gate": "is_concurrency",
            "is_gated": "has_limits",
            "lane_gate": "lane_key",
            "keeping_place": "keeping_slot",
            "keeps_place": "keeps_slot",
            "left_gate": "left_slots",
            "v_gates": "v_keys",
        }
    )
    tree.regex(r"\{gate,1\}", "{concurrency,1}", SQL)
    tree.regex(r"'gate'", "'concurrency'", SQL)
    tree.regex(r"timeout_seconds, gate, fifo", "timeout_seconds, concurrency, fifo", SQL)
    tree.code(
        {"gate": "concurrency"},
        PY,
        but=(
            "src/duly/domain/jobs/compile.py",
            "src/duly/domain/diagnosis/explain/blocked.py",
            "src/duly/moves/admin/concurrency_keys.py",
        ),
    )
    tree.code({"gate": "key"}, ("src/duly/domain/jobs/compile.py",))
    tree.code({"gate": "key"}, ("src/duly/moves/admin/concurrency_keys.py",), strings=False)
    tree.regex(r"Subject\(\"gate\"", 'Subject("concurrency_key"', PY)
    tree.regex(r"\brun\.gate\b", "run.concurrency", ("src/duly/domain/diagnosis/explain/blocked.py",))
    tree.code({"gate": "key"}, ("src/duly/domain/diagnosis/explain/blocked.py",), strings=False)
    tree.regex(r"\"gate\": ", '"concurrency": ', ("src/duly/domain/diagnosis/explain/blocked.py",))
    unquoted(
        tree,
        {"gate": "key"},
        ("src/duly/store/schema/functions/runs/release.sql", "src/duly/store/sql/boxes/history.sql"),
    )
    tree.regex(r"\bGate\b(?=[,\s|}>\]])", "ConcurrencyKey", UI)


def unquoted(tree: Tree, words: dict[str, str], globs: tuple[str, ...]) -> None:
    """Rename in SQL, but neither in comments nor between quotes."""
    for path, text in list(tree.texts.items()):
        if fits(path, globs):
            lines = []
            for line in text.splitlines(keepends=True):
                at = comment_at(line)
                parts = line[:at].split("'")
                parts[::2] = [swap(part, words) for part in parts[::2]]
                lines.append("'".join(parts) + line[at:])
            tree.put(path, "".join(lines))


def pauses(tree: Tree) -> None:
    """Pauses: nothing new starts."""
    share = (
        "src/duly/store/tables/destinations.py",
        "src/duly/worker/targets/share.py",
        "tests/worker/targets/*",
        "tests/moves/test_destinations.py",
        "tests/interleavings/test_destinations.py",
        "tests/api/test_destination_metrics.py",
    )
    tree.code({"Hold": "Pause", "Holds": "Pauses"}, PY)
    tree.code({"holds": "pauses"}, PY, but=share)
    tree.words(
        {
            "HOLDS_CHANNEL": "PAUSES_CHANNEL",
            "send_holds_changed": "send_pauses_changed",
            "_HOLDS_TOLD_MAX": "_PAUSES_SHOWN_MAX",
        }
    )
    tree.regex(r"\b_hold\(one", "_shown_pause(one", ("src/duly/api/routes/queues.py",))
    moves = r"duly\.moves\.admin\.pause import|duly\.moves\.admin import [^\n]*\bpause\b"
    tree.code({"hold": "pause_scope", "lift": "resume_scope"}, PY, where=moves)
    tree.code(
        {"hold": "pause_scope", "lift": "resume_scope"},
        ("src/duly/moves/admin/pause.py", "src/duly/store/tables/pauses.py", "src/duly/store/sql/tables/pauses.sql"),
    )
    tree.regex(r"-- name: hold\b", "-- name: pause_scope", ("src/duly/store/sql/tables/pauses.sql",))
    tree.regex(r"-- name: lift\b", "-- name: resume_scope", ("src/duly/store/sql/tables/pauses.sql",))
    tree.code(
        {"hold": "pause"},
        (
            "src/duly/api/health.py",
            "src/duly/api/metrics/collector.py",
            "src/duly/cli/commands/pause.py",
            "src/duly/cli/render/queue.py",
            "src/duly/domain/diagnosis/explain/*.py",
            "src/duly/store/reads/explain.py",
            "src/duly/domain/limits/pause.py",
        ),
        strings=False,
    )
    paused = (
        "src/duly/domain/diagnosis/explain/waiting.py",
        "ui/src/*",
        "src/duly/wire/queues.py",
        "src/duly/domain/limits/pause.py",
        "src/duly/cli/render/queue.py",
        "src/duly/moves/admin/pause.py",
        "src/duly/store/tables/pauses.py",
        "src/duly/store/sql/tables/pauses.sql",
        "src/duly/api/views/attention.py",
        "src/duly/api/routes/queues.py",
        "tests/*",
        "docs/*",
    )
    tree.code({"held_at": "paused_at"}, paused)
    tree.code({"held_by": "paused_by"}, paused, but=("tests/*",))
    tree.regex(
        r"\bheld_by(?==)|(?<=\[\")held_by(?=\"\])|\"held_by\"(?=:)",
        lambda m: m[0].replace("held_by", "paused_by"),
        ("tests/*",),
        but=("tests/store/*",),
    )
    tree.regex(r"\bheld_by(?==)", "paused_by", ("tests/store/*",))
    tree.regex(r"(?<!leased)\.held_by\b(?!\()", ".paused_by", ("tests/*",))
    tree.regex(r"\bpauses\.hold\(", "pauses.pause_scope(", PY)
    tree.regex(r"\bpauses\.lift\(", "pauses.resume_scope(", PY)
    tree.regex(r"\bchanged\.standing\b", "changed.remaining", ("tests/moves/*",))
    tree.code(
        {"is_held": "is_paused"},
        (
            "src/duly/wire/queues.py",
            "src/duly/wire/figures.py",
            "src/duly/api/routes/queues.py",
            "src/duly/api/routes/figures.py",
            "src/duly/api/views/attention.py",
            "src/duly/cli/*",
            "ui/src/*",
            "tests/api/test_queues.py",
            "tests/api/test_figures.py",
            "tests/cli/*",
            "tests/dashboard/*",
            "tests/client/*",
            "tests/end_to_end/*",
            "docs/*",
        ),
        but=("src/duly/cli/commands/recover.py", "tests/cli/test_recover.py", "docs/reference/functions.md"),
    )
    tree.code(
        {"is_held": "is_waiting"},
        (
            "src/duly/wire/recovery.py",
            "src/duly/store/reads/recovery_plan.py",
            "src/duly/store/tables/recovery.py",
            "src/duly/store/sql/tables/recovery.sql",
            "src/duly/cli/commands/recover.py",
            "tests/api/test_recovery.py",
            "tests/flow/test_recovery.py",
            "tests/cli/test_recover.py",
            "src/duly/moves/schedules/recover.py",
            "src/duly/domain/*recovery*.py",
        ),
    )
    tree.code(
        {"standing": "remaining"},
        (
            "src/duly/wire/queues.py",
            "src/duly/cli/commands/pause.py",
            "src/duly/moves/admin/pause.py",
            "src/duly/api/routes/queues.py",
        ),
        strings=True,
    )
    tree.regex(
        r"\b(pauses|overloads|limits)\.remaining\(",
        r"\1.standing(",
        ("src/duly/moves/admin/pause.py", "src/duly/api/routes/queues.py", "src/duly/cli/commands/pause.py"),
    )
    tree.regex(r"\[\"standing\"\]", '["remaining"]', ("tests/api/*", "tests/end_to_end/*", "tests/cli/*"))
    tree.regex(r"path\(\"holds\"", 'path("pauses"', PY)
    tree.code({"holds": "pauses"}, ("docs/*", "README.md"), kinds="md")
    tree.code({"holds": "pauses"}, UI)
    tree.regex(
        r"\bHold\b(?=[,\s|}>\]])", "Pause", ("ui/src/*.svelte", "ui/src/*.ts"), where=r"import type [^\n]*\bHold\b"
    )
    tree.code(
        {
            "Holding": "Blocker",
            "HOLDING": "BLOCKERS",
            "holding": "blocker",
            "holding_of": "blocker_of",
            "frees": "resolved_by",
        },
        PY,
    )
    tree.code({"holding": "blocker", "frees": "resolved_by"}, UI + ("docs/*", "README.md"), kinds="md ui")
    tree.regex(r"(?<=: )Hold\b(?=\)|,|\[)", "Pause", UI)
    tree.regex(r"\bHolding\b(?=[,\s|}>\]])", "Blocker", UI, where=r"import type [^\n]*\bHolding\b")


PLACES_NOT = (
    "src/duly/api/openapi/links.py",
    "src/duly/api/routes/figures.py",
    "src/duly/cli/commands/plan_and_apply.py",
    "src/duly/cli/commands/system/psql.py",
    "src/duly/cli/commands/workflows.py",
    "src/duly/cli/lazy.py",
    "src/duly/domain/jobs/manifest*.py",
    "src/duly/domain/problems.py",
    "src/duly/domain/tenancy/sealed_options.py",
    "src/duly/store/boxes/timers.py",
    "src/duly/store/tenancy/sealed.py",
    "src/duly/store/sql/boxes/history.sql",
    "tests/domain/test_manifest*",
    "tests/moves/test_apply.py",
    "tests/dashboard/test_places.py",
    "src/duly/store/schema/functions/tenancy/reseal.sql",
    "src/duly/store/sql/tenancy/sealed.sql",
)


def slots(tree: Tree) -> None:
    """Room for one run or one request at once."""
    tree.code(
        {
            "places": "slots",
            "PLACES_MAX": "SLOTS_MAX",
            "PLACES_DEFAULT": "SLOTS_DEFAULT",
            "check_places": "check_slots",
            "Places": "Slots",
        },
        ("src/duly/*.py", "src/duly/*.sql", "tests/*.py"),
        but=PLACES_NOT,
    )
    tree.code(
        {"places": "slots"},
        ("ui/src/*",),
        but=("ui/src/lib/keyboard.svelte.ts", "ui/src/parts/Help.svelte", "ui/src/parts/Palette.svelte"),
    )
    tree.regex(r"\bplaces\b", "slots", ("ui/src/screens/*.svelte",))
    tree.code({"places": "slots"}, ("docs/*", "README.md"), kinds="md")
    tree.words({"PLACES_MAX": "SLOTS_MAX"}, ("scripts/reference/limits.py",))
    unquoted(tree, {"places": "slots"}, ("src/duly/store/sql/boxes/history.sql",))
    tree.regex(
        r"^[^\n]*\bduly\.(?:limits|key_limits|concurrency_keys|destinations|backfills|destination_shares)\b[^\n]*$",
        lambda m: re.sub(r"\bplaces\b", "slots", m[0]),
        ("tests/*.py", "src/duly/*.py"),
    )
    tree.words({"destination_places": "destination_slots", "v_places": "v_slots"})
    keys = (
        "src/duly/wire/concurrency_keys.py",
        "src/duly/store/tables/concurrency_keys.py",
        "src/duly/store/sql/tables/concurrency_keys.sql",
        "src/duly/cli/commands/concurrency.py",
        "ui/src/screens/*",
        "tests/api/test_concurrency_keys.py",
        "tests/cli/test_concurrency_keys.py",
        "tests/moves/test_concurrency_keys.py",
        "tests/moves/test_rates.py",
        "tests/client/*",
    )
    tree.code({"inside": "slots_used"}, keys)


def others(tree: Tree) -> None:
    trigger = (
        "src/duly/wire/jobs/verbs.py",
        "src/duly/moves/trigger.py",
        "src/duly/sdk/job.py",
        "src/duly/client/*/jobs.py",
        "src/duly/cli/commands/jobs/actions.py",
        "src/duly/store/tables/schedules.py",
        "src/duly/api/routes/job_actions.py",
    )
    tree.code({"beside": "allow_overlap"}, trigger)
    tree.regex(r"\bbeside(?==)|(?<=\")beside(?=\":)", "allow_overlap", ("tests/*", "docs/*", "README.md"))
    tree.regex(r"\bp_beside\b", "p_allow_overlap", SQL)
    tree.regex(r"`beside`", "`allow_overlap`")
    tree.code({"made": "created"}, ("src/duly/*.py", "src/duly/*.sql"))
    tree.regex(
        r"(?<!\.)(?<!keys)(?<!destinations)\.made\b|\[\"made\"\]|\bmade=(?=[0-9\"])|\"made\":",
        lambda m: m[0].replace("made", "created"),
        ("tests/*.py", "docs/*"),
    )
    tree.regex(r"\[\"made\", ", '["created", ', ("tests/api/test_events_out.py",))
    tree.regex(r"(?<!\.)\.made\b", ".created", UI)
    tree.regex(r"\bwhy: string", "reason: string", UI)
    destination = (
        "src/duly/store/tables/destinations.py",
        "src/duly/store/sql/*",
        "src/duly/wire/destinations.py",
        "src/duly/cli/commands/destinations.py",
        "ui/src/*",
        "src/duly/store/schema/*",
        "tests/api/test_destinations.py",
        "tests/cli/test_destinations.py",
        "tests/moves/test_destinations.py",
        "tests/dashboard/*",
        "tests/client/*",
        "tests/end_to_end/targets/*",
        "tests/store/*",
        "tests/simulation/*",
        "tests/interleavings/test_destinations.py",
        "docs/destinations.md",
        "docs/*",
        "tests/api/test_figures.py",
    )
    tree.code({"turned_at": "state_changed_at"}, destination)
    tree.code(
        {"parked": "waiting_runs"},
        (
            "src/duly/store/tables/destinations.py",
            "src/duly/store/sql/tables/destinations.sql",
            "src/duly/wire/destinations.py",
            "src/duly/cli/commands/destinations.py",
            "src/duly/api/metrics/destinations.py",
            "tests/api/test_destinations.py",
            "tests/cli/test_destinations.py",
            "tests/end_to_end/targets/*",
            "docs/*",
        ),
    )
    tree.regex(r"\.parked\b", ".waiting_runs", UI + ("tests/*", "src/duly/api/*", "src/duly/cli/*"))
    tree.words({"turned_at": "state_changed_at"}, ("tests/*.py",), where=r"duly\.destinations")
    tree.words({"asked_at": "requested_at"}, ("tests/*.py",), where=r"duly\.(?:backfills|purges)")
    tree.regex(
        r"^[^\n]*\bduly\.backfills\b[^\n]*$",
        lambda m: re.sub(r"(?<=select )made\b|(?<=set )made\b|(?<=total, )made\b", "created", m[0]),
        ("tests/*.py", "src/duly/*.py"),
    )
    # workers
    tree.regex(r"^    held: (?=int$|Annotated\[int)", "    held_runs: ", ("src/duly/wire/queues.py",))
    tree.regex(r"\bheld=held\b", "held_runs=held", ("src/duly/api/routes/queues.py",))
    tree.regex(
        r"\b(worker|one|row|draining)\.held\b", r"\1.held_runs", ("ui/src/*", "src/duly/cli/commands/workers.py")
    )
    tree.regex(r"\bheld=(?=\[\]|list\()", "leases=", ("tests/api/*", "tests/security/*", "tests/end_to_end/*"))
    tree.regex(
        r"\[\"held\"\]",
        '["held_runs"]',
        (
            "tests/api/test_queues.py",
            "tests/cli/*",
            "src/duly/cli/commands/workers.py",
            "tests/end_to_end/*",
            "tests/client/*",
        ),
    )
    tree.regex(
        r"\"held\": (?=0|1|2|3|lambda|\"held)",
        '"held_runs": ',
        ("tests/api/test_queues.py", "src/duly/cli/commands/workers.py", "tests/cli/*"),
    )
    tree.regex(r"^    held: (?=Annotated\[list\[Lease)", "    leases: ", ("src/duly/wire/workers.py",))
    tree.regex(r"call\.body\.held\b", "call.body.leases", ("src/duly/api/routes/worker.py",))
    tree.regex(
        r"\"held\": ",
        '"leases": ',
        (
            "examples/*",
            "tests/api/*",
            "tests/security/*",
            "tests/end_to_end/*",
            "docs/workers*.md",
            "docs/how-to/*",
            "tests/client/*",
        ),
        but=("tests/api/test_queues.py",),
    )
    tree.code({"Held": "HeldLease"}, ("src/duly/wire/workers.py", "src/duly/api/routes/worker.py"))
    tree.code({"Told": "ResponseModel", "Asked": "RequestModel"}, PY, where=r"duly\.wire\.schema\.shapes import")
    tree.code({"Told": "ResponseModel", "Asked": "RequestModel"}, ("src/duly/wire/schema/shapes.py",))
    tree.code({"Coming": "Upcoming"}, PY + UI)
    tree.regex(r"import Coming from '([^']*)/Coming\.svelte'", r"import Upcoming from '\1/Upcoming.svelte'", UI)
    tree.regex(r"<Coming\b", "<Upcoming", UI)
    tree.code(
        {"coming": "upcoming", "coming_fires": "upcoming_fires"},
        (
            "src/duly/*.py",
            "tests/api/*",
            "tests/client/*",
            "tests/cli/*",
            "tests/dashboard/*",
            "tests/store/*",
            "tests/domain/*",
            "docs/*",
        ),
        but=("src/duly/moves/recall.py", "src/duly/api/routes/job_actions.py"),
    )
    tree.regex(r"-- name: coming\b", "-- name: upcoming", SQL)
    tree.regex(r"\bduly\.coming\b", "duly.upcoming", SQL)
    tree.regex(r"(?<![.\w])(queue|one|value|row|overview)(\??)\.coming\b(?!\()", r"\1\2.upcoming", UI)
    # backfills and recoveries
    asked = (
        "src/duly/store/sql/tables/schedules.sql",
        "src/duly/store/schema/baseline.sql",
        "src/duly/store/schema/functions/*",
        "src/duly/wire/jobs/verbs.py",
        "src/duly/store/tables/schedules.py",
        "src/duly/api/routes/job_actions.py",
        "tests/api/*",
        "tests/schedules/*",
        "tests/store/*",
        "tests/cli/*",
        "tests/moves/*",
        "docs/*",
        "ui/src/*",
        "tests/simulation/*",
        "tests/flow/*",
        "tests/security/*",
        "src/duly/cli/commands/*",
        "src/duly/bench/*",
    )
    tree.code({"asked_at": "requested_at"}, asked)
    tree.code({"remade": "recreated", "remade_by": "recreated_by"}, ("*.py", "*.sql", "docs/*", "ui/src/*"))
    made = (
        "src/duly/wire/jobs/verbs.py",
        "src/duly/wire/recovery.py",
        "src/duly/store/reads/recovery_plan.py",
        "src/duly/store/tables/recovery.py",
        "src/duly/store/sql/tables/recovery.sql",
        "src/duly/store/sql/tables/schedules.sql",
        "src/duly/store/schema/functions/schedules/*.sql",
        "src/duly/store/tables/schedules.py",
    )
    tree.regex(r"^    made( +)(integer)", r"    created\1\2", ("src/duly/store/schema/baseline.sql",))
    # system
    tree.code(
        {"says": "message"},
        (
            "src/duly/domain/diagnosis/doctor.py",
            "src/duly/wire/system.py",
            "src/duly/cli/commands/system/doctor.py",
            "src/duly/api/routes/system.py",
            "tests/cli/test_doctor.py",
            "tests/api/test_system.py",
            "ui/src/screens/System.svelte",
            "tests/store/test_system.py",
            "tests/store/test_system_safe.py",
            "tests/domain/test_health.py",
        ),
    )
    tree.code(
        {"why": "reason"},
        ("src/duly/wire/jobs/bulk.py", "src/duly/moves/bulk.py", "tests/api/test_bulk.py", "tests/cli/test_many.py"),
    )
    tree.regex(
        r"\b(one|each|refusal|refused|first)\.why\b",
        r"\1.reason",
        ("src/duly/cli/flags/bulk.py", "ui/src/*", "tests/*"),
    )


def engine_words(tree: Tree) -> None:
    """The inside: functions of SQL, classes, functions and variables of Python, events of logs."""
    tree.words(
        {
            # SQL: dependencies
            "note_followed": "record_dependency_ends",
            "follow_on": "advance_dependents",
            "open_followers": "open_dependents",
            "check_followers": "check_dependents",
            "FOLLOWERS_MAX": "DEPENDENTS_MAX",
            "attempts_followed": "attempts_end_dependencies",
            "followed_seen_to": "dependents_advanced",
            "endings_seen_to": "workflows_advanced",
            "follow_checks": "dependency_checks",
            # SQL: completion callbacks
            "tell_url": "callback_by_webhook",
            "tell_job": "callback_by_job",
            "tell_workflow": "workflow_callbacks",
            "called_to_tell": "callback_urls",
            "telling_delayed": "completion_callback_delayed",
            "telling_failed": "completion_callback_failed",
            "keep_telling": "keep_delivering",
            "TELL_SECONDS": "REPORT_SECONDS",
            "tell_seconds": "report_seconds",
            "check_told": "check_callbacks_allowed",
            # SQL: unroutable runs
            "set_aside": "mark_unroutable",
            "stands_aside": "has_unroutable",
            "bring_back_known": "restore_all_routable",
            "bring_back": "restore_routable",
            "stand_aside": "mark_unroutable_runs",
            "crowd_more": "backlog_more",
            # SQL: rate limits
            "pace_one": "reserve_one",
            "pace_due": "reserve_due",
            "untake_turns": "release_reservations",
            "claim_turns": "claim_positions",
            "take_recovery_turns": "take_recovery_reservations",
            "turn_destination": "change_destination_state",
            "since_turn_seconds": "since_state_change_seconds",
            "TURNS_SECONDS": "RESERVATIONS_SECONDS",
            "minded_destinations": "watched_destinations",
            # SQL: waiting for a destination
            "unpark": "release_destination_runs",
            "parked_page": "waiting_page",
            "ParkedRun": "WaitingRun",
            "PARKED_MAX": "WAITING_RUNS_MAX",
            "is_parked": "has_waiting_runs",
            "parked_in_all": "waiting_in_all",
            # SQL: maintenance tasks of workflows
            "note_errand": "add_workflow_task",
            "is_errand_due": "is_workflow_task_due",
            "run_errand": "run_workflow_task",
            "do_errand": "do_workflow_task",
            "run_errands": "run_workflow_tasks",
            "drop_errand": "drop_workflow_task",
            "put_off_errand": "postpone_workflow_task",
            "put_off_failed_errand": "postpone_failed_workflow_task",
            "errand_failed": "workflow_task_failed",
            "duty_failed": "maintenance_task_failed",
            "DUTY_SECONDS": "TASK_SECONDS",
            "SLOW_DUTY_SECONDS": "SLOW_TASK_SECONDS",
            # records
            "note_staging": "record_staging",
            "note_overloads": "record_overloads",
            "note_ending": "record_node_end",
            "note_rising": "record_replayed_node",
            "note_ends": "record_ends",
            "note_subtasks": "record_subtasks",
            "note_made_jobs": "record_created_jobs",
            "note_changed_job": "record_changed_job",
            "note_changed_workflow": "record_changed_workflow",
            "noted_at": "recorded_at",
            "noted_in": "recorded_in",
            "keep_noting": "keep_recording",
            "note_jobs": "record_jobs",
            "note_runs": "record_runs",
            "note_events": "record_events",
            "jobs_made": "jobs_created",
            "host_clock_not_noted": "host_clock_not_recorded",
            "NOTE_SECONDS": "RECORD_SECONDS",
            # metadata
            "marks_of": "metadata_of",
            "is_mark": "is_label",
            # options
            "asked_options": "requested_options",
            "check_asked": "check_requested",
            "hold_missed": "defer_missed",
            "hold_late": "defer_late",
            "hold_shards": "lease_shards",
            "asked_per_second": "requested_per_second",
            "asked_burst": "requested_burst",
            "asked_until": "requested_until",
            "asked_seconds": "requested_seconds",
            "asked_shape": "requested_shape",
            "asked_schedule": "requested_schedule",
            "asked_rate": "requested_rate",
            "turned_away_at": "rejected_at",
            "turned_away": "rejected",
            "turn_away": "reject",
            "turns_away": "rejects",
            "make_destination": "create_destination",
            "make_partitions": "create_partitions",
            "make_rows": "create_rows",
            "make_backfills": "create_backfills",
            "is_held": "holds_slot",
            # worker
            "Lifeline": "WorkerLease",
            "lifeline": "worker_lease",
            "Crew": "ProcessPool",
            "WorkerDesk": "WorkerServices",
            "EnvironmentDesk": "EnvironmentServices",
            "beat_for_ever": "renew_for_ever",
            "beat_seen": "heartbeat_seen",
            "beat_at": "heartbeat_at",
            "wants_beat": "wants_heartbeat",
            "BEATS_PER_LEASE": "HEARTBEATS_PER_LEASE",
            "beat_failed": "heartbeat_failed",
            "pulse_died": "heartbeat_process_died",
            "pulse_failed": "heartbeat_process_failed",
            "lease_gone": "lease_lost",
            "lines_refused": "log_lines_refused",
            "lines_unanswered": "log_lines_unanswered",
            "life_failed": "worker_life_failed",
            "mind_the_belt": "return_unknown_leases",
            "BELT_BATCH": "UNKNOWN_LEASES_BATCH",
            "BELT_SECONDS": "UNKNOWN_LEASES_SECONDS",
            "BELT_IN_DOUBT_SECONDS": "UNKNOWN_LEASES_IN_DOUBT_SECONDS",
            "is_apart": "is_isolated",
            "LEFT_ALONE_MAX": "OPEN_MAX",
            "LEFT_ALONE_MIN": "OPEN_MIN",
            "check_left_alone": "check_open_duration",
            "shut_destinations": "open_destinations",
            "tried_at": "probe_at",
            "told_at": "reported_at",
            "told_in_short": "described_in_short",
            "told_nodes": "described_nodes",
            "told_rule": "described_rule",
            "told_policy": "described_policy",
            "told_jitter": "described_jitter",
            "told_setter": "described_setter",
            "overload_told": "described_overload",
            "last_turn_at": "last_loop_at",
            "TURN_AGE_SECONDS_MAX": "LOOP_AGE_SECONDS_MAX",
            "seconds_to_turn": "seconds_to_reservation",
        },
        ("src/*", "tests/*", "docs/*", "scripts/*", "README.md", "ARCHITECTURE.md", "Makefile", "pyproject.toml"),
    )
    tree.regex(r"\bduly\.follow\b", "duly.add_dependencies", SQL + ("docs/*", "tests/*"))
    tree.regex(r"\bduly\.tell\b", "duly.completion_callbacks", SQL + ("docs/*", "tests/*"))
    tree.regex(r"\bduly\.park\b", "duly.await_destination", SQL + ("docs/*", "tests/*"))
    tree.regex(r"\bduly\.pace\b", "duly.reserve", SQL + ("docs/*", "tests/*"))
    tree.regex(r"\bduly\.note\b", "duly.record_audit", SQL + ("docs/*", "tests/*"))
    tree.code(
        {"marks": "metadata"},
        SQL + ("src/duly/store/*.py", "tests/store/*.py", "tests/moves/*.py", "tests/builders.py"),
        but=("src/duly/store/boxes/options.py",),
    )
    tree.regex(r"-- name: marks\b", "-- name: metadata", SQL)
    tree.code({"marks": "labels"}, ("src/duly/domain/runs/options.py",))
    tree.regex(
        r"^[^\n]*\bduly\.(?:attempts|workflows)\b[^\n]*$",
        lambda m: re.sub(r"\bmarks\b", "metadata", m[0]),
        ("tests/*.py",),
    )
    worker = (
        "src/duly/worker/*",
        "src/duly/cli/*",
        "src/duly/testing/*",
        "src/duly/sdk/*",
        "src/duly/bench/*",
        "tests/*.py",
    )
    tree.code({"Hands": "HeldRuns", "hands": "held_runs"}, ("src/duly/worker/*", "tests/worker/*"))
    tree.code({"Held": "HeldRun"}, ("src/duly/worker/*", "tests/worker/*"))
    tree.code({"crew": "process_pool"}, worker, strings=False)
    tree.code(
        {"Desk": "RunServices", "desk": "services"},
        ("src/duly/worker/*", "src/duly/testing/*", "tests/worker/*", "tests/sdk/*"),
    )
    tree.code({"Apart": "IsolatedRuns", "apart": "isolated"}, ("src/duly/worker/*", "tests/worker/*"))
    tree.code(
        {"Duty": "MaintenanceTask", "duty": "maintenance_task", "duties": "maintenance_tasks", "paces": "schedule"},
        ("src/duly/maintenance/*", "tests/maintenance/*"),
    )
    tree.code({"Errand": "WorkflowTask", "errand": "task", "errands": "tasks", "_errands": "_tasks"}, PY)
    tree.code(
        {"Follower": "Dependent", "Followed": "DependsOnJob", "followed": "dependency"},
        PY,
        but=(
            "src/duly/api/routes/runs.py",
            "src/duly/api/streams/*",
            "tests/api/test_runs.py",
            "src/duly/cli/commands/runs/*",
        ),
    )
    tree.code(
        {"Departed": "ExpiredWorker", "departed": "expired_workers"}, PY + ("src/duly/store/sql/tables/workers.sql",)
    )
    tree.regex(r"-- name: departed\b", "-- name: expired_workers", SQL)
    tree.regex(r"-- name: followed\b", "-- name: dependency", SQL)
    tree.code({"overtaken": "in_conflict"}, PY)
    tree.code({"AGAIN": "CONFLICTS"}, ("src/duly/store/*", "src/duly/moves/*", "tests/store/*"), strings=False)
    tree.code({"Purse": "RequestBudget", "purse": "budget", "purses": "budgets", "PURSES_MAX": "BUDGETS_MAX"}, PY)
    tree.code(
        {"Pace": "Throughput", "pace": "throughput", "paces": "throughputs"},
        ("src/duly/domain/*", "src/duly/store/reads/*", "src/duly/api/*", "tests/domain/*", "tests/store/*"),
        but=("src/duly/domain/diagnosis/loops.py", "tests/store/test_plans.py"),
    )
    tree.code({"Paced": "Reserved", "paced": "reserved"}, ("src/duly/store/*", "src/duly/moves/*"))
    tree.code(
        {"pace": "reserve"},
        (
            "src/duly/store/tables/concurrency_keys.py",
            "src/duly/moves/waiting.py",
            "src/duly/maintenance/service.py",
            "src/duly/domain/diagnosis/loops.py",
            "tests/moves/*",
            "tests/interleavings/*",
            "tests/maintenance/*",
            "tests/simulation/*",
            "tests/store/*",
            "tests/schedules/*",
            "tests/flow/*",
            "tests/bench/*",
            "tests/builders.py",
            "src/duly/testing/*",
            "src/duly/bench/*",
        ),
        where=r"concurrency_keys|moves\.waiting|\bpace\b",
    )
    tree.regex(r"-- name: pace\b", "-- name: reserve", SQL)
    tree.code(
        {"Turn": "StateChange"},
        (
            "src/duly/domain/targets/circuit.py",
            "src/duly/moves/admin/destinations.py",
            "src/duly/store/tables/destinations.py",
            "tests/domain/*",
            "tests/moves/test_destinations.py",
            "tests/interleavings/test_destinations.py",
            "tests/simulation/*",
        ),
        but=("tests/domain/test_explain.py",),
    )
    tree.code(
        {"Turn": "Reservation", "turn": "reservation", "turn_at": "reservation_at"},
        ("src/duly/domain/diagnosis/explain/*", "src/duly/store/reads/explain.py"),
    )
    tree.code(
        {"Turn": "Reservation", "turn": "reservation", "turn_at": "reservation_at"},
        ("tests/domain/test_explain.py", "tests/store/test_explain.py"),
        strings=False,
    )
    tree.regex(r"\"turn_at\"", '"reservation_at"', ("tests/*explain.py", "tests/api/*"))
    tree.regex(r"-- name: turn\b", "-- name: reservation", ("src/duly/store/sql/reads/explain.sql",))
    tree.code(
        {"Turned": "WorkflowChange", "turned": "changed"},
        (
            "src/duly/store/tables/workflows.py",
            "src/duly/moves/workflows/workflows.py",
            "tests/interleavings/test_workflows.py",
        ),
    )
    tree.code(
        {"Turns": "Reservations", "turns": "reservations"}, ("src/duly/worker/targets/*", "tests/worker/targets/*")
    )
    tree.code(
        {"crowd": "backlog"}, ("src/duly/moves/unroutable.py", "src/duly/store/boxes/ready.py", "src/duly/store/*.sql")
    )
    tree.code(
        {"aside": "unroutable"},
        (
            "src/duly/store/reads/maintenance_tasks.py",
            "src/duly/store/sql/reads/maintenance_tasks.sql",
            "src/duly/maintenance/service.py",
        ),
    )
    tree.code({"Parked": "WaitForDestination"}, PY)
    tree.code(
        {"park": "await_destination"}, ("src/duly/store/boxes/leased.py", "src/duly/moves/defer.py", "tests/*.py")
    )
    tree.regex(r"-- name: park\b", "-- name: await_destination", SQL)
    tree.code({"Minded": "WatchedDestination", "minded": "watched"}, PY)
    tree.regex(r"-- name: minded\b", "-- name: watched", SQL)
    tree.code({"took": "elapsed"}, PY)
    tree.code(
        {"asked": "requested", "told": "reported", "telling": "delivering"},
        ("src/duly/*.py", "examples/*.py"),
        but=("src/duly/store/boxes/runs.py", "src/duly/api/routes/worker.py"),
        strings=False,
    )
    tree.code({"told": "outcomes", "asked": "requested"}, ("src/duly/api/routes/worker.py",), strings=False)
    tree.regex(r"(?<=[\w)\]])\.told\b", ".reported", ("tests/domain/test_manifest*.py",))
    tree.code({"told": "values", "asked": "requested"}, ("src/duly/store/boxes/runs.py",), strings=False)
    tree.regex(r"([\"'])_told\1", r"\1_reported\1", ("src/duly/*.py",))
    tree.regex(r"([\"'])_asked\1", r"\1_requested\1", ("src/duly/*.py",))
    tree.code(
        {"note": "record", "noted": "recorded", "Noted": "Recorded", "noting": "recording"},
        PY,
        where=r"duly\.moves\.admin\.audit import|duly\.store\.tenancy import audit|moves\.admin import audit",
    )
    tree.code(
        {"note": "record", "noted": "recorded", "Noted": "Recorded", "noting": "recording"},
        ("src/duly/moves/admin/audit.py", "src/duly/store/tenancy/audit.py"),
    )
    tree.regex(
        r"-- name: note\b",
        "-- name: record",
        ("src/duly/store/sql/tenancy/audit.sql", "src/duly/store/sql/tables/overloads.sql"),
    )
    tree.code({"note": "record"}, ("src/duly/store/tables/overloads.py",))
    tree.regex(r"\boverloads\.SQL\[\"note\"\]", 'overloads.SQL["record"]', ("tests/*",))
    tree.regex(r"\b(duly\.moves\.\w+(?:\.\w+)?)\.note\"", r'\1.record"', ("tests/*",))
    tree.regex(r"\boverloads\.note\(", "overloads.record(", PY)
    tree.code(
        {"beat": "heartbeat", "beating": "renewing", "keep_beating": "keep_renewing", "BEAT": "HEARTBEAT"},
        ("src/duly/worker/*", "tests/worker/*", "src/duly/api/streams/*"),
    )
    tree.code(
        {"no_handler": "unroutable"},
        (
            "src/duly/wire/figures.py",
            "src/duly/api/views/attention.py",
            "tests/api/test_figures.py",
            "tests/dashboard/*",
            "ui/src/*",
        ),
    )
    tree.regex(
        r"(Reason\(|code\", \"|== )\"late\"",
        r'\1"start_delayed"',
        (
            "src/duly/domain/diagnosis/*",
            "tests/domain/test_explain.py",
            "tests/api/test_explain.py",
            "tests/store/test_explain.py",
        ),
    )
    tree.regex(
        r"\[\"late\"\]",
        '["start_delayed"]',
        ("tests/domain/test_explain.py", "tests/api/test_explain.py", "tests/store/test_explain.py"),
    )
    tree.regex(r"^    \"late\",$", '    "start_delayed",', ("src/duly/domain/diagnosis/explain/codes.py",))
    tree.regex(r"\blate_seconds\b", "start_delay_seconds", ("src/*", "tests/*", "ui/*", "docs/*"))
    tree.code({"strangers": "unroutable"}, ("src/duly/bench/*", "tests/bench/*"))


TEST_WORDS = {
    "gate": "concurrency_key",
    "gates": "concurrency_keys",
    "gated": "limited",
    "places": "slots",
    "aside": "unroutable",
    "follower": "dependent",
    "followers": "dependents",
    "follows": "depends_on",
    "crew": "process_pool",
    "errand": "task",
    "errands": "tasks",
    "duty": "maintenance_task",
    "duties": "maintenance_tasks",
    "pulse": "heartbeat",
    "beat": "heartbeat",
    "beats": "heartbeats",
    "lifeline": "lease",
    "purse": "budget",
    "noted": "recorded",
    "told": "reported",
    "asked": "requested",
    "overtaken": "in_conflict",
    "departed": "expired",
    "strangers": "unroutable",
    "stranger": "unroutable",
    "crowd": "backlog",
    "turns": "reservations",
    "beside": "next_to",
    "took": "lasted",
    "parked": "waiting",
}


def test_names(tree: Tree) -> None:
    """Words in the names of test functions; docs and the bank of mutants follow."""
    found: dict[str, str] = {}
    taken = {
        name
        for path, text in tree.texts.items()
        if path.startswith("tests/")
        for name in re.findall(r"\bdef (test_\w+)", text)
    }
    modules = {Path(path).stem for path in tree.texts if path.startswith("tests/")}
    for name in sorted(taken - modules):
        new = (
            name.replace("_stands_aside", "_is_unroutable")
            .replace("_stand_aside", "_are_unroutable")
            .replace("_set_aside", "_marked_unroutable")
        )
        new = "_".join(TEST_WORDS.get(word, word) for word in new.split("_"))
        if new != name and new not in taken and new not in found.values():
            found[name] = new
    if found:
        tree.words(found)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
