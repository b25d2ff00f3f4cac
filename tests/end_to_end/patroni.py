"""PostgreSQL 15 with a synchronous standby, under Patroni and etcd of the Debian packages, on ports of this machine.

Patroni's configuration, the role and the address are those of `docs/how-to/failover.md`, so what that page says works.
"""

import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psycopg
import pytest
import yaml

from duly.postgres import embedded, launcher
from duly.postgres.account import ENVIRONMENT, ourselves, unprivileged
from duly.postgres.processes import living_on
from tests.end_to_end.house import wait_until
from tests.end_to_end.standby import free_port, kill_all
from tests.postgres import DEBIAN_BINARIES

PYTHON = "/usr/bin/python3"  # The packages' own, and any account can enter its folders.
PATRONI, ETCD = Path("/usr/bin/patroni"), Path("/usr/bin/etcd")
NAMES = ("one", "two")
START_SECONDS = 60.0
REJOIN_SECONDS = 90.0  # a crash recovery, a rewind and a start, on a busy machine
LOOK_SECONDS = 0.01
# As small as they may be: a leader is replaced when it has not renewed its key for `ttl`, and that is to be more than two
# rounds that etcd may take to answer.
QUICK = {"ttl": 6, "loop_wait": 1, "retry_timeout": 2}
# Processes are killed, and not the machine: what was handed to the kernel stays.
SMALL = {"unix_socket_directories": "", "shared_buffers": "64MB", "fsync": "off", "max_connections": 100}
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "failover.md"


class Page:
    """What the page tells operators to write, for ports of this machine."""

    def __init__(self) -> None:
        self._text = PAGE.read_text()

    def configuration(self, node: "Node", etcd_port: int) -> dict[str, Any]:
        """Give Patroni's configuration for a node."""
        written = self._found(r"```yaml\n(scope: .*?)```").replace("10.0.0.0/24", "127.0.0.1/32")
        configuration: dict[str, Any] = yaml.safe_load(written)
        address, rest = f"127.0.0.1:{node.port}", f"127.0.0.1:{node.rest}"
        configuration |= {"name": node.name, "restapi": {"listen": rest, "connect_address": rest}}
        configuration["etcd3"] = {"hosts": [f"127.0.0.1:{etcd_port}"]}
        configuration["bootstrap"]["dcs"] |= QUICK
        configuration["bootstrap"]["initdb"].append("no-sync")
        postgresql = configuration["postgresql"]
        postgresql |= {"listen": address, "connect_address": address, "data_dir": str(node.data)}
        postgresql |= {"pgpass": str(node.folder / "pgpass"), "bin_dir": str(DEBIAN_BINARIES)}
        postgresql["parameters"] |= SMALL
        return configuration

    def url(self, hosts: str) -> str:
        """Give Duly's address."""
        return self._found(r"DULY_DATABASE_URL='([^']+)'").replace("10.0.0.1,10.0.0.2", hosts)

    def statements(self) -> list[str]:
        """Give what makes the role and the database."""
        return re.findall(r'-c "((?:create|grant) [^"]+)"', self._text)

    def _found(self, pattern: str) -> str:
        found = re.search(pattern, self._text, re.DOTALL)
        assert found is not None, (PAGE, pattern)
        return found[1]


class Node(NamedTuple):
    """A member of the cluster."""

    name: str
    folder: Path
    port: int
    rest: int

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def postmaster(self) -> int | None:
        """The first process of its server, if that runs."""
        with suppress(OSError, ValueError):
            pid = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
            if pid in living_on(self.data):
                return pid
        return None


class Accepted(NamedTuple):
    """When a new primary was first seen to take writes, and the last fence drawn before."""

    at: float
    fence: int


