"""Reads from a replica: a key that has written is sent to the primary until the replica has that, however many keys write."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from duly.api import replica_reads
from duly.api.replica_reads import ReplicaReads

CREATE = cast("Any", SimpleNamespace(method="POST", may_lag=False))
LIST = cast("Any", SimpleNamespace(method="GET", may_lag=True))


class Behind:
    """A replica that has everything from before a moment."""

    pools = object()
    age_seconds = 0.1

    def __init__(self) -> None:
        self.now, self.seen_at = 100.0, 99.0

    def moment(self) -> float:
        return self.now

    def has(self, moment: float) -> bool:
        return moment <= self.seen_at

    def succeeded(self) -> None: ...


def an_identity(key_id: str) -> Any:
    return SimpleNamespace(is_anonymous=False, key=SimpleNamespace(key_id=key_id))


async def source(reads: ReplicaReads, key_id: str) -> str:
    """Say which server a list of this key comes from."""
    beside: dict[str, str] = {}

    async def act(_: object) -> Any:
        return "listed"

    await reads.answer(LIST, an_identity(key_id), {}, act, beside)
    return beside[replica_reads.HEADER].partition(";")[0]


@pytest.mark.parametrize("room", [1, 10])
async def test_key_reads_its_own_writes_also_when_more_keys_write_than_are_remembered(monkeypatch, room):
    monkeypatch.setattr(replica_reads, "_WRITERS_MAX", room)
    replica = Behind()
    reads = ReplicaReads(cast("Any", replica))
    for number in range(3):
        reads.wrote(CREATE, an_identity(f"key-{number}"))

    assert [await source(reads, f"key-{number}") for number in range(3)] == ["primary"] * 3

    replica.seen_at = replica.now
    assert [await source(reads, f"key-{number}") for number in range(3)] == ["replica"] * 3
