"""The archive in an S3-compatible store: a real server, and what can be wrong with it."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from pyarrow import fs

from duly.clock import host_now
from duly.domain.archive import ArchiveError, ArchivePlace, read_place
from duly.domain.diagnosis.doctor import findings
from duly.domain.tenancy.api_key import Secret
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


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory) -> Iterator[str]:
    """A server with one bucket, `history`, for one account."""
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
        yield url
    finally:
        server.kill()  # asked to stop, it takes half a minute
        server.wait()


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
