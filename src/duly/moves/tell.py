"""Tell: trigger the jobs that were named to be told of a run's end.

The end of the run has noted it, in the same transaction. Here each job is triggered in a transaction of its own, as if somebody
had asked for it, with the note's id as the key: whatever happens, once.
"""

from __future__ import annotations

from duly.domain.errors import KeyBusy
from duly.log import Log
from duly.store import hints, tellings
from duly.store.database import Database

BATCH_MAX = 500


async def tell(database: Database, log: Log) -> int:
    """Trigger one batch of jobs, the oldest first. Returns how many runs were made, or were on record as skipped."""
    queues, told = set(), 0
    for telling_id in await tellings.pending(database, BATCH_MAX):
        try:
            delivered = await tellings.deliver(database, telling_id)
        except KeyBusy:  # The job is being changed by a transaction that takes long: it is told at the next look.
            log.warning("telling_delayed", telling_id=telling_id)
            continue
        if delivered is not None:
            told += 1
            queues.add(delivered.queue)
    if queues:
        await hints.send(database, sorted(queues))
    return told
