"""The outbox: outcomes reach the store, once, whatever the connection does."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import pytest

from duly.clock import Rng, moment_of
from duly.domain.runs.outcome import Awaited, Failed, Outcome, Succeeded, WaitForDestination
from duly.domain.runs.run import Run
from duly.log import Log
from duly.moves import settle as move
from duly.moves.defer import Deferred
from duly.moves.settle import End, Settled, Unstorable, end_of
from duly.store.connection.database import Database, Unavailable
from duly.worker import outbox as module
from duly.worker.outbox import Outbox, WriteLines
from tests.worker.stories import a_registered_worker, a_run, attempts_of, leased_runs, state_of, until


@pytest.fixture
async def worker_id(store):
    return await a_registered_worker(store)


def ended(database: Database, run: Run, outcome: Outcome | None = None) -> Settled:
    now = moment_of(database.clock.now())
    return Settled(run, now, now, outcome or Succeeded())


async def emptied(
    database: Database, worker_id, settled: Sequence[End | Deferred], write_lines: WriteLines | None = None
) -> tuple[Outbox, list[End | Deferred]]:
    """Put outcomes into an outbox and let it run until it is empty."""
    done: list[End | Deferred] = []
    outbox = Outbox(database, worker_id, rng=Rng(1), log=Log("test"), on_settled=done.extend, write_lines=write_lines)
    outbox.put(settled)
    outbox.close()
    await asyncio.wait_for(outbox.run(), 20)
    assert len(outbox) == 0
    return outbox, done


@pytest.mark.parametrize(
    ("error", "asked"), [(Unavailable("gone for a moment"), 2), (RuntimeError("a fault of our own"), 1)], ids=repr
)
async def test_log_write_is_retried_and_loses_no_outcome(store, worker_id, error, asked):
    [run] = await leased_runs(store, worker_id, 1)
    states: list[str] = []

    async def write_lines(ended: Sequence[Run]) -> None:
        states.append(await state_of(store, ended[0].run_id))
        if len(states) == 1:
            raise error

    await emptied(store, worker_id, [ended(store, run)], write_lines)

    assert states == ["running"] * asked, "the lines come before the outcome"
    assert await state_of(store, run.run_id) == "succeeded"


async def test_outbox_settles_its_outcomes_and_reports_them(store, worker_id):
    runs = await leased_runs(store, worker_id, 3)
    settled = [ended(store, run) for run in runs]

    outbox, done = await emptied(store, worker_id, settled)

    assert done == settled
    assert (outbox.settled, outbox.fenced) == (3, 0)
    assert [await state_of(store, run.run_id) for run in runs] == ["succeeded"] * 3


async def first_written_after(
    store, worker_id, *, do_starts_wait: bool, is_last: bool = False, outcome: Outcome | None = None
) -> float:
    """Return the seconds from the first outcome, which others follow every millisecond, until some are written."""

    def end(run: Run, outcome: Outcome | None = None) -> End:
        now = store.clock.now()
        return end_of(run, now, now, outcome or Succeeded(), left_behind=False)

    first, *others = await leased_runs(store, worker_id, 200)
    outbox = Outbox(
        store, worker_id, rng=Rng(1), log=Log("test"), on_settled=lambda _: None, do_starts_wait=lambda: do_starts_wait
    )
    task = asyncio.create_task(outbox.run())
    began = store.clock.monotonic()
    outbox.put([end(first, outcome)])
    while not outbox.settled:
        await asyncio.sleep(0.001)
        if others and not is_last:
            outbox.put([end(others.pop())])
    task.cancel()
    return float(store.clock.monotonic() - began)


async def test_successes_that_keep_coming_give_way_to_starts_but_not_for_long(store, worker_id):
    assert module.GIVE_WAY_SECONDS <= await first_written_after(store, worker_id, do_starts_wait=True) < 1.0


@pytest.mark.parametrize(("do_starts_wait", "is_last"), [(False, False), (True, True)])
async def test_outcomes_are_written_at_once_when_no_start_waits_or_none_follow(
    store, worker_id, do_starts_wait, is_last
):
    seconds = await first_written_after(store, worker_id, do_starts_wait=do_starts_wait, is_last=is_last)

    assert seconds < module.GIVE_WAY_SECONDS


async def test_a_failure_gives_way_to_no_start(store, worker_id):
    seconds = await first_written_after(store, worker_id, do_starts_wait=True, outcome=Failed("broken"))

    assert seconds < module.GIVE_WAY_SECONDS


async def test_an_outcome_waits_for_a_database_that_is_away(store, faulty, worker_id):
    [run] = await leased_runs(store, worker_id, 1)
    faulty.fail_before = 3

    outbox, _ = await emptied(faulty, worker_id, [ended(store, run)])

    assert (outbox.settled, outbox.fenced) == (1, 0)
    assert await attempts_of(store, run.run_id) == [(1, "succeeded")]


@pytest.mark.parametrize("outcome", [Succeeded(), Failed("broken"), Failed("broken", retryable=False)], ids=repr)
async def test_outcome_with_a_lost_reply_is_recorded_exactly_once(store, faulty, worker_id, outcome):
    runs = await leased_runs(store, worker_id, 3)
    faulty.lose_answers = 1

    outbox, _ = await emptied(faulty, worker_id, [ended(store, run, outcome) for run in runs])

    assert (outbox.settled, outbox.fenced) == (3, 0)
    assert [len(await attempts_of(store, run.run_id)) for run in runs] == [1, 1, 1]


async def test_outcome_after_lease_loss_is_refused_counted_and_dropped(store, worker_id):
    stale, held = await leased_runs(store, worker_id, 2)
    await move.hand_back(store, worker_id, [stale])

    outbox, done = await emptied(store, worker_id, [ended(store, stale), ended(store, held)])

    assert (outbox.settled, outbox.fenced) == (1, 1)
    assert len(done) == 2
    assert await attempts_of(store, stale.run_id) == [(1, "fenced")]
    assert await state_of(store, stale.run_id) == "ready"


async def test_an_outcome_that_is_refused_is_offered_less_and_less_often_and_others_go_on(store, monkeypatch, caplog):
    offered: Counter[UUID] = Counter()

    async def refuse(_database, _worker_id, settled, _rng):
        offered.update(item.run.run_id for item in settled)
        if stuck := [item.run for item in settled if item.run == bad]:
            raise Unstorable(stuck, [], ValueError("no"))
        return []

    monkeypatch.setattr(module, "settle", refuse)
    monkeypatch.setattr(module, "REFUSED_SECONDS_MAX", 0.4)
    bad, *good = [a_run() for _ in range(20)]
    outbox = Outbox(store, UUID(int=1), rng=Rng(1), log=Log("test"), on_settled=lambda _: None)
    outbox.put([ended(store, bad)])
    task = asyncio.create_task(outbox.run())
    for run in good:
        outbox.put([ended(store, run)])
        await asyncio.sleep(0.05)
    await until(lambda: outbox.settled == len(good))
    task.cancel()

    assert len(outbox) == 1
    assert 3 <= offered[bad.run_id] <= 5, "at once, after 0.1, 0.3 and 0.7 s; and where the machine is slow, after 1.1"
    assert {offered[run.run_id] for run in good} == {1}
    told = [record.__dict__["fields"]["again_in"] for record in caplog.records]
    assert told == [0.1, 0.2, 0.4, 0.4, 0.4][: len(told)]


async def test_outbox_forgets_the_refusals_of_an_outcome_that_is_finally_accepted(store, monkeypatch, caplog):
    refusals = 2

    async def refuse(_database, _worker_id, settled, _rng):
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise Unstorable([item.run for item in settled], [], ValueError("no"))
        return []

    monkeypatch.setattr(module, "settle", refuse)
    outbox, done = await emptied(store, UUID(int=1), [item := ended(store, a_run())])

    assert (outbox.settled, done) == (1, [item])
    assert outbox._refusals == {}


async def test_invalid_outcome_delays_no_other(store, worker_id):
    runs = await leased_runs(store, worker_id, 9)
    settled = [ended(store, run, Succeeded('{"fine":true}')) for run in runs]
    settled[4] = ended(store, runs[4], Succeeded("this is not JSON"))
    settled[7] = ended(store, runs[7], Failed("broken", detail="{nor is this"))

    outbox, _ = await emptied(store, worker_id, settled)

    assert (outbox.settled, outbox.fenced) == (9, 0)
    rows = await store.fetch("select run_id, outcome::text, result::text, detail::text from duly.attempts")
    kept = {row["run_id"]: (row["outcome"], row["result"], row["detail"]) for row in rows}
    expected: dict[UUID, tuple[str, str | None, str | None]] = {
        run.run_id: ("succeeded", '{"fine": true}', None) for run in runs
    }
    expected[runs[4].run_id] = ("succeeded", None, None)
    expected[runs[7].run_id] = ("failed", None, None)
    assert kept == expected


async def test_an_outcome_is_not_lost_to_a_fault_of_our_own(store, worker_id, monkeypatch):
    [run] = await leased_runs(store, worker_id, 1)
    calls = 0

    async def settle(*args):
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("a bug")
        return await move.settle(*args)

    monkeypatch.setattr(module, "settle", settle)
    outbox, _ = await emptied(store, worker_id, [ended(store, run)])
    assert (outbox.settled, calls) == (1, 2)


async def test_outcome_the_store_refuses_is_retried_behind_all_others(store, worker_id, monkeypatch):
    monkeypatch.setattr(module, "BATCH_MAX", 2)
    bad, good, later = [ended(store, run) for run in await leased_runs(store, worker_id, 3)]
    calls: list[list[Settled]] = []

    async def settle(database, worker_id, batch, rng):
        calls.append(batch)
        kept = [item for item in batch if item is not bad or len(calls) > 2]
        refused = await move.settle(database, worker_id, kept, rng)
        if len(kept) < len(batch):
            raise Unstorable([bad.run], refused, RuntimeError("no"))
        return refused

    monkeypatch.setattr(module, "settle", settle)
    outbox, done = await emptied(store, worker_id, [bad, good, later])

    assert calls == [[bad, good], [later], [bad]]
    assert done == [good, later, bad]
    assert (outbox.settled, outbox.fenced) == (3, 0)


async def test_outbox_writes_the_outcomes_of_a_cancelled_flush_with_the_next_one(store, worker_id, monkeypatch):
    first, second = [ended(store, run) for run in await leased_runs(store, worker_id, 2)]
    asked = asyncio.Event()

    async def unanswered(*_):
        asked.set()
        await asyncio.Event().wait()

    outbox = Outbox(store, worker_id, rng=Rng(1), log=Log("test"), on_settled=lambda _: None)
    outbox.put([first])
    with monkeypatch.context() as patched:
        patched.setattr(module, "settle", unanswered)
        flushing = asyncio.create_task(outbox.flush())
        await asked.wait()
        outbox.put([second])
        flushing.cancel()
        await asyncio.gather(flushing, return_exceptions=True)
    assert len(outbox) == 2

    await outbox.flush()
    assert (len(outbox), outbox.settled) == (0, 2)
    assert [await state_of(store, item.run.run_id) for item in (first, second)] == ["succeeded"] * 2


async def test_outbox_loses_nothing_when_a_refusal_names_an_unknown_run(store, worker_id, monkeypatch):
    [run] = await leased_runs(store, worker_id, 1)

    async def settle(*args):
        await move.settle(*args)
        raise Unstorable([a_run()], [], ValueError("no"))

    monkeypatch.setattr(module, "settle", settle)
    outbox, done = await emptied(store, worker_id, [item := ended(store, run)])

    assert (outbox.settled, done) == (1, [item])


async def test_a_deferral_that_cannot_be_written_holds_up_nothing_and_its_run_has_failed(store, worker_id):
    parked, endless, awaited, finished = await leased_runs(store, worker_id, 4)
    now = moment_of(store.clock.now())
    batch: list[End | Deferred] = [
        Deferred(parked, None, WaitForDestination("https://hooks.example")),
        Deferred(endless, now, Awaited(1e20)),
        Deferred(awaited, now, Awaited(60)),
        ended(store, finished),
    ]

    await emptied(store, worker_id, batch)

    assert [await state_of(store, run.run_id) for run in (parked, endless, finished)] == [
        "blocked",
        "retrying",
        "succeeded",
    ]
    assert await store.fetchval("select run_id from duly.awaited") == awaited.run_id
    assert await attempts_of(store, endless.run_id) == [(1, "failed")]


async def test_outbox_is_full_until_its_outcomes_are_written(store, worker_id, monkeypatch):
    monkeypatch.setattr(module, "FULL", 3)
    monkeypatch.setattr(module, "BATCH_MAX", 2)
    runs = await leased_runs(store, worker_id, 3)
    outbox = Outbox(store, worker_id, rng=Rng(1), log=Log("test"), on_settled=lambda _: None)

    filling = []
    for run in runs:
        outbox.put([ended(store, run)])
        filling.append(outbox.is_full)
    assert filling == [False, False, True]

    await outbox.flush()
    assert (outbox.is_full, len(outbox)) == (False, 1)
