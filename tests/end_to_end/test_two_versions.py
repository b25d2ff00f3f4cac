"""Two versions of Duly on one database, under load: forward, with a canary that dies, and back. Nothing is missed or fired twice.

The newer version is a copy of this one with a patch: a migration that adds columns, a function with another shape under a new
name, and a part that finishes the migration by removing the old one.
"""

import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from duly.bench.chaos.checker import findings
from duly.store.schema import in_force, state
from tests.end_to_end.aftermath import calm_down, gathered, verified
from tests.end_to_end.house import LEASE_SECONDS, ROOT, SOURCE, a_house, wait_until

RUNS, SECONDS, SCHEDULES = 1_500, 10.0, 20  # of each client; one submits in each phase
PATIENCE = 60  # seconds: a busy machine starts processes slowly
NEXT = state.newest() + 1
ADDS = """
alter table duly.leased add column settled_by text;
alter table duly.jobs add column note text not null default '';
alter table duly.schedulers add column note text;
"""
CONCURRENTLY = """-- concurrently
create index concurrently jobs_by_note on duly.jobs (note) where note <> '';
"""
HELD = """
select schedulers.name, array_agg(shard order by shard) from duly.shards join duly.schedulers on scheduler_id = holder group by 1
"""
CALLS = "select coalesce(sum(calls), 0) from pg_stat_user_functions where schemaname = 'duly' and funcname = %s"


def patched(folder: Path) -> Path:
    """Make the newer version. Gives the folder of its packages."""
    source = folder / "newer"
    shutil.copytree(SOURCE / "duly", source / "duly", ignore=shutil.ignore_patterns("__pycache__", "static"))
    schema = source / "duly" / "store" / "schema"
    change(source / "duly" / "__init__.py", r'__version__ = "[^"]+"', '__version__ = "99.0.0"')
    settle = schema / "functions" / "runs" / "settle.sql"
    change(settle, r"function duly\.finish\(\n", "function duly.finish_v2(\n    p_settled_by text,\n")
    change(source / "duly/store/sql/boxes/leased.sql", r"from duly\.finish\(", "from duly.finish_v2('newer', ")
    (schema / "migrations" / f"{NEXT:04d}_notes.sql").write_text(ADDS)
    (schema / "migrations" / f"{NEXT:04d}_notes.finish.sql").write_text("drop function duly.finish;")
    (schema / "migrations" / f"{NEXT + 1:04d}_index_of_notes.sql").write_text(CONCURRENTLY)
    (schema / "functions" / "edition.txt").write_text(f"{in_force.edition() + 1} patched\n")
    return source


def change(file: Path, pattern: str, text: str) -> None:
    """Change one place of a file."""
    written, number = re.subn(pattern, text, file.read_text())
    assert number == 1, (file, pattern, number)
    file.write_text(written)


class Versions:
    """A house in which two versions of Duly live."""

    def __init__(self, house, newer):
        self.house = house
        self.sources = {"older": SOURCE, "newer": newer}

    @contextmanager
    def of(self, version):
        """Start processes of this version inside."""
        self.house.source = self.sources[version]
        try:
            yield
        finally:
            self.house.source = SOURCE

    def duly(self, version, *words):
        """Run a command of a version to its end. Gives its exit code, and what it said."""
        with self.of(version):
            command = [sys.executable, "-m", "duly", *words, "--database-url", self.house.url]
            done = subprocess.run(
                command, cwd=ROOT, env=self.house.environment, capture_output=True, text=True, timeout=120, check=False
            )
        return done.returncode, done.stdout + done.stderr

    def scheduler(self, version, name, *words):
        """Start a scheduler of a version."""
        with self.of(version):
            self.house.command(name, "scheduler", "--name", name, *words)

    def worker(self, version, name):
        """Start a worker of a version."""
        with self.of(version):
            self.house.start("worker", name, LEASE_SECONDS, 20)

    def client(self, version, name):
        """Let a client of a version submit."""
        with self.of(version):
            self.house.start("client", name, self.house.ledger, RUNS, SECONDS, SCHEDULES)

    def stop(self, *names):
        """Stop parts as a supervisor does."""
        for name in names:
            self.house.processes[name].terminate()
        for name in names:
            assert self.house.processes.pop(name).wait(PATIENCE) == 0, self.house.last_words(name)

    def kill(self, name):
        """Kill a part."""
        process = self.house.processes.pop(name)
        process.kill()
        process.wait()

    def shards(self):
        """Give the shards that each scheduler holds."""
        return dict(self.house.ask(HELD))

    def calls(self, function):
        """Count the calls of a function."""
        return int(self.house.ask(CALLS, function)[0][0])


