"""The archive in an S3-compatible store: a real server, and what can be wrong with it."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyarrow import fs

from duly.clock import host_now
from duly.domain.archive import ArchiveDamaged, ArchiveError, ArchivePlace, read_place
from duly.domain.diagnosis.doctor import findings
from duly.domain.tenancy.api_key import Secret
from duly.moves.archive import parquet
from duly.moves.archive.cold import ColdHistory
from duly.moves.archive.export import RETRY, check_record
from duly.outbound import archive_files
from duly.outbound.archive_files import ArchiveFiles
from duly.store.reads import system
from duly.store.tables import archive
from tests.moves.test_archive import SUCCESSES, is_there, maintenance_of, old_history, records

ACCESS, SECRET = "duly-access", "duly-secret-key"
START_SECONDS = 60.0
WEED = Path(sys.executable).with_name("weed")


class Store(msgspec.Struct, frozen=True):
    """A running server, with one bucket, `history`, for one account."""

    url: str
    process_id: int

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Let it answer nothing in this block: connections to it stay open."""
        os.kill(self.process_id, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.process_id, signal.SIGCONT)


@pytest.fixture(scope="session")
def store(tmp_path_factory) -> Iterator[Store]:
    folder = tmp_path_factory.mktemp("s3")
    actions = ["Admin", "Read", "Write", "List"]
    account = {"name": "duly", "credentials": [{"accessKey": ACCESS, "secretKey": SECRET}], "actions": actions}
    (folder / "s3.json").write_bytes(msgspec.json.encode({"identities": [account]}))
    ports = free_ports(8)
    names = ("master", "volume", "filer", "s3")
    given = [f"-{name}.port{kind}={ports.pop()}" for name in names for kind in (".grpc", "")]
    port = given[-1].partition("=")[2]
    fixed = ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=8"]
    command = [str(WEED), "server", f"-dir={folder}", "-filer", "-s3", f"-s3.config={folder}/s3.json", *fixed, *given]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [*command, "-master.telemetry.url=", "-master.volumeSizeLimitMB=64"], stdout=log, stderr=log, cwd=folder
        )
    try:
        url = f"http://127.0.0.1:{port}"
        make_bucket(url, folder / "log")
        yield Store(url, server.pid)
    finally:
        server.kill()  # asked to stop, it takes half a minute
        server.wait()


@pytest.fixture
def endpoint(store) -> str:
    return str(store.url)


