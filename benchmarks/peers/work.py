"""A worker process: `python -m benchmarks.peers.work MODULE`."""

from __future__ import annotations

import asyncio
import sys

import uvloop

from benchmarks.peers.adapters import of_module


def main() -> None:
    """Work until a signal ends it."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(of_module(sys.argv[1])().work())


if __name__ == "__main__":
    main()
