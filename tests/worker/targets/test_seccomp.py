"""The filter of sandboxed commands as a program: its numbers, and where it is refused. `tests/security` tries it from inside."""

import errno
import re
import struct
from pathlib import Path

import pytest

from duly.domain.errors import Refused
from duly.worker.targets import seccomp

X86_64, ARM = 0xC000003E, 0xC00000B7  # of linux/audit.h
HEADERS = [
    Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    Path("/usr/include/asm-generic/unistd.h"),  # aarch64 has the numbers that all newer machines share
]


@pytest.mark.parametrize("column", [0, 1], ids=["x86_64", "aarch64"])
def test_the_numbers_of_calls_are_those_of_the_kernel(column):
    if not HEADERS[column].exists():
        pytest.skip("needs the Debian package linux-libc-dev for this machine")
    defined = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", HEADERS[column].read_text())
    kernel = {name: int(number) for name, number in reversed(defined)}
    ours = {name: numbers[column] for name, numbers in seccomp._NEEDLESS.items()}
    special = {"clone": seccomp._CLONE[column], "socket": seccomp._SOCKET[column], "clone3": seccomp._CLONE3}

    assert ours | special == {name: kernel.get(name) for name in ours | special}


def decided(machine: str, architecture: int, call: int, argument: int = 0) -> int:
    """Run the filter as the kernel does, and give its answer."""
    program = list(struct.iter_unpack("=HBBI", seccomp.filter_of(machine)))
    data = struct.pack("=IIQQ", call, architecture, 0, argument)
    at = accumulator = 0
    while True:
        code, if_so, if_not, operand = program[at]
        match code:
            case 0x20:
                [accumulator] = struct.unpack_from("=I", data, operand)
                at += 1
                continue
            case 0x06:
                return int(operand)
            case 0x15:
                holds = accumulator == operand
            case 0x25:
                holds = accumulator > operand
            case _:
                assert code == 0x45
                holds = bool(accumulator & operand)
        at += 1 + (if_so if holds else if_not)


@pytest.mark.parametrize(
    ("machine", "column", "own", "other"), [("x86_64", 0, X86_64, ARM), ("aarch64", 1, ARM, X86_64)]
)
def test_seccomp_filter_decides_each_call_as_specified(machine, column, own, other):
    """Only one of the machines is this one; `tests/security` asks its kernel."""
    allow, refuse, missing, kill = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS, 0x80000000
    clone, opened = seccomp._CLONE[column], seccomp._SOCKET[column]
    special = {clone, opened, seccomp._CLONE3}
    needless = {numbers[column] for numbers in seccomp._NEEDLESS.values()} - {None}

    answers = {call: decided(machine, own, call) for call in range(seccomp._NEWEST + 1) if call not in special}

    assert {call for call, answer in answers.items() if answer == refuse} == needless
    assert {answer for call, answer in answers.items() if call not in needless} == {allow}
    assert {decided(machine, own, call) for call in (seccomp._CLONE3, 463, 0x40000000, 0xFFFFFFFF)} == {missing}
    assert {decided(machine, own, clone, flags) for flags in (0, 17, 0x3D0F00, 0x4111)} == {allow}
    assert {decided(machine, own, clone, 1 << bit | 17) for bit in (17, 25, 26, 27, 28, 29, 30)} == {refuse}
    assert {family for family in range(46) if decided(machine, own, opened, family) == allow} == {1, 2, 10, 16}
    assert decided(machine, other, 0) == kill


def test_machine_without_a_seccomp_filter_is_refused_with_instructions():
    with pytest.raises(Refused, match=r"no seccomp filter for s390x.*use containers, or set command_sandbox = none"):
        seccomp.filter_of("s390x")