class Cluster:
    """An etcd of one member, and a Patroni with its PostgreSQL twice."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._account = unprivileged() if os.geteuid() == 0 else ourselves()
        self._etcd, self._etcd_peer = free_port(), free_port()
        self.nodes = {name: Node(name, folder / name, free_port(), free_port()) for name in NAMES}
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self._page = Page()
        self.url = self._page.url(",".join(f"127.0.0.1:{node.port}" for node in self.nodes.values()))

    def start(self) -> None:
        """Start everything, with an empty database, and wait until commits wait for the standby."""
        self._start_etcd()
        for name, node in self.nodes.items():
            self._own(node.folder)
            self.start_agent(name)
        wait_until(lambda: self._is_healthy(), START_SECONDS, what="a primary and a synchronous standby", pause=0.1)
        node = self.nodes[self.primary()]
        operator = self._page.configuration(node, self._etcd)["postgresql"]["authentication"]["superuser"]
        with psycopg.connect(
            host="127.0.0.1", port=node.port, dbname="postgres", user=operator["username"],
            password=operator["password"], autocommit=True,
        ) as connection:  # fmt: skip
            for statement in self._page.statements():
                connection.execute(statement.encode())

    def url_of(self, name: str) -> str:
        """Give Duly's address with one of the nodes alone, whatever it is."""
        return self._page.url(f"127.0.0.1:{self.nodes[name].port}").partition("?")[0]

    def primary(self) -> str:
        """Name the node that Patroni calls the leader. Raises LookupError when there is none."""
        for name in NAMES:
            if self._says(name, "primary"):
                return name
        raise LookupError(self.logs())

    def standby(self) -> str:
        """Name the other node."""
        return self._other(self.primary())

    def switch_over(self) -> None:
        """Let Patroni exchange the roles in good order, as `patronictl switchover` does."""
        leader = self.primary()
        body = {"leader": leader, "candidate": self._other(leader)}
        answer = httpx.post(f"http://127.0.0.1:{self.nodes[leader].rest}/switchover", json=body, timeout=60)
        assert answer.status_code == 200, answer.text

    def kill_primary(self) -> None:
        """Kill Patroni and PostgreSQL of the primary with all their processes, as a failing machine would."""
        leader = self.primary()
        agent, pid = self._agents.pop(leader), self.nodes[leader].postmaster
        assert pid is not None
        agent.kill()
        kill_all(pid)
        agent.wait()

    def start_agent(self, name: str) -> None:
        """Start Patroni of a node, which starts PostgreSQL; after a kill, as a standby of the other."""
        configuration = self._folder / f"{name}.yml"
        configuration.write_text(yaml.safe_dump(self._page.configuration(self.nodes[name], self._etcd)))
        self._agents[name] = self._run(name, PYTHON, str(PATRONI), str(configuration))

    def heal(self) -> float:
        """Start what was killed, and wait until commits wait for a standby again. Gives how long that took."""
        for name in NAMES:
            if name not in self._agents:
                self.start_agent(name)
        return wait_until(self._is_healthy, REJOIN_SECONDS, what=f"a synchronous standby; {self.logs()}", pause=0.1)

    def logs(self) -> dict[str, str]:
        """Give the end of what each program said."""
        return {path.stem: path.read_text(errors="replace")[-2000:] for path in self._folder.glob("*.log")}

    def end(self) -> None:
        """End all processes, whatever state they are in."""
        for agent in self._agents.values():
            agent.kill()
            agent.wait()
        for node in self.nodes.values():
            if (pid := node.postmaster) is not None:
                kill_all(pid)

    def _other(self, name: str) -> str:
        return NAMES[1 - NAMES.index(name)]

    def _is_healthy(self) -> bool:
        for name, agent in self._agents.items():
            assert agent.poll() is None, f"{name} has ended: {self.logs()}"
        is_led = any(self._says(name, "primary") for name in NAMES)
        return is_led and any(self._says(name, "synchronous") for name in NAMES)

    def _says(self, name: str, role: str) -> bool:
        """Ask Patroni's health check for a role, as a load balancer does."""
        with suppress(httpx.HTTPError):
            return httpx.get(f"http://127.0.0.1:{self.nodes[name].rest}/{role}", timeout=2).status_code == 200
        return False

    def _start_etcd(self) -> None:
        self._own(self._folder / "etcd")
        ours, peers = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{self._etcd_peer}"
        self._agents["etcd"] = self._run(
            "etcd", str(ETCD), "--name=etcd", f"--data-dir={self._folder}/etcd/data", f"--listen-client-urls={ours}",
            f"--advertise-client-urls={ours}", f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=etcd={peers}",
        )  # fmt: skip
        wait_until(lambda: _answers(f"{ours}/health"), START_SECONDS, what="etcd", pause=0.1)

    def _own(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        os.chown(folder, self._account.uid, self._account.gid)

    def _run(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a program under the account that PostgreSQL accepts. Should this process die, it ends, and what it started."""
        identity = [str(number) for number in (embedded.parent_to_die_with(), self._account.uid, self._account.gid)]
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [PYTHON, "-I", "-S", launcher.__file__, *identity, *command],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=ENVIRONMENT, start_new_session=True,
            )  # fmt: skip


class Watcher:
    """Looks at a standby until it takes writes, without Duly and without Patroni."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.accepted: Accepted | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> Accepted:
        """Wait for that moment."""
        self._thread.join(seconds)
        self._is_over.set()
        assert self.accepted is not None, f"no new primary within {seconds} s"
        return self.accepted

    def _look(self) -> None:
        while not self._is_over.is_set() and self.accepted is None:
            with suppress(psycopg.Error), psycopg.connect(self._url, autocommit=True, connect_timeout=1) as connection:
                self._look_at(connection)

    def _look_at(self, connection: psycopg.Connection) -> None:
        while not self._is_over.wait(LOOK_SECONDS):
            [(is_standby, fence)] = connection.execute("select pg_is_in_recovery(), last_value from duly.fences")
            if not is_standby:
                self.accepted = Accepted(time.time(), fence)
                return


def _answers(url: str) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(url, timeout=2).status_code == 200
    return False


@contextmanager
def a_cluster() -> Iterator[Cluster]:
    """Run a cluster, in a folder that the account of PostgreSQL can enter."""
    for program in (PATRONI, ETCD, DEBIAN_BINARIES / "postgres"):
        if not program.exists():
            pytest.skip(f"needs {program}; scripts/system-packages installs it")
    folder = Path(tempfile.mkdtemp(prefix="duly-patroni-"))
    folder.chmod(0o711)
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.end()
        shutil.rmtree(folder)
