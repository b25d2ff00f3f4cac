"""The processes of a worker: who lives, and who is gone."""

from importlib import import_module
from typing import Any

psutil: Any = import_module("psutil")  # It comes without types.


def children(module: str) -> list[Any]:
    """Find the living children of this process that run a module."""
    return [child for child in psutil.Process().children() if not is_gone(child.pid) and module in command_of(child)]


def family_of(pid: int) -> list[int]:
    """Number everyone who descends from a process."""
    return [member.pid for member in psutil.Process(pid).children(recursive=True)]


def command_of(process: Any) -> list[str]:
    """Give a process's command; of one that is gone, nothing."""
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def is_gone(pid: str | int) -> bool:
    """Say whether a process has ended, buried or not."""
    try:
        return bool(psutil.Process(int(pid)).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
