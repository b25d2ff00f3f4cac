"""The processes below a command that measures or strikes."""

import time
from collections.abc import Callable, Sequence

import psutil


def command_of(process: psutil.Process) -> str:
    """Return its command line; of one that has just ended, none."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def until_below(pid: int, is_whole: Callable[[Sequence[str]], bool], seconds: float = 60) -> list[psutil.Process]:
    """Return everything below a process, once the command lines there are what is waited for."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        family: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
        if is_whole([command_of(one) for one in family]):
            return family
        time.sleep(0.05)
    raise AssertionError("not all of it was started")
