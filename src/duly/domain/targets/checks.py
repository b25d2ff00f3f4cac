"""Checks of targets. Each refusal names the thing, the value and the remedy, and repeats no value that may be a secret."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NoReturn

import msgspec

from duly.domain.errors import InvalidOption
from duly.domain.runs.run import NAME_CHARACTERS_MAX
from duly.domain.targets.program_environment import check_command_environment, check_container_environment
from duly.domain.targets.target import Command, Container, Target, Webhook, WorkflowTarget, handler_of
from duly.domain.targets.webhook_request import check_headers, check_method
from duly.domain.targets.webhook_url import check_url
from duly.domain.triggers.errors import shown
from duly.domain.workflows.target import target_for, workflow_of

STATUSES_MAX = 100
STATUS_LEAST, STATUS_MOST = 100, 599
CALLBACK_SECONDS_LEAST, CALLBACK_SECONDS_MOST = 1.0, 30 * 86_400.0
ARGUMENTS_MAX = 1_000
ARGUMENTS_BYTES_MAX = 65_536
EXIT_CODE_MOST = 255
# The least memory that a program starts with, and more than any machine has.
MEMORY_BYTES_LEAST, MEMORY_BYTES_MOST = 1_048_576, 2**44
CPU_SECONDS_MOST = 7 * 86_400.0
CPUS_MOST = 1_024.0
PROCESSES_MOST = 32_768
FILE_BYTES_MOST = 2**44

_IMAGE = re.compile(
    r"(?:[a-zA-Z0-9][a-zA-Z0-9.-]*(?::[0-9]{1,5})?/)?[a-z0-9]+(?:[._/-]{1,2}[a-z0-9]+)*(?::[\w][\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?",
    re.ASCII,
)


def check_target(target: Target) -> Target:
    """Check a target and return it with its address normalized. Raises InvalidOption."""
    match target:
        case Webhook():
            return _checked_webhook(target)
        case Command():
            _check_command(target)
        case Container():
            _check_container(target)
        case WorkflowTarget():
            return target_for(workflow_of(target))
    if len(handler_of(target)) > NAME_CHARACTERS_MAX:
        _refuse(
            f"{shown(handler_of(target))} is longer than {NAME_CHARACTERS_MAX} characters; give it a shorter path or name"
        )
    return target


def callback_seconds(seconds: float) -> float:
    """Return how long a receiver may take, from a row, which may have been written by SQL and is unchecked."""
    return min(max(seconds, CALLBACK_SECONDS_LEAST), CALLBACK_SECONDS_MOST)


def _checked_webhook(target: Webhook) -> Webhook:
    check_headers(target.headers)
    _check_numbers(target.final, target.retry, "status", "final", STATUS_LEAST, STATUS_MOST)
    _check_bounds("callback_within", target.callback_within_seconds, CALLBACK_SECONDS_LEAST, CALLBACK_SECONDS_MOST, "s")
    return msgspec.structs.replace(target, url=check_url(target.url), method=check_method(target.method))


def _check_command(target: Command) -> None:
    if not target.argv:
        _refuse('a command needs argv, the program first: ["/usr/bin/rsync", "-a", …]')
    program = target.argv[0]
    if not program.startswith("/") or program.endswith("/") or "//" in program or not program.isprintable():
        _refuse(f"program {shown(program)} is not an absolute path, such as /usr/bin/rsync")
    if {".", ".."} & set(program.split("/")):
        _refuse(f"program {shown(program)} contains . or ..; write the resolved path")
    _check_arguments(target.argv)
    check_command_environment(target.environment)
    _check_numbers(target.ok, target.retry, "exit code", "ok", 0, EXIT_CODE_MOST)
    _check_bounds("memory_bytes", target.memory_bytes, MEMORY_BYTES_LEAST, MEMORY_BYTES_MOST, "bytes")
    _check_bounds("cpu_seconds", target.cpu_seconds, 0.1, CPU_SECONDS_MOST, "s")
    _check_bounds("processes", target.processes, 1, PROCESSES_MOST, "processes")
    _check_bounds("file_bytes", target.file_bytes, 1, FILE_BYTES_MOST, "bytes")


def _check_container(target: Container) -> None:
    if not _IMAGE.fullmatch(target.image):
        _refuse(f"image {shown(target.image)} is not an image name; write it as registry/name:tag, or name@sha256:…")
    _check_arguments(target.argv)
    check_container_environment(target.environment)
    _check_numbers(target.ok, target.retry, "exit code", "ok", 0, EXIT_CODE_MOST)
    _check_bounds("memory_bytes", target.memory_bytes, MEMORY_BYTES_LEAST, MEMORY_BYTES_MOST, "bytes")
    _check_bounds("cpus", target.cpus, 0.01, CPUS_MOST, "CPUs")
    _check_bounds("processes", target.processes, 1, PROCESSES_MOST, "processes")


def _check_arguments(argv: Collection[str]) -> None:
    if len(argv) > ARGUMENTS_MAX:
        _refuse(f"argv has {len(argv)} items; the limit is {ARGUMENTS_MAX}. Put the rest into the payload")
    if any("\0" in item for item in argv):
        _refuse("argv contains a NUL character, which a program cannot receive; remove it")
    size = sum(_bytes_of(item, "argv") + 1 for item in argv)
    if size > ARGUMENTS_BYTES_MAX:
        _refuse(f"argv has {size} bytes; the limit is {ARGUMENTS_BYTES_MAX}. Put the rest into the payload")


def _bytes_of(text: str, what: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        _refuse(f"{what} contains a lone surrogate; send valid UTF-8")


def _check_numbers(
    first: tuple[int, ...], retry: tuple[int, ...], what: str, other: str, least: int, most: int
) -> None:
    """Check exceptions to the default: `first` in one way, `retry` in another, and none in both."""
    for number in (*first, *retry):
        if isinstance(number, bool) or not least <= number <= most:
            _refuse(f"{what} {shown(number)} is outside {least} to {most}")
    if len(first) > STATUSES_MAX or len(retry) > STATUSES_MAX:
        _refuse(f"more than {STATUSES_MAX} are listed in {other} or retry; list fewer")
    if both := sorted(set(first) & set(retry)):
        _refuse(f"{what} {both[0]} is in both {other} and retry; keep one")


def _check_bounds(name: str, value: float | None, least: float, most: float, unit: str) -> None:
    if value is not None and (isinstance(value, bool) or not least <= value <= most):
        _refuse(
            f"{name} {shown(value)} is outside {_plain(least)} to {_plain(most)} {unit}; leave it out for the default"
        )


def _plain(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:g}"


def _refuse(why: str) -> NoReturn:
    raise InvalidOption(why)
