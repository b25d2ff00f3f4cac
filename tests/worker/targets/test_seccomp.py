"""The filter of sandboxed commands as a program: its numbers, and where it is refused. `tests/security` tries it from inside."""

import re
from pathlib import Path

import pytest

from duly.domain.errors import Refused
from duly.worker.targets import seccomp

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


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_jump_leads_forward_to_an_instruction_of_the_filter(machine):
    program = seccomp.filter_of(machine)
    instructions = [program[at : at + 8] for at in range(0, len(program), 8)]

    assert len(program) % 8 == 0
    assert all(at + 1 + max(one[2], one[3]) < len(instructions) for at, one in enumerate(instructions[:-1]))
    assert instructions[-1] == bytes.fromhex("0600000000000080")  # return, kill the process


def test_a_machine_without_a_filter_is_refused_with_what_to_do():
    with pytest.raises(Refused, match=r"no seccomp filter for s390x.*use containers, or set command_sandbox = none"):
        seccomp.filter_of("s390x")
