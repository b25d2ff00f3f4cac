"""The cost of 100,000 failures at once for a rule that matches them all, and the delay of its messages, by real processes.

pytest -m proof --timeout 0 -s tests/end_to_end/targets/test_notification_figures.py
"""

import statistics
import time
from datetime import datetime
from itertools import count

import msgspec
import pytest

from duly.domain.notifications.channel import WebhookChannel
from tests.builders import an_active_schedule, many_ready_runs
from tests.end_to_end.house import wait_until
from tests.end_to_end.targets import test_notifications as base
from tests.end_to_end.targets.test_notifications import a_dead_run, a_rule, asking

LONG = 600.0
FLOOD = 100_000
DELIVERIES_MAX = 20
house, keys, hooks, without_rules = base.house, base.keys, base.hooks, base.without_rules


class Flood(msgspec.Struct):
    """The figures of a flood of failures."""

    failures_per_second: float
    start_delay_p50: float  # of other runs meanwhile, on a queue of their own, in milliseconds
    start_delay_p99: float


@pytest.fixture
def workers(house):
    """A worker for the flood, one for the runs beside it, and a scheduler with its maintenance."""
    house.start_scheduler("maintenance")
    for name, queue in (("flood", "flood"), ("beside", "beside")):
        house.command(name, "worker", "tests.end_to_end.flood:app", "--name", name, "--queue", queue)
    wait_until(lambda: house.ask("select count(*) from duly.workers")[0][0] == 3, 60.0, what="the workers")
    yield
    for name in ("flood", "beside", "maintenance"):
        process = house.processes.pop(name)
        process.terminate()
        process.wait(30)


def flooded(house, number):
    """Let so many runs fail, with others beside them."""
    ended = "select count(*) from duly.attempts_failed where queue = 'flood'"
    before, began_at = house.ask(ended)[0][0], house.ask("select duly.clock_now()")[0][0]
    asking(house, lambda database: many_ready_runs(database, number, queue="flood", handler="fails"))
    began = time.monotonic()
    for beside in count(1):
        asking(house, lambda database: many_ready_runs(database, 1, queue="beside", handler="greet"))
        time.sleep(0.05)
        if house.ask(ended)[0][0] == before + number and beside >= 10:
            break
    elapsed = time.monotonic() - began
    delays = [
        row[0] * 1e3
        for row in house.ask(
            "select date_part('epoch', started_at - due_at) from duly.attempts where queue = 'beside' and due_at >= %s",
            began_at,
        )
    ]
    return Flood(number / elapsed, statistics.median(delays), statistics.quantiles(delays, n=100)[98])


def noticed(house):
    return house.ask("select count(*) from duly.notifications")[0][0]


def measured(house, keys, hooks, number):
    """Measure a flood without a rule, and one with a rule that matches it all. Gives both, and how long catching up took."""
    usual = flooded(house, number)
    channel = WebhookChannel(url=f"http://127.0.0.1:{hooks.server_port}/in")
    a_rule(house, keys, channel, "dead", deliveries_max=DELIVERIES_MAX)
    ruled = flooded(house, number)
    behind = number - noticed(house)
    catch_up = wait_until(lambda: noticed(house) == number, LONG, what="the monitor")
    time.sleep(3.0)
    [(deliveries, carried)] = house.ask(
        "select count(*), sum(notifications) from duly.notification_deliveries where rule = 'all'"
    )
    largest = max(len(body) for _, _, body in hooks.taken)
    print(f"\nwithout a rule {usual}\nwith a rule    {ruled}")
    print(f"{behind} behind at the end, caught up after {catch_up:.1f} s; {deliveries} deliveries carry {carried},")
    print(f"{number - carried} wait for the next; {len(hooks.taken)} arrived, the largest {largest} bytes")
    assert deliveries == len(hooks.taken) <= DELIVERIES_MAX
    assert largest < 65_536
    last = msgspec.json.decode(hooks.taken[-1][2])["data"]
    assert last["count"] == len(last["notifications"]) + last["left_out"]
    return usual, ruled, catch_up


@pytest.mark.timeout(300)
def test_flood_of_failures_is_sent_in_few_deliveries(house, keys, workers, hooks):
    """The short form: the same, of few runs, and without a limit of time."""
    measured(house, keys, hooks, 300)


@pytest.mark.proof
def test_hundred_thousand_failures_block_nothing_and_are_noticed_completely(house, keys, workers, hooks):
    usual, ruled, catch_up = measured(house, keys, hooks, FLOOD)

    assert catch_up < 60.0
    assert ruled.failures_per_second > 0.4 * usual.failures_per_second
    assert ruled.start_delay_p99 < 2 * usual.start_delay_p99


@pytest.mark.proof
def test_people_hear_of_a_failure_within_two_seconds(house, keys, hooks):
    channel = WebhookChannel(url=f"http://127.0.0.1:{hooks.server_port}/in")
    a_rule(house, keys, channel, "dead", deliveries_max=1_000)
    delays = []
    for number in range(30):
        _, ended_at = a_dead_run(house)
        wait_until(lambda: len(hooks.taken) > number, 30.0, what="the notification")  # noqa: B023 - called at once
        delays.append(hooks.taken[number][0] - ended_at)

    print(f"\nfrom failure to arrival: p50 {statistics.median(delays):.2f} s, max {max(delays):.2f} s of {len(delays)}")
    assert max(delays) <= 2.0


@pytest.mark.proof
def test_people_hear_of_an_absence_within_a_minute_while_every_scheduler_is_dead(house, keys, hooks):
    for number in range(2):
        house.start_scheduler(f"scheduler{number}")
    wait_until(lambda: house.ask("select count(*) from duly.schedulers")[0][0] >= 2, LONG, what="the schedulers")
    channel = WebhookChannel(url=f"http://127.0.0.1:{hooks.server_port}/in")
    # An earlier rule of this name has used its deliveries of this hour.
    a_rule(house, keys, channel, "absent", absent_after="PT30S", deliveries_max=1_000)
    for number in range(2):
        house.kill(f"scheduler{number}", stays_dead=True)
    asking(house, lambda database: an_active_schedule(database, name="beat", every=3_600))
    wait_until(lambda: hooks.taken, 120.0, what="the absence")

    [one, *_] = msgspec.json.decode(hooks.taken[0][2])["data"]["notifications"]
    delay = hooks.taken[0][0] - msgspec.convert(one["happened_at"], datetime).timestamp()
    print(f"\nfrom the missed moment to arrival, with a limit of 30 s: {delay:.1f} s")
    assert delay <= 60.0
