"""What a target may say. Each refusal names the thing, the value and the remedy; a value that may be a secret is not repeated."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NoReturn

import msgspec

from duly.domain.errors import InvalidOption
from duly.domain.run import NAME_CHARACTERS_MAX
from duly.domain.target import Command, Container, Target, Webhook, handler_of
from duly.domain.triggers.errors import shown
from duly.domain.webhook_url import check_url

HEADERS_MAX = 64
HEADERS_BYTES_MAX = 8_192
STATUSES_MAX = 100
STATUS_LEAST, STATUS_MOST = 100, 599
CALLBACK_SECONDS_LEAST, CALLBACK_SECONDS_MOST = 1.0, 30 * 86_400.0
ARGUMENTS_MAX = 1_000
ARGUMENTS_BYTES_MAX = 65_536
VARIABLES_MAX = 100
VARIABLES_BYTES_MAX = 65_536
EXIT_CODE_MOST = 255
# The least that a program starts with, and more than any machine has.
MEMORY_BYTES_LEAST, MEMORY_BYTES_MOST = 1_048_576, 2**44
CPU_SECONDS_MOST = 7 * 86_400.0
CPUS_MOST = 1_024.0
PROCESSES_MOST = 32_768
FILE_BYTES_MOST = 2**44

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}")
_METHODS_REFUSED = ("CONNECT", "TRACE")
_HEADERS_OURS = frozenset(
    [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "x-job-id",
        "x-run-id",
        "x-attempt",
        "x-fence",
        "x-scheduled-at",
        "x-scheduler-signature",
        "x-callback-token",
    ]
)
_HEADERS_OURS_BEGIN = "webhook-"
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]{0,199}")
# Ours tell a program about its run; with the linker's, another program than the one that was allowed could be run.
_VARIABLES_REFUSED = ("DULY_", "LD_")
_IMAGE = re.compile(
    r"(?:[a-zA-Z0-9][a-zA-Z0-9.-]*(?::[0-9]{1,5})?/)?[a-z0-9]+(?:[._/-]{1,2}[a-z0-9]+)*(?::[\w][\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?",
    re.ASCII,
)


def check_target(target: Target) -> Target:
    """Take a target that can be kept, its address in the normal form. Raises InvalidOption."""
    match target:
        case Webhook():
            return _checked_webhook(target)
        case Command():
            _check_command(target)
        case Container():
            _check_container(target)
    if len(handler_of(target)) > NAME_CHARACTERS_MAX:
        _refuse(
            f"{shown(handler_of(target))} is longer than {NAME_CHARACTERS_MAX} characters; give it a shorter path or name"
        )
    return target


def callback_seconds(seconds: float) -> float:
    """Take how long a receiver may take, from a row: what came by way of SQL was checked by nobody."""
    return min(max(seconds, CALLBACK_SECONDS_LEAST), CALLBACK_SECONDS_MOST)


def _checked_webhook(target: Webhook) -> Webhook:
    if not _METHOD.fullmatch(target.method) or target.method.upper() in _METHODS_REFUSED:
        _refuse(
            f"method {shown(target.method)} is none that a webhook is sent with; take POST, PUT, PATCH, GET or DELETE"
        )
    _check_headers(target.headers)
    _check_numbers(target.final, target.retry, "status", "final", STATUS_LEAST, STATUS_MOST)
    _check_bounds("callback_within", target.callback_within_seconds, CALLBACK_SECONDS_LEAST, CALLBACK_SECONDS_MOST, "s")
    return msgspec.structs.replace(target, url=check_url(target.url), method=target.method.upper())


def _check_headers(headers: Mapping[str, str]) -> None:
    if len(headers) > HEADERS_MAX:
        _refuse(f"{len(headers)} headers are too many; the limit is {HEADERS_MAX}. Say the rest in the payload")
    seen: set[str] = set()
    for name, value in headers.items():
        _check_header(name, value)
        if name.lower() in seen:
            _refuse(f"header {shown(name)} is given twice; give it once")
        seen.add(name.lower())
    size = sum(len(name) + len(value) for name, value in headers.items())
    if size > HEADERS_BYTES_MAX:
        _refuse(f"the headers have {size} bytes; the limit is {HEADERS_BYTES_MAX}. Say the rest in the payload")


def _check_header(name: str, value: str) -> None:
    if not _TOKEN.fullmatch(name):
        _refuse(f"header {shown(name)} is no name of one: letters, digits and hyphens, such as Authorization")
    if name.lower() in _HEADERS_OURS or name.lower().startswith(_HEADERS_OURS_BEGIN):
        _refuse(f"header {shown(name)} is set by Duly; leave it out, or give it another name")
    if not all(" " <= character <= "~" or character == "\t" for character in value):
        _refuse(
            f"the value of header {shown(name)} holds a line break, a control character or what is not ASCII; encode it"
        )
    if value != value.strip():
        _refuse(f"the value of header {shown(name)} begins or ends with a blank, which is never sent; take it away")


def _check_command(target: Command) -> None:
    if not target.argv:
        _refuse('a command needs argv, the program first: ["/usr/bin/rsync", "-a", …]')
    program = target.argv[0]
    if not program.startswith("/") or program.endswith("/") or "//" in program or not program.isprintable():
        _refuse(f"program {shown(program)} is no absolute path; write it from / on, such as /usr/bin/rsync")
    if {".", ".."} & set(program.split("/")):
        _refuse(f"program {shown(program)} goes by way of . or ..; write the path that it leads to")
    _check_arguments(target.argv)
    _check_environment(target.environment)
    _check_numbers(target.ok, target.retry, "exit code", "ok", 0, EXIT_CODE_MOST)
    _check_bounds("memory_bytes", target.memory_bytes, MEMORY_BYTES_LEAST, MEMORY_BYTES_MOST, "bytes")
    _check_bounds("cpu_seconds", target.cpu_seconds, 0.1, CPU_SECONDS_MOST, "s")
    _check_bounds("processes", target.processes, 1, PROCESSES_MOST, "processes")
    _check_bounds("file_bytes", target.file_bytes, 1, FILE_BYTES_MOST, "bytes")


def _check_container(target: Container) -> None:
    if not _IMAGE.fullmatch(target.image):
        _refuse(f"image {shown(target.image)} is no name of one; write it as registry/name:tag, or name@sha256:…")
    _check_arguments(target.argv)
    _check_environment(target.environment)
    _check_numbers(target.ok, target.retry, "exit code", "ok", 0, EXIT_CODE_MOST)
    _check_bounds("memory_bytes", target.memory_bytes, MEMORY_BYTES_LEAST, MEMORY_BYTES_MOST, "bytes")
    _check_bounds("cpus", target.cpus, 0.01, CPUS_MOST, "CPUs")
    _check_bounds("processes", target.processes, 1, PROCESSES_MOST, "processes")


def _check_arguments(argv: Collection[str]) -> None:
    if len(argv) > ARGUMENTS_MAX:
        _refuse(f"argv has {len(argv)} items; the limit is {ARGUMENTS_MAX}. Say the rest in the payload")
    if any("\0" in item for item in argv):
        _refuse("argv holds a NUL character, which no program can be given; take it out")
    size = sum(_bytes_of(item, "argv") + 1 for item in argv)
    if size > ARGUMENTS_BYTES_MAX:
        _refuse(f"argv has {size} bytes; the limit is {ARGUMENTS_BYTES_MAX}. Say the rest in the payload")


def _check_environment(environment: Mapping[str, str]) -> None:
    if len(environment) > VARIABLES_MAX:
        _refuse(f"{len(environment)} variables are too many; the limit is {VARIABLES_MAX}. Say the rest in the payload")
    for name, value in environment.items():
        if not _VARIABLE.fullmatch(name):
            _refuse(f"variable {shown(name)} is no name of one: capital letters, digits and _, such as LANG")
        if name.startswith(_VARIABLES_REFUSED):
            _refuse(
                f"variable {shown(name)} is not the job's to set: none that begins with {' or '.join(_VARIABLES_REFUSED)}"
            )
        if "\0" in value:
            _refuse(f"variable {shown(name)} holds a NUL character, which no program can be given; take it out")
    size = sum(len(name) + _bytes_of(value, f"variable {name}") + 2 for name, value in environment.items())
    if size > VARIABLES_BYTES_MAX:
        _refuse(f"the environment has {size} bytes; the limit is {VARIABLES_BYTES_MAX}. Say the rest in the payload")


def _bytes_of(text: str, what: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        _refuse(f"{what} holds half a character, a lone surrogate; send text in UTF-8")


def _check_numbers(
    first: tuple[int, ...], retry: tuple[int, ...], what: str, other: str, least: int, most: int
) -> None:
    """Check what is taken otherwise than usual: `first` in one way, `retry` in another, and none in both."""
    for number in (*first, *retry):
        if isinstance(number, bool) or not least <= number <= most:
            _refuse(f"{what} {shown(number)} is outside {least} to {most}")
    if len(first) > STATUSES_MAX or len(retry) > STATUSES_MAX:
        _refuse(f"more than {STATUSES_MAX} are named in {other} or retry; name fewer")
    if both := sorted(set(first) & set(retry)):
        _refuse(f"{what} {both[0]} stands in {other} and in retry; keep one of them")


def _check_bounds(name: str, value: float | None, least: float, most: float, unit: str) -> None:
    if value is not None and (isinstance(value, bool) or not least <= value <= most):
        _refuse(f"{name} {shown(value)} is outside {least:,g} to {most:,.0f} {unit}; leave it out for the default")


def _refuse(why: str) -> NoReturn:
    raise InvalidOption(why)
