"""The watch: of two looks the later one counts, and silence is told from news that is old."""

import asyncio
from datetime import datetime
from types import SimpleNamespace

import pytest

from duly.domain.limits.pause import EVERYTHING, Pauses
from duly.store.boxes import runs
from duly.store.boxes.runs import News
from duly.store.connection.database import Unavailable
from duly.worker.watch import FRESH_SECONDS, HEAR_SECONDS, Watch
from tests.builders import RNG

HELD = Pauses([EVERYTHING])


class Hours:
    """A clock whose waits take the time they say, at once, unless woken."""

    def __init__(self) -> None:
        self.at = 100.0

    def monotonic(self) -> float:
        return self.at

    def observe(self, database_at: datetime) -> None: ...

    async def wait(self, event: asyncio.Event, seconds: float) -> None:
        await asyncio.sleep(0)
        if not event.is_set():
            self.at += seconds
        event.clear()


@pytest.fixture
def clock():
    return Hours()


@pytest.fixture
def watch(clock):
    return Watch(SimpleNamespace(clock=clock), RNG.uuid())  # type: ignore[arg-type]


@pytest.fixture
def answers(monkeypatch):
    """What the next looks are answered: holds, an error, or a future of holds."""
    waiting: list = []

    async def look(*_):
        answer = waiting.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return News([], await answer if isinstance(answer, asyncio.Future) else answer)

    monkeypatch.setattr(runs, "look", look)
    return waiting


async def test_news_is_fresh_for_a_period_from_its_request(watch, clock, answers):
    assert not watch.is_fresh
    answer = asyncio.get_running_loop().create_future()
    answers += [answer]
    looking = asyncio.create_task(watch.look())
    await asyncio.sleep(0)
    clock.at += FRESH_SECONDS
    answer.set_result(HELD)
    await looking

    assert watch.is_fresh
    assert watch.pauses == HELD
    clock.at += 0.001
    assert not watch.is_fresh


async def test_of_two_looks_the_one_that_was_sent_later_counts(watch, clock, answers):
    first = asyncio.get_running_loop().create_future()
    answers += [first, HELD]
    looking = asyncio.create_task(watch.look())
    await asyncio.sleep(0)
    clock.at += 0.1
    await watch.look()
    first.set_result(Pauses())
    await looking

    assert watch.pauses == HELD


async def test_catch_up_wakes_the_watch_and_waits_for_its_look(watch, clock, answers):
    answers += [HELD]

    async def look_when_woken() -> None:
        await watch.rest(60)
        await watch.look()

    looking = asyncio.create_task(look_when_woken())
    await watch.catch_up()
    await looking

    assert watch.is_fresh
    assert watch.pauses == HELD


async def test_a_silent_database_is_waited_for_once(watch, clock, answers):
    began = clock.at
    await watch.catch_up()
    assert clock.at - began == pytest.approx(HEAR_SECONDS)
    assert watch.is_fresh, "what we know must do"

    answers += [Pauses()]
    await watch.look()
    clock.at += FRESH_SECONDS + 0.1
    assert not watch.is_fresh, "it speaks again"


async def test_a_database_that_cannot_be_reached_is_silent_at_once(watch, answers):
    answers += [Unavailable("gone")]
    with pytest.raises(Unavailable):
        await watch.look()

    assert watch.is_fresh


async def test_an_answer_that_lay_there_while_we_were_frozen_is_not_news(watch, clock, answers):
    answer = asyncio.get_running_loop().create_future()
    answers += [answer]
    looking = asyncio.create_task(watch.look())
    await asyncio.sleep(0)
    clock.at += 5
    answer.set_result(Pauses())
    await looking

    assert not watch.is_fresh
