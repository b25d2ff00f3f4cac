"""Which operations are audited, and as what; and which are not, and why. Whatever may change something is in one of the two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from duly.api.operations import Operation
from duly.domain.tenancy.audit import Action

SAFE = ("GET", "HEAD", "OPTIONS")

AUDITED: Mapping[str, tuple[Action, ...]] = {
    "create_job": (Action.JOB_CREATED,),
    "create_jobs": (Action.JOB_CREATED,),
    "replace_job": (Action.JOB_EDITED,),
    "change_job": (Action.JOB_EDITED,),
    "put_job_by_name": (Action.JOB_CREATED, Action.JOB_EDITED),
    "delete_job": (Action.JOB_CANCELLED, Action.JOB_PURGED),
    "trigger_job": (Action.JOB_TRIGGERED,),
    "pause_job": (Action.JOB_PAUSED,),
    "resume_job": (Action.JOB_RESUMED,),
    "skip_next": (Action.JOB_SKIPPED_NEXT,),
    "pause_jobs": (Action.JOB_PAUSED,),
    "resume_jobs": (Action.JOB_RESUMED,),
    "delete_jobs": (Action.JOB_CANCELLED,),
    "backfill_job": (Action.JOB_BACKFILLED,),
    "revoke_session": (Action.SESSION_CLOSED,),
    "cancel_backfill": (Action.BACKFILL_CANCELLED,),
    "apply_file": (Action.FILE_APPLIED,),
    "cancel_run": (Action.RUN_CANCELLED,),
    "cancel_runs": (Action.RUN_CANCELLED,),
    "run_again": (Action.RUN_AGAIN,),
    "replay_runs": (Action.DEAD_REPLAYED,),
    "replay_run": (Action.DEAD_REPLAYED,),
    "edit_dead": (Action.DEAD_EDITED,),
    "replay_dead": (Action.DEAD_REPLAYED,),
    "discard_dead": (Action.DEAD_DISCARDED,),
    "replay_matching": (Action.DEAD_REPLAYED,),
    "discard_matching": (Action.DEAD_DISCARDED,),
    "edit_matching": (Action.DEAD_EDITED,),
    "take_in_event": (Action.EVENT_TAKEN,),
    "create_workflow": (Action.WORKFLOW_CREATED,),
    "cancel_workflow": (Action.WORKFLOW_CANCELLED,),
    "pause_workflow": (Action.WORKFLOW_PAUSED,),
    "resume_workflow": (Action.WORKFLOW_RESUMED,),
    "replay_workflow": (Action.WORKFLOW_REPLAYED,),
    "add_nodes": (Action.WORKFLOW_EXTENDED,),
    "keep_calendar": (Action.CALENDAR_KEPT,),
    "delete_calendar": (Action.CALENDAR_DELETED,),
    "limit_gate": (Action.GATE_LIMITED,),
    "lift_gate": (Action.GATE_LIFTED,),
    "make_destination": (Action.DESTINATION_CREATED, Action.DESTINATION_LIMITED),
    "limit_destination": (Action.DESTINATION_LIMITED,),
    "close_destination": (Action.DESTINATION_CLOSED,),
    "open_destination": (Action.DESTINATION_OPENED,),
    "rotate_secret": (Action.SECRET_ROTATED,),
    "change_queue": (Action.QUEUE_CHANGED,),
    "pause_queue": (Action.HOLD_PLACED,),
    "resume_queue": (Action.HOLD_LIFTED,),
    "pause": (Action.HOLD_PLACED,),
    "resume": (Action.HOLD_LIFTED,),
    "drain_worker": (Action.WORKER_DRAINED,),
    "resume_worker": (Action.WORKER_RESUMED,),
    "put_limit": (Action.LIMIT_SET,),
    "remove_limit": (Action.LIMIT_REMOVED,),
    "approve_recovery": (Action.RECOVERY_APPROVED,),
    "dismiss_recovery": (Action.RECOVERY_DISMISSED,),
    "make_tenant": (Action.TENANT_CREATED,),
    "change_tenant": (Action.TENANT_CHANGED,),
    "make_key": (Action.KEY_CREATED,),
    "end_key": (Action.KEY_REVOKED,),
    "open_session": (Action.SESSION_OPENED,),
    "close_session": (Action.SESSION_CLOSED,),
}

_OF_ATTEMPTS = "What a worker does to a run is on record with the run's attempts."
_BY_RECEIVER = "What a receiver says of a run is on record with the run's attempts."
NOT_AUDITED: Mapping[str, str] = {
    "register_worker": "A worker that comes or goes changes nobody's work; `GET /v1/workers` shows those that live.",
    "leave": "A worker that comes or goes changes nobody's work; `GET /v1/workers` shows those that live.",
    "claim_runs": _OF_ATTEMPTS,
    "renew_lease": _OF_ATTEMPTS,
    "settle_runs": _OF_ATTEMPTS,
    "report_progress": _OF_ATTEMPTS,
    "save_checkpoint": _OF_ATTEMPTS,
    "append_logs": _OF_ATTEMPTS,
    "settle_callback": _BY_RECEIVER,
    "extend_callback": _BY_RECEIVER,
    "report_callback": _BY_RECEIVER,
    "preview_trigger": "It changes nothing.",
}


def check_audited(operations: Iterable[Operation]) -> None:
    """Refuse a table in which something that may change something says neither as what it is audited, nor why it is not."""
    for operation in operations:
        is_listed = (operation.name in AUDITED) + (operation.name in NOT_AUDITED)
        assert is_listed == (operation.method not in SAFE), (
            f"{operation.method} {operation.path} ({operation.name}) must be in one of AUDITED and NOT_AUDITED"
            if operation.method not in SAFE
            else f"{operation.name} only reads, and is not audited"
        )
