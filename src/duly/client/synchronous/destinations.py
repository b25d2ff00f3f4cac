# Made from ../asynchronous by scripts/sync_client.py; change that one.
"""Destinations of webhooks, and their signing secrets."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET, UnsetType

from duly.client.requests import Id, getting, given, listing, patching, path, posting, reader
from duly.client.synchronous.transport import Resource
from duly.wire.destinations import (
    Destination,
    DestinationOpening,
    FailedAttempt,
    SigningSecret,
    SigningSecrets,
    WaitingRun,
)


class Destinations(Resource):
    """Destinations, by their ids."""

    def list(self, *, page_size: int | None = None) -> Iterator[Destination]:
        """Return all destinations, in order of their origins."""
        return self._transport.pages(listing(path("destinations"), Destination, page_size=page_size))

    def create(
        self,
        url: str,
        *,
        slots: int | None = None,
        rate_per_second: float | None = None,
        retry_share: float | None = None,
    ) -> Destination:
        """Create a destination before the first webhook goes there; repeated, its limits are set."""
        body = given(url=url, slots=slots, rate_per_second=rate_per_second, retry_share=retry_share)
        return self._transport.send(posting(path("destinations"), Destination, body))

    def get(self, destination_id: Id) -> Destination:
        """Read a destination. Raises NotFound."""
        return self._transport.send(getting(path("destinations", destination_id), Destination))

    def limit(
        self,
        destination_id: Id,
        *,
        slots: int | UnsetType = UNSET,
        rate_per_second: float | UnsetType | None = UNSET,
        retry_share: float | UnsetType = UNSET,
    ) -> Destination:
        """Limit its requests at once and a second, None being no limit, and its retries for each first attempt.

        Raises NotFound.
        """
        named = {"slots": slots, "rate_per_second": rate_per_second, "retry_share": retry_share}
        body = {name: value for name, value in named.items() if value is not UNSET}
        return self._transport.send(patching(path("destinations", destination_id), reader(Destination), body))

    def close(self, destination_id: Id) -> Destination:
        """Close its circuit by hand: it is called again. Raises NotFound."""
        return self._transport.send(posting(path("destinations", destination_id, "close"), Destination))

    def open(self, destination_id: Id, *, duration: str | float = "PT10M") -> Destination:
        """Open its circuit by hand: its runs wait for so long, and then it is probed. Raises NotFound, Invalid."""
        opening = DestinationOpening(duration=duration)
        return self._transport.send(posting(path("destinations", destination_id, "open"), Destination, opening))

    def waiting(self, destination_id: Id, *, page_size: int | None = None) -> Iterator[WaitingRun]:
        """Return the runs that wait for it, in the order in which they go on. Raises NotFound."""
        return self._transport.pages(
            listing(path("destinations", destination_id, "runs"), WaitingRun, page_size=page_size)
        )

    def failures(self, destination_id: Id, *, page_size: int | None = None) -> Iterator[FailedAttempt]:
        """Return the attempts that failed there, the last first. Raises NotFound."""
        there = path("destinations", destination_id, "failures")
        return self._transport.pages(listing(there, FailedAttempt, page_size=page_size))

    def rotate(self, destination_id: Id) -> SigningSecret:
        """Give it a new secret; the one before stays valid for a day. After a lost response it is not retried: Unavailable."""
        there = path("destinations", destination_id, "rotate")
        return self._transport.send(posting(there, SigningSecret, is_repeatable=False))

    def secrets(self, destination_id: Id) -> SigningSecrets:
        """Return its signing secrets, the newest first. Raises NotFound."""
        return self._transport.send(getting(path("destinations", destination_id, "secrets"), SigningSecrets))
