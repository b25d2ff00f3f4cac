"""One module for each system. Its class is the `System` in it, and its name the one the command line takes."""

from __future__ import annotations

from importlib import import_module

from benchmarks.peers.system import System


def of_module(name: str) -> type[System]:
    """Return the system that a module has. It is loaded only where its packages are installed."""
    found: type[System] = import_module(name).Adapter
    return found
