"""Three hosts with an API, a scheduler and a worker each, and a fourth with PostgreSQL: `duly` itself, as an operator starts it.

Clients are on a fifth machine, and the receiver of webhooks on a sixth. The wall clocks of the hosts are as far apart as they are
given; time that passes, and the database's clock, are not touched.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec

from duly.bench.chaos.evidence import SINK, Arrival, Sink, Strike
from duly.clock import Rng
from duly.domain.tenancy.api_key import Scope, new_key, written
from duly.domain.tenancy.sealing import new_key_line
from duly.postgres import embedded
from duly.postgres.folder import DATABASE, ROLE
from duly.store.connection.database import Database
from duly.store.tenancy import api_keys
from tests.end_to_end.hosts.network import MASK, PREFIX, Network
from tests.end_to_end.house import LEASE_SECONDS, House, a_house_on, wait_until
from tests.end_to_end.receiver import Receiver
from tests.end_to_end.role import THREADS

HOSTS = ("host1", "host2", "host3")
PARTS = ("api", "scheduler", "worker")
CLIENTS, RECEIVER = "clients", "receiver"
SLOTS = 20
PORT = 7300
PATIENCE_SECONDS = 60.0
APP = "duly.bench.chaos.app:app"
# Only the wall clock is moved, and nothing that waits: libfaketime would bend what sleeps by the monotonic clock, too.
WALL_CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, at);
    const char *offset = getenv("WALL_CLOCK_OFFSET");
    if (!result && offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += atol(offset);
    return result;
}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec, at->tv_usec = now.tv_nsec / 1000;
    return result;
}
time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


class Installation:
    """The hosts, what runs on them, and the way to their public API."""

    def __init__(
        self, network: Network, house: House, database: str, receiver: Receiver, offsets: Mapping[str, int]
    ) -> None:
        self.network = network
        self.house = house
        self.receiver = receiver
        self.leases = Leases(self)
        self._headers = {"Authorization": f"Bearer {asyncio.run(_a_key(house.url))}"}
        self._offsets = offsets
        self._addresses = {host: network.add(host) for host in HOSTS}
        self._clients = {host: self.client(host, 5.0) for host in HOSTS}
        self._environment = {
            "DULY_DATABASE_URL": f"postgresql://{ROLE}@{database}:5432/{DATABASE}",
            "DULY_SECRETS_KEY": str(house.folder / "keys"),
            "DULY_EGRESS_ALLOW": receiver.origin.removeprefix("http://"),
            "DULY_HOST": "0.0.0.0",
            "DULY_PORT": str(PORT),
            "DULY_PLAIN_HTTP": "true",
            "DULY_LEASE": f"PT{LEASE_SECONDS:g}S",
            "DULY_SLOTS": str(SLOTS),
            "DULY_THREADS": str(THREADS),
            "DULY_APP": APP,
            "LD_PRELOAD": str(_wall_clock(house.folder)),
        }

    def close(self) -> None:
        """Ask nothing any more."""
        self.leases.stop()
        for client in self._clients.values():
            client.close()

    def start(self, *hosts: str) -> None:
        """Start all parts of hosts, and wait until they take part."""
        for host in hosts:
            for part in PARTS:
                self._start_part(host, part)
        for host in hosts:
            wait_until(lambda: self.takes_part(host), PATIENCE_SECONDS, what=f"{host} takes part", pause=0.1)  # noqa: B023

    def stop(self, host: str) -> None:
        """Stop all parts of a host as a supervisor does."""
        processes = [self.house.processes.pop(f"{part}-{host}") for part in PARTS]
        for process in processes:
            process.terminate()
        for part, process in zip(PARTS, processes, strict=True):
            assert process.wait(PATIENCE_SECONDS) == 0, self.house.last_words(f"{part}-{host}")

    def lose(self, host: str) -> Strike:
        """Lose a host as by a power cut."""
        pid, at = self.house.processes[f"worker-{host}"].pid, time.time()
        self.network.remove(host)
        for part in PARTS:
            self.house.processes.pop(f"{part}-{host}").wait()
        self.house.strikes.append(Strike("worker", pid, at, time.time()))
        return self.house.strikes[-1]

    def ask(self, path: str, host: str = HOSTS[-1], **parameters: Any) -> Any:
        """Read something from the public API."""
        with self.network.inside(CLIENTS):
            answer = self._clients[host].get(path, params=parameters)
        answer.raise_for_status()
        return answer.json()

    def client(self, host: str, seconds: float) -> httpx.Client:
        """Return a client of a host's API; its connections are where it is used."""
        return httpx.Client(base_url=f"http://{self._addresses[host]}:{PORT}", headers=self._headers, timeout=seconds)

    def takes_part(self, host: str) -> bool:
        """Return whether a host's API answers, and its worker and its scheduler have their leases."""
        for part in PARTS:
            assert self.house.processes[f"{part}-{host}"].poll() is None, self.house.last_words(f"{part}-{host}")
        return self.works(host) and self.schedules(host) and self.answers(host)

    def works(self, host: str) -> bool:
        """Return whether a host's worker has its lease."""
        return (host,) in self.house.ask("select name from duly.workers where until > clock_timestamp()")

    def schedules(self, host: str) -> bool:
        """Return whether a host's scheduler holds shards."""
        shards = "select distinct name from duly.schedulers join duly.shards on holder = scheduler_id"
        return (host,) in self.house.ask(f"{shards} where until > clock_timestamp()")

    def sessions(self, host: str, begun_before: float) -> int:
        """Count the sessions of a host that PostgreSQL has kept since a moment."""
        query = (
            "select count(*) from pg_stat_activity where client_addr = %s::inet and backend_start < to_timestamp(%s)"
        )
        return int(self.house.ask(query, self._addresses[host], begun_before)[0][0])

    def answers(self, host: str) -> bool:
        """Return whether a host's API reaches the database."""
        try:
            self.ask("/v1/workers", host)
        except httpx.HTTPError:
            return False
        return True

    def wall_clock_offset(self, host: str) -> float:
        """Return how far a host's processes believe to be from the true time."""
        command = [*self._on(host), sys.executable, "-c", "import time; print(time.time())"]
        return float(subprocess.run(command, capture_output=True, check=True, timeout=30).stdout) - time.time()

    def arrivals(self) -> list[Arrival]:
        """Return all calls of functions and webhooks so far, by the true clock."""
        functions = [
            msgspec.structs.replace(call, at=call.at - self._offsets[host])
            for host in HOSTS
            for call in Sink(self._sink(host)).read()
        ]
        return functions + list(self._webhooks())

    def calls_on(self, host: str) -> int:
        """Count the calls of functions on a host."""
        return sum(1 for _ in Sink(self._sink(host)).read())

    def _webhooks(self) -> Iterator[Arrival]:
        wall = time.time() - time.monotonic()
        for (at, _), head in zip(list(self.receiver.arrivals), list(self.receiver.heads), strict=False):
            moment = msgspec.convert(head["x-scheduled-at"].upper(), type=datetime).timestamp()
            yield Arrival(
                head["x-run-id"],
                head["x-job-id"],
                int(head["x-attempt"]),
                int(head["x-fence"]),
                at + wall,
                (0, 0),
                moment,
                moment,
            )

    def _start_part(self, host: str, part: str) -> None:
        named = [] if part == "api" else ["--name", host]
        # Should these tests be killed, their processes end with them.
        command = [*self._on(host), "setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "duly", part, *named]
        with self.network.inside(host):
            self.house.run(command, f"{part}-{host}")

    def _on(self, host: str) -> list[str]:
        particular = {SINK: str(self._sink(host)), "WALL_CLOCK_OFFSET": str(self._offsets[host])}
        environment = self._environment | particular
        return ["env", *(f"{name}={value}" for name, value in environment.items())]

    def _sink(self, host: str) -> Path:
        return self.house.folder / f"sink-{host}"


class Leases(threading.Thread):
    """Notes how long the public API said that each worker's lease lasts."""

    def __init__(self, installation: Installation) -> None:
        super().__init__(daemon=True)
        self._installation = installation
        self._is_over = threading.Event()
        self.until: dict[str, float] = {}  # at the least, by the true clock

    def run(self) -> None:
        """Look again and again, at one host after the other."""
        with self._installation.network.inside(CLIENTS):
            hosts = [self._installation.client(host, 1.0) for host in HOSTS]
            while not self._is_over.wait(0.25):
                hosts.append(hosts.pop(0))
                with suppress(httpx.HTTPError):
                    self._look(hosts[0])
            for host in hosts:
                host.close()

    def stop(self) -> None:
        """Look no more."""
        self._is_over.set()
        self.join(10)

    def _look(self, host: httpx.Client) -> None:
        asked_at = time.time()
        answer = host.get("/v1/workers")
        if answer.is_success:
            for worker in answer.json()["items"]:
                until = asked_at + worker["lease_seconds_left"]
                self.until[worker["worker_id"]] = max(until, self.until.get(worker["worker_id"], 0.0))


@contextmanager
def an_installation(folder: Path, offsets: Mapping[str, int]) -> Iterator[Installation]:
    """Start the hosts, with wall clocks so many seconds ahead. Nothing of it is left at the end."""
    with Network() as network:
        network.add(CLIENTS)
        database, receiving = network.add("database"), network.add(RECEIVER)
        with network.inside("database"):
            settings = {"shared_buffers": "128MB", "listen_addresses": database}
            server = embedded.start(folder / "postgres", durable=True, settings=settings)
            _admit_hosts(folder / "postgres", server)
        with server, ExitStack() as stack:
            with network.inside(RECEIVER):
                receiver = stack.enter_context(Receiver(receiving))
            house = stack.enter_context(a_house_on(folder, server))
            (folder / "keys").write_text(new_key_line(Rng().secret).reveal() + "\n")
            installation = Installation(network, house, database, receiver, offsets)
            installation.start(*HOSTS)
            installation.leases.start()
            try:
                yield installation
            finally:
                installation.close()


def _admit_hosts(data: Path, server: embedded.Embedded) -> None:
    """Let the hosts log in from their network; it leads nowhere else."""
    [file] = data.rglob("pg_hba.conf")
    with file.open("a") as rules:
        rules.write(f"host {DATABASE} {ROLE} {PREFIX}.0/{MASK} trust\n")
    os.kill(server.pid, signal.SIGINT)
    wait_until(lambda: not server.is_running, PATIENCE_SECONDS, what="PostgreSQL's end")
    server.revive()


async def _a_key(url: str) -> str:
    key_id, secret = new_key(Rng().secret)
    async with Database(url) as database:
        await api_keys.create(database, key_id, secret, tenant=1, name="clients", scopes=[Scope.ADMIN])
    return written(key_id, secret).reveal()


def _wall_clock(folder: Path) -> Path:
    """Build the library that moves the wall clock of the processes that load it."""
    library = folder / "wall_clock.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", str(library), "-ldl"]
    subprocess.run(command, input=WALL_CLOCK.encode(), check=True, timeout=60)
    return library
