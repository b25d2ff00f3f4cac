"""One attempt: whatever a handler does is an outcome, and every outcome can be stored."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duly.domain.errors import InvalidWorkflow
from duly.domain.runs.outcome import Cancelled, Failed, Outcome, Snoozed, Succeeded, TimedOut
from duly.domain.runs.payload import RESULT_BYTES_MAX
from duly.worker import context as hand
from duly.worker.context import LeaseLost, NonRetryable, RunContext, Snooze
from duly.worker.execute.attempt import INTERRUPTED, attempt_in_thread, attempt_on_loop, succeeded
from duly.worker.handlers import Handler
from tests.worker.stories import a_run


class NoDesk:
    """These stories write nothing while they run."""


def a_context(**changes: Any) -> RunContext:
    return RunContext(a_run(**changes), NoDesk())  # type: ignore[arg-type]


def attempted(function: Any, *, context: RunContext | None = None, payload: str = "{}") -> Outcome:
    return attempt_in_thread(Handler(function, name="work"), context or a_context(), payload)


async def attempted_on_loop(
    function: Any, *, context: RunContext | None = None, timeout: float | None = None
) -> Outcome:
    return await attempt_on_loop(Handler(function, name="work"), context or a_context(), "{}", timeout)


def raising(error: BaseException):
    def work() -> None:
        raise error

    async def work_on_loop() -> None:
        raise error

    return work, work_on_loop


async def outcomes_of(error: BaseException, context: RunContext | None = None) -> Outcome:
    """Raise an error in a plain and in an async handler; both must mean the same."""
    work, work_on_loop = raising(error)
    in_thread = attempted(work, context=context)
    on_loop = await attempted_on_loop(work_on_loop, context=context)
    if isinstance(in_thread, Failed):
        assert isinstance(on_loop, Failed)
        assert (in_thread.reason, in_thread.retryable) == (on_loop.reason, on_loop.retryable)
    else:
        assert in_thread == on_loop
    return in_thread


def detail_of(outcome: Outcome) -> dict[str, str]:
    assert isinstance(outcome, Failed | TimedOut)
    assert outcome.detail is not None
    detail: dict[str, str] = msgspec.json.decode(outcome.detail)
    return detail


# ------------------------------------------------------------------------------------------------------------ exceptions


async def test_a_workflow_that_cannot_be_kept_is_not_tried_again():
    outcome = await outcomes_of(InvalidWorkflow("nodes depend on each other in a cycle: a → b → a"))

    assert isinstance(outcome, Failed)
    assert not outcome.retryable


async def test_an_exception_is_a_failure_with_its_traceback():
    outcome = await outcomes_of(ValueError("no such customer"))
    assert isinstance(outcome, Failed)
    assert outcome.retryable
    assert outcome.reason == "ValueError: no such customer"
    assert detail_of(outcome)["type"] == "ValueError"
    assert "raise error" in detail_of(outcome)["traceback"]


async def test_an_exception_without_words_is_named_by_its_type():
    outcome = await outcomes_of(KeyError())
    assert isinstance(outcome, Failed)
    assert outcome.reason == "KeyError"


async def test_non_retryable_means_no_other_attempt():
    outcome = await outcomes_of(NonRetryable("the account is closed"))
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert "the account is closed" in outcome.reason


async def test_arguments_that_do_not_fit_are_not_tried_again():
    def work(number: int) -> None: ...

    outcome = attempted(work, payload='{"number": "seven"}')
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert "number" in outcome.reason


async def test_a_snooze_is_no_failure():
    assert await outcomes_of(Snooze("PT5M")) == Snoozed(timedelta(minutes=5))


@pytest.mark.parametrize(
    "error",
    [asyncio.CancelledError(), hand.Cancelled("asked"), LeaseLost("taken")],
    ids=lambda error: type(error).__name__,
)
async def test_cancelled_run_ends_as_cancelled_whatever_its_handler_raises(error):
    context = a_context()
    context.mark_cancelled()
    assert await outcomes_of(error, context) == Cancelled()


async def test_a_cancelled_run_that_fails_for_another_reason_has_failed():
    context = a_context()
    context.mark_cancelled()
    assert isinstance(await outcomes_of(ValueError("broken"), context), Failed)


async def test_unrequested_interruption_fails_the_attempt_and_may_be_retried():
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.sleep(60)

    task = asyncio.create_task(attempted_on_loop(work))
    await begun.wait()
    task.cancel()

    assert await task == Failed(INTERRUPTED)


async def test_handler_that_awaits_a_cancelled_task_is_not_reported_as_interrupted():
    async def work() -> None:
        waited_for = asyncio.create_task(asyncio.sleep(60))
        waited_for.cancel()
        await waited_for

    outcome = await attempted_on_loop(work)

    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.retryable) == ("CancelledError", True)
    assert "await waited_for" in (outcome.detail or "")


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=lambda error: type(error).__name__
)
async def test_worker_survives_an_exit_raised_by_a_handler(error):
    work, work_on_loop = raising(error)
    assert isinstance(attempted(work), Failed)
    assert isinstance(await attempted_on_loop(work_on_loop), Failed)


async def test_exception_without_readable_text_is_recorded_as_a_failure():
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    outcome = await outcomes_of(Unspeakable())
    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("Unspeakable: ")
    assert detail_of(outcome)["type"] == "Unspeakable"


async def test_a_traceback_of_any_length_is_kept_from_its_end():
    def deeper(depth: int) -> None:
        if depth == 0:
            raise ValueError("at the bottom " + "x" * 10_000)
        deeper_still(depth)

    def deeper_still(depth: int) -> None:
        deeper(depth - 1)

    def work() -> None:
        deeper(300)

    outcome = attempted(work)
    assert isinstance(outcome, Failed)
    assert len(outcome.reason) <= 2_000
    traceback = detail_of(outcome)["traceback"]
    assert len(traceback) <= 16_384
    assert "at the bottom" in traceback


# --------------------------------------------------------------------------------------------------------------- timeouts


async def test_an_async_handler_past_its_timeout_is_stopped():
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    outcome = await attempted_on_loop(work, timeout=0.01)
    assert isinstance(outcome, TimedOut)
    assert outcome.reason == "timed out after 0.01 s"
    assert stopped.is_set()


async def test_a_timeout_of_the_handlers_own_is_a_failure_like_any_other():
    async def work() -> None:
        raise TimeoutError("the other side did not answer")

    outcome = await attempted_on_loop(work, timeout=60)
    assert isinstance(outcome, Failed)
    assert "the other side" in outcome.reason


async def test_handler_that_ends_within_its_timeout_succeeds():
    async def work() -> int:
        return 7

    assert await attempted_on_loop(work, timeout=60) == Succeeded("7")


# ---------------------------------------------------------------------------------------------------------------- results


@dataclass
class Point:
    x: int
    label: str


def test_nothing_is_a_result_too():
    assert succeeded(None) == Succeeded()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, 2.5, None, True]}, '{"a":[1,2.5,null,true]}'),
        (Point(1, "here"), '{"x":1,"label":"here"}'),
        ("grün", '"grün"'),
        (float("nan"), "null"),
        (2**80, "1208925819614629174706176"),
    ],
)
def test_a_result_is_kept_as_json(value, text):
    assert succeeded(value) == Succeeded(text)


@pytest.mark.parametrize(
    "value",
    [
        "a\0b",
        "a\ud800b",
        {"key\0": "x"},
        {"key\udfff": "x"},
        ["deep", {"in": ["it", "\0\ud800"]}],
        Point(1, "\0"),
        Point(1, "\ud800"),
        {1: "\ud800"},
    ],
    ids=ascii,
)
def test_result_replaces_characters_that_postgresql_cannot_store(value):
    outcome = succeeded(value)
    assert isinstance(outcome, Succeeded)
    assert outcome.result is not None
    outcome.result.encode()
    assert "\\u0000" not in outcome.result
    assert "\\ud800" not in outcome.result


@pytest.mark.parametrize("value", [object(), {"a": {1, object()}}, 1j], ids=["object", "object within", "complex"])
def test_result_that_is_not_json_fails_without_a_retry_and_states_why(value):
    outcome = succeeded(value)
    assert isinstance(outcome, Failed)
    assert not outcome.retryable
    assert "not JSON" in outcome.reason


def test_result_nested_too_deeply_is_a_success_and_is_not_stored():
    fits, endless = nested(64), nested(1)
    endless.append(endless)
    assert succeeded(fits) == Succeeded("[" * 64 + "]" * 64)
    assert succeeded(["[" * 65]) == Succeeded(f'["{"[" * 65}"]'), "what stands in a text is not deep"
    for too_deep in (nested(65), {"a": nested(64)}, nested(975), nested(3000), endless):
        outcome = succeeded(too_deep)
        assert isinstance(outcome, Succeeded)
        assert outcome.result is None
        assert outcome.reason == (
            "result nested deeper than 64 levels was not kept; flatten it, or store it elsewhere and return a"
            " reference to it"
        )


def nested(levels: int) -> list[Any]:
    """Give a list that is nested so deep."""
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_a_result_that_is_too_large_is_a_success_and_is_not_kept():
    fits, too_large = "x" * (RESULT_BYTES_MAX - 2), "x" * (RESULT_BYTES_MAX - 1)
    assert succeeded(fits) == Succeeded(f'"{fits}"')
    outcome = succeeded(too_large)
    assert isinstance(outcome, Succeeded)
    assert outcome.result is None, "nothing that could be taken for a result"
    assert outcome.reason == (
        "its result was 65,537 bytes and is not kept: results up to 65,536 bytes are;"
        " store it elsewhere and return a reference to it"
    )
    told = {"not_kept": "by the handler's own word"}
    assert succeeded(told) == Succeeded(msgspec.json.encode(told).decode())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(categories=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(categories=None)), inner),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(json_values)
def test_outcome_is_storable_for_any_handler_result(value):
    outcome = succeeded(value)
    assert isinstance(outcome, Succeeded | Failed)
    text = outcome.result if isinstance(outcome, Succeeded) else outcome.reason
    assert "\0" not in (text or "").encode().decode()


@given(st.text(st.characters(categories=None)))
def test_outcome_is_storable_for_any_error_message(words):
    def work() -> None:
        raise ValueError(words)

    outcome = attempted(work)
    assert isinstance(outcome, Failed)
    assert "\0" not in outcome.reason.encode().decode()
    assert "\\u0000" not in (outcome.detail or "").encode().decode().replace("\\\\u0000", "")
