"""Rules and expiry in a real worker: what its handlers raise is known by its class, and nothing starts too late."""

import asyncio

import pytest

from duly.domain.runs.options import options_of
from duly.domain.runs.retry import Retry
from duly.domain.runs.retry_rules import Rule
from duly.moves.submit import submit
from duly.store.boxes import runs
from duly.worker.handlers import Handler, Registry
from tests.builders import a_key, a_submission
from tests.worker import app
from tests.worker.stories import attempts_of, ended, registry_of, submitted, working


class OutOfStock(LookupError):
    """An error of a user's own."""


def bury(error: str) -> Retry:
    return Retry(max_attempts=5, base_seconds=0.001, rules=(Rule("dead", error=error),))


async def test_an_error_is_known_by_its_class_and_those_above_it_on_the_loop_and_in_threads(url, store):
    async def on_loop() -> None:
        raise OutOfStock("none left")

    def in_thread() -> None:
        raise OutOfStock("none left")

    async with working(url, registry_of(on_loop, in_thread)):
        for handler in ("on_loop", "in_thread"):
            run_id = await submitted(store, handler, retry=bury("LookupError"))
            assert await ended(store, run_id) == "dead"
            assert await attempts_of(store, run_id) == [(1, "failed")]


async def test_a_rule_of_its_handler_holds_for_a_run_that_was_submitted_without_a_word(url, store):
    seen = []

    async def work() -> None:
        seen.append(1)
        raise OutOfStock("none left")

    rules = (Rule("snooze", error="OutOfStock", delay_seconds=0.001),)
    registry = Registry()
    registry.add(Handler(work, options=options_of(retry=Retry(max_attempts=1, max_age_seconds=1.5, rules=rules))))
    async with working(url, registry):
        run_id = (await submit(store, a_submission(handler="work"), key=a_key())).job_id
        assert await ended(store, run_id) == "dead"

    found = await runs.find(store, run_id)
    assert found is not None
    assert "max age of PT1.5S" in found["reason"]
    assert len(seen) > 1, "a snooze uses up no attempt, and its handler's rules still hold after it"


async def test_run_that_expires_before_its_start_is_never_called(url, store):
    called = []

    async def hold() -> None:
        await asyncio.sleep(1.2)

    async def work() -> None:
        called.append(1)

    async with working(url, registry_of(hold, work), slots=1):
        await submitted(store, "hold")
        late = await submitted(store, "work", expires_after=0.3)
        in_time = await submitted(store, "work", expires_after=60)
        assert await ended(store, in_time) == "succeeded"
        assert await ended(store, late) == "expired"

    assert called == [1]
    found = await runs.find(store, late)
    assert found is not None
    assert found["reason"].startswith("expired at ")
    assert [attempt["outcome"] for attempt in found["attempts"]] == ["skipped"]


async def test_child_process_reports_the_exception_classes(url, store):
    async with working(url, app.app.registry, app_path=app.PATH, threads=2):
        run_id = await submitted(store, "fail", payload={"words": "no"}, timeout=30, retry=bury("builtins.ValueError"))
        assert await ended(store, run_id) == "dead"

    assert await attempts_of(store, run_id) == [(1, "failed")]


@pytest.mark.parametrize(("handler", "timeout"), [("add_on_loop", None), ("add", None), ("add", 30.0)], ids=str)
async def test_unrepresentable_expiry_costs_neither_its_run_nor_a_slot(url, store, handler, timeout):
    """Milliseconds where seconds were meant."""
    run_id = await submitted(store, handler, payload={"a": 1, "b": 2}, timeout=timeout)
    await store.execute("update duly.ready set options = options || '{\"expires_at\": 1799999999000}'")
    async with working(url, app.app.registry, app_path=app.PATH, slots=1, threads=1):
        assert await ended(store, run_id) == "succeeded"
        again = await submitted(store, handler, payload={"a": 1, "b": 2}, timeout=timeout)
        assert await ended(store, again) == "succeeded"
