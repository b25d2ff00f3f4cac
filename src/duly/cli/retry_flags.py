"""How often, how soon and until when: the flags of retries and expiry, and the policy that they make of another."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click
import msgspec

from duly.cli.arguments import read_duration, read_moment
from duly.cli.target_flags import TargetTyped
from duly.domain.runs.expiry import check_expires_after, check_expires_at
from duly.domain.runs.retry import POLICIES, Retry, retry_policy, told_policy

NONE = "none"
_EXIT = "exit:"
_STATUS = re.compile(r"[1-5]xx|\d{3}(-\d{3})?", re.IGNORECASE)


class RetryTyped(TargetTyped, frozen=True, kw_only=True):
    """What was typed of retries and expiry beside a target, unread."""

    max_attempts: int | None = None
    retry_policy: str | None = None
    retry_base: str | None = None
    retry_cap: str | None = None
    retry_jitter: str | None = None
    retry_delays: tuple[str, ...] = ()
    max_age: str | None = None
    on_error: tuple[str, ...] = ()
    expires_at: str | None = None
    expires_after: str | None = None


def retry_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of a retry policy, and of expiry, to a command."""
    for decorate in reversed(
        (
            click.option("--max-attempts", type=int, help="How often it is tried at most."),
            click.option("--retry-policy", type=click.Choice(POLICIES), help="How the gaps between attempts grow."),
            click.option("--retry-base", metavar="DURATION", help="The first gap, at most."),
            click.option("--retry-cap", metavar="DURATION", help="The longest gap."),
            click.option(
                "--retry-jitter", metavar="PART", help="full, equal, none, or the part that is left to chance."
            ),
            click.option(
                "--retry-delay",
                "retry_delays",
                metavar="DURATION",
                multiple=True,
                help="Of a list; again for the next.",
            ),
            click.option("--max-age", metavar="DURATION", help="No attempt starts later after the first was due."),
            click.option(
                "--on-error",
                metavar="WHAT=THEN",
                multiple=True,
                help="ValueError=bury, 5xx=snooze:PT5M, exit:75=retry; may be given again, the first that fits decides.",
            ),
            click.option("--expires-after", metavar="DURATION", help="Not started so long after its scheduled moment."),
        )
    ):
        function = decorate(function)
    return function


def is_typed(typed: RetryTyped) -> bool:
    """Say whether something of the policy was typed."""
    return bool(_policy_fields(msgspec.structs.asdict(typed)))


def changed_retry(typed: Mapping[str, Any], before: Retry) -> Retry:
    """Give a policy in which only what was typed is changed. Raises UsageError, InvalidOption."""
    told = told_policy(before)
    said = _policy_fields(typed)
    if said.get("policy", told["policy"]) != "list":
        told["delays"] = []
    return retry_policy(**(told | said))


def expiry_changes(typed: RetryTyped, at: Any) -> dict[str, Any]:
    """Read until when it is worth starting, as runs carry it. Raises InvalidOption, InvalidSchedule."""
    found: dict[str, Any] = {}
    if (moment := read_moment(typed.expires_at, "expires-at")) is not None:
        found["expires_at"] = check_expires_at(moment, at)
    if typed.expires_after is not None:
        found["expires_seconds"] = check_expires_after(read_duration(typed.expires_after))
    return found


def _policy_fields(typed: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for flag, name in (("max_attempts", "max_attempts"), ("retry_policy", "policy")):
        if typed.get(flag) is not None:
            found[name] = typed[flag]
    for flag, name in (("retry_base", "base"), ("retry_cap", "cap"), ("max_age", "max_age")):
        if typed.get(flag) is not None:
            found[name] = None if typed[flag] == NONE else read_duration(typed[flag])
    if typed.get("retry_jitter") is not None:
        found["jitter"] = _number(typed["retry_jitter"])
    if typed.get("retry_delays"):
        found |= {"policy": "list", "delays": [read_duration(delay) for delay in typed["retry_delays"]]}
    if typed.get("on_error"):
        found["rules"] = _rules(typed["on_error"])
    return found


def _rules(texts: Sequence[str]) -> list[dict[str, Any]]:
    return [] if list(texts) == [NONE] else [_rule(text) for text in texts]


def _rule(text: str) -> dict[str, Any]:
    what, mark, then = text.partition("=")
    if not mark or not what:
        raise click.UsageError(
            f"--on-error reads WHAT=THEN, such as ValueError=bury or 5xx=snooze:PT5M; {text!r} does not"
        )
    verb, _, delay = then.partition(":")
    rule: dict[str, Any] = {"then": verb} | ({"delay": read_duration(delay)} if delay else {})
    if what.startswith(_EXIT):
        return rule | {"exit": what.removeprefix(_EXIT)}
    return rule | ({"status": what} if _STATUS.fullmatch(what) else {"error": what})


def _number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text
