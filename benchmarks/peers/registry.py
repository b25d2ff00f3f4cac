"""The systems: what each is called, where it runs, and how it is configured. The best that each documents, not its defaults."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Home(Enum):
    """The environment in which a system is measured."""

    DULY = "Duly's own environment"
    PYTHON = "an environment with the locked packages of PyPI"
    NODE = "that environment, and the locked packages of npm"


class Entry(NamedTuple):
    """One system."""

    title: str
    home: Home
    package: str  # whose version is reported; empty: none
    is_peer: bool
    config: str


SYSTEMS = {
    "duly": Entry(
        "Duly",
        Home.DULY,
        "duly",
        False,
        "two `duly worker` and one `duly scheduler` with their defaults, history kept; `submit_many` of 5,000",
    ),
    "pgqueuer": Entry(
        "pgqueuer",
        Home.PYTHON,
        "pgqueuer",
        True,
        "asyncpg and uvloop, two processes, `batch_size=500`, finished jobs move to its log; `enqueue` of 5,000",
    ),
    "procrastinate": Entry(
        "procrastinate",
        Home.PYTHON,
        "procrastinate",
        True,
        "`PsycopgConnector` with a pool of 20 and uvloop, two processes with `concurrency=20`, finished jobs kept, "
        "`fetch_job_polling_interval=1`; `batch_defer` of 5,000",
    ),
    "graphile_worker": Entry(
        "graphile-worker",
        Home.NODE,
        "graphile-worker",
        True,
        "two Node processes with the preset of its own benchmark (`concurrentJobs` 24, `localQueue` of 500, "
        "`completeJobBatchDelay` 0), `pollInterval` 1 s, finished jobs deleted; `addJobs` of 5,000",
    ),
    "bare_sql": Entry(
        "bare SQL",
        Home.DULY,
        "",
        False,
        "no product: asyncpg and uvloop, two processes, batches of 1,000, history kept, no retries, limits or recovery; "
        "COPY of 5,000",
    ),
}
