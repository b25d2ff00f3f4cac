"""A whole installation on PostgreSQL under Patroni, while its primary is switched over and killed, again and again.

Nothing acknowledged is lost, nothing fires twice, what was claimed before starts on time while the database is away, and claims
go on within two seconds of the moment at which the new primary takes writes: a watcher of its own tells that moment.
"""

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from statistics import median
from typing import NamedTuple
from uuid import UUID

import httpx
import pytest

from duly.bench.chaos import checker
from duly.bench.chaos.evidence import Evidence, Sink
from duly.clock import Rng
from duly.domain.tenancy.api_key import Scope, new_key, written
from duly.store.connection.database import Database
from duly.store.tables.jobs import Submitted
from duly.store.tenancy import api_keys
from tests.end_to_end.aftermath import calm_down, gathered, verified
from tests.end_to_end.client import submit_staged, write
from tests.end_to_end.house import SCHEDULERS, House, a_house_on, wait_until
from tests.end_to_end.patroni import Accepted, Cluster, Watcher, a_cluster
from tests.end_to_end.standby import free_port

WORKERS = 2
LEASE_SECONDS = 15.0  # as it is by default: two thirds of it are longer than a failover lasts here
FIRST_CLAIM_SECONDS = 2.0
# Of a machine that runs all of it: one that waited for the database would be late by seconds, and most would wait.
LATE_SECONDS, LATE_SECONDS_MEDIAN = 1.0, 0.1
STAGED, STAGED_DUE = (
    200,
    (1.5, 4.9),
)  # runs that are claimed before a strike, and due so many seconds later: within the horizon
SETTLE_SECONDS = 3.0
API_SECONDS = 0.2  # between two submits over HTTP
ROUND_SECONDS = 25.0
RUNS_PER_ROUND = 600
SCHEDULES = 20
FAILOVER_SECONDS = 60.0
EPOCH = datetime.fromtimestamp(0, UTC)


class Blow(NamedTuple):
    """A primary that was switched over or killed."""

    how: str
    at: float
    accepted: Accepted
    staged: frozenset[str]  # runs that workers held when it was struck


@pytest.mark.timeout(300)
def test_switchover_and_kill_of_the_primary_lose_and_double_nothing(tmp_path):
    fail_over_again_and_again(tmp_path, rounds=2)


@pytest.mark.chaos
@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_ten_switchovers_and_kills_of_the_primary_lose_and_double_nothing(tmp_path):
    fail_over_again_and_again(tmp_path, rounds=10)


def fail_over_again_and_again(folder: Path, *, rounds: int) -> None:
    """Strike in turns, and judge what is left."""
    with a_cluster() as cluster, a_house_on(folder, cluster) as house:
        house.lease_seconds = LEASE_SECONDS
        caller = start_all(house, rounds)
        blows = [strike(house, cluster, number) for number in range(rounds)]
        caller.stop()
        house.processes["client"].kill()  # what it had been answered is in the ledger
        calm_down(house)
        evidence, broken = gathered(house), verified(house)
    report(evidence, blows, caller)
    assert checker.findings(evidence) == []
    assert broken == []
    for blow in blows:
        assert len(staged_delays(evidence, blow)) > STAGED / 2, blow.how
        assert max(staged_delays(evidence, blow)) <= LATE_SECONDS, blow.how
        assert median(staged_delays(evidence, blow)) <= LATE_SECONDS_MEDIAN, blow.how
        assert last_fence(evidence, blow) <= blow.accepted.fence, "fences go on rising"
        assert first_claim(evidence, blow) <= FIRST_CLAIM_SECONDS, blow.how


def start_all(house: House, rounds: int) -> "Caller":
    """Start every part, and wait until runs run."""
    for number in range(SCHEDULERS):
        house.start_scheduler(f"scheduler{number}")
    for number in range(WORKERS):
        house.start_worker(f"worker{number}")
    assert house.ask("select sync_state from pg_stat_replication") == [("sync",)], "as operators check it"
    port = free_port()
    house.start("api", "api", port)
    seconds = rounds * ROUND_SECONDS
    house.start("client", "client", house.ledger, rounds * RUNS_PER_ROUND, seconds, SCHEDULES)
    wait_until(lambda: sum(1 for _ in Sink(house.sink).read()) > 50, 60, what="the first runs")
    caller = Caller(house, f"http://127.0.0.1:{port}", asyncio.run(a_key(house.url)))
    caller.start()
    wait_until(lambda: caller.answered_at, 60, what="the API")
    return caller


