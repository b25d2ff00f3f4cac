"""`/readyz` of a process that neither schedules nor reaps tells the truth about those that do, within five seconds."""

import json
import os
import signal
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import psycopg
import pytest

from tests.cli.processes import running, wait_for

TOLD_SECONDS = 5.0
# A busy machine may answer late; what is told must have happened in time all the same.
SLACK_SECONDS = 1.5
OVERDUE = """
insert into duly.timers (run_id, job_id, scheduled_at, due_at, generation, tenant, queue, handler, shard)
select id, id, at, at, 1, 1, 'default', 'nobody', 0
  from (select gen_random_uuid() as id, now() - interval '6 seconds' as at) as made
"""


def failing(address):
    """Ask once: what is not in order; nothing when all is."""
    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=5) as answer:
            return json.load(answer)["failing"]
    except urllib.error.HTTPError as answer:
        return json.load(answer)["failing"] if answer.code == 503 else [f"answered {answer.code}"]


def wait_until_ready(address):
    wait_for(lambda: failing(address) == [], 30)


def wait_until_told(address, name):
    """Wait until a check fails, and hold it to its time."""
    began = time.monotonic()
    wait_for(lambda: name in failing(address), 10)
    assert time.monotonic() - began <= TOLD_SECONDS + SLACK_SECONDS


@contextmanager
def locked(url, table, mode):
    """Stand in the way of whoever needs a table."""
    with psycopg.connect(url) as connection:
        connection.execute(f"lock table duly.{table} in {mode} mode")
        yield


def make_read_only(url):
    """Let the database take no writes any more, as a standby or one that is out of room does."""
    with psycopg.connect(url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"alter database {name} set default_transaction_read_only = on")
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and pid <> pg_backend_pid()",
            [name],
        )


@pytest.fixture
def house(url, tmp_path):
    """A scheduler and an API, each in a process of its own: the first of them, and where the second tells of its health."""
    with (
        running("scheduler", cwd=tmp_path, DULY_DATABASE_URL=url) as scheduler,
        running("api", "--port", "0", "--metrics-port", "0", cwd=tmp_path, DULY_DATABASE_URL=url) as api,
    ):
        address = api.wait_for_line("metrics at").split()[2].removesuffix("/metrics,")
        wait_until_ready(address)
        yield scheduler.process, address


def test_readyz_fails_while_a_role_is_stopped_and_recovers_when_it_continues(house, url):
    scheduler, address = house
    with locked(url, "expired_workers", "access exclusive"):  # Without it nobody can be reaped.
        wait_until_told(address, "reaper_age_seconds")
    wait_until_ready(address)

    with locked(url, "ready", "share"):  # Nothing can be staged.
        with psycopg.connect(url) as connection:
            connection.execute(OVERDUE)
        wait_until_told(address, "staging_lag_seconds")
    wait_until_ready(address)

    os.kill(scheduler.pid, signal.SIGSTOP)
    try:
        wait_until_told(address, "shards_held")
    finally:
        os.kill(scheduler.pid, signal.SIGCONT)
    wait_until_ready(address)

    make_read_only(url)
    wait_until_told(address, "database")
