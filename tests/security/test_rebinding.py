"""A name that leads to a public address while it is checked, and inside a moment later: with a real name server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.security.rebinding import CALLS, PRIVATE, PUBLIC

ROOT = Path(__file__).parents[2]
NAMESPACES = ["unshare", "--net", "--mount"]


def why_not() -> str | None:
    if os.geteuid() != 0 or shutil.which("unshare") is None or shutil.which("ip") is None:
        return "needs root, unshare and ip, to make a network namespace"
    probe = subprocess.run([*NAMESPACES, "ip", "link", "set", "lo", "up"], capture_output=True, text=True, check=False)
    return None if probe.returncode == 0 else f"no network namespace can be made here: {probe.stderr.strip()}"


@pytest.fixture(scope="module")
def happened(tmp_path_factory):
    if reason := why_not():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("namespace")
    (folder / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
    (folder / "nsswitch.conf").write_text("hosts: files dns\n")
    mounts = " && ".join(
        f"{{ [ ! -e /etc/{name} ] || mount --bind {folder / name} /etc/{name}; }}"
        for name in ("resolv.conf", "nsswitch.conf")
    )
    script = f"{mounts} && exec {sys.executable} -m tests.security.rebinding"
    done = subprocess.run(
        [*NAMESPACES, "sh", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_client_that_checks_and_then_looks_up_again_is_led_inside(happened):
    """The trap works: else the next test would show nothing."""
    assert happened["naive"] == [PRIVATE]


def test_pinned_address_is_called(happened):
    assert happened["visits"] == [PUBLIC] * (CALLS // 2)
    assert happened["outcomes"] == [200, "NotFound"] * (CALLS // 2)


def test_a_call_looks_the_name_up_once(happened):
    assert len(happened["told"]) == 2 + CALLS
