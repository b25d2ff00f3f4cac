"""Random triggers of every type, for properties that hold for all of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from tests.triggers.expressions import ZONES, random_expression

_DAYS = ["MO", "TU", "WE", "TH", "FR", "SA", "SU"]
START, END = datetime(1990, 1, 1, tzinfo=UTC), datetime(2060, 1, 1, tzinfo=UTC)


def random_moment(random: Random) -> datetime:
    span = int((END - START).total_seconds())
    return START + timedelta(seconds=random.randrange(span), microseconds=random.choice([0, 0, 1, 999_999]))


def random_trigger(random: Random, *, depth: int = 0) -> dict[str, Any]:
    kind = random.choice([cron, cron, interval, iso, rrule, at] + ([any_of] if depth == 0 else []))
    return kind(random)


def at(random: Random) -> dict[str, Any]:
    return {"type": "at", "at": random_moment(random).isoformat(timespec="milliseconds")}


def cron(random: Random) -> dict[str, Any]:
    text = random_expression(random, has_seconds=random.random() < 0.3)
    return {"type": "cron", "expr": text, "tz": random.choice(ZONES)}


def interval(random: Random) -> dict[str, Any]:
    return {
        "type": "interval",
        "every": f"PT{random.choice([1, 7, 60, 3600, 86400, 10**6])}S",
        "anchor": a_start(random),
    }


def iso(random: Random) -> dict[str, Any]:
    period = random.choice(["P1D", "P1M", "P1Y", "P2W", "P1M1D", "P3M", "PT90M", "P1Y2M10D"])
    count = random.choice(["", "-1", "1", "5", "1000"])
    return {"type": "iso8601", "text": f"R{count}/{a_start(random)}/{period}", "tz": random.choice(ZONES)}


def a_start(random: Random) -> str:
    return random_moment(random).isoformat(timespec="seconds")


def rrule(random: Random) -> dict[str, Any]:
    return {"type": "rrule", "rrule": random_rule(random), "dtstart": a_start(random), "tz": random.choice(ZONES)}


def random_rule(random: Random) -> str:
    frequency = random.choice(["DAILY", "WEEKLY", "MONTHLY", "YEARLY"])
    parts = [f"FREQ={frequency}"]
    parts += maybe(random, 0.4, lambda: f"INTERVAL={random.choice([2, 3, 5, 17])}")
    parts += maybe(random, 0.3, lambda: random.choice(["COUNT=1", "COUNT=10", "COUNT=300", "UNTIL=20400101T000000Z"]))
    parts += maybe(random, 0.3, lambda: "BYMONTH=" + numbers(random, 1, 12))
    if frequency != "WEEKLY":
        parts += maybe(random, 0.3, lambda: "BYMONTHDAY=" + numbers(random, 1, 31, signed=True))
    if frequency == "YEARLY":
        parts += maybe(random, 0.2, lambda: "BYYEARDAY=" + numbers(random, 1, 366, signed=True))
    parts += maybe(random, 0.5, lambda: "BYDAY=" + weekdays(random, frequency))
    parts += maybe(random, 0.3, lambda: "BYHOUR=" + numbers(random, 0, 23))
    parts += maybe(random, 0.3, lambda: "BYMINUTE=" + numbers(random, 0, 59))
    if any(part.startswith("BY") for part in parts):
        parts += maybe(random, 0.3, lambda: "BYSETPOS=" + numbers(random, 1, 6, signed=True))
    parts += maybe(random, 0.3, lambda: "WKST=" + random.choice(_DAYS))
    return ";".join(parts)


def maybe(random: Random, chance: float, make: Any) -> list[str]:
    return [make()] if random.random() < chance else []


def numbers(random: Random, low: int, high: int, *, signed: bool = False) -> str:
    values = {
        random.randint(low, high) * (random.choice([1, -1]) if signed else 1) for _ in range(random.randint(1, 3))
    }
    return ",".join(map(str, values))


def weekdays(random: Random, frequency: str) -> str:
    days = random.sample(_DAYS, random.randint(1, 4))
    if frequency in ("DAILY", "WEEKLY") or random.random() < 0.5:
        return ",".join(days)
    return ",".join(f"{random.choice([-2, -1, 1, 2, 3])}{day}" for day in days)


def any_of(random: Random) -> dict[str, Any]:
    return {"type": "any", "of": [random_trigger(random, depth=1) for _ in range(random.randint(2, 4))]}
