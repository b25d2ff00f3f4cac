"""One measurement: `python -m benchmarks.peers.measure MODULE SCENARIO SCALE`.

The figures are one JSON object, on the last line of standard output.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys

import uvloop

from benchmarks.peers.adapters import of_module
from benchmarks.peers.scenarios import SCENARIOS, Sizes


def main() -> None:
    """Make the system's schema, and measure."""
    module, scenario, scale = sys.argv[1:]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # So that the workers are ended then, too.
    system = of_module(module)()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(system.create())
        print(json.dumps(SCENARIOS[scenario](system, Sizes().scaled(float(scale)), runner.run)))


if __name__ == "__main__":
    main()
