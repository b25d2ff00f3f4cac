"""The sync twins: they work in a plain program, inside a running loop, in threads and after a fork."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import psycopg
import pytest

from duly.domain.errors import KeyConflict
from duly.sdk.background import LENT_MAX, Background
from tests.builders import counts
from tests.hints import a_submit_that_stays_open, listening


def test_a_plain_function_submits(database_url):
    app, greet = plain_app(database_url)
    try:
        handle = greet.submit_sync("world")
        many = greet.submit_many_sync([{"name": "a"}, {"name": "b"}])

        assert handle.status_sync() == "ready"
        assert [one.cancel_sync() for one in (handle, *many)] == ["cancelled"] * 3
        assert handle.status_sync() == "cancelled"
    finally:
        app.close_sync()


async def test_submit_sync_works_inside_a_running_loop(greet, database):
    greet.submit_sync("world")
    await greet.submit("world")

    assert await counts(database) == {"ready": 2}


def test_threads_share_a_few_connections_and_closing_ends_them(database_url):
    app, greet = plain_app(database_url)
    try:
        with ThreadPoolExecutor(16) as threads:
            handles = list(threads.map(lambda i: greet.submit_sync(f"guest {i}"), range(200)))
        assert len({handle.job_id for handle in handles}) == 200
        assert 1 <= connections_of_the_sdk(database_url) <= LENT_MAX + 4
    finally:
        app.close_sync()

    assert are_all_ended(database_url)


async def test_async_close_ends_the_connections_of_plain_functions_too(database_url):
    app, greet = plain_app(database_url)
    await asyncio.to_thread(greet.submit_sync, "world")
    assert connections_of_the_sdk(database_url) == 1

    await app.close()

    assert are_all_ended(database_url)


def test_a_refused_submit_leaves_its_loop_usable(database_url):
    app, greet = plain_app(database_url)
    try:
        greet.options(key="one").submit_sync("a")
        with pytest.raises(KeyConflict):
            greet.options(key="one").submit_sync("b")
        assert not greet.options(key="two").submit_sync("a").replayed
        assert connections_of_the_sdk(database_url) == 1
        assert greet.options(key="one").submit_sync("a").replayed
    finally:
        app.close_sync()


def test_a_connection_that_was_closed_while_nobody_submitted_is_replaced(database_url):
    app, greet = plain_app(database_url)
    try:
        greet.submit_sync("world")
        end_connections_of_the_sdk(database_url)

        assert greet.submit_sync("again").status_sync() == "ready"
    finally:
        app.close_sync()


def test_a_forked_process_has_a_loop_of_its_own(database_url):
    app, greet = plain_app(database_url)
    try:
        greet.submit_sync("parent")
        child = os.fork()
        if child == 0:
            os._exit(0 if greet.submit_sync("child").status_sync() == "ready" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        app.close_sync()


@pytest.mark.parametrize("end", ["sys.exit", "os._exit"])
def test_the_end_of_a_forked_process_ends_no_connection_of_its_parent(database_url, end):
    program = FORKING.replace("END", end)

    done = subprocess.run([sys.executable, "-c", program, database_url], capture_output=True, encoding="utf-8")

    assert done.returncode == 0, done.stderr


# Without another try, a submit on a connection that somebody has ended is Unavailable.
FORKING = """
import os, sys
from duly import App
from duly.sdk import submitter

submitter._RETRY_SECONDS = ()
app = App(sys.argv[1])

@app.handler
def greet(name: str) -> None: ...

greet.submit_sync("parent").status_sync()
if (child := os.fork()) == 0:
    greet.submit_sync("child").status_sync()
    END(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
greet.submit_sync("parent again").status_sync()
"""


def test_ctrl_c_at_any_moment_spoils_no_later_submit():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, encoding="utf-8")

    assert done.returncode == 0, done.stderr


# In a process of its own, because an interrupted collection of garbage writes to standard error.
INTERRUPTED = """
import signal, threading
from random import Random
from time import monotonic
from duly.sdk.background import Background

signal.signal(signal.SIGALRM, signal.default_int_handler)
background, random, interruptions = Background(), Random(1), 0

async def thread_of_work():
    return threading.get_ident()

def interrupt():
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0001, 0.003))
        until = monotonic() + 0.05
        while monotonic() < until:
            background.run_here(thread_of_work())
    except KeyboardInterrupt:
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return False

for _ in range(300):
    interruptions += interrupt()
    assert background.run_here(thread_of_work())
