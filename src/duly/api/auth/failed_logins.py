"""Failed log-ins by address: ten are answered at once, then each answer is delayed. The right key is never delayed."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from duly.api.problems import Refusal
from duly.api.server.connections import Address, group_of
from duly.clock import Clock

WRONG_MAX = 10  # answered at once
FORGIVEN_SECONDS = 6.0  # for each of them
DELAY_SECONDS = 2.0
DELAYED_MAX = 20  # delayed answers of one address at once
_ADDRESSES_MAX = 10_000


class _Bucket(msgspec.Struct):
    """The wrong keys of an address that are answered at once, as of a moment, and its delayed answers."""

    left: float
    at: float
    delayed: int = 0


class FailedLogins:
    """The addresses of recent wrong keys."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: OrderedDict[Address, _Bucket] = OrderedDict()

    async def slow_down(self, address: str) -> None:
        """Count a wrong key, and delay its answer if there were many. Raises Refusal where too many are delayed."""
        bucket = self._bucket(group_of(address))
        if bucket.left >= 1:
            bucket.left -= 1
            return
        if bucket.delayed >= DELAYED_MAX:
            raise Refusal(
                "rate_limited",
                "Too many failed logins from this address.",
                headers={"Retry-After": str(round(DELAY_SECONDS))},
                remedy="Log in with a valid key, which is never refused.",
            )
        bucket.delayed += 1
        try:
            await self._clock.sleep(DELAY_SECONDS)
        finally:
            bucket.delayed -= 1

    def _bucket(self, group: Address) -> _Bucket:
        now = self._clock.monotonic()
        bucket = self._buckets.setdefault(group, _Bucket(WRONG_MAX, now))
        bucket.left, bucket.at = min(WRONG_MAX, bucket.left + (now - bucket.at) / FORGIVEN_SECONDS), now
        self._buckets.move_to_end(group)
        if len(self._buckets) > _ADDRESSES_MAX:
            self._buckets.popitem(last=False)
        return bucket