@pytest.fixture
def hasty(monkeypatch) -> None:
    """Give a store up soon."""
    monkeypatch.setattr(archive_files, "_CONNECT_SECONDS", 1.0)
    monkeypatch.setattr(archive_files, "_REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(archive_files, "_TRIES", 1)


def free_ports(number: int) -> list[int]:
    """Find ports that nobody listens at."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def make_bucket(url: str, log: Path) -> None:
    """Wait until the server stores what it is sent."""
    store = fs.S3FileSystem(
        access_key=ACCESS, secret_key=SECRET, endpoint_override=url, region="us-east-1", allow_bucket_creation=True
    )
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            store.create_dir("history")
            with store.open_output_stream("history/first") as stream:
                stream.write(b"x")
            return
        except OSError:
            if time.monotonic() > until:
                pytest.fail(log.read_text()[-3_000:])
            time.sleep(0.2)


def place(endpoint: str, **other: object) -> ArchivePlace:
    found = read_place("s3://history/duly", endpoint=endpoint, region="us-east-1", access_key=ACCESS, secret_key=SECRET)
    return msgspec.structs.replace(found, **other)


async def test_a_store_that_refuses_stops_the_archive_and_nothing_else_and_then_takes_it(
    own_database, clock, endpoint, monkeypatch, caplog
):
    monkeypatch.setattr(archive_files, "_CONNECT_SECONDS", 1.0)
    runs = await old_history(own_database, clock)
    hidden = "another-secret-key"
    [port] = free_ports(1)
    wrong = {
        "secret": place(endpoint, secret_key=Secret(hidden)),
        "account": place(endpoint, access_key=Secret(hidden)),
        "bucket": place(endpoint, root="no-such-bucket/duly", access_key=Secret(hidden)),
        "address": place(f"http://127.0.0.1:{port}"),
    }
    for name, other in wrong.items():
        maintenance = maintenance_of(own_database, ArchiveFiles(other))
        with pytest.raises(ArchiveError) as refused:
            await maintenance.archive()
        await maintenance.keep_history()
        await maintenance._sweep()

        assert await own_database.fetchval(f"select count(*) from duly.{SUCCESSES}") == len(runs), name
        facts = await system.read(own_database, host_now)
        [finding] = [one for one in findings(facts) if one.code == "archive_failing"]
        assert "archive_endpoint" in finding.message, name
        shown = f"{refused.value} {finding} {(await archive.failing(own_database))[0]} {caplog.text} {other!r}"
        for secret in (SECRET, hidden, ACCESS):
            assert secret not in shown, name
        await clock.advance(RETRY)

    files = ArchiveFiles(place(endpoint))
    maintenance = maintenance_of(own_database, files, archives=timedelta(days=30))
    await maintenance.archive()
    assert not await is_there(own_database)
    record = (await records(own_database))[SUCCESSES]
    check_record(files, record)
    assert files.size(record.location) == record.bytes
    found = await ColdHistory(files).run(own_database, 1, runs[0])
    assert found is not None
    assert found[0]["state"] == "succeeded"

    await clock.advance(timedelta(days=60))
    await maintenance.archive()
    assert files.size(record.location) is None


@pytest.mark.parametrize("step", ["open_output_stream", "write", "read_back", "size"])
async def test_a_store_that_falls_silent_during_an_export_loses_nothing(
    own_database, clock, store, hasty, monkeypatch, step
):
    runs = await old_history(own_database, clock)
    owner = {"open_output_stream": ArchiveFiles, "write": parquet.Writer, "read_back": parquet, "size": ArchiveFiles}
    name = "create" if step == "open_output_stream" else step
    with monkeypatch.context() as broken, ExitStack() as silence:
        real = getattr(owner[step], name)

        def silently(*arguments: Any) -> Any:
            broken.setattr(owner[step], name, real)
            silence.enter_context(store.silent())
            return real(*arguments)

        broken.setattr(owner[step], name, silently)
        maintenance = maintenance_of(own_database, ArchiveFiles(place(store.url)))
        with pytest.raises(ArchiveError, match="cannot be"):
            await maintenance.archive()
        await maintenance.keep_history()
        await maintenance._sweep()

    assert await own_database.fetchval(f"select count(*) from duly.{SUCCESSES}") == len(runs)
    facts = await system.read(own_database, host_now)
    [finding] = [one for one in findings(facts) if one.code == "archive_failing"]
    assert "that the store answers" in finding.message
    await clock.advance(RETRY)
    await maintenance_of(own_database, ArchiveFiles(place(store.url))).archive()
    assert (await records(own_database))[SUCCESSES].state == "dropped"
    assert await archive.failing(own_database) == []


async def test_a_verified_archive_is_not_made_anew_because_its_store_does_not_answer(
    own_database, clock, store, hasty, monkeypatch
):
    await old_history(own_database, clock)
    async with own_database.transaction() as reader:
        await reader.fetch("select count(*) from duly.attempts")
        await maintenance_of(own_database, ArchiveFiles(place(store.url))).archive()
    before = (await records(own_database))[SUCCESSES]
    assert before.state == "verified"

    with store.silent(), pytest.raises(ArchiveError, match="cannot be read"):
        await maintenance_of(own_database, ArchiveFiles(place(store.url))).archive()
    await clock.advance(RETRY)
    wrong = place(store.url, secret_key=Secret("another-secret-key"))
    with pytest.raises(ArchiveError, match="cannot be read"):
        await maintenance_of(own_database, ArchiveFiles(wrong)).archive()
    await clock.advance(RETRY)
    with monkeypatch.context() as broken, ExitStack() as silence:
        real = parquet.read_back

        def silently(stream: Any) -> Any:
            silence.enter_context(store.silent())
            return real(stream)

        broken.setattr(parquet, "read_back", silently)
        with pytest.raises(ArchiveError, match="cannot be read"):
            await maintenance_of(own_database, ArchiveFiles(place(store.url))).archive()

    after = (await records(own_database))[SUCCESSES]
    assert (after.state, after.location) == ("verified", before.location)
    await clock.advance(RETRY)
    await maintenance_of(own_database, ArchiveFiles(place(store.url))).archive()
    dropped = (await records(own_database))[SUCCESSES]
    assert (dropped.state, dropped.location) == ("dropped", before.location)


async def test_a_question_to_a_silent_store_ends_in_time(own_database, clock, store, hasty):
    runs = await old_history(own_database, clock)
    await maintenance_of(own_database, ArchiveFiles(place(store.url))).archive()
    cold = ColdHistory(ArchiveFiles(place(store.url)), seconds_max=0.2)

    with store.silent():
        for _ in range(3):  # one more than are asked at once
            with pytest.raises(ArchiveError, match=r"did not answer within 0.4 s"):
                await cold.run(own_database, 1, runs[0])

    patient = ColdHistory(ArchiveFiles(place(store.url)))
    assert await patient.run(own_database, 1, runs[0]) is not None


async def test_a_verified_archive_that_was_deleted_from_its_store_is_made_anew(own_database, clock, store):
    runs = await old_history(own_database, clock)
    files = ArchiveFiles(place(store.url))
    async with own_database.transaction() as reader:
        await reader.fetch("select count(*) from duly.attempts")
        await maintenance_of(own_database, files).archive()
    before = (await records(own_database))[SUCCESSES]
    files.delete(before.location)

    with pytest.raises(ArchiveDamaged, match="Restore it"):
        await maintenance_of(own_database, files).archive()
    await clock.advance(RETRY)
    await maintenance_of(own_database, files).archive()

    after = (await records(own_database))[SUCCESSES]
    assert (after.state, after.rows) == ("dropped", len(runs))
    assert after.location != before.location


def test_a_secret_is_no_part_of_the_url():
    for url in (
        f"s3://{ACCESS}:{SECRET}@bucket/prefix",
        "ftp://x/y",
        "s3:///prefix",
        "file://host/x",
        "file:///a/../b",
    ):
        with pytest.raises(Exception, match=r"archive_access_key|write|bucket|upwards"):
            read_place(url)
