# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""Runs: their state, attempts and log; cancel and replay; and reports of webhook receivers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import datetime
from typing import Any, Unpack

import msgspec

from duly.client.many import Chosen
from duly.client.requests import Id, getting, given, listing, nothing, path, posting, query_of
from duly.client.streaming import OnSilence, read_log
from duly.client.synchronous.transport import Resource
from duly.wire.callbacks import CallbackExtended, CallbackSettled
from duly.wire.explanations import Explanation
from duly.wire.jobs.bulk import ManyDone
from duly.wire.runs import (
    Attempt,
    LogEnd,
    LogLine,
    LogPage,
    Rerun,
    Run,
    RunCancelled,
    RunMoved,
    RunSummary,
    SavedCheckpoint,
)


class Runs(Resource):
    """Runs, by their ids."""

    def list(
        self, filter: str | None = None, *, workflow: Id | None = None, page_size: int | None = None
    ) -> Iterator[RunSummary]:
        """Return the runs that match a filter, or of a workflow, the last scheduled first; pages are read as they are
        needed.
        """
        of = None if workflow is None else str(workflow)
        return self._transport.pages(listing(path("runs"), RunSummary, filter=filter, workflow=of, page_size=page_size))

    def get(self, run_id: Id) -> Run:
        """Read a run, with its attempts. Raises NotFound."""
        return self._transport.send(getting(path("runs", run_id), Run))

    def explain(self, run_id: Id) -> Explanation:
        """Explain the state of a run. Raises NotFound."""
        return self._transport.send(getting(path("runs", run_id, "explain"), Explanation))

    def attempts(self, run_id: Id) -> Iterator[Attempt]:
        """Return the attempts of a run, in order. Raises NotFound."""
        return self._transport.pages(listing(path("runs", run_id, "attempts"), Attempt))

    def logs(self, run_id: Id) -> Iterator[LogLine]:
        """Return the log of a run so far, over all its attempts. Raises NotFound."""
        token = None
        while True:
            page = self._transport.send(getting(path("runs", run_id, "logs"), LogPage, page_token=token))
            yield from page.items
            if not page.items:
                return
            token = page.next_page_token

    def follow_logs(
        self, run_id: Id, *, since: str | None = None, on_silence: OnSilence | None = None
    ) -> Iterator[LogLine]:
        """Yield the log lines of a run as they are written, until it has ended; a lost connection is restored, and
        nothing is left out.

        `since` is the `cursor` of the last line that was received before. `on_silence` is called with the reason when
        the server does not answer; the log is requested again nevertheless. Raises NotFound.
        """
        listening = self._transport.listen(path("runs", run_id, "logs"), {}, since, read_log, on_silence)
        with closing(listening) as events:
            for line in events:
                if isinstance(line, LogEnd):
                    return
                yield line

    def checkpoint(self, run_id: Id) -> SavedCheckpoint:
        """Read the checkpoint of a run. Raises NotFound without one."""
        return self._transport.send(getting(path("runs", run_id, "checkpoint"), SavedCheckpoint))

    def cancel(self, run_id: Id, *, children: bool = False) -> RunCancelled:
        """Cancel a run: a waiting one is removed; the worker of an active one is asked to stop it. Raises NotFound.

        With `children`, its subtasks are cancelled as well, and theirs; the workers of active ones are asked.
        """
        query = query_of({"children": children or None})
        return self._transport.send(posting(path("runs", run_id, "cancel"), RunCancelled, query=query))

    def cancel_many(self, **chosen: Unpack[Chosen]) -> ManyDone:
        """Cancel many runs that have not ended; `next_page_token` says where to go on. Raises Invalid."""
        return self._transport.change_many("/v1/runs:cancel", chosen)

    def replay_many(self, *, rate: float | None = None, **chosen: Unpack[Chosen]) -> ManyDone:
        """Replay many dead runs, at once or so many a second. Raises Invalid."""
        return self._transport.change_many("/v1/runs:replay", chosen, rate=rate)

    def rerun(
        self,
        run_id: Id,
        *,
        payload: Mapping[str, Any] | None = None,
        queue: str | None = None,
        priority: int | None = None,
        at: datetime | None = None,
        key: str | None = None,
    ) -> Rerun:
        """Create a new run from an ended one, unchanged or with changes. Raises NotFound, Conflict, Invalid."""
        body = given(payload=payload, queue=queue, priority=priority, at=at)
        return self._transport.send(posting(path("runs", run_id, "rerun"), Rerun, body, key=key))

    def replay(self, run_id: Id) -> RunMoved:
        """Replay a dead run, with a new set of attempts. Raises NotFound, Conflict."""
        return self._transport.send(posting(path("runs", run_id, "replay"), RunMoved))


class Callbacks(Resource):
    """Runs that wait for their receiver, each by its token; no key is needed."""

    def settle(self, token: str, result: Any = None) -> CallbackSettled:
        """Report success. Raises NotFound, Conflict."""
        body = given(outcome="succeeded", result=result)
        return self._transport.send(posting(path("callbacks", token), CallbackSettled, body))

    def fail(
        self, token: str, reason: str | None = None, *, retry: bool = True, retry_after: str | float | None = None
    ) -> CallbackSettled:
        """Report failure, and whether and when to retry. Raises NotFound, Conflict."""
        body = given(outcome="failed", reason=reason, retry=retry, retry_after=retry_after)
        return self._transport.send(posting(path("callbacks", token), CallbackSettled, body))

    def progress(self, token: str, done: float, total: float | None = None, note: str | None = None) -> None:
        """Report progress: `done` of `total`, which may be unknown. Raises NotFound, Conflict."""
        body = given(done=done, total=total, note=note)
        request = posting(path("callbacks", token, "progress"), CallbackSettled, body)
        self._transport.send(msgspec.structs.replace(request, read=nothing))

    def extend(self, token: str, within: str | float) -> CallbackExtended:
        """Extend the deadline, counted from now. Raises NotFound, Conflict."""
        return self._transport.send(posting(path("callbacks", token, "extend"), CallbackExtended, {"within": within}))