def strike(house: House, cluster: Cluster, number: int) -> Blow:
    """Take the primary away while workers hold runs that will be due meanwhile, and wait for the new one."""
    cluster.heal()
    staged = asyncio.run(submit_staged(house.url, house.ledger, STAGED, *STAGED_DUE, f"staged-{number}"))
    wait_until(lambda: all_claimed(house, staged), STAGED_DUE[0], what="all are claimed")
    how, take_away = (("switchover", cluster.switch_over), ("kill", cluster.kill_primary))[number % 2]
    watcher, at = Watcher(cluster.url_of(cluster.standby())), time.time()
    take_away()
    accepted = watcher.wait(FAILOVER_SECONDS)
    time.sleep(SETTLE_SECONDS)
    return Blow(how, at, accepted, frozenset(staged))


def all_claimed(house: House, run_ids: Sequence[str]) -> bool:
    """Say whether none of these waits for a worker."""
    waiting = "select run_id from duly.timers union all select run_id from duly.ready"
    return not house.ask(f"select from ({waiting}) as boxes where run_id = any (%s::uuid[]) limit 1", list(run_ids))


def first_claim(evidence: Evidence, blow: Blow) -> float:
    """Tell how long after the new primary took writes the first run was called that had been claimed there."""
    return min(call.at for call in evidence.arrivals if call.fence > blow.accepted.fence) - blow.accepted.at


def last_fence(evidence: Evidence, blow: Blow) -> int:
    """Give the highest fence that was seen before the primary was struck."""
    return max(call.fence for call in evidence.arrivals if call.at < blow.at)


def staged_delays(evidence: Evidence, blow: Blow) -> list[float]:
    """Tell how late those runs started that workers held, and that fell due after the primary was struck."""
    calls = (call for call in evidence.arrivals if call.run_id in blow.staged and call.attempt == 1)
    return [call.at - call.due_at for call in calls if call.due_at >= blow.at]


class Caller:
    """Submits over HTTP, one job after another, and asks again under the same key when no answer came."""

    def __init__(self, house: House, address: str, key: str) -> None:
        self._ledger = house.ledger
        self._client = httpx.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=20)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._submit_for_ever, daemon=True)
        self.answered_at: list[float] = []

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End when the last one is answered."""
        self._is_over.set()
        self._thread.join(30)
        self._client.close()

    def _submit_for_ever(self) -> None:
        with self._ledger.open("ab", buffering=0) as file:
            for number in count():
                if self._is_over.wait(API_SECONDS):
                    return
                job_id, asked = self._submit(f"http-{number}")
                self.answered_at.append(time.time())
                # It is due at once, and when that was nobody told: any start is late enough.
                write(file, [Submitted(job_id, EPOCH, replayed=False)], asked)

    def _submit(self, key: str) -> tuple[UUID, int]:
        body = {"target": {"type": "function", "handler": "quick"}, "retry": {"max_attempts": 100}}
        for asked in count(1):
            with suppress(httpx.HTTPError):
                answer = self._client.post("/v1/jobs", json=body, headers={"Idempotency-Key": key})
                if answer.is_success:
                    return UUID(answer.json()["job_id"]), asked
                assert answer.status_code in (409, 503), answer.text
            time.sleep(API_SECONDS)
        raise AssertionError("unreachable")


async def a_key(url: str) -> str:
    key_id, secret = new_key(Rng().secret)
    async with Database(url) as database:
        await api_keys.create(database, key_id, secret, tenant=1, name="caller", scopes=[Scope.ADMIN])
    return written(key_id, secret).reveal()


def report(evidence: Evidence, blows: Sequence[Blow], caller: Caller) -> None:
    """Print the figures."""
    repeated = sum(one.requests > 1 for one in evidence.acknowledged)
    print(f"\nacknowledged {len(evidence.acknowledged)}, of them after repeated requests {repeated}")
    print(f"calls {len(evidence.arrivals)}, beyond the first of a run {checker.duplicates(evidence)}")
    for how in sorted({blow.how for blow in blows}):
        those = [blow for blow in blows if blow.how == how]
        away = [blow.accepted.at - blow.at for blow in those]
        claims = [first_claim(evidence, blow) for blow in those]
        answers = [min(at for at in caller.answered_at if at > blow.accepted.at) - blow.accepted.at for blow in those]
        late = [delay for blow in those for delay in staged_delays(evidence, blow)]
        print(f"{how}, {len(those)} times: no writes for {_figures(away)}")
        print(f"  first claim after that {_figures(claims)}, first submit over HTTP {_figures(answers)}")
        print(f"  {len(late)} runs claimed before and due from then on, late by {_figures(late)}")


def _figures(seconds: Sequence[float]) -> str:
    return f"{median(seconds):.3f} s, at most {max(seconds):.3f} s"
