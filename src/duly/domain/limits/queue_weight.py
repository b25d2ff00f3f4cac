"""A queue that a worker serves, and its weight: `critical=5`, or plain `bulk`, which weighs 1."""

from __future__ import annotations

from collections.abc import Iterable

from duly.domain.errors import InvalidOption
from duly.domain.jobs.job import check_name

WEIGHT_MAX = 100


def read_queue(text: str) -> tuple[str, int]:
    """Parse a queue and its weight. Raises InvalidOption."""
    name, sign, weight = text.rpartition("=")
    if not sign:
        return check_name(text.strip(), "queue"), 1
    if not (weight.isascii() and weight.isdigit() and 1 <= int(weight) <= WEIGHT_MAX):
        raise InvalidOption(
            f"queue {text!r} needs a weight from 1 to {WEIGHT_MAX} after =; leave out queues that the worker must not serve"
        )
    return check_name(name.strip(), "queue"), int(weight)


def read_queues(texts: Iterable[str]) -> dict[str, int]:
    """Parse queues with their weights; of a queue named twice the last weight counts. Raises InvalidOption."""
    return dict(map(read_queue, texts))