@pytest.mark.timeout(300)
def test_two_versions_share_a_database_forward_and_back_without_a_missed_or_double_fire(tmp_path):
    with a_house(tmp_path, track_functions="all") as house:
        versions = Versions(house, patched(tmp_path))
        for name in ("older0", "older1"):
            versions.scheduler("older", name)
        versions.worker("older", "worker_older0")
        versions.client("older", "client")
        wait_until(lambda: len(versions.shards()) == 2, PATIENCE, what="both schedulers")

        # Forward: nothing that runs notices.
        code, said = versions.duly("newer", "migrate", "--check")
        assert (code, f"{NEXT:04d}_notes" in said) == (1, True), said
        code, said = versions.duly("newer", "migrate")
        assert code == 0, said
        assert versions.duly("newer", "migrate", "--check")[0] == 0
        code, said = versions.duly("older", "migrate")
        assert (code, "newer" in said) == (0, True), said
        settled = versions.calls("finish")
        wait_until(lambda: versions.calls("finish") > settled, PATIENCE, what="successes recorded by the older workers")

        # A canary has its shards and no others, and they come back when it dies.
        versions.scheduler("newer", "canary", "--shards", "0-3")
        versions.worker("newer", "worker_newer0")
        versions.client("newer", "client_newer")
        wait_until(lambda: versions.shards().get("canary") == [0, 1, 2, 3], PATIENCE, what="shards of the canary")
        wait_until(
            lambda: sum(map(len, versions.shards().values())) == 64, PATIENCE, what="all other shards with the others"
        )
        wait_until(lambda: versions.calls("finish_v2"), PATIENCE, what="successes recorded by the newer worker")
        time.sleep(2)
        versions.kill("canary")
        given = lambda: [len(versions.shards().get(name, [])) for name in ("older0", "older1")]  # noqa: E731
        wait_until(lambda: given() == [32, 32], PATIENCE, what="shards of the dead canary")

        # All are of the newer version.
        versions.scheduler("newer", "newer0")
        versions.stop("older0", "older1", "worker_older0")
        wait_until(
            lambda: len(versions.shards().get("newer0", [])) == 64, PATIENCE, what="all shards of the newer scheduler"
        )
        time.sleep(2)

        # And back: the older version starts on the schema of the newer one.
        versions.scheduler("older", "older2")
        versions.worker("older", "worker_older2")
        versions.client("older", "client_back")
        wait_until(lambda: "older2" in versions.shards(), PATIENCE, what="the older scheduler again")
        versions.stop("newer0", "worker_newer0")
        settled = versions.calls("finish")
        wait_until(
            lambda: versions.calls("finish") > settled, PATIENCE, what="successes recorded by the older worker again"
        )
        for name in ("client", "client_newer", "client_back"):
            assert house.processes.pop(name).wait(90) == 0, house.last_words(name)
        calm_down(house)
        assert findings(gathered(house)) == []
        assert verified(house) == []

        # Finished, the older version is refused; while it lives, it cannot be.
        versions.stop("older2", "worker_older2")
        house.execute("update duly.processes set recorded_at = recorded_at - interval '1 minute'")
        code, said = versions.duly("newer", "migrate", "--finish")
        assert code == 0, said
        code, said = versions.duly("older", "scheduler")
        assert (code, "newer Duly" in said) == (3, True), said
