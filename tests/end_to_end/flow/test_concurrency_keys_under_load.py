"""Gates, lines and a rate in real processes that are killed: the handlers' own log says who was inside, in which order."""

import asyncio
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from duly.domain.jobs.job import Submission
from duly.domain.limits.concurrency import FIFO, Rate, check_concurrency, check_rate
from duly.domain.runs.options import RunOptions, options_of
from duly.domain.runs.retry import Retry
from duly.moves.submit import submit_many
from duly.store.boxes import history
from duly.store.connection.database import Database
from tests.end_to_end.house import House, a_house, wait_until

PLACES, KEYS, EACH = 2, 4, 12
LINES, IN_LINE = 3, 10
PER_SECOND, BURST, PACED = 15, 3, 45
pytestmark = pytest.mark.timeout(300)
SECONDS_MAX = 60  # far more than it takes, on a machine that does other things as well
PATIENT = Retry(max_attempts=10, base_seconds=0, cap_seconds=0)
CLOCK = 0.002  # two processes on one host


class Passage(msgspec.Struct, array_like=True, frozen=True):
    """One line of the handlers' log."""

    way: str
    key: str
    number: int
    attempt: int
    due_at: float
    at: float
    pid: int


def jobs() -> list[Submission]:
    """Give what is submitted, in order."""
    at_once = [(f"key-{place}", EACH, check_concurrency(f"key-{place}", PLACES)) for place in range(KEYS)]
    in_line = [(f"line-{place}", IN_LINE, check_concurrency(f"line-{place}", 1, FIFO)) for place in range(LINES)]
    paced = [("rate", PACED, {"rate": check_rate(Rate("rate", PER_SECOND, burst=BURST))})]
    return [
        a_job(key, number, options_of(retry=PATIENT, **waits))
        for key, count, waits in (*at_once, *in_line, *paced)
        for number in range(count)
    ]


def a_job(key: str, number: int, options: RunOptions) -> Submission:
    """Give one run of a key."""
    payload = msgspec.json.encode({"key": key, "number": number}).decode()
    return Submission("kept", payload, "default", 5, options=options)


async def submitted(url: str) -> int:
    """Submit all in one batch."""
    async with Database(url) as database:
        return len(await submit_many(database, jobs(), key="all"))


async def broken(url: str) -> list[dict]:
    """Ask whether a promise is broken."""
    async with Database(url) as database:
        return await history.verify(database)


def passages_of(log: Path) -> list[Passage]:
    """Read what the handlers have noted."""
    return [msgspec.json.decode(line, type=Passage) for line in log.read_bytes().splitlines()]


def strike_inside(house: House, log: Path) -> None:
    """Kill a worker of whose runs one has just come in."""

    def inside() -> list[str]:
        passages = passages_of(log)
        gone = {(one.key, one.number, one.attempt) for one in passages if one.way == "out"}
        pids = {one.pid for one in passages[-5:] if (one.key, one.number, one.attempt) not in gone}
        return [name for name, process in house.processes.items() if process.pid in pids]

    wait_until(inside, SECONDS_MAX, pause=0.005)
    house.kill(inside()[0])


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory):
    """Let everything through while workers and schedulers are killed. Gives what the handlers noted, and when each pid ended."""
    folder: Path = tmp_path_factory.mktemp("gates")
    with a_house(folder) as house:
        for number in range(2):
            house.start_scheduler(f"scheduler{number}")
        for number in range(3):
            house.start_worker(f"worker{number}", slots=8)
        total = asyncio.run(submitted(house.url))
        log = Path(f"{house.sink}.passages")
        wait_until(lambda: log.exists() and log.stat().st_size > 3_000, SECONDS_MAX)
        strike_inside(house, log)
        house.kill("scheduler0")
        noted = log.stat().st_size
        wait_until(lambda: log.stat().st_size > noted + 1_000, SECONDS_MAX, what="work that goes on")
        strike_inside(house, log)
        ended = "select count(distinct run_id) from duly.attempts where became = 'succeeded'"
        wait_until(lambda: house.ask(ended)[0][0] == total, SECONDS_MAX, what="the last run", pause=0.2)
        assert asyncio.run(broken(house.url)) == []
        killed = {strike.pid: strike.at for strike in house.strikes}
        return passages_of(log), killed


def stays(passages: list[Passage], killed: dict[int, float]) -> dict[str, list[tuple[float, float, Passage]]]:
    """Give, for each key, from when to when each attempt was inside; one that was killed ended then."""
    found: dict[str, list[tuple[float, float, Passage]]] = defaultdict(list)
    out = {(one.key, one.number, one.attempt): one.at for one in passages if one.way == "out"}
    for one in passages:
        if one.way == "in":
            until = out.get((one.key, one.number, one.attempt))
            found[one.key].append((one.at, killed[one.pid] if until is None else until, one))
    return {key: sorted(some, key=lambda stay: stay[0]) for key, some in found.items()}


def test_somebody_was_killed_inside(aftermath):
    passages, killed = aftermath
    ways = [one.way for one in passages]

    assert len(killed) == 3
    assert ways.count("in") > ways.count("out"), "nobody was inside when it was killed; this shows nothing"


def test_concurrency_key_under_load_never_exceeds_its_slots(aftermath):
    for key, some in stays(*aftermath).items():
        if key.startswith("key-"):
            for begin, _, _ in some:
                inside = [stay for stay in some if stay[0] <= begin < stay[1] - CLOCK]
                assert len(inside) <= PLACES, (key, inside)
            assert {one.number for _, _, one in some} == set(range(EACH))


def test_a_line_was_never_inverted(aftermath):
    for key, some in stays(*aftermath).items():
        if key.startswith("line-"):
            numbers = [one.number for _, _, one in some]
            assert numbers == sorted(numbers), key
            for former, latter in pairwise(some):
                assert latter[0] >= former[1] - CLOCK, (key, former, latter)
            assert set(numbers) == set(range(IN_LINE))


def test_no_stretch_held_more_starts_than_the_rate_allows(aftermath):
    starts = [one for _, _, one in stays(*aftermath)["rate"]]
    assert {one.number for one in starts} == set(range(PACED))
    planned = sorted(one.due_at for one in starts)
    for first, begin in enumerate(planned):
        for last in range(first, len(planned)):
            assert last - first + 1 <= BURST + PER_SECOND * (planned[last] - begin + 0.001)
    late = max(one.at - one.due_at for one in starts)
    assert min(one.at - one.due_at for one in starts) >= 0, "nobody was early"
    arrived = sorted(one.at for one in starts)
    for first, begin in enumerate(arrived):
        for last in range(first, len(arrived)):
            assert last - first + 1 <= BURST + PER_SECOND * (arrived[last] - begin + late + 0.001)
