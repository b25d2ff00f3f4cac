"""Flags of a job's options and completion callbacks, and the fields of its spec that they set.

`duly submit` and `duly jobs edit` have the same. In an edit, `none` removes an optional value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import click
import msgspec

from duly.cli.flags.arguments import read_duration, read_moment
from duly.cli.flags.settings import together
from duly.domain.jobs.spec import Callback, Concurrency, RateLimit, RetryPolicy, RetryRule
from duly.domain.runs.callbacks import short_callback
from duly.domain.runs.retry import POLICIES

NONE = "none"
_EXIT = "exit:"
_STATUS = re.compile(r"[1-5]xx|\d{3}(-\d{3})?", re.IGNORECASE)
job_flags = together(
    click.option("--max-attempts", type=int, help="Maximum number of attempts."),
    click.option("--retry-policy", type=click.Choice(POLICIES), help="Growth of the delay between attempts."),
    click.option("--retry-base", metavar="DURATION", help="First delay, at most."),
    click.option("--retry-cap", metavar="DURATION", help="Longest delay."),
    click.option("--retry-jitter", metavar="PART", help="full, equal, none, or the random part, from 0 to 1."),
    click.option(
        "--retry-delay",
        "retry_delays",
        metavar="DURATION",
        multiple=True,
        help="Delay of policy list; repeat for the next.",
    ),
    click.option("--max-age", metavar="DURATION", help="No attempt starts later after the first was due."),
    click.option(
        "--on-error",
        metavar="WHAT=ACTION",
        multiple=True,
        help="ValueError=dead, 5xx=snooze:PT5M, exit:75=retry; repeatable, the first that fits decides.",
    ),
    click.option("--expires-at", metavar="MOMENT", help="One-shots: expires if not started by then."),
    click.option(
        "--expires-after", metavar="DURATION", help="Expires if not started this long after its scheduled time."
    ),
    click.option("--timeout", metavar="DURATION", help="Timeout of an attempt; none for no timeout."),
    click.option("--concurrency", metavar="KEY=N", help="At most N runs of KEY at once."),
    click.option("--fifo", metavar="KEY", help="Runs of KEY go one after another, in order."),
    click.option("--rate", metavar="KEY=N/PER", help="At most N runs of KEY start in each PER, as mail=10/PT1S."),
    click.option("--burst", type=int, help="With --rate: starts allowed at once after an idle period; default: 1."),
    click.option("--tag", "tags", multiple=True, help="Tag to filter by; repeatable."),
    click.option(
        "--redact", metavar="PATH", multiple=True, help="Show this part of the payload as ***, as $.card; repeatable."
    ),
    click.option("--on-end", metavar="URL|JOB", help="Completion callback on any end."),
    click.option("--on-failure", metavar="URL|JOB", help="Completion callback when it becomes a dead letter."),
)
# The fields of a retry policy, by flag.
_RETRY = {
    "max_attempts": "max_attempts",
    "retry_policy": "policy",
    "retry_base": "base",
    "retry_cap": "cap",
    "retry_jitter": "jitter",
    "retry_delays": "delays",
    "max_age": "max_age",
    "on_error": "rules",
}


def fields_of(typed: Mapping[str, Any], policy: RetryPolicy) -> dict[str, Any]:
    """Return the typed fields of a spec; retries are changed in `policy`. Raises UsageError, InvalidSchedule."""
    said = {name: value for name, value in typed.items() if value not in (None, ())}
    found = {name: None if said[name] == NONE else read(said[name]) for name, read in _PLAIN.items() if name in said}
    for name in said.keys() & {"tags", "redact"}:
        found[name] = [] if list(said[name]) == [NONE] else list(said[name])
    if said.keys() & _RETRY.keys():
        found["retry"] = _retry(said, policy)
    return found | _limits(said)


def _callback(text: str) -> Callback:
    return Callback(**short_callback(text))


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "name": str,
    "queue": str,
    "priority": int,
    "timeout": read_duration,
    "expires_after": read_duration,
    "expires_at": lambda text: read_moment(text, "expires-at"),
    "on_end": _callback,
    "on_failure": _callback,
}


def _retry(said: Mapping[str, Any], before: RetryPolicy) -> RetryPolicy:
    """Return a policy with only the typed fields changed."""
    found = {field: _read(flag, said[flag]) for flag, field in _RETRY.items() if flag in said}
    if "delays" in found:
        found["policy"] = "list"
    if found.get("policy", before.policy) != "list":
        found["delays"] = []
    return msgspec.structs.replace(before, **found)


def _read(flag: str, value: Any) -> Any:
    match flag:
        case "retry_base" | "retry_cap" | "max_age":
            return None if value == NONE else read_duration(value)
        case "retry_delays":
            return [read_duration(delay) for delay in value]
        case "retry_jitter":
            return _number_or_text(value)
        case "on_error":
            return [] if list(value) == [NONE] else [_rule(text) for text in value]
    return value


def _rule(text: str) -> RetryRule:
    what, mark, action = text.partition("=")
    if not mark or not what:
        raise click.UsageError(
            f"--on-error reads WHAT=ACTION, such as ValueError=dead or 5xx=snooze:PT5M; {text!r} does not"
        )
    verb, _, delay = action.partition(":")
    kind = "exit" if what.startswith(_EXIT) else "status" if _STATUS.fullmatch(what) else "error"
    rule: dict[str, Any] = {"action": verb, kind: what.removeprefix(_EXIT)}
    return RetryRule(**rule, delay=read_duration(delay) if delay else None)


def _limits(said: Mapping[str, Any]) -> dict[str, Any]:
    """Parse concurrency keys and rate limits."""
    if "concurrency" in said and "fifo" in said:
        raise click.UsageError("give --concurrency or --fifo, not both; --fifo is one at a time, in order")
    if "burst" in said and "rate" not in said:
        raise click.UsageError("--burst goes with --rate KEY=N/PER")
    found: dict[str, Any] = {}
    if NONE in (said.get("concurrency"), said.get("fifo")):
        found["concurrency"] = None
    elif "concurrency" in said:
        key, slots = _split(said["concurrency"], "--concurrency", "KEY=N, as customer-7=3")
        found["concurrency"] = Concurrency(key=key, limit=_number(slots, "--concurrency", int))
    elif "fifo" in said:
        found["concurrency"] = Concurrency(key=said["fifo"], order="fifo")
    if "rate" in said:
        found["rate_limit"] = None if said["rate"] == NONE else _rate(said["rate"], said.get("burst", 1))
    return found


def _rate(text: str, burst: int) -> RateLimit:
    key, rate = _split(text, "--rate", "KEY=N/PER, as mail=10/PT1S")
    number, _, per = rate.partition("/")
    limit = _number(number, "--rate", float)
    return RateLimit(key=key, limit=limit, per=read_duration(per or "PT1S"), burst=burst)


def _split(text: str, flag: str, shape: str) -> tuple[str, str]:
    key, sign, value = text.rpartition("=")
    if not sign or not key:
        raise click.UsageError(f"{flag} {text!r} is not {shape}")
    return key, value


def _number(text: str, flag: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise click.UsageError(f"{flag}: {text!r} is not a number") from None


def _number_or_text(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text
