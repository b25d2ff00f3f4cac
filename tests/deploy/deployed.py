"""Where what users install is, and the programs that judge it."""

import sys
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
