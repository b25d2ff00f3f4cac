# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""Dead letters: runs that gave up, one by one or by a filter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Unpack

import msgspec

from duly.client.many import Matching
from duly.client.requests import Id, deleting, getting, given, listing, nothing, patching, path, posting, uncertain
from duly.client.synchronous.transport import Resource
from duly.wire.runs import BulkResponse, DeadGroup, DeadLetter, DeadList, RunMoved

list_of = list  # `list` is a method here.


class Dead(Resource):
    """Dead letters. Bulk changes, by a filter or of all, change up to `limit` at once.

    `next_page_token` says where to go on.
    """

    def list(self, filter: str | None = None, *, page_size: int | None = None) -> Iterator[DeadLetter]:
        """Return the dead letters that match a filter, the last buried first; pages are read as they are needed."""
        return self._transport.pages(listing(path("dead"), DeadLetter, filter=filter, page_size=page_size))

    def edit(self, run_id: Id, payload: Mapping[str, Any]) -> None:
        """Change the payload of a dead run, for its replay. Raises NotFound."""
        self._transport.send(patching(path("dead", run_id), nothing, {"payload": payload}))

    def replay(self, run_id: Id) -> RunMoved:
        """Replay a dead run, with a new set of attempts. Raises NotFound."""
        return self._transport.send(posting(path("dead", run_id, "replay"), RunMoved))

    def discard(self, run_id: Id) -> RunMoved:
        """Discard a dead run for good; its record stays. Raises NotFound."""
        request = deleting(path("dead", run_id), RunMoved)
        return self._transport.send(msgspec.structs.replace(request, settle=uncertain))

    def groups(self, filter: str | None = None) -> list_of[DeadGroup]:
        """Count dead letters by normalized reason, the most frequent first; of the last 10,000 that match."""
        found = self._transport.send(getting(path("dead"), DeadList, group="error", filter=filter))
        return found.groups or []

    def replay_matching(
        self,
        filter: str = "",
        *,
        rate: float | None = None,
        **chosen: Unpack[Matching],
    ) -> BulkResponse:
        """Replay the dead letters that match a filter, at once or so many a second; with `dry_run` they are only
        counted.

        Raises Invalid.
        """
        return self._change_matching("replay", filter, chosen, rate=rate)

    def discard_matching(self, filter: str = "", **chosen: Unpack[Matching]) -> BulkResponse:
        """Discard the dead letters that match a filter; with `dry_run` they are only counted. Raises Invalid."""
        return self._change_matching("discard", filter, chosen)

    def edit_matching(self, filter: str, payload: Mapping[str, Any], **chosen: Unpack[Matching]) -> BulkResponse:
        """Change the payload of the dead letters that match a filter, the same for all. Raises Invalid."""
        return self._change_matching("edit", filter, chosen, payload=payload)

    def _change_matching(self, verb: str, filter: str, chosen: Matching, **more: object) -> BulkResponse:
        body = given(filter=filter, **{**chosen, "all": chosen.get("all") or None}, **more)
        return self._transport.send(posting(f"/v1/dead:{verb}", BulkResponse, body))
