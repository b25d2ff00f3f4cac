"""Output of handlers in child processes, and of loggers, goes to the run's log, within bounds."""

import asyncio
import logging
import threading
from contextlib import asynccontextmanager

from duly.store.boxes import runs
from duly.worker.context import RunContext
from duly.worker.execute import child
from duly.worker.execute.run_logging import RunLogHandler
from tests.worker import app
from tests.worker.family import is_gone
from tests.worker.stories import ended, registry_of, submitted, until, working


@asynccontextmanager
async def in_children(url):
    """A worker whose plain functions run in child processes, because they have a timeout."""
    async with working(url, app.app.registry, app_path=app.PATH) as worker:
        yield worker


async def told(store, url, handler, **payload) -> list[tuple[str, str]]:
    """Run a handler in a child, and give the levels and messages of its log."""
    async with in_children(url):
        run_id = await submitted(store, handler, payload=payload, timeout=60)
        assert await ended(store, run_id) == "succeeded"
    return await lines_of(store, run_id)


async def lines_of(store, run_id) -> list[tuple[str, str]]:
    found, after = [], (0, -1)
    while page := await runs.read_logs(store, run_id, after):
        found += [(line["level"], line["message"]) for line in page]
        after = (page[-1]["attempt"], page[-1]["number"])
    return found


async def test_everything_that_is_written_is_a_line_of_the_log(url, store):
    lines = await told(store, url, "speak")

    assert [message for level, message in lines if level == "stdout"] == [
        "plainly",
        "half a line and its end",
        "past Python",
        "\ufffd\ufffd",
        "by a child",
        "without an end",
    ]
    assert ("stderr", "wrong") in lines
    assert ("info", "by the run") in lines
    assert ("warning", "by a logger, formatted") in lines


async def test_a_line_is_there_while_the_handler_runs(url, store, tmp_path):
    async with in_children(url):
        run_id = await submitted(store, "leave_one_behind", payload={"mark": str(tmp_path / "mark")}, timeout=60)
        await until(lambda: lines_of(store, run_id))
        assert await ended(store, run_id) == "succeeded"
        after = await submitted(store, "speak", timeout=60)
        assert await ended(store, after) == "succeeded"
    assert ("stdout", "late") not in await lines_of(store, after), "what was left behind belongs to no other run"
    assert ("stdout", "ended") in await lines_of(store, run_id)
    await until(lambda: is_gone((tmp_path / "mark").read_text()))


async def test_of_much_only_so_much_is_kept_and_the_last_line_counts_the_rest(url, store):
    lines = await told(store, url, "shout", lines=5_000, length=999)

    *kept, (level, message) = lines
    assert sum(len(text) for _, text in kept) <= child.LOG_BYTES_MAX
    assert level == "warning"
    assert "dropped" in message
    [row] = await store.fetch("select fields::text from duly.logs where level = 'warning'")
    assert row[0] == f'{{"lines": {5_000 - len(kept)}}}'


async def test_a_line_that_is_too_long_is_cut_into_several(url, store):
    lines = await told(store, url, "shout", lines=1, length=20_000)

    assert [len(text) for _, text in lines] == [8_192, 8_192, 3_616]


async def test_the_next_attempt_of_a_child_begins_with_a_budget_of_its_own(url, store):
    async with in_children(url):
        ids = []
        for _ in range(2):
            ids.append(await submitted(store, "shout", payload={"lines": 2_000, "length": 999}, timeout=60))
            assert await ended(store, ids[-1]) == "succeeded"
    counts = [len(await lines_of(store, run_id)) for run_id in ids]
    assert counts[0] == counts[1] > 1_000


async def test_progress_in_a_tight_loop_arrives_with_its_last_word(url, store, monkeypatch):
    writes = []
    real = runs.save_progresses

    async def counted(*args):
        writes.append(args)
        await real(*args)

    monkeypatch.setattr(runs, "save_progresses", counted)
    async with in_children(url):
        for timeout in (60, None):  # in a child, and in a thread
            run_id = await submitted(store, "report_often", payload={"times": 100_000}, timeout=timeout)
            assert await ended(store, run_id) == "succeeded"
            shown = await runs.read_progress(store, run_id)
            assert shown
            assert (shown["done"], shown["total"], shown["fraction"]) == (100_000, 100_000, 1.0)
    assert len(writes) < 100, "it takes seconds at most, and a few writes a second"


async def test_logger_records_go_to_the_run_whose_handler_emits_them(url, store):
    logger = logging.getLogger("duly.tests.captured")
    logger.setLevel(logging.DEBUG)
    handler = RunLogHandler()
    logger.addHandler(handler)
    both = asyncio.Barrier(2)

    async def work(name: str) -> None:
        logger.info("begin %s", name)
        await both.wait()
        logger.error("end %s", name)

    def work_in_thread(run: RunContext, name: str) -> None:
        logger.debug("in %s of %s", name, threading.current_thread().name[:7])

    try:
        logger.warning("outside of any run")
        async with working(url, registry_of(work, work_in_thread)):
            ids = [await submitted(store, "work", payload={"name": name}) for name in ("one", "two")]
            ids.append(await submitted(store, "work_in_thread", payload={"name": "three"}))
            for run_id in ids:
                assert await ended(store, run_id) == "succeeded"
    finally:
        logger.removeHandler(handler)

    assert [await lines_of(store, run_id) for run_id in ids] == [
        [("info", "begin one"), ("error", "end one")],
        [("info", "begin two"), ("error", "end two")],
        [("debug", "in three of handler")],
    ]
