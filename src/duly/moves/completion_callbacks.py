"""Completion callbacks: trigger the jobs named in a run's callbacks.

The end of the run has recorded them, in the same transaction. Here each job is triggered in a transaction of its own,
with the record's id as the key: exactly once. A callback that fails does not delay others.
"""

from __future__ import annotations

from uuid import UUID

from duly.domain.errors import KeyBusy
from duly.log import Log
from duly.store.connection import hints
from duly.store.connection.database import Database, Unavailable
from duly.store.tables import callbacks
from duly.store.tables.callbacks import Delivered, Pending

BATCH_MAX = 500


async def deliver(database: Database, log: Log) -> int:
    """Trigger the jobs, the oldest callback first. Returns how many runs were created, or were recorded as skipped."""
    count, after, busy = 0, callbacks.FIRST, set[UUID]()
    while batch := await callbacks.pending(database, after, BATCH_MAX):
        delivered = [await _delivered(database, one, busy, log) for one in batch]
        queues = {one.queue for one in delivered if one is not None}
        if queues:
            await hints.send(database, sorted(queues))
        count += len(delivered) - delivered.count(None)
        after = batch[-1].callback_id
    return count


async def _delivered(database: Database, one: Pending, busy: set[UUID], log: Log) -> Delivered | None:
    if one.job_id in busy:
        return None
    try:
        return await callbacks.deliver(database, one.callback_id)
    except Unavailable:
        raise
    except KeyBusy:  # another process holds the job for long: it is triggered at the next look, and waited for once
        log.warning("completion_callback_delayed", callback_id=one.callback_id, job_id=one.job_id)
        busy.add(one.job_id)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with one, the others are delivered
        log.error("completion_callback_failed", callback_id=one.callback_id, job_id=one.job_id, error=repr(error))
    return None
