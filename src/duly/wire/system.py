"""The installation as it crosses HTTP: versions, schedulers, the database, settings, and the doctor's findings."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import Meta

from duly.domain.fields import Moment
from duly.wire.keys import TenantNumber
from duly.wire.pages import Items, Page
from duly.wire.schema.shapes import RequestModel, ResponseModel


class SystemVersions(ResponseModel, frozen=True):
    """The versions. `tzdb` is the time zone data of the answering process, `tzdb_in_force` the one that timed pending fires."""

    duly: str
    schema: int
    postgresql: str
    tzdb: str
    tzdb_in_force: str | None


class SystemScheduler(ResponseModel, frozen=True):
    """A live scheduler."""

    scheduler_id: UUID
    name: str
    version: str
    tzdb: str | None
    shards: int
    started_at: Moment
    lease_seconds_left: float


class SystemTable(ResponseModel, frozen=True):
    """A table with its partitions and indexes. Rows are estimated, as the server does."""

    name: str
    bytes: int
    rows: int
    dead_rows: int
    vacuumed_at: Moment | None
    analyzed_at: Moment | None


class SystemReplica(ResponseModel, frozen=True):
    """A replica of this server."""

    name: str
    state: str | None
    lag_bytes: int | None
    lag_seconds: float | None


class SystemDatabase(ResponseModel, frozen=True):
    """The state of the PostgreSQL."""

    name: str
    bytes: int
    connections: int
    connections_max: int
    oldest_transaction_seconds: float | None
    prepared_transactions: int
    wal_level: str
    wal_position: str | None
    replicas: list[SystemReplica]
    tables: Annotated[list[SystemTable], Meta(description="The largest first.")]


class SystemSetting(ResponseModel, frozen=True):
    """A setting of the answering process, without secrets."""

    name: str
    value: Any
    source: str
    help: str


class SystemFinding(ResponseModel, frozen=True):
    """A condition that is not as it should be, and its remedy."""

    code: str
    severity: Annotated[
        Literal["error", "warning", "notice"],
        Meta(description="error: runs are late or could be lost; warning: they soon will be; notice: for information."),
    ]
    message: str
    remedy: str


class SystemClock(ResponseModel, frozen=True):
    """The clock of a process's host, as the process measured it within the last minute."""

    role: str
    name: str
    host: str
    offset_seconds: Annotated[float, Meta(description="Seconds ahead of the database's clock; negative: behind.")]


class SystemClockSetBack(ResponseModel, frozen=True):
    """The database clock is behind its own past: schedules stop until it has caught up."""

    seconds: float
    resumes_at: Annotated[Moment, Meta(description="Time at which schedules fire again.")]


class System(ResponseModel, frozen=True):
    """The installation at one moment. `is_well`: nothing needs a person."""

    read_at: Moment
    is_well: bool
    findings: Annotated[list[SystemFinding], Meta(description="The gravest first.")]
    versions: SystemVersions
    schedulers: list[SystemScheduler]
    shards_held: int
    shards: int
    workers: int
    staging_lag_seconds: float
    reaper_age_seconds: float | None
    clock_difference_seconds: Annotated[
        float, Meta(description="Seconds that the server's clock is ahead of the database's.")
    ]
    clocks: list[SystemClock]
    clock_set_back: Annotated[
        SystemClockSetBack | None, Meta(description="null: the database's clock was not set back.")
    ]
    database: SystemDatabase
    settings: list[SystemSetting]


class ArchiveRecord(ResponseModel, frozen=True):
    """An archive: of a partition of history, or of rows that missed theirs."""

    name: str
    kind: Literal["succeeded", "failed"]
    day: Annotated[str, Meta(description="Day on which its runs ended, in UTC.")]
    state: Annotated[
        Literal["exporting", "verified", "dropped", "deleted"],
        Meta(
            description="exporting: only the database has its rows. verified: the archive has them, too. dropped: only the"
            " archive has them. deleted: it was older than archive_retention."
        ),
    ]
    rows: Annotated[int | None, Meta(description="null: it is not verified yet.")]
    left_out: Annotated[int | None, Meta(description="Successes that were not sampled.")]
    bytes: int | None
    location: Annotated[str, Meta(description="Its file, below archive_url.")]
    error: Annotated[str | None, Meta(description="Why the last try failed; it is tried again.")]
    failed_at: Moment | None
    archived_at: Moment | None
    dropped_at: Moment | None


class ArchiveList(Page[ArchiveRecord], frozen=True):
    """A page of archives, by name."""


class LegalHold(ResponseModel, frozen=True):
    """A tenant, or one of its jobs, whose history is neither dropped, nor sampled, nor purged."""

    tenant: int
    job_id: UUID | None
    reason: str
    held_at: Moment


class LegalHoldList(Items[LegalHold], frozen=True):
    """All legal holds."""


class LegalHoldQuery(RequestModel, frozen=True):
    """A tenant, or one of its jobs."""

    tenant: TenantNumber
    job_id: UUID | None = None


class LegalHoldRequest(LegalHoldQuery, frozen=True, kw_only=True):
    """A tenant, or one of its jobs, and why its history is held."""

    reason: Annotated[str, Meta(min_length=1, max_length=200)]
