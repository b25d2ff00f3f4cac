"""Three worker processes and one receiver: together they keep to what it takes, and leave it alone while it is ill."""

import asyncio
import os
import subprocess
import sys
import time

import msgspec
import pytest

from duly.clock import Rng
from duly.domain.tenancy.sealing import new_key_line
from duly.store.boxes import history
from duly.store.connection.database import Database
from tests.end_to_end.house import PYTHONPATH, ROOT, House, a_house, wait_until
from tests.end_to_end.receiver import Receiver

WORKERS = 3
LONG = 60.0


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    folder = tmp_path_factory.mktemp("destinations")
    keys = folder / "keys"
    keys.write_text(new_key_line(Rng().secret).reveal() + "\n")
    with a_house(folder) as opened:
        opened.start_scheduler("scheduler0")
        for number in range(WORKERS):
            start_worker(opened, f"sender{number}", keys)
        wait_until(lambda: opened.ask("select count(*) from duly.workers")[0][0] == WORKERS, LONG, what="workers")
        yield opened


@pytest.fixture
def receiver():
    with Receiver() as opened:
        yield opened


def start_worker(house: House, name: str, keys) -> None:
    """Start a worker that sends webhooks, and runs no app."""
    command = [sys.executable, "-m", "duly", "worker", "--name", name, "--database-url", house.url]
    command += ["--secrets-key", str(keys), "--egress-loopback", "--webhooks", "500", "--lease", "5"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DULY_")}
    with (house.folder / f"{name}.log").open("ab") as log:
        house.processes[name] = subprocess.Popen(
            command, cwd=ROOT, env={**environment, "PYTHONPATH": PYTHONPATH}, stdout=log, stderr=log
        )


def submitted(house: House, receiver: Receiver, number: int, **retry: float) -> None:
    """Submit so many webhooks, all due now."""
    options = {"target": {"type": "webhook", "url": f"{receiver.origin}/in"}, "retry": retry or {"max_attempts": 3}}
    house.ask(
        "select count(duly.submit('@webhook', '{}', options => %s::text::jsonb)) from generate_series(1, %s)",
        msgspec.json.encode(options).decode(),
        number,
    )


def limited(house: House, receiver: Receiver, slots: int = 100, rate: float | None = None) -> None:
    """Say what the receiver takes, before anything is sent to it."""
    house.ask("select duly.create_destination(gen_random_uuid(), 1, %s)", receiver.origin)
    house.ask(
        "select duly.limit_destination(destination_id, %s, %s, true, null) from duly.destinations where origin = %s",
        slots,
        rate,
        receiver.origin,
    )


def succeeded(house: House) -> int:
    return int(house.ask("select count(*) from duly.attempts where outcome = 'succeeded'")[0][0])


def waits_for(house: House, receiver: Receiver) -> int:
    return int(
        house.ask("select count(*) from duly.blocked where waits_for = 'destination' and key = %s", receiver.origin)[0][
            0
        ]
    )


def state_of(house: House, receiver: Receiver) -> str:
    return str(house.ask("select state from duly.destinations where origin = %s", receiver.origin)[0][0])


def broken(house: House) -> list:
    async def look() -> list:
        async with Database(house.url) as database:
            return await history.verify(database)

    return asyncio.run(look())


@pytest.mark.timeout(120)
def test_no_more_are_under_way_at_once_than_the_budget(house, receiver):
    limited(house, receiver, slots=5)
    receiver.seconds = 0.02
    before = succeeded(house)

    submitted(house, receiver, 300)

    wait_until(lambda: succeeded(house) - before == 300, LONG, what="300 webhooks")
    assert 2 <= receiver.most_at_once <= 5
    [(workers, attempts)] = house.ask("select count(distinct worker_id), max(attempt) from duly.attempts")
    assert workers >= 2
    assert attempts == 1
    assert broken(house) == []


@pytest.mark.timeout(120)
def test_no_more_are_sent_a_second_than_the_rate(house, receiver):
    limited(house, receiver, rate=40)
    before, began = succeeded(house), time.monotonic()

    submitted(house, receiver, 160)

    wait_until(lambda: succeeded(house) - before == 160, LONG, what="160 webhooks")
    # A quarter of a second's worth may be drawn at once, and what was drawn is good for a second.
    assert receiver.most_in(1.0) <= 40 * 1.5
    assert receiver.most_in(3.0) <= 40 * 3 * 1.25
    assert time.monotonic() - began >= 2.5
    assert max(receiver.attempts.values()) == 1


@pytest.mark.timeout(120)
def test_runs_wait_while_the_circuit_is_open_and_do_not_flood_it_on_recovery(house, receiver):
    limited(house, receiver, slots=10)
    steady, runs = 50.0, 400
    house.ask("update duly.destinations set steady_rate = %s where origin = %s returning 1", steady, receiver.origin)
    receiver.status = 500
    before = succeeded(house)
    submitted(house, receiver, runs, max_attempts=3, base_seconds=0.5, cap_seconds=1)
    wait_until(lambda: waits_for(house, receiver) >= runs * 0.9, LONG, what="runs that wait")
    wait_until(
        lambda: state_of(house, receiver) != "closed", LONG, what="the breaker"
    )  # At first they wait for a place.
    asked = len(receiver.arrivals)
    # As many as there are places were under way before anything was known; from then on it is tried once in a while.
    assert asked <= 40
    [(dead,)] = house.ask("select count(*) from duly.dead")
    assert dead == 0
    used = "select count(*) from duly.blocked where waits_for = 'destination' and key = %s and attempt > 0"
    assert house.ask(used, receiver.origin)[0][0] <= asked

    receiver.status = 200
    well_at = time.monotonic()

    wait_until(lambda: succeeded(house) - before == runs, LONG, what="runs that waited")
    assert receiver.most_in(1.0, since=well_at) <= 2 * steady
    assert house.ask("select count(*) from duly.dead") == [(0,)]
    assert state_of(house, receiver) == "closed"
    assert broken(house) == []


@pytest.mark.timeout(120)
def test_failing_destination_takes_no_capacity_from_other_destinations(house, receiver):
    with Receiver() as ill:
        limited(house, ill)
        limited(house, receiver)
        ill.status = 503
        submitted(house, ill, 500, max_attempts=9, base_seconds=30)
        before = succeeded(house)

        submitted(house, receiver, 200)

        elapsed = wait_until(lambda: succeeded(house) - before == 200, LONG, what="webhooks to the other")
        assert max(receiver.attempts.values()) == 1
        assert elapsed < 10
        wait_until(lambda: state_of(house, ill) != "closed", LONG, what="the breaker")
        house.ask("select count(*) from duly.cancel(array(select run_id from duly.blocked), 'over')")


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_ten_thousand_runs_survive_a_one_minute_outage_of_their_receiver(house, receiver):
    """What it takes is measured, and not told; it goes in the midst of it, and all that is due meanwhile waits."""
    limited(house, receiver)
    steady, runs, before = 200, 10_000, succeeded(house)
    began = time.monotonic()
    for turn in range(15 * 10):
        submitted(house, receiver, steady // 10, max_attempts=3)
        time.sleep(max(0.0, began + (turn + 1) / 10 - time.monotonic()))
    wait_until(lambda: succeeded(house) - before == steady * 15, LONG, what="the steady load")
    elapsed = receiver.most_in(1.0)

    receiver.go_down()
    gone_at = time.monotonic()
    for _ in range(10):
        submitted(house, receiver, runs // 10, max_attempts=3, base_seconds=0.5, cap_seconds=1)
    wait_until(lambda: state_of(house, receiver) != "closed", LONG, what="the breaker")
    time.sleep(max(0.0, gone_at + 60 - time.monotonic()))
    [(tried,)] = house.ask("select count(*) from duly.attempts where outcome <> 'succeeded'")
    receiver.come_back()
    well_at = time.monotonic()

    wait_until(lambda: succeeded(house) - before == steady * 15 + runs, 300, what="runs that waited", pause=0.2)
    waited = [at for at, _ in receiver.arrivals if at >= well_at]
    peak = receiver.most_in(1.0, since=well_at)
    [(usual, ramp)] = house.ask(
        "select round(steady_rate), round(ramp_rate) from duly.destinations where origin = %s", receiver.origin
    )
    print(
        f"steady {steady}/s, up to {elapsed} in a second, known as {usual}; {tried} attempts while it was gone;"
        f" let in again at {ramp}/s: the first after {waited[0] - well_at:.1f} s, the last after"
        f" {waited[-1] - well_at:.1f} s, up to {peak} in a second"
    )
    assert house.ask("select count(*) from duly.dead") == [(0,)]
    assert peak <= 2 * steady
    assert broken(house) == []


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_single_run_spends_no_attempt_on_circuit_breaker_probes(house, receiver):
    """The breaker is open, and nobody else is there to try it: the run tries again and again, and none of it counts."""
    limited(house, receiver)
    receiver.status, before = 500, succeeded(house)
    submitted(house, receiver, 5, max_attempts=1)
    wait_until(lambda: state_of(house, receiver) != "closed", LONG, what="the breaker")
    submitted(house, receiver, 1, max_attempts=1)
    asked = len(receiver.arrivals)
    wait_until(lambda: len(receiver.arrivals) >= asked + 3, LONG, what="three probes")

    receiver.status = 200

    wait_until(lambda: succeeded(house) - before == 1, LONG * 2, what="the run")
    house.ask("select count(*) from duly.discard(array(select run_id from duly.dead))")
