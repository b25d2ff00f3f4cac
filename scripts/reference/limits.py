"""The page of limits, from the constants that enforce them."""

from __future__ import annotations

from datetime import timedelta

from duly.api.admission import CLAIMS, EVENTS, LOGS, WAITS
from duly.api.operations import BODY_BYTES_MAX
from duly.api.server import protocol
from duly.domain.jobs import filter as filters
from duly.domain.jobs import manifest_shapes, manifest_text
from duly.domain.jobs.job import DELAY_MAX, TAGS_MAX
from duly.domain.limits.concurrency import RATE_MAX
from duly.domain.limits.limit import SLOTS_MAX
from duly.domain.notifications import channel, message, rule
from duly.domain.runs import payload, retry
from duly.domain.runs.progress import NOTE_CHARACTERS_MAX
from duly.domain.runs.run import NAME_CHARACTERS_MAX
from duly.domain.targets import checks, webhook_answer, webhook_request, webhook_url
from duly.domain.targets import program_environment as variables
from duly.domain.workflows import references, workflow
from duly.maintenance.service import EVENTS_KEPT
from duly.moves.cancel import SUBTASKS_MAX
from duly.moves.schedules.backfill import OCCURRENCES_MAX
from duly.wire.events import EVENTS_MAX
from duly.wire.jobs.batches import BATCH_BYTES_MAX, LINES_MAX
from duly.wire.jobs.bulk import IDS_MAX
from duly.worker.context import FIELDS_BYTES_MAX, MESSAGE_CHARACTERS_MAX
from duly.worker.execute.child import LOG_BYTES_MAX
from scripts.reference.markdown import document, table

_HEAD = """
Fixed limits of Duly: sizes, counts and times that no setting changes. A request beyond one is refused with the limit in its
message, unless the table says otherwise. Limits that an operator sets are in
[limits and fairness](../how-to/limits-and-fairness.md); [settings](settings.md) has the rest.
"""


def page() -> str:
    """Write the page."""
    parts = [f"## {title}\n\n{table(['what', 'limit'], rows)}" for title, rows in _sections().items()]
    streams = [
        (kind.name, f"{kind.of_key_max:,}", f"{kind.of_tenant_max:,}", f"{kind.most:,}")
        for kind in (EVENTS, LOGS, WAITS, CLAIMS)
    ]
    waiting = "## Requests that stay open, for each process\n\n" + table(
        ["kind", "of a key", "of a tenant", "in all"], streams
    )
    return document(
        "Limits", _HEAD, *parts, waiting, "More are answered `429` with the code `quota_reached` and `Retry-After`."
    )


