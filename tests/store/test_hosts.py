"""Addresses with several hosts: the right one is found whatever the others do, and the error says what each did."""

import asyncio
import socket
import time
from contextlib import closing, contextmanager

import asyncpg
import psycopg
import pytest

from duly import App
from duly.domain.errors import DatabaseUnusable
from duly.store.connection import hints
from duly.store.connection.database import Database, Unavailable
from duly.store.connection.hosts import STAGGER_SECONDS, VANISHED_SECONDS, Host, Hosts, NoHost, hosts_in
from tests.cli.processes import duly
from tests.end_to_end.house import wait_until
from tests.end_to_end.standby import a_pair, free_port

PATIENCE_SECONDS = 5.0  # the timeout of a connection, which one host must not use up


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A primary and its standby."""
    with a_pair(tmp_path_factory.mktemp("pair"), is_synchronous=False) as pair:
        yield pair


@contextmanager
def a_silent_host():
    """A machine that takes connections and then says nothing, as one that has lost its power seems to."""
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        yield silent.getsockname()[1]


def url_of(*ports, wants="read-write"):
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"postgresql://postgres@{hosts}/duly?target_session_attrs={wants}"


async def port_of(url, **settings):
    """Connect, and tell where that led."""
    connection = await Hosts(url).connect(timeout=PATIENCE_SECONDS, **settings)
    try:
        return await connection.fetchval("select current_setting('port')::int")
    finally:
        await connection.close()


class TestTheRightHost:
    @pytest.mark.parametrize("wants", ["read-write", "primary", "standby", "read-only", "prefer-standby", "any"])
    @pytest.mark.parametrize("is_reversed", [False, True])
    async def test_is_found_wherever_it_stands_in_the_list(self, pair, wants, is_reversed):
        primary, standby = pair.ports["primary"], pair.ports["standby"]
        ports = [standby, primary] if is_reversed else [primary, standby]
        wanted = {"read-write": primary, "primary": primary, "any": ports[0]}.get(wants, standby)

        assert await port_of(url_of(*ports, wants=wants)) == wanted

    async def test_is_found_behind_one_that_refuses_and_one_that_says_nothing(self, pair):
        with a_silent_host() as silent:
            began = time.monotonic()
            found = await port_of(url_of(free_port(), silent, pair.ports["standby"], pair.ports["primary"]))

        assert found == pair.ports["primary"]
        assert time.monotonic() - began < PATIENCE_SECONDS / 2

    async def test_takes_writes_unless_the_address_or_the_caller_says_otherwise(self, pair):
        primary, standby = pair.ports["primary"], pair.ports["standby"]
        url = url_of(standby, primary).partition("?")[0]

        assert await port_of(url) == primary
        assert await port_of(url, of_several="standby") == standby
        assert await port_of(url_of(primary, standby), of_several="standby") == primary

    async def test_comes_first_the_next_time(self, pair):
        with a_silent_host() as silent:
            hosts = Hosts(url_of(silent, pair.ports["primary"]))
            await (await hosts.connect(timeout=PATIENCE_SECONDS)).close()
            began = time.monotonic()
            await (await hosts.connect(timeout=PATIENCE_SECONDS)).close()

        assert time.monotonic() - began < STAGGER_SECONDS

    async def test_preferred_standby_is_replaced_by_the_primary_where_there_is_none(self, pair):
        url = url_of(free_port(), pair.ports["primary"], wants="prefer-standby")

        assert await port_of(url) == pair.ports["primary"]

    async def test_leaves_no_connection_to_the_others(self, pair):
        await port_of(url_of(pair.ports["standby"], pair.ports["primary"]))

        wait_until(lambda: pair.ask("standby", OTHERS) == [(0,)], 5, what="the connection to the standby is closed")


OTHERS = "select count(*) from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"


class TestNoHostIsRight:
    async def test_error_says_what_each_host_answered(self, pair):
        dead = free_port()
        with a_silent_host() as silent, pytest.raises(NoHost) as failed:
            await Hosts(url_of(dead, silent, pair.ports["standby"])).connect(timeout=0.5)

        assert f"127.0.0.1:{dead} refuses the connection" in str(failed.value)
        assert f"127.0.0.1:{silent} does not answer" in str(failed.value)
        assert f"127.0.0.1:{pair.ports['standby']} is a standby" in str(failed.value)

    @pytest.mark.parametrize("hosts", [1, 2])
    async def test_database_is_unusable_and_the_sentence_has_a_remedy_and_no_password(self, pair, hosts):
        url = url_of(*[pair.ports["standby"]] * hosts).replace("postgres@", "postgres:hush@")

        with pytest.raises(DatabaseUnusable, match=r"takes writes: .*is a standby.*promote one") as failed:
            await Database(url).open()
        assert "hush" not in str(failed.value)

    async def test_statement_is_unavailable_and_says_the_same(self, pair):
        database = Database(url_of(pair.ports["standby"], free_port())).beside(1)

        with pytest.raises(Unavailable, match=r"out of reach: none of its hosts takes writes: .* is a standby"):
            await database.fetch("select 1")

    async def test_database_without_the_attribute_is_read_only_and_the_sentence_names_it(self, pair):
        url = url_of(pair.ports["standby"], pair.ports["primary"], wants="any")

        with pytest.raises(DatabaseUnusable, match="target_session_attrs=read-write"):
            await Database(url).open()

    async def test_refused_login_is_reported_as_such(self, pair):
        url = url_of(free_port(), pair.ports["primary"]).replace("postgres@", "nobody@")

        with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError, match="nobody"):
            await Hosts(url).connect(timeout=PATIENCE_SECONDS)

    async def test_listener_for_hints_goes_on_when_a_host_is_right_again(self, pair):
        """Both servers answer, and none takes writes: between the two halves of a switchover."""
        heard, over = asyncio.Event(), asyncio.Event()
        async with Database(pair.url_of("primary")) as database:
            pair.ask("primary", "alter database duly set default_transaction_read_only = on")
            database.url = url_of(pair.ports["standby"], pair.ports["primary"])
            listening = asyncio.create_task(hints.listen(database, {"duly_ready": lambda _: heard.set()}, over.is_set))
            await asyncio.sleep(0.5)
            writing = f"{pair.url_of('primary')}?options=-c%20default_transaction_read_only%3Doff"
            with psycopg.connect(writing, autocommit=True) as connection:
                connection.execute("alter database duly reset all")
            try:
                async with asyncio.timeout(10):
                    while not heard.is_set():
                        pair.ask("primary", "notify duly_ready")
                        await asyncio.sleep(0.1)
            finally:
                over.set()
                listening.cancel()
                await asyncio.wait({listening})


class TestAddresses:
    @pytest.mark.parametrize(
        ("url", "hosts"),
        [
            ("postgresql://one,two:5433/duly", [Host("one", 5432), Host("two", 5433)]),
            ("postgresql:///duly?host=one,two&port=1,2", [Host("one", 1), Host("two", 2)]),
            ("postgresql:///duly?host=one,two&port=6432", [Host("one", 6432), Host("two", 6432)]),
            ("postgresql:///duly", []),
        ],
    )
    def test_hosts_and_ports_are_read_as_libpq_reads_them(self, url, hosts):
        assert hosts_in(url) == hosts

    def test_wrong_ones_are_refused_with_the_reason(self):
        for url, reason in (
            ("postgresql:///duly?host=one,two,three&port=1,2", "3 hosts and 2 ports"),
            ("postgresql://one,two/duly?target_session_attrs=writable", "target_session_attrs=writable is none of any"),
            ("postgresql://one/duly?channel_binding=require", "remove it"),
        ):
            with pytest.raises(ValueError, match=reason):
                Hosts(url)

    async def test_parameters_for_libpq_are_not_sent_to_the_server(self, pair):
        url = url_of(pair.ports["standby"], pair.ports["primary"])
        url += "&connect_timeout=3&keepalives=1&channel_binding=prefer&application_name=theirs"
        connection = await Hosts(url).connect()
        try:
            assert await connection.fetchval("select current_setting('application_name')") == "theirs"
        finally:
            await connection.close()

    async def test_connect_timeout_bounds_the_wait_for_a_silent_host(self):
        with a_silent_host() as silent:
            began = time.monotonic()
            with pytest.raises((NoHost, TimeoutError)):
                await Hosts(url_of(silent, silent) + "&connect_timeout=1").connect(timeout=30)

        assert time.monotonic() - began < 3


async def test_server_that_vanishes_without_a_word_is_noticed_by_the_system(pair):
    connection = await Hosts(pair.url_of("primary")).connect(timeout=PATIENCE_SECONDS)
    try:
        found = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == VANISHED_SECONDS * 1000
    finally:
        await connection.close()


@pytest.fixture(scope="module")
def url(pair, tmp_path_factory):
    """Several hosts, the standby first, of a database that is migrated."""
    url = f"postgresql://postgres@127.0.0.1:{pair.ports['standby']},127.0.0.1:{pair.ports['primary']}/duly"
    done = duly("migrate", cwd=tmp_path_factory.mktemp("migrate"), DULY_DATABASE_URL=url)
    assert done.returncode == 0, done.stderr
    return url


class TestDoors:
    """Wherever an address is taken, it may have several hosts."""

    async def test_app_submits(self, url):
        async with App(url) as app:

            @app.handler
            async def hello() -> None: ...

            assert await (await hello.submit()).status() == "ready"

    def test_commands_of_postgresql_reach_the_primary(self, url, tmp_path):
        asked = duly("psql", "-XAtc", "select pg_is_in_recovery()", cwd=tmp_path, DULY_DATABASE_URL=url)
        written = duly("backup", str(tmp_path / "backup"), cwd=tmp_path, DULY_DATABASE_URL=url)

        assert asked.stdout == "f\n", asked.stderr
        assert written.returncode == 0, written.stderr

    def test_commands_say_what_each_host_answered(self, pair, tmp_path):
        url = url_of(pair.ports["standby"], dead := free_port())
        refused = duly("doctor", cwd=tmp_path, DULY_DATABASE_URL=url)

        assert refused.returncode == 3
        assert f"127.0.0.1:{pair.ports['standby']} is a standby" in refused.stderr
        assert f"127.0.0.1:{dead} refuses the connection" in refused.stderr
