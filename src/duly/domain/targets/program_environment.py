"""The variables of commands and containers that a job may set.

Checked when a job is accepted and again by the worker: rows written by SQL pass no earlier check.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from duly.domain.errors import InvalidOption
from duly.domain.triggers.errors import shown

OURS = "DULY_"  # prefix of the variables that describe the run
VARIABLES_MAX = 100
VARIABLES_BYTES_MAX = 65_536
_NAME = re.compile(r"[A-Z_][A-Z0-9_]{0,199}")
# These change what a program is, not its input: the linker and the interpreters obey them before the program begins.
LOADERS = ("LD_", "GCONV_", "GLIBC_", "BASH", "PERL", "PYTHON", "RUBY", "NODE_", "JAVA_", "_JAVA_", "JDK_")
LOADER_NAMES = ("ENV", "SHELLOPTS", "PS4", "IFS")


def check_command_environment(environment: Mapping[str, str]) -> None:
    """Check the variables of a command, which must stay the program that was allowed. Raises InvalidOption."""
    _check_environment(environment)
    for name in environment:
        if name.startswith(LOADERS) or name in LOADER_NAMES:
            raise InvalidOption(
                f"variable {shown(name)} may not be set by a job: it could change which program runs; pass the value as"
                " an argument"
            )


def check_allowed_variables(program: str, environment: Mapping[str, str], allowed: Collection[str]) -> None:
    """Check that the operator lets jobs set these variables of a program. Raises InvalidOption."""
    for name in environment:
        if name not in allowed:
            raise InvalidOption(
                f"{program} may not receive variable {name}: the operator allows each variable by name, as in"
                f" commands = {program}={name}, in the settings of the API and of the workers that run it"
            )


def check_container_environment(environment: Mapping[str, str]) -> None:
    """Check the variables of a container; its arguments choose the program anyway. Raises InvalidOption."""
    _check_environment(environment)
    for name, value in environment.items():
        if "\n" in value or "\r" in value:
            raise InvalidOption(
                f"variable {shown(name)} has more than one line, which container engines do not accept; encode it"
            )


def _check_environment(environment: Mapping[str, str]) -> None:
    if len(environment) > VARIABLES_MAX:
        raise InvalidOption(
            f"{len(environment)} variables are too many; the limit is {VARIABLES_MAX}. Put the rest into the payload"
        )
    size = sum(_checked_bytes(name, value) for name, value in environment.items())
    if size > VARIABLES_BYTES_MAX:
        raise InvalidOption(
            f"the environment has {size} bytes; the limit is {VARIABLES_BYTES_MAX}. Put the rest into the payload"
        )


def _checked_bytes(name: str, value: str) -> int:
    if not _NAME.fullmatch(name):
        raise InvalidOption(
            f"variable {shown(name)} is not a valid name: use capital letters, digits and _, such as LANG"
        )
    if name.startswith(OURS):
        raise InvalidOption(
            f"variable {shown(name)} is reserved: names that begin with {OURS} are set by Duly; choose another"
        )
    if "\0" in value:
        raise InvalidOption(
            f"variable {shown(name)} contains a NUL character, which a program cannot receive; remove it"
        )
    try:
        return len(name) + len(value.encode()) + 2
    except UnicodeEncodeError:
        raise InvalidOption(f"variable {name} contains a lone surrogate; send valid UTF-8") from None
