"""Many hosts: three with all parts each, on a network whose faults are known, and with clocks an hour apart on either side.

Each test does one thing to them under load, and is judged from outside, by the client's account, the calls that functions and
receivers noted and the public API, and by `duly verify`. `make chaos` runs the long forms.
"""

import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import pytest

from duly.bench.chaos import checker
from duly.bench.chaos.evidence import Evidence
from duly.store.connection.hosts import VANISHED_SECONDS
from tests.end_to_end import figures
from tests.end_to_end.aftermath import verified
from tests.end_to_end.hosts import network
from tests.end_to_end.hosts.client import Load
from tests.end_to_end.hosts.installation import CLIENTS, HOSTS, Installation, an_installation
from tests.end_to_end.hosts.network import Direction
from tests.end_to_end.house import LEASE_SECONDS, sleep_until, wait_until
from tests.end_to_end.test_storm import START_AGAIN_SECONDS, Blow, judge_restarts, seconds_to_load

pytestmark = pytest.mark.skipif(bool(network.missing()), reason=network.missing())

HOUR = 3600
OFFSETS = {"host1": HOUR, "host2": -HOUR, "host3": 0}
RECOVERED_SECONDS = 10.0
PATIENCE_SECONDS = 60.0
PARTITIONS: tuple[dict[str, Direction], ...] = ({"host1": "from", "host2": "to"}, {"host3": "both"})
# A last heartbeat may arrive whose answer is lost; and a fault may strike a worker's lease just renewed.
LATE_SECONDS = START_AGAIN_SECONDS + LEASE_SECONDS / 3
# The answer to a claim may be lost again and again, until its connection is given up: then its runs go to another. Twice over.
LOSSY_LATE_SECONDS = 2 * VANISHED_SECONDS + LATE_SECONDS
SILENCE_SECONDS = 2 * VANISHED_SECONDS
IN_HAND = 20  # runs due just before a fault, of which each host has some
AHEAD_SECONDS = 2.0
DRAIN_SECONDS = 60.0


class Form(NamedTuple):
    """The length of a test."""

    rate: float  # requests a second
    calm_seconds: float
    faults: tuple[float, ...]  # how many seconds each lasts


# TCP sends again after twice as long each time: 14 s and 28 s end just after a try.
SHORT, LONG = Form(20, 3, (LEASE_SECONDS + 2,)), Form(40, 60, (14, 28, 42))
forms = pytest.mark.parametrize(
    "form",
    [
        pytest.param(SHORT, id="short"),
        pytest.param(LONG, id="long", marks=[pytest.mark.proof, pytest.mark.chaos, pytest.mark.timeout(1200)]),
    ],
)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The hosts, which all tests here share."""
    with an_installation(tmp_path_factory.mktemp("hosts"), OFFSETS) as installation:
        yield installation


@forms
def test_clocks_of_hosts_an_hour_apart_make_nothing_early_or_late(hosts, form):
    believed = {host: round(hosts.wall_clock_offset(host)) for host in HOSTS}
    with Load(hosts, f"clocks, {form.calm_seconds:g} s", form.rate) as load:
        time.sleep(form.calm_seconds)
    evidence = judged(hosts, load, late_seconds=1.0)
    assert believed == OFFSETS
    assert checker.duplicates(evidence) == 0


@forms
def test_rolling_restart_repeats_nothing_and_uses_up_no_attempt(hosts, form):
    with Load(hosts, f"rolling restart, {len(form.faults)} of all hosts", form.rate) as load:
        for host in HOSTS * len(form.faults):
            hosts.stop(host)
            hosts.start(host)
    evidence = judged(hosts, load, late_seconds=LATE_SECONDS)
    assert checker.duplicates(evidence) == 0
    # The next fires are cancelled with their schedules.
    assert {record.outcome for record in evidence.records} <= {"succeeded", "cancelled"}
    assert {record.attempt for record in evidence.records if record.outcome == "succeeded"} == {1}


@forms
def test_runs_of_a_lost_host_restart_when_its_lease_has_ended(hosts, form):
    blows = []
    with Load(hosts, f"host lost, {seconds_of(form)} s", form.rate) as load:
        for host, seconds in zip(HOSTS, form.faults, strict=False):
            at_a_busy_moment(load)
            lost_at = hosts.lose(host).at
            sleep_until(lost_at + LEASE_SECONDS)
            blows.append(Blow(lost_at, seconds_to_load(), None))
            sleep_until(lost_at + seconds)
            hosts.network.add(host)
            hosts.start(host)
            wait_until(lambda: not hosts.sessions(host, lost_at), SILENCE_SECONDS, what="no session of a lost host")  # noqa: B023
    evidence = judged(hosts, load, late_seconds=LATE_SECONDS)
    report_restarts(evidence, blows)
    judge_restarts(evidence, blows)


@forms
def test_partitioned_hosts_stop_themselves_and_recover_after_healing(hosts, form):
    recovered = []
    with Load(hosts, f"partitions, {seconds_of(form)} s", form.rate) as load:
        for seconds in form.faults:
            for partitions in PARTITIONS:
                healed_at = at_a_busy_moment(load) + seconds
                for host, direction in partitions.items():
                    hosts.network.partition(host, direction)
                sleep_until(healed_at)
                for host in partitions:
                    hosts.network.heal(host)
                began = time.monotonic()
                recovered += [recovery(hosts, host, began) for host in partitions]
    print(f"\nrecovered: {recovered}")
    judged(hosts, load, late_seconds=LATE_SECONDS)
    assert max(map(max, recovered)) <= RECOVERED_SECONDS


@forms
def test_requests_whose_answers_are_lost_are_stored_once(hosts, form):
    with Load(hosts, f"answers to clients lost, {seconds_of(form)} s", form.rate) as load:
        for seconds in form.faults:
            time.sleep(1)
            hosts.network.partition(CLIENTS, "to")
            time.sleep(seconds)
            hosts.network.heal(CLIENTS)
            time.sleep(1)
    evidence = judged(hosts, load, late_seconds=1.0)
    assert any(asked.requests > 1 for asked in evidence.acknowledged)


@pytest.mark.proof
@pytest.mark.chaos
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("form", [pytest.param(LONG, id="long")])
def test_a_fifth_of_all_packets_lost_loses_and_doubles_nothing(hosts, form):
    with Load(hosts, f"20 % of packets lost, {sum(form.faults):g} s", form.rate) as load:
        for host in HOSTS:
            hosts.network.lose(host, 20)
        time.sleep(sum(form.faults))
        for host in HOSTS:
            hosts.network.heal(host)
    judged(hosts, load, late_seconds=LOSSY_LATE_SECONDS)


def seconds_of(form: Form) -> str:
    """Name the lengths of the faults."""
    return ", ".join(f"{seconds:g}" for seconds in form.faults)


def recovery(hosts: Installation, host: str, began: float) -> tuple[float, ...]:
    """Wait until a host's API, scheduler and worker do their work again. Gives how long each took at the most."""
    calls = hosts.calls_on(host)
    signs = {
        "the API": lambda: hosts.answers(host),
        "the scheduler": lambda: hosts.schedules(host),
        "the worker": lambda: hosts.works(host) and hosts.calls_on(host) > calls,
    }
    passed = []
    for what, is_back in signs.items():
        wait_until(is_back, PATIENCE_SECONDS, what=f"{what} of {host}")
        passed.append(round(time.monotonic() - began, 2))
    return tuple(passed)


