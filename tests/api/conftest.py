"""The parts of a process as the API sees them, in good order unless a test says otherwise."""

import httpx
import msgspec
import pytest

from duly.api.app import create
from duly.api.auth.api_keys import Keys
from duly.api.dispatch import Dispatcher
from duly.api.health import Vitals
from duly.api.metrics.collector import Metrics
from duly.domain.archive import ArchivePlace
from duly.domain.targets.target import Allowed
from duly.log import Log
from duly.moves.admin.admit import Admission
from duly.moves.archive.cold import ColdHistory
from duly.outbound.archive_files import ArchiveFiles
from duly.store.connection.database import Database
from tests.api.application import Application
from tests.api.front import Front
from tests.builders import a_scheduler, a_worker
from tests.kept import KeptSessions


class Pulse(msgspec.Struct):
    """What a scheduler would tell of itself."""

    shards: int = 64
    lag_seconds: float = 0.0
    stepped_at: float | None = None


class ReaperPulse(msgspec.Struct):
    """What a reaper would tell of itself."""

    reaped_at: float | None = None


class Parts(msgspec.Struct):
    """The vitals of a process, and what they are read from."""

    vitals: Vitals
    pulse: Pulse
    reaper: ReaperPulse


def parts_of(database: Database) -> Parts:
    """Give the vitals of a process that does well."""
    now = database.clock.monotonic()
    pulse, reaper = Pulse(stepped_at=now), ReaperPulse(reaped_at=now)
    vitals = Vitals(
        database=database,
        scheduler=pulse,
        reaped_at=lambda: reaper.reaped_at,
        tick_seconds=1.0,
        horizon_seconds=5.0,
        workers_expected=1,
        started=True,
    )
    return Parts(vitals, pulse, reaper)


@pytest.fixture
async def parts(database):
    """A process that does well: all shards held, a worker alive."""
    await a_scheduler(database)
    await a_worker(database)
    return parts_of(database)


@pytest.fixture
def metrics(parts):
    return Metrics(parts.vitals.database, Log("metrics"), every=0)


@pytest.fixture
def app(parts, metrics):
    return create(parts.vitals, metrics, Log("api"))


@pytest.fixture(scope="session")
async def kept_sessions(kept):
    """The connections for sessions that tests share."""
    kept_sessions = KeptSessions(kept)
    yield kept_sessions
    await kept_sessions.close()


@pytest.fixture
async def sessions(database, kept_sessions):
    """Sessions of the door."""
    async with kept_sessions.lent() as opened:
        yield opened


@pytest.fixture(scope="session")
def application():
    """The application that tests share."""
    return Application()


@pytest.fixture
def archive_files(tmp_path) -> ArchiveFiles:
    """The folder of the archive."""
    return ArchiveFiles(ArchivePlace(False, str(tmp_path / "archive")))


@pytest.fixture
async def front(application, parts, sessions, database, archive_files):
    """The whole application, with its door open."""
    woken: list[str] = []
    allowed, keys = Allowed({"/usr/bin/rsync": ("API_TOKEN", "TOKEN")}, frozenset({"busybox"})), Keys(database)
    parts_of_door = (database, sessions, keys, Admission(database), woken.append, Log("test"))
    door = Dispatcher(*parts_of_door, allowed=allowed, cold=ColdHistory(archive_files))
    app = application.over(parts.vitals, door)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://duly") as client:
        yield Front(client, database, woken, door)


@pytest.fixture
async def api(front):
    """A caller who may do everything."""
    return await front.caller()
