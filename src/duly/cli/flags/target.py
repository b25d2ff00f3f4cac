"""Flags of targets other than functions: a webhook, a command or a container."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from duly.cli.flags.arguments import read_duration
from duly.cli.flags.settings import together
from duly.domain.targets.spec import Called, CommandTarget, ContainerTarget, WebhookTarget

_KINDS = {"--webhook": "webhook", "--command": "command", "--image": "image"}
_FLAGS_OF = {
    ("--webhook",): {"--method": "method", "--header": "headers", "--callback-within": "callback_within"},
    ("--command",): {"--cpu-seconds": "cpu_seconds"},
    ("--command", "--image"): {
        "--env": "environment",
        "--network": "network",
        "--memory-bytes": "memory_bytes",
        "--processes": "processes",
        "--ok-exit": "ok_exits",
        "--retry-exit": "retry_exits",
    },
}
target_flags = together(
    click.option("--webhook", metavar="URL", help="Send a signed request to this URL, the arguments as its body."),
    click.option("--method", help="Of --webhook; POST without it."),
    click.option(
        "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Of --webhook; repeatable."
    ),
    click.option(
        "--callback-within", metavar="DURATION",
        help="With --webhook: time for a receiver that answers 202 to report the outcome.",
    ),
    click.option("--command", is_flag=True, help="Run a program: --command -- /usr/bin/rsync -a FROM TO."),
    click.option("--image", metavar="IMAGE", help="Run a container: --image busybox -- echo hello."),
    click.option(
        "--env", "environment", multiple=True, metavar="NAME=VALUE",
        help="A variable of --command or --image; repeatable.",
    ),
    click.option("--network", is_flag=True, help="Allow network access for --command or --image."),
    click.option("--memory-bytes", type=int, help="The most memory that --command or --image may have."),
    click.option("--cpu-seconds", type=float, help="The most CPU time that --command may take."),
    click.option("--processes", type=int, help="The most processes that --command or --image may have at once."),
    click.option(
        "--ok-exit", "ok_exits", multiple=True, type=int, metavar="CODE",
        help="An exit code of --command or --image that means success, instead of 0; repeatable.",
    ),
    click.option(
        "--retry-exit", "retry_exits", multiple=True, type=int, metavar="CODE",
        help="An exit code that asks for another attempt, instead of 75; repeatable.",
    ),
)  # fmt: skip


def read_target(typed: Mapping[str, Any]) -> Called | None:
    """Parse the typed target; None for a function. Raises UsageError, InvalidOption."""
    kinds = [flag for flag, name in _KINDS.items() if typed.get(name) not in (None, False)]
    if len(kinds) > 1:
        raise click.UsageError(f"give {kinds[0]} or {kinds[1]}, not both")
    for kind, flags in _FLAGS_OF.items():
        strays = [flag for flag, name in flags.items() if typed.get(name) not in (None, (), False)]
        if strays and not set(kinds) & set(kind):
            raise click.UsageError(f"{strays[0]} is for {' and '.join(kind)}")
    return _target(kinds[0], typed) if kinds else None


def handler_of(typed: Mapping[str, Any]) -> str:
    """Return the handler, the first positional argument. Raises UsageError when there is none."""
    if not typed["words"]:
        raise click.UsageError("name a HANDLER, or give --webhook URL, --command -- PROGRAM, or --image IMAGE")
    return str(typed["words"][0])


def pairs_of(typed: Mapping[str, Any], target: Called | None) -> Sequence[str]:
    """Return the positional arguments of the form key=value."""
    words: Sequence[str] = typed["words"]
    return words[1:] if target is None else words if isinstance(target, WebhookTarget) else ()


def _target(kind: str, typed: Mapping[str, Any]) -> Called:
    if kind == "--webhook":
        within, method = typed.get("callback_within"), typed.get("method")
        return WebhookTarget(
            url=typed["webhook"],
            headers=_pairs(typed.get("headers", ()), ":", "--header", "Name: value"),
            callback_within=None if within is None else read_duration(within),
            **({} if method is None else {"method": method}),
        )
    program = {"environment": _pairs(typed.get("environment", ()), "=", "--env", "NAME=value"), **_limits(typed)}
    if kind == "--image":
        return ContainerTarget(image=typed["image"], argv=list(typed["words"]), **program)
    return CommandTarget(argv=list(typed["words"]), cpu_seconds=typed.get("cpu_seconds"), **program)


def _limits(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limits and exit codes of a program, as typed."""
    given = {name: typed.get(name) for name in ("network", "memory_bytes", "processes")}
    exits = {"ok": list(typed.get("ok_exits", ())), "retry": list(typed.get("retry_exits", ()))}
    return {name: value for name, value in {**given, **exits}.items() if value not in (None, [])}


def _pairs(given: Sequence[str], separator: str, flag: str, example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, mark, value = text.partition(separator)
        if not mark:  # it may be a secret, so it is not repeated
            raise click.UsageError(f"{flag} reads {example!r}; one of them has no {separator!r}")
        if name.strip() in found:
            raise click.UsageError(f"{flag} {name.strip()!r} is given twice")
        found[name.strip()] = value.strip() if separator == ":" else value
    return found
