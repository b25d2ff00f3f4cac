"""The files that users install, the programs that judge them, and a first job for an installation."""

import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "duly"
UNITS = DEPLOY / "systemd"
DOCKERFILE = ROOT / "Dockerfile"
TOOLS = Path(sys.prefix) / "bin"


def program(name: str) -> str:
    """Return the path of a program that the development environment has on Linux."""
    if not (TOOLS / name).exists():
        pytest.skip(f"{name} is not installed: its wheel is for Linux on x86_64")
    return str(TOOLS / name)


def documents(text: str) -> Iterator[dict[str, Any]]:
    """Read each document of a YAML stream that is not empty."""
    yield from filter(None, yaml.safe_load_all(text))


def submit(address: str, key: str) -> int:
    """Run a job on a worker whose app has the handler `double`, and return its result."""
    job = {"target": {"type": "function", "handler": "double"}, "payload": {"number": 21}}
    asked = urllib.request.Request(f"{address}/v1/jobs", json.dumps(job).encode())
    for name, value in (
        ("Authorization", f"Bearer {key}"),
        ("Content-Type", "application/json"),
        ("Prefer", "wait=30"),
    ):
        asked.add_header(name, value)
    with urllib.request.urlopen(asked, timeout=40) as answer:
        return int(json.load(answer)["run"]["result"])
