"""The flags that say what runs where that is no function of an app: a webhook, a command or a container."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click
import msgspec

from duly.cli.arguments import read_duration
from duly.domain.duration import parse_option
from duly.domain.targets.checks import check_target
from duly.domain.targets.target import Command, Container, Target, Webhook

_METHOD_DEFAULT = "POST"


class TargetTyped(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed of a target, and the words that no flag took."""

    words: tuple[str, ...]
    webhook: str | None = None
    method: str | None = None
    headers: tuple[str, ...] = ()
    command: bool = False
    image: str | None = None
    environment: tuple[str, ...] = ()
    network: bool = False
    memory_bytes: int | None = None
    cpu_seconds: float | None = None
    processes: int | None = None
    ok_exits: tuple[int, ...] = ()
    retry_exits: tuple[int, ...] = ()
    callback_within: str | None = None

    @property
    def is_function(self) -> bool:
        """Whether no other target was typed: then the first word is a handler."""
        return self.webhook is None and self.image is None and not self.command

    @property
    def handler(self) -> str:
        """The handler. Raises UsageError when there is none."""
        if not self.words:
            raise click.UsageError("name a HANDLER, or give --webhook URL, --command -- PROGRAM, or --image IMAGE")
        return self.words[0]

    @property
    def pairs(self) -> tuple[str, ...]:
        """The words that are arguments, as key=value."""
        return self.words[1:] if self.is_function else self.words if self.webhook is not None else ()


def target_flags(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags of a target to a command."""
    for decorate in reversed(
        (
            click.option("--webhook", metavar="URL", help="Send a signed request to this URL, the arguments as its body."),
            click.option("--method", help="Of --webhook; POST without it."),
            click.option(
                "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Of --webhook; may be given again."
            ),
            click.option(
                "--callback-within", metavar="DURATION",
                help="Of --webhook: how long a receiver that answers 202 may take to say what it came to.",
            ),
            click.option("--command", is_flag=True, help="Run a program: --command -- /usr/bin/rsync -a FROM TO."),
            click.option("--image", metavar="IMAGE", help="Run a container: --image busybox -- echo hello."),
            click.option(
                "--env", "environment", multiple=True, metavar="NAME=VALUE",
                help="A variable of --command or --image; may be given again.",
            ),
            click.option("--network", is_flag=True, help="Give --command or --image the network."),
            click.option("--memory-bytes", type=int, help="The most memory that --command or --image may have."),
            click.option("--cpu-seconds", type=float, help="The most CPU time that --command may take."),
            click.option("--processes", type=int, help="The most processes that --command or --image may have at once."),
            click.option(
                "--ok-exit", "ok_exits", multiple=True, type=int, metavar="CODE",
                help="An exit code of --command or --image that means success, instead of 0; may be given again.",
            ),
            click.option(
                "--retry-exit", "retry_exits", multiple=True, type=int, metavar="CODE",
                help="An exit code that asks for another attempt, instead of 75; may be given again.",
            ),
        )
    ):  # fmt: skip
        function = decorate(function)
    return function


def read_target(typed: TargetTyped) -> Target | None:
    """Read the target that was typed; None where it is a function. Raises UsageError, InvalidOption."""
    kinds = [flag for flag, given in _kinds(typed).items() if given]
    if len(kinds) > 1:
        raise click.UsageError(f"give {kinds[0]} or {kinds[1]}, not both")
    for kind, flags in _FLAGS_OF.items():
        strays = [flag for flag, name in flags.items() if getattr(typed, name) not in (None, (), False)]
        if strays and not set(kinds) & set(kind):
            raise click.UsageError(f"{strays[0]} is for {' and '.join(kind)}")
    target = _target(typed)
    return None if target is None else check_target(target)


def _kinds(typed: TargetTyped) -> dict[str, bool]:
    return {"--webhook": typed.webhook is not None, "--command": typed.command, "--image": typed.image is not None}


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


def _target(typed: TargetTyped) -> Target | None:
    if typed.webhook is not None:
        within = None if typed.callback_within is None else read_duration(typed.callback_within)
        return Webhook(
            typed.webhook,
            typed.method or _METHOD_DEFAULT,
            _pairs(typed.headers, ":", "--header", "Name: value"),
            callback_within_seconds=None if within is None else parse_option(within, "callback_within").total_seconds(),
        )
    variables = _pairs(typed.environment, "=", "--env", "NAME=value")
    if typed.image is not None:
        return Container(typed.image, typed.words, variables, typed.network, **_limits(typed))
    if typed.command:
        return Command(typed.words, variables, typed.network, cpu_seconds=typed.cpu_seconds, **_limits(typed))
    return None


def _limits(typed: TargetTyped) -> dict[str, Any]:
    """Give what a program may have and what its exit codes mean, as far as it was typed."""
    given = {"memory_bytes": typed.memory_bytes, "processes": typed.processes}
    exits = {"ok": typed.ok_exits, "retry": typed.retry_exits}
    return {name: value for name, value in {**given, **exits}.items() if value not in (None, ())}


def _pairs(given: Sequence[str], separator: str, flag: str, example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, mark, value = text.partition(separator)
        if not mark:  # What was typed may be a secret, so it is not repeated.
            raise click.UsageError(f"{flag} reads {example!r}; one of them has no {separator!r}")
        if name.strip() in found:
            raise click.UsageError(f"{flag} {name.strip()!r} is given twice")
        found[name.strip()] = value.strip() if separator == ":" else value
    return found
