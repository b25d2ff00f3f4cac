"""A small disk under one folder of a PostgreSQL that stands still, and what fills it."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

MEBIBYTE = 1024 * 1024


@contextmanager
def a_small_disk(folder: Path, mebibytes: int) -> Iterator[Path]:
    """Put a disk of its own under `folder`, with all that is in it. The test is skipped where we may not."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root and the Debian package mount, for a disk that is soon full")
    owner, aside = folder.stat(), folder.with_name(f"{folder.name}.aside")
    folder.rename(aside)
    folder.mkdir(mode=0o700)
    options = f"size={mebibytes}m,mode=0700,uid={owner.st_uid},gid={owner.st_gid}"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=False).returncode:
        pytest.skip("needs the right to mount, CAP_SYS_ADMIN, for a disk that is soon full")
    try:
        subprocess.run(["cp", "-a", f"{aside}/.", folder], check=True)
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def filled(disk: Path, *, leaving: int) -> Iterator[None]:
    """Fill a disk but for so many bytes, until the end of the `with`."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        while (size := _free_bytes(disk) - leaving) > 0:
            # A server that lives may take some of it between the look and the taking, as it does for its next segment of log.
            with suppress(OSError):
                os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), size)
    try:
        yield
    finally:
        filler.unlink()


def _free_bytes(disk: Path) -> int:
    space = os.statvfs(disk)
    return space.f_bavail * space.f_frsize
