"""What stays as long as the process does is spared by the garbage collector.

Each batch of runs makes enough objects to set it going, and it would look through everything that was ever imported to find
that all of it is still there: a twelfth of a worker's CPU. It is for processes that are a worker and nothing else.
"""

from __future__ import annotations

import gc


def spare_what_stays() -> None:
    """Let the collector leave alone all that is there by now, and look only at what comes."""
    gc.collect()
    gc.freeze()