assert interruptions > 200, interruptions
"""


def test_an_app_can_be_used_again_after_it_was_closed(database_url):
    app, greet = plain_app(database_url)
    greet.submit_sync("world")
    app.close_sync()

    assert greet.submit_sync("world").status_sync() == "ready"
    app.close_sync()


async def test_a_plain_function_sends_the_wake_up_that_its_commit_could_not(database_url):
    app, greet = plain_app(database_url)
    try:
        async with listening(database_url) as hints, a_submit_that_stays_open(database_url):
            await asyncio.to_thread(greet.submit_sync, "world")
            async with asyncio.timeout(5):
                while ("default", "") not in await hints.all():
                    await asyncio.sleep(0.01)
    finally:
        await asyncio.to_thread(app.close_sync)


class TestLoops:
    """The loops behind the sync methods."""

    def test_short_work_runs_on_the_thread_of_its_caller(self):
        background = Background()
        here = threading.get_ident()

        assert background.run_here(thread_of_work()) == here
        assert background.run(thread_of_work()) != here
        background.close_idle()
        background.close()

    async def test_work_inside_a_running_loop_goes_to_the_thread_of_its_own(self):
        background = Background()

        assert background.run_here(thread_of_work()) != threading.get_ident()
        background.close()

    def test_more_callers_than_loops_share_the_thread(self):
        background = Background()
        everyone = threading.Barrier(LENT_MAX + 3)

        async def meet() -> int:
            await asyncio.to_thread(everyone.wait, 10)
            return threading.get_ident()

        with ThreadPoolExecutor(LENT_MAX + 3) as callers:
            found = list(
                callers.map(lambda _: background.run_here(meet()) != threading.get_ident(), range(LENT_MAX + 3))
            )

        assert sum(found) == 3
        background.close_idle()
        background.close()

    def test_ctrl_c_ends_the_work_and_not_only_the_waiting(self):
        background = Background()
        ended = threading.Event()

        async def wait() -> None:
            asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
            try:
                await asyncio.sleep(30)
            finally:
                ended.set()

        with pytest.raises(KeyboardInterrupt):
            background.run_here(wait())

        assert ended.is_set()
        assert background.run_here(thread_of_work()) == threading.get_ident()
        background.close_idle()

    @pytest.mark.parametrize("seconds", [5, 0])
    def test_an_error_of_a_signal_handler_ends_the_work_too(self, seconds):
        background = Background()
        ended = threading.Event()

        async def wait() -> None:
            until = monotonic() + 5  # the limit of pytest uses the same timer, so it would not end this
            try:
                while monotonic() < until:
                    await asyncio.sleep(seconds)
            finally:
                ended.set()

        before = signal.signal(signal.SIGALRM, raise_too_slow)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(TooSlow):
                background.run_here(wait())
        finally:
            signal.signal(signal.SIGALRM, before)

        assert ended.is_set()
        assert background.run_here(thread_of_work()) == threading.get_ident()
        background.close_idle()

    def test_a_loop_that_is_lent_while_all_are_closed_is_closed_when_it_comes_back(self):
        background = Background()
        loops = []

        async def be_closed_meanwhile() -> None:
            loops.append(asyncio.get_running_loop())
            await asyncio.to_thread(background.close_idle)

        background.run_here(be_closed_meanwhile())

        assert loops[0].is_closed()

    def test_loops_that_cannot_be_made_are_not_counted_as_lent(self, monkeypatch):
        background = Background()
        with monkeypatch.context() as patched:
            patched.setattr("duly.sdk.background.new_loop", refuse)
            for _ in range(LENT_MAX + 1):
                work = thread_of_work()
                with pytest.raises(OSError, match="too many open files"):
                    background.run_here(work)
                work.close()

        assert background.run_here(thread_of_work()) == threading.get_ident()
        background.close_idle()


class TooSlow(Exception):
    """What a program raises when its time is up."""


def raise_too_slow(*_: object) -> None:
    raise TooSlow


def refuse() -> None:
    raise OSError(24, "too many open files")


async def thread_of_work() -> int:
    return threading.get_ident()


OF_THE_SDK = "from pg_stat_activity where application_name = 'duly sdk' and datname = current_database()"


def connections_of_the_sdk(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        return len(connection.execute(f"select {OF_THE_SDK}").fetchall())


def are_all_ended(url: str) -> bool:
    """Say whether no connection is left; one that was closed a moment ago may still be ending."""
    with psycopg.connect(url, autocommit=True) as connection:
        left = f"select pg_sleep(0.02) {OF_THE_SDK}"
        return any(connection.execute(left).fetchall() == [] for _ in range(250))


def end_connections_of_the_sdk(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"select pg_terminate_backend(pid, 5000) {OF_THE_SDK}")


def plain_app(url):
    from duly import App

    app = App(url)

    @app.handler
    def greet(name: str) -> None: ...

    return app, greet
