"""Clients that are slow on purpose, and many of them: each is cut off in time, and whoever behaves is served meanwhile."""

import multiprocessing
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from duly.api.server.connections import group_of
from duly.postgres import embedded
from tests.cli.processes import Up, dies, running, wait_for
from tests.security.attacker import GOOD_SECONDS_MAX, STATUS, Target, flood, http_process

HEAD = b"GET /livez HTTP/1.1\r\nHost: a\r\n"
WITHOUT_BODY = (
    b"POST /v1/session HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n"
)
SECONDS_MAX = 13.0  # Ten, and a moment for whoever looks at it on a busy machine.
EACH = 15
ESTABLISHED = b"\x01"
ATTACK_SECONDS = 8.0
DELAY_SECONDS_MAX = 0.9  # A schedule of each second is on time if a run starts before the next is due.
TICKING = """
from duly import App

app = App()


@app.handler(every="PT1S")
async def tick() -> None: ...
"""
STARTS = "select due_at, extract(epoch from started_at - due_at)::float from duly.attempts order by due_at"
HOLDERS = "select shard, holder, epoch from duly.shards order by shard"


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    """Everything but workers, running."""
    folder = tmp_path_factory.mktemp("slow")
    with running("up", "--port", "0", "--no-demo", "--workers", "0", cwd=folder) as process:
        yield Up(process, folder)


@pytest.fixture(scope="module")
def key(up):
    return (up.folder / ".duly" / "api-key").read_text().strip()


def http_of(up: Up) -> Target:
    return Target(int(up.address.rpartition(":")[2]), http_process(up.process.process.pid))


@contextmanager
def serving(words: str, *arguments: str, cwd: Path, under: Sequence[str] = (), **more: str) -> Iterator[Target]:
    """Run a process that says in a line with these words where it serves."""
    with running(*arguments, cwd=cwd, under=under, **more) as process:
        port = process.wait_for_line(words).split()[2].rstrip(",").removesuffix("/metrics").rpartition(":")[2]
        yield Target(int(port), psutil.Process(process.process.pid))


class Slow:
    """A connection whose client writes a little each second, and reads unless it is told not to."""

    def __init__(self, target: Target, begin: bytes, drip: bytes = b"", *, reads: bool = True) -> None:
        self.connection = target.connect()
        self.connection.sendall(begin)
        self.connection.setblocking(False)
        self._drip = drip
        self._reads = reads
        self._began = time.monotonic()
        self.raw = b""
        self.seconds: float | None = None

    def go_on(self) -> None:
        """Write a little more, and see whether the other end has closed."""
        try:
            if self._drip and time.monotonic() - self._began > 0.5:
                self.connection.send(self._drip)
            if self._reads:
                self._read()
            elif self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) != ESTABLISHED:
                self.seconds = time.monotonic() - self._began
        except BlockingIOError:
            pass
        except OSError:
            self.seconds = time.monotonic() - self._began

    def _read(self) -> None:
        while came := self.connection.recv(65_536):
            self.raw += came
        self.seconds = time.monotonic() - self._began

    @property
    def statuses(self) -> list[int]:
        """The status of each answer."""
        return list(map(int, STATUS.findall(self.raw)))


def play(slow: Sequence[Slow], target: Target, seconds: float) -> float:
    """Let slow clients go on until all are cut off. Gives the longest that somebody who behaves had to wait meanwhile."""
    longest, deadline = 0.0, time.monotonic() + seconds
    while (left := [one for one in slow if one.seconds is None]) and time.monotonic() < deadline:
        for one in left:
            one.go_on()
        longest = max(longest, target.good())
        time.sleep(0.5)
    return longest


def check_all(slow: Sequence[Slow], statuses: list[int], at_least: float, at_most: float = SECONDS_MAX) -> None:
    for one in slow:
        assert one.seconds is not None, "it is still open"
        assert at_least < one.seconds < at_most
        assert one.statuses == statuses, one.raw[:300]


