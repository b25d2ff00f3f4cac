"""Options of retries and expiry as they come from SQL, in any language: what no worker could read is refused."""

from typing import Any

import msgspec
import pytest

from duly.domain.runs.options import read_plain
from duly.store.boxes.options import decode

GOOD: list[dict[str, Any]] = [
    {"retry": {}},
    {"retry": {"max_attempts": 3, "base_seconds": 2, "cap_seconds": 60}},
    {"retry": {"policy": "list", "delays": [1, 60.5]}},
    {"retry": {"policy": "linear", "jitter": 0.5, "max_age_seconds": 3600}},
    {"retry": {"jitter": None, "max_age_seconds": None}},
    {
        "retry": {
            "rules": [
                {"error": "ValueError", "action": "dead"},
                {"status": "4xx", "action": "retry", "delay_seconds": 1},
            ]
        }
    },
    {"retry": {"rules": [{"exit": "75", "action": "snooze", "delay_seconds": 60}]}},
    {"expires_at": 1_800_000_000},
    {"expires_seconds": 30.5},
]
BAD = [
    {"retry": []},
    {"retry": {"policy": "random"}},
    {"retry": {"policy": ["fixed"]}},
    {"retry": {"policy": "list"}},
    {"retry": {"policy": "list", "delays": []}},
    {"retry": {"delays": [-1]}},
    {"retry": {"delays": "soon"}},
    {"retry": {"jitter": 1.5}},
    {"retry": {"jitter": "full"}},
    {"retry": {"max_age_seconds": -1}},
    {"retry": {"rules": {}}},
    {"retry": {"rules": [{"action": "dead"}]}},
    {"retry": {"rules": [{"action": "dead", "error": 7}]}},
    {"retry": {"rules": [{"action": "dead", "error": "A", "status": "404"}]}},
    {"retry": {"rules": [{"action": "snooze", "error": "A"}]}},
    {"retry": {"rules": [{"error": "A"}]}},
    {"retry": {"rules": ["dead"]}},
    {"retry": {"rules": [{"action": "dead", "error": "A"}] * 33}},
    {"expires_at": "tomorrow"},
    {"expires_seconds": -1},
    {"snoozes": 1},
]


async def test_options_that_a_worker_can_read_are_accepted_and_read_as_meant(database):
    for options in GOOD:
        text = msgspec.json.encode(options).decode()
        assert await database.fetchval("select duly.are_options($1::text::jsonb)", text), text
        assert decode(text) == read_plain(options)


@pytest.mark.parametrize("options", BAD, ids=str)
async def test_options_that_no_worker_can_read_are_refused(database, options):
    text = msgspec.json.encode(options).decode()

    assert await database.fetchval("select duly.are_options($1::text::jsonb)", text) is False


async def test_a_moment_beyond_all_measure_breaks_no_index(database):
    far = "select duly.expiry('2026-01-01T00:00:00Z', $1::text::jsonb)"

    for at in (1e300, -1e300, 0):
        assert await database.fetchval(far, msgspec.json.encode({"expires_at": at}).decode()) is not None
    assert await database.fetchval(far, '{"retry": {}}') is None
