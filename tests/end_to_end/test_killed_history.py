"""Event streams and counters while the database crashes or fails over: they have every end of a run, or say what they lack."""

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial

import httpx
import pytest

from duly.clock import Rng
from duly.domain.tenancy.api_key import Scope, new_key, written
from duly.store.connection.database import Database
from duly.store.tenancy import api_keys
from tests.end_to_end.aftermath import calm_down, verified
from tests.end_to_end.house import House, a_house, a_house_on, wait_until
from tests.end_to_end.listener import Listener
from tests.end_to_end.standby import a_pair, free_port, kill_all

RUNS, SECONDS, SCHEDULES = 300, 8.0, 10
SCRAPE_SECONDS = 0.5
SLACK_SECONDS = 1.5  # from the end of a run to its record, and from a scrape to its answer
ENDED = """
select concat_ws('/', run_id, attempt, coalesce(fence, 0), 'duly.run.' || became || '.v1'), finished_at from duly.attempts
 where outcome <> 'fenced' and became in ('succeeded', 'dead', 'cancelled', 'expired', 'skipped')
"""
COUNTED = re.compile(r"^duly_runs_total\{.*\} ([\d.e+]+)$", re.MULTILINE)


@pytest.mark.timeout(100)
def test_after_crashes_of_the_server_streams_and_counters_have_every_end(tmp_path):
    with a_house(tmp_path) as house, an_audience(house) as audience:
        client = house.start("client", "client", house.ledger, RUNS, SECONDS, SCHEDULES)
        for _ in range(2):
            time.sleep(3)
            crash(house)
        assert client.wait(60) == 0, house.last_words("client")
        calm_down(house)
        audience.check_streams()
        [(recorded,)] = house.ask("select count(*) from duly.attempts")
        wait_until(lambda: audience.counted() == [recorded, recorded], 10, what="every end in the counters")
        assert verified(house) == []


@pytest.mark.timeout(100)
def test_event_streams_and_counters_continue_after_a_failover_and_report_gaps(tmp_path):
    with a_pair(tmp_path) as pair, a_house_on(tmp_path, pair) as house, an_audience(house) as audience:
        client = house.start("client", "client", house.ledger, RUNS, SECONDS, SCHEDULES)
        time.sleep(4)
        failed_at = time.time()
        pair.fail_over()
        wait_until(lambda: any(map(audience.is_cut_off, ("api0", "api1"))), 20, what="counters that were cut off")
        regained_at = time.time()
        assert client.wait(60) == 0, house.last_words("client")
        calm_down(house)
        audience.check_streams()
        assert audience.steady.gaps
        [(recorded, between)] = house.ask(
            "select count(*), count(*) filter (where finished_at between to_timestamp(%s) and to_timestamp(%s))"
            "  from duly.attempts",
            failed_at - SCRAPE_SECONDS - SLACK_SECONDS,
            regained_at,
        )
        assert all(recorded - between <= counted <= recorded for counted in audience.counted())
        assert between < recorded / 2, "most ended before or after"
        assert verified(house) == []


class Audience:
    """Two APIs that are scraped, one who listens to the first, and one who goes from the one to the other and back."""

    def __init__(self, house: House, addresses: list[str], key: str) -> None:
        self._house = house
        self._addresses = addresses
        self._key = {"Authorization": f"Bearer {key}"}
        self._is_over = threading.Event()
        self.steady = Listener(addresses[:1], key)
        self.roaming = Listener(addresses, key, stay_seconds=0.7)

    def start(self) -> None:
        """Begin when both APIs answer; from then on everything counts."""
        wait_until(self._are_scraped, 30, what="both APIs", pause=0.2)
        threading.Thread(target=self._scrape, daemon=True).start()
        for listener in (self.steady, self.roaming):
            listener.start()
        wait_until(lambda: self.steady.joins and self.roaming.joins, 20, what="both listeners")

    def stop(self) -> None:
        """Go home."""
        self._is_over.set()
        for listener in (self.steady, self.roaming):
            listener.stop()

    def counted(self) -> list[float]:
        """Say how many attempts each API has counted."""
        answers = [httpx.get(f"{address}/metrics", headers=self._key, timeout=10) for address in self._addresses]
        return [sum(map(float, COUNTED.findall(answer.raise_for_status().text))) for answer in answers]

    def is_cut_off(self, api: str) -> bool:
        """Say whether an API that read the figures for both had to go on from the present."""
        return "metrics_cut_off" in (self._house.folder / f"{api}.log").read_text()

    def check_streams(self) -> None:
        """Every end was sent, or a gap came after it; once, or with the same id again to who changed the process."""
        history = dict(self._house.ask(ENDED))
        for listener in (self.steady, self.roaming):
            wait_until(partial(has_all, listener, history), 10, what="every end, or a gap")
            assert set(listener.told) <= set(history)
        assert max(self.steady.told.values()) == 1
        assert self.roaming.joins > 4

    def _are_scraped(self) -> bool:
        with suppress(httpx.HTTPError):
            return len(self.counted()) == len(self._addresses)
        return False

    def _scrape(self) -> None:
        while not self._is_over.wait(SCRAPE_SECONDS):
            self._are_scraped()


def has_all(listener: Listener, history: dict[str, datetime]) -> bool:
    """Say whether every end was sent, or a gap came after it."""
    gap_at = max(listener.gaps, default=None)
    return all(name in listener.told or (gap_at is not None and at <= gap_at) for name, at in history.items())


@contextmanager
def an_audience(house: House) -> Iterator[Audience]:
    """Start all that runs on a database, and those who watch."""
    house.start_scheduler("scheduler0")
    house.start_worker("worker0")
    ports = [free_port(), free_port()]
    for number, port in enumerate(ports):
        house.start("api", f"api{number}", port)
    audience = Audience(house, [f"http://127.0.0.1:{port}" for port in ports], asyncio.run(a_key(house.url)))
    audience.start()
    try:
        yield audience
    finally:
        audience.stop()


async def a_key(url: str) -> str:
    key_id, secret = new_key(Rng().secret)
    async with Database(url) as database:
        await api_keys.create(database, key_id, secret, tenant=1, name="listener", scopes=[Scope.ADMIN])
    return written(key_id, secret).reveal()


def crash(house: House) -> None:
    """Kill the server with all its processes, and start it again on the same data."""
    kill_all(house.server.pid)
    wait_until(lambda: not house.server.is_running, 10)
    house.server.revive()