def at_a_busy_moment(load: Load) -> float:
    """Wait until many runs have just begun. Gives the moment."""
    due_at = time.time() + AHEAD_SECONDS
    load.submit_due_at(due_at, IN_HAND)
    sleep_until(due_at + 0.1)
    return time.time()


def judged(hosts: Installation, load: Load, late_seconds: float) -> Evidence:
    """Let everything come to its end, judge and print it."""
    load.end_schedules()
    with_left = wait_until(lambda: not load.left(), DRAIN_SECONDS, what="runs that end", pause=0.2)
    evidence = load.gathered()
    report(load, evidence, with_left)
    assert load.refused == []
    assert checker.findings(evidence, late_seconds) == []
    assert verified(hosts.house) == []
    return evidence


def report_restarts(evidence: Evidence, blows: list[Blow]) -> None:
    """Print how long after a host was lost its runs could start again, and did."""
    restarts = [delay for delays in figures.restart_delays(evidence, LEASE_SECONDS).values() for delay in delays]
    due = max(figures.hand_on_delays(evidence, LEASE_SECONDS), default=0)
    beyond = sum(delay > START_AGAIN_SECONDS for delay in restarts)
    print(
        f"{len(restarts)} runs of {len(blows)} lost hosts were due again within {due:.2f} s,"
        f" and began within {max(restarts):.2f} s;"
        f" {beyond} of them after more than {START_AGAIN_SECONDS:g} s, while a child process took"
        f" {max(blow.loading_seconds for blow in blows):.2f} s to load"
    )


def report(load: Load, evidence: Evidence, drained_seconds: float) -> None:
    """Print the figures."""
    outcomes = Counter(record.outcome for record in evidence.records)
    delays = sorted(checker.start_delays(evidence).values())
    asked_again = sum(asked.requests > 1 for asked in evidence.acknowledged)
    stored = sum(key in evidence.created for key in load.unknown)
    print(
        f"\n{load.name}: {len(evidence.acknowledged)} requests acknowledged, {asked_again} of them asked again,"
        f" {len(load.unknown)} unknown of which {stored} were stored; {len(evidence.arrivals)} calls,"
        f" {checker.duplicates(evidence)} of them repeated with a reason; attempts {dict(outcomes)};"
        f" start delay p50 {delays[len(delays) // 2]:.3f} s,"
        f" p99 {delays[len(delays) * 99 // 100]:.2f} s, at most {delays[-1]:.2f} s;"
        f" drained in {drained_seconds:.1f} s"
    )
    overtaken = sum(
        earlier.at > later.at
        for calls in checker.by_run(evidence.arrivals).values()
        for earlier, later in pairwise(calls)
    )
    print(f"{overtaken} calls came after those of a later attempt")
    for finding in checker.findings(evidence)[:20]:
        print(finding)
