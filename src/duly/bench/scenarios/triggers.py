"""`triggers`: what a schedule costs: compiling it, asking for its next moment, finding a cohort's, and the worst input known.

`runs_per_second` is how many next moments one core computes, at the median trigger; there is no baseline, because bare SQL
knows no schedules.
"""

from __future__ import annotations

import msgspec

from duly.bench import triggers
from duly.bench.bench import Bench
from duly.bench.report import Result, rate


class Options(msgspec.Struct, frozen=True):
    """Nothing can be chosen: the corpus is part of the measure."""


async def measure(bench: Bench, options: Options) -> Result:
    """Measure every trigger of the corpus."""
    figures = triggers.measure()
    return Result(
        scenario="triggers",
        config=bench.config(options, corpus=len(triggers.CORPUS)),
        runs_per_second=rate(1, figures["next_us_median"] / 1e6),
        baseline_per_second=None,
        ratio=None,
        more=figures,
    )
