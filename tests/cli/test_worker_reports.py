"""The reports of a `duly up`'s workers: each line is a process's metrics, whatever became of the process."""

import asyncio
import os

import msgspec

from duly.api.metrics.definitions import one
from duly.cli.up.figures import Report, Reports


def a_report(process: int, value: int) -> bytes:
    return msgspec.json.encode(Report(process, [one("duly_worker_runs_started_total", value)])) + b"\n"


async def test_report_that_a_kill_has_cut_off_is_left_out_and_the_next_are_read():
    reports = Reports()
    reading = asyncio.create_task(reports.keep_reading())
    try:
        os.write(reports.descriptor, a_report(1, 3) + a_report(1, 4)[:40] + a_report(2, 1) + a_report(2, 2))
        async with asyncio.timeout(30):
            while [list(family.samples) for family in reports.families()] != [[((), 3)], [((), 2)]]:
                assert not reading.done()
                await asyncio.sleep(0.01)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        os.close(reports.descriptor)