def _sections() -> dict[str, list[tuple[str, str]]]:
    return {
        "Jobs and runs": [
            ("payload", f"{_size(payload.PAYLOAD_BYTES_MAX)} of JSON, {payload.DEPTH_MAX} levels deep, no NaN, no NUL"),
            ("result", f"{_size(payload.RESULT_BYTES_MAX)}; a larger one succeeds and is not kept: `ResultNotKept`"),
            ("checkpoint", _size(payload.CHECKPOINT_BYTES_MAX)),
            ("progress", f"a note of {NOTE_CHARACTERS_MAX:,} characters"),
            ("log of an attempt", f"{_size(LOG_BYTES_MAX)}; a last line counts what was dropped"),
            ("log line", f"{MESSAGE_CHARACTERS_MAX:,} characters and {_size(FIELDS_BYTES_MAX)} of fields; the rest is cut"),
            ("name of a handler, queue, schedule or key", f"1 to {NAME_CHARACTERS_MAX} printable characters"),
            ("tags", f"{TAGS_MAX}, each of {NAME_CHARACTERS_MAX} characters"),
            ("attempts", f"1 to 1,000; {retry.MAX_ATTEMPTS_DEFAULT} unless set. A lost worker uses one up"),
            ("gap between attempts", _gap()),
            ("delay of a one-shot", f"{DELAY_MAX.days // 365} years; a moment in the past: 60 s"),
            ("snooze", "a tenth of a second at the least"),
            ("idempotency key", "remembered for 24 hours"),
            ("runs of a concurrency key or a limit", f"up to {SLOTS_MAX:,} at once; a rate up to {RATE_MAX:,} a second"),
            ("subtasks that one cancel ends", f"{SUBTASKS_MAX:,}"),
            ("occurrences of a backfill", f"{OCCURRENCES_MAX:,}"),
        ],
        "Targets": [
            ("URL of a webhook", f"{webhook_url.CHARACTERS_MAX:,} characters"),
            ("headers of a webhook", f"{webhook_request.HEADERS_MAX}, {_size(webhook_request.HEADERS_BYTES_MAX)} together"),
            ("`Retry-After` of a receiver", f"believed up to {_time(webhook_answer.RETRY_AFTER_MAX)}"),
            ("arguments of a command, container", f"{checks.ARGUMENTS_MAX:,}, {_size(checks.ARGUMENTS_BYTES_MAX)} together"),
            ("variables of a command, container", f"{variables.VARIABLES_MAX}, {_size(variables.VARIABLES_BYTES_MAX)} together"),
        ],
        "Workflows": [
            ("nodes, with those added later", f"{workflow.NODES_MAX:,}"),
            ("edges", f"{workflow.EDGES_MAX:,}"),
            ("name of a node", f"{workflow.NODE_NAME_CHARACTERS_MAX} characters"),
            ("results given to one node", _size(references.HANDED_BYTES_MAX)),
        ],
        "Notifications": [
            ("channels, rules of a tenant", f"{channel.CHANNELS_MAX}, {rule.RULES_MAX}"),
            ("channels of a rule", f"{rule.CHANNELS_MAX}"),
            ("recipients of a mail", f"{channel.RECIPIENTS_MAX}"),
            ("deliveries of a rule", f"20 an hour unless set, {rule.DELIVERIES_MAX:,} in its span at most"),
            ("notifications shown by one delivery", f"{message.SHOWN_MAX}; it says how many more there are"),
        ],
        "Files of schedules": [
            (
                "jobs, calendars, rules of notifications",
                f"{manifest_shapes.JOBS_MAX:,}, {manifest_shapes.CALENDARS_MAX:,}, {rule.RULES_MAX}",
            ),
            ("size", f"{_size(manifest_text.FILE_BYTES_MAX)}, {manifest_text.VALUES_MAX:,} values"),
        ],
        "HTTP": [
            ("body", f"{_size(BODY_BYTES_MAX)}; of a batch {_size(BATCH_BYTES_MAX)} in {LINES_MAX:,} lines"),
            ("head", f"{_size(protocol.HEAD_BYTES_MAX)} within {protocol.HEAD_SECONDS_MAX:g} s"),
            ("speed of a body", f"{protocol.BODY_BYTES_MIN:,} bytes in each {protocol.BODY_SECONDS:g} s at the least"),
            ("idle connection", f"closed after {protocol.KEEP_ALIVE_SECONDS} s"),
            ("page of a list", "200 items; 50 unless asked"),
            ("filter", f"{filters.LENGTH_MAX:,} characters, {filters.TERMS_MAX} terms, {filters.VALUES_MAX} values of a term"),
            ("ids of a bulk action", f"{IDS_MAX}; any number by filter"),
            ("events of a batch", f"{EVENTS_MAX:,}; an event is remembered for {_time(EVENTS_KEPT)}"),
        ],
    }  # fmt: skip


def _gap() -> str:
    return (
        f"{retry.BASE_SECONDS_DEFAULT:g} s, doubled up to {retry.CAP_SECONDS_DEFAULT:g} s, with full jitter, unless set"
    )


def _size(count: int) -> str:
    return f"{count // 1_048_576} MiB" if count % 1_048_576 == 0 else f"{count // 1024} KiB"


def _time(span: timedelta) -> str:
    return f"{span.days} days" if span.days > 1 else f"{span.total_seconds() / 3600:g} hours"
