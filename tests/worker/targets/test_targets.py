"""A target in a worker: what it comes to, how it is stopped, and that it never takes a function's place."""

import asyncio

import pytest

from duly.domain.runs.outcome import Failed, Succeeded, WaitForDestination
from duly.domain.targets.target import WEBHOOK, Webhook
from duly.store.boxes import history
from duly.worker.handlers import Registry
from duly.worker.slots import Kind
from duly.worker.targets import TargetHandler, Targets
from tests.worker.stories import attempts_of, ended, state_of, submitted, until, working

TARGET = Webhook(url="https://hooks.example/")


def sending(attempt, **more) -> Targets:
    return Targets([TargetHandler(WEBHOOK, Kind.WEBHOOK, attempt, **more)])


async def test_target_receives_its_run_and_returns_the_outcome(url, store):
    seen = []

    async def attempt(context, run):
        seen.append((context.attempt, run.policy.target, run.payload))
        return Succeeded('"sent"') if context.attempt == 2 else Failed("not yet")

    async with working(url, Registry(), targets=sending(attempt)):
        run_id = await submitted(store, WEBHOOK, payload={"a": 1}, target=TARGET)
        assert await ended(store, run_id) == "succeeded"

    assert [(number, target) for number, target, _ in seen] == [(1, TARGET), (2, TARGET)]
    assert await attempts_of(store, run_id) == [(1, "failed"), (2, "succeeded")]


@pytest.mark.parametrize(("applies_timeout", "state"), [(False, "dead"), (True, "succeeded")])
async def test_target_is_stopped_by_its_run_timeout_unless_it_keeps_time_itself(url, store, applies_timeout, state):
    async def attempt(context, run):
        await asyncio.sleep(0.2)
        return Succeeded()

    async with working(url, Registry(), targets=sending(attempt, applies_timeout=applies_timeout)):
        run_id = await submitted(store, WEBHOOK, target=TARGET, timeout=0.05)
        assert await ended(store, run_id) == state


async def test_target_exception_becomes_an_outcome(url, store):
    async def attempt(context, run):
        raise TimeoutError("of its own")

    async with working(url, Registry(), targets=sending(attempt)):
        run_id = await submitted(store, WEBHOOK, target=TARGET)
        assert await ended(store, run_id) == "dead"

    assert {outcome for _, outcome in await attempts_of(store, run_id)} == {"failed"}


async def test_run_waiting_for_its_destination_is_blocked_and_uses_no_attempt(url, store):
    async def attempt(context, run):
        return WaitForDestination("https://hooks.example")

    async with working(url, Registry(), targets=sending(attempt)) as worker:
        run_id = await submitted(store, WEBHOOK, target=TARGET)
        await until(lambda: _is_blocked(store, run_id))
        await until(lambda: worker.health.running == 0)

    assert await attempts_of(store, run_id) == []
    assert await history.verify(store) == []


async def _is_blocked(store, run_id):
    return await state_of(store, run_id) == "blocked"
