"""Prometheus's own judge of rules, configurations and expressions."""

from __future__ import annotations

import shutil
import subprocess

import pytest

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="needs the Debian package prometheus: promtool")


def promtool(*arguments):
    """Run it, and give what it says; it must be content."""
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *map(str, arguments)], capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
