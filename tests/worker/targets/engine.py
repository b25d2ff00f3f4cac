"""A container engine for tests: podman with runc, a store of its own, and an image made of busybox alone."""

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from duly.settings import engine_environment
from duly.worker.targets.orphans import Engine

IMAGE = "localhost/duly-test:1"
BUSYBOX = Path("/bin/busybox")
APPLETS = ("sh", "sleep", "cat", "echo", "env", "id", "head", "touch", "ls", "true", "tr", "grep", "wc")
# What a machine without the right to raise limits needs.
OPTIONS = ("--pull=never", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000")


def skip_without_engine() -> None:
    """Skip, naming the first package that is missing."""
    for package in ("podman", "runc"):
        if shutil.which(package, path="/usr/sbin:/usr/bin:/sbin:/bin") is None:
            pytest.skip(f"needs the Debian package {package}")
    if not BUSYBOX.exists() or subprocess.run(["ldd", BUSYBOX], capture_output=True, check=False).returncode == 0:
        pytest.skip("needs the Debian package busybox-static")
    if os.geteuid() != 0:
        pytest.skip("needs root: podman with a store of its own")


@contextmanager
def an_engine() -> Iterator[Engine]:
    """Set an engine up in a folder; at the end nothing is left of it."""
    skip_without_engine()
    podman = str(shutil.which("podman"))
    folder = Path(tempfile.mkdtemp(prefix="duly-"))  # Podman takes no longer path than this.
    slots = (f"--root={folder / 'store'}", f"--runroot={folder / 'run'}", f"--tmpdir={folder / 'tmp'}")
    engine = Engine((podman, *slots, "--cgroup-manager=cgroupfs", "--runtime=runc"), OPTIONS, engine_environment())
    archive = folder / "image.tar"
    _write_image(archive)
    ask(engine, "import", str(archive), IMAGE)
    try:
        yield engine
    finally:
        ask(engine, "rm", "--all", "--force")
        subprocess.run(["umount", "--recursive", folder / "store" / "overlay"], capture_output=True, check=False)
        shutil.rmtree(folder)


def ask(engine: Engine, *words: str) -> str:
    """Ask the engine something."""
    finished = subprocess.run([*engine.command, *words], capture_output=True, text=True, timeout=60, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


def names(engine: Engine) -> list[str]:
    """List every container there is, running or not."""
    return ask(engine, "ps", "--all", "--format", "{{.Names}}").split()


def _write_image(archive: Path) -> None:
    with tarfile.open(archive, "w") as tar:
        tar.add(BUSYBOX, "bin/busybox")
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