def test_client_that_takes_too_long_is_cut_off_and_reported(up, key):
    api = http_of(up)
    before = api.descriptors()
    post = b"POST /v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 90000\r\n"
    allowed = post + f"Authorization: Bearer {key}\r\n\r\n".encode()
    with serving("metrics at", "scheduler", "--metrics-port", "0", cwd=up.folder) as role:
        half = [Slow(target, HEAD + b"X-Hal") for target in (api, role) for _ in range(EACH)]
        dripped = [Slow(target, HEAD, drip) for target in (api, role) for drip in (b"X: y\r\n", b"X")]
        blank = [Slow(api, b"\r\n", b"\r\n"), Slow(api, HEAD + b"\r\n", b"\r\n")]
        silent = [Slow(target, b"") for target in (api, role) for _ in range(EACH)]
        idle = [Slow(api, HEAD + b"\r\n") for _ in range(EACH)]
        bodies = [Slow(api, allowed, b" ") for _ in range(EACH)]
        strangers = [Slow(api, post + b"\r\n", b" ") for _ in range(EACH)]
        unread = [Slow(api, (b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n") * 30, reads=False)]

        slow = [*half, *dripped, *blank, *silent, *idle, *bodies, *strangers, *unread]
        assert play(slow, api, 2 * SECONDS_MAX) < GOOD_SECONDS_MAX

        check_all(half, [408], 9.0)
        check_all(dripped, [408], 9.0)
        check_all(blank[:1], [408], 9.0)
        check_all(blank[1:], [200, 408], 9.0)
        check_all(silent, [], 9.0)
        check_all(idle, [200], 4.0, 8.0)
        check_all(bodies, [408], 9.0)
        check_all(strangers, [401], 9.0)
        check_all(unread, [], 9.0, 2 * SECONDS_MAX)
        wait_for(lambda: api.descriptors() <= before + 20)  # the pools of the database
        assert role.good() < GOOD_SECONDS_MAX
    assert b"application/problem+json" in half[0].raw
    assert "request_failed" not in up.process.text
    assert "Traceback" not in up.process.text


def test_a_handshake_that_stops_is_cut_off(up, tmp_path):
    names = ["-keyout", "key.pem", "-out", "certificate.pem", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *names],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    files = {"DULY_TLS_CERTIFICATE": str(tmp_path / "certificate.pem"), "DULY_TLS_KEY": str(tmp_path / "key.pem")}
    limits = {"DULY_HTTP_CONNECTIONS_PER_ADDRESS": "20"}
    context = ssl.create_default_context(cafile=str(tmp_path / "certificate.pem"))
    context.check_hostname = False
    with serving("api at", "api", "--port", "0", cwd=up.folder, **files, **limits) as target, ExitStack() as stack:
        before = target.descriptors()
        slow = [Slow(target, b"\x16\x03\x01") for _ in range(60)]
        for one in slow:
            stack.enter_context(one.connection)
        wait_for(lambda: target.descriptors() <= before + 21, 2)
        with context.wrap_socket(target.connect(), server_hostname="localhost") as connection:
            connection.sendall(HEAD + b"Connection: close\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
        wait_for(lambda: target.descriptors() <= before, SECONDS_MAX)


class TestMany:
    @pytest.mark.parametrize("begun", [HEAD, WITHOUT_BODY], ids=["head", "body"])
    def test_connections_are_bounded_in_all_and_per_address_while_others_are_served(self, up, begun):
        limits = {"DULY_HTTP_CONNECTIONS": "100", "DULY_HTTP_CONNECTIONS_PER_ADDRESS": "40"}
        with serving("api at", "api", "--port", "0", cwd=up.folder, **limits) as target, ExitStack() as stack:
            target.good("/readyz")
            before = target.descriptors()
            for round_, source in enumerate(["127.0.0.1"] * 3 + [f"127.0.0.{last}" for last in range(2, 8)]):
                for _ in range(60):
                    connection = stack.enter_context(target.connect(source))
                    connection.sendall(begun)
                assert target.good(source=source) < GOOD_SECONDS_MAX, "from the address of the attack"
                assert target.good("/readyz", source="127.0.0.99") < GOOD_SECONDS_MAX, "and from another"
                assert target.descriptors() <= before + (40 if round_ < 3 else 100) + 10

    def test_connection_being_answered_is_not_closed_for_others(self, up, key):
        limits = {"DULY_HTTP_CONNECTIONS": "20", "DULY_HTTP_CONNECTIONS_PER_ADDRESS": "10"}
        stream = f"GET /v1/events HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
        with serving("api at", "api", "--port", "0", cwd=up.folder, **limits) as target, ExitStack() as stack:
            streams = [stack.enter_context(target.connect()) for _ in range(9)]
            for one in streams:
                one.sendall(stream)
                assert one.recv(4096).startswith(b"HTTP/1.1 200 ")
            for _ in range(50):
                stack.enter_context(target.connect()).sendall(HEAD)
            assert target.good() < GOOD_SECONDS_MAX

            streams.append(stack.enter_context(target.connect()))
            streams[-1].sendall(stream)
            assert streams[-1].recv(4096).startswith(b"HTTP/1.1 200 ")
            refused = target.send(HEAD + b"\r\n")
            assert (refused.status, refused.is_closed) == (503, True)
            assert refused.problem["code"] == "too_many_connections"
            assert target.good(source="127.0.0.2") < GOOD_SECONDS_MAX
            for one in streams:
                assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == ESTABLISHED

    @pytest.mark.parametrize(("soft", "hard"), [(256, 600), (256, 256)])
    def test_descriptors_are_raised_and_kept_for_the_database(self, up, soft, hard):
        under = ("sh", "-c", f'ulimit -Sn {soft}; ulimit -Hn {hard}; exec "$@"', "sh")
        more = {"DULY_HTTP_CONNECTIONS_PER_ADDRESS": "1000"}
        with (
            serving("api at", "api", "--port", "0", cwd=up.folder, under=under, **more) as target,
            ExitStack() as stack,
        ):
            assert target.process.rlimit(psutil.RLIMIT_NOFILE) == (hard, hard)
            for _ in range(hard + 100):
                stack.enter_context(target.connect()).sendall(HEAD)
            for _ in range(5):
                assert target.good("/readyz") < GOOD_SECONDS_MAX, "the database is asked over a connection of its own"
            assert target.descriptors() <= hard - 60

    def test_a_pause_of_the_process_is_not_held_against_clients(self, up):
        with serving("api at", "api", "--port", "0", cwd=up.folder) as target:
            slow = Slow(target, HEAD)
            target.good()
            target.process.send_signal(signal.SIGSTOP)
            slow.connection.sendall(b"Connection: close\r\n\r\n")
            time.sleep(11)
            target.process.send_signal(signal.SIGCONT)
            play([slow], target, 10)
            assert slow.statuses == [200]


def attack(port: int, seconds: float) -> None:
    """Write heads without end, as fast as they are taken, and leave half a head behind each time."""
    target, deadline = Target(port, psutil.Process()), time.monotonic() + seconds
    left: list[socket.socket] = []
    while (rest := deadline - time.monotonic()) > 0:
        for begin, piece in ((HEAD + b"X: ", b"a"), (HEAD, b"X: y\r\n"), (b"GET /", b"a")):
            try:
                with target.connect() as connection:
                    flood(connection, begin, piece, rest)
                left = [*left[-200:], target.connect()]
                left[-1].sendall(HEAD)
            except OSError:
                pass


def test_a_schedule_fires_on_time_while_http_is_attacked(tmp_path):
    (tmp_path / "ticking.py").write_text(TICKING)
    with running("up", "--port", "0", "--no-demo", "--app", "ticking:app", cwd=tmp_path) as process:
        up = Up(process, tmp_path)
        target, url = http_of(up), embedded.attach(tmp_path / ".duly")
        assert url is not None
        with psycopg.connect(url, autocommit=True) as database:
            wait_for(lambda: len(database.execute(STARTS).fetchall()) > 2)
            holders = database.execute(HOLDERS).fetchall()
            [(began,)] = database.execute("select now()").fetchall()
            attackers = [
                multiprocessing.get_context("spawn").Process(
                    target=attack, args=(target.port, ATTACK_SECONDS), daemon=True
                )
                for _ in range(3)
            ]
            with target.measured() as cost:
                for one in attackers:
                    one.start()
                waits = []
                while any(one.is_alive() for one in attackers):
                    waits.append(target.good("/readyz"))
                    time.sleep(0.2)
            [(ended,)] = database.execute("select now()").fetchall()
            time.sleep(1.5)
            starts = [(due, late) for due, late in database.execute(STARTS) if began < due < ended]
            assert database.execute(HOLDERS).fetchall() == holders, "no shard has changed hands"

        seconds = (ended - began).total_seconds()
        assert seconds > ATTACK_SECONDS
        assert cost.cpu_seconds > 1.0, "it was an attack"
        assert abs(len(starts) - seconds) < 2, "each second has its run"
        assert max(late for _, late in starts) < DELAY_SECONDS_MAX
        assert max(waits) < GOOD_SECONDS_MAX
        assert cost.mebibytes < 64
        assert process.interrupt() < 10


def test_http_that_dies_is_started_again_on_its_port(up):
    http = http_of(up)
    http.process.kill()
    wait_for(lambda: dies(http.process))
    with http.connect() as waiting:  # The listener stays open, so nobody is turned away.
        waiting.settimeout(20)
        waiting.sendall(HEAD + b"Connection: close\r\n\r\n")
        assert waiting.recv(4096).startswith(b"HTTP/1.1 200 ")
    up.process.wait_for_line("child_died what=http")
    wait_for(lambda: http_of(up).good("/readyz"))
    assert http_of(up).process.pid != http.process.pid


def test_ipv6_network_counts_as_one_address():
    assert group_of("2001:db8:1:2::1") == group_of("2001:db8:1:2:ffff::9") != group_of("2001:db8:1:3::1")
    assert group_of("fe80::1%eth0") == group_of("fe80::2")
    assert group_of("::ffff:192.0.2.1") == group_of("192.0.2.1") != group_of("::ffff:192.0.2.2")
