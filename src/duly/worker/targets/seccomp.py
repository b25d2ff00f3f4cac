"""The seccomp filter of sandboxed commands, as a program of classic BPF for `bwrap --seccomp`.

It refuses system calls that no command needs: keyrings, namespaces, mounts, other processes' memory, kernel modules,
and parts of the kernel with a history of holes. A command cannot make calls newer than the filter, so that each new one
is reviewed here first; nor those with another architecture's numbers. Sockets are limited to the network namespace.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct

from duly.domain.errors import Refused

# The numbers on x86_64 and aarch64; None: there is no such call.
_NEEDLESS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, None),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
_CLONE, _SOCKET = (56, 220), (41, 198)
_CLONE3 = 435  # its flags lie in memory, where no filter sees them; the C library falls back to clone
_NEWEST = 462  # mseal, of Linux 6.10: the last one reviewed
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_NEW_NAMESPACES = 0x7E020000  # all of clone's CLONE_NEW…
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)

# Of linux/bpf_common.h and linux/seccomp.h.
_LOAD, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
# Offsets in seccomp_data; both machines have the low half first.
_CALL, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000


def filter_of(machine: str | None = None) -> bytes:
    """Return the filter for a machine, by default this one. Raises Refused where there is none for it."""
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        raise Refused(
            f"commands need a sandbox, and there is no seccomp filter for {machine}, only for {', '.join(_ARCHITECTURES)};"
            " use containers, or set command_sandbox = none to do without, which lets a command see what its user may see"
        )
    column, architecture = _ARCHITECTURES[machine]
    needless = [numbers[column] for numbers in _NEEDLESS.values() if numbers[column] is not None]
    return _assembled(
        [
            (_LOAD, _ARCHITECTURE),
            (_EQUAL, architecture, "known", "kill"),
            "known",
            (_LOAD, _CALL),
            (_GREATER, _NEWEST, "missing", None),
            (_EQUAL, _CLONE3, "missing", None),
            (_EQUAL, _CLONE[column], "clone", None),
            (_EQUAL, _SOCKET[column], "socket", None),
            *((_EQUAL, number, "refused", None) for number in needless),
            (_RETURN, _ALLOW),
            "clone",
            (_LOAD, _FIRST_ARGUMENT),
            (_ANY_BIT, _NEW_NAMESPACES, "refused", "allowed"),
            "socket",
            (_LOAD, _FIRST_ARGUMENT),
            *((_EQUAL, int(family), "allowed", None) for family in _FAMILIES),
            (_RETURN, _ERROR | errno.EAFNOSUPPORT),
            "allowed",
            (_RETURN, _ALLOW),
            "refused",
            (_RETURN, _ERROR | errno.EPERM),
            "missing",
            (_RETURN, _ERROR | errno.ENOSYS),
            "kill",
            (_RETURN, _KILL),
        ]
    )


def _assembled(lines: list[str | tuple[object, ...]]) -> bytes:
    """Assemble instructions, `(code, operand[, label if so, label if not])`, and the labels between them; None: the next one."""
    labels: dict[str, int] = {}
    instructions: list[tuple[object, ...]] = []
    for line in lines:
        if isinstance(line, str):
            labels[line] = len(instructions)
        else:
            instructions.append(line)
    packed = b""
    for index, (code, operand, *targets) in enumerate(instructions):
        skips = [0 if target is None else labels[str(target)] - index - 1 for target in targets or (None, None)]
        packed += struct.pack("=HBBI", code, *skips, operand)
    return packed
