"""The doctor: from the facts read of an installation, what is wrong with it and what to do about it.

A finding has a stable code, a sentence for people, and a remedy. An error means that runs are late or could be lost; a
warning, that this will happen; a notice is good to know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from shlex import quote
from typing import Literal
from uuid import UUID

import msgspec

from duly.domain.archive import ArchiveFailure
from duly.domain.counting import few, some
from duly.domain.diagnosis.apps import Clash
from duly.domain.diagnosis.explain.words import moment_text, spoken
from duly.domain.jobs.filter import quoted
from duly.domain.limits.overload import Overload
from duly.domain.runs.run import TENANT_DEFAULT
from duly.domain.targets.target import is_reserved
from duly.domain.targets.words import unroutable_remedy

SHARDS = 64
LAG_SECONDS_MAX = 5.0
REAPER_SECONDS_MAX = 4.0
CLOCK_SECONDS_MAX = 2.0
TRANSACTION_SECONDS_MAX = 300.0
PREPARED_SECONDS_MAX = 60.0
CONNECTIONS_SHARE_MAX = 0.8
DEAD_ROWS_LEAST = 50_000  # fewer do not matter
DEAD_TIMES_MAX = 5.0  # multiples of autovacuum's threshold
REPLICA_SECONDS_MAX = 60.0
RETAINED_BYTES_MAX = 1 << 30
ARCHIVE_SECONDS_MAX = 6 * 3600.0
XMIN_AGE_MAX = 1_000_000  # transactions
FREEZE_AGE_MAX = 1_000_000_000
FREEZE_AGE_GRAVE = 1_600_000_000  # from here on vacuum leaves everything else undone
TRANSACTION_IDS = 2_147_483_648
DISK_SHARE_MIN = 0.1
DISK_BYTES_MIN = 1 << 30
_NAMED_MAX = 5
_HARM_WHEN_OFF = {
    "fsync": "a crash of the machine can lose or corrupt accepted jobs",
    "full_page_writes": "a crash of the machine can lose or corrupt accepted jobs",
    "synchronous_commit": "a crash loses the jobs accepted just before it",
    "autovacuum": "tables bloat, and the server stops in the end to prevent transaction ID wraparound",
}

_LET_GO = {
    "transaction": "If nobody needs it: select pg_terminate_backend({name});",
    "prepared": "End it as its owner says: commit prepared {quoted}; or rollback prepared {quoted};",
    "slot": "Restart its consumer, or drop the slot: select pg_drop_replication_slot({quoted});",
    "replica": "End the long query on that replica, or set hot_standby_feedback = off there.",
}
_HOLDERS = {
    "transaction": "the transaction of process {name}",
    "prepared": "the prepared transaction {name}",
    "slot": "replication slot {name}",
    "replica": "a query on replica {name}",
}

Severity = Literal["error", "warning", "notice"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "notice")


class Finding(msgspec.Struct, frozen=True):
    """A condition that is not as it should be."""

    code: str
    severity: Severity
    message: str
    remedy: str


class Scheduler(msgspec.Struct, frozen=True, kw_only=True):
    """A live scheduler, and how many shards it holds."""

    scheduler_id: UUID
    name: str
    version: str
    tzdb: str | None
    started_at: datetime
    until: datetime
    shards: int


class Stalled(msgspec.Struct, frozen=True):
    """A worker that starts nothing because a handler blocks it: for how long, and which handlers, if known."""

    name: str
    seconds: float
    handlers: list[str]


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table with all its partitions and indexes. `dead_limit`: the number of dead rows at which it is vacuumed."""

    name: str
    bytes: int
    rows: int
    dead_rows: int
    dead_limit: float
    vacuumed_at: datetime | None
    analyzed_at: datetime | None


class Index(msgspec.Struct, frozen=True):
    """An index as the server has it."""

    name: str
    is_valid: bool


class Replica(msgspec.Struct, frozen=True):
    """A replica. None: its lag is not reported, or we may not read it."""

    name: str
    state: str | None
    lag_bytes: int | None
    lag_seconds: float | None


class ReadReplica(msgspec.Struct, frozen=True):
    """The replica from which lists and figures are read. `problem`: why it is not read now."""

    problem: str | None
    age_seconds: float | None


class DrainedHost(msgspec.Struct, frozen=True):
    """A host whose processes take nothing new."""

    host: str
    since: datetime


class Slot(msgspec.Struct, frozen=True):
    """A replication slot, and how much write-ahead log it retains."""

    name: str
    is_active: bool
    retained_bytes: int


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """The PostgreSQL."""

    version: str
    database: str
    bytes: int
    is_read_only: bool
    fsync: bool
    full_page_writes: bool
    synchronous_commit: str
    autovacuum: bool
    wal_level: str
    wal_position: str | None
    connections: int
    connections_max: int
    oldest_transaction_seconds: float | None
    prepared_transactions: int
    oldest_prepared_seconds: float | None


class XminHolder(msgspec.Struct, frozen=True):
    """The oldest that vacuum must keep deleted rows for, and how many transactions ago they were deleted."""

    kind: Literal["transaction", "prepared", "slot", "replica"]
    name: str
    age: int


class FreezeAge(msgspec.Struct, frozen=True):
    """The database of the server with the oldest unfrozen row, and how many transactions ago it was written."""

    database: str
    age: int


class Disk(msgspec.Struct, frozen=True):
    """The disk of the database, as seen from this machine."""

    folder: str
    free_bytes: int
    total_bytes: int


class WaitingRecovery(msgspec.Struct, frozen=True):
    """A recovery that a person has not decided. `backup_at`: the system was restored from a backup of that moment."""

    opened_at: datetime
    backup_at: datetime | None
    missed: int


class HostClock(msgspec.Struct, frozen=True):
    """The lead of a process's host clock over the database clock."""

    role: str
    name: str
    host: str
    offset_seconds: float


class ClockSetBack(msgspec.Struct, frozen=True):
    """The amount by which the database clock is behind its own past; schedules go on when it passes `resumes_at`."""

    seconds: float
    resumes_at: datetime


class Unroutable(msgspec.Struct, frozen=True, kw_only=True):
    """Due runs that no live worker can run. `is_served`: a worker serves the queue, without this handler."""

    queue: str
    handler: str
    runs: int
    is_more: bool  # Counting stopped at this number.
    oldest_due_at: datetime
    tenants: list[int]
    is_served: bool


class FailingChannel(msgspec.Struct, frozen=True):
    """A channel of notifications whose latest delivery has not arrived; `state` is that of its run."""

    tenant: int
    channel: str
    run_id: UUID
    state: str
    reason: str | None


class UnopenedSecrets(msgspec.Struct, frozen=True):
    """Sealed values whose keys are not in the keyring of this process, by where they are; `file` is that keyring."""

    file: str
    key_ids: list[str]
    signing_secrets: int
    channels: int
    jobs: int


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All facts, read at one moment. `expected_indexes` and `expected_partitions` are those that should exist."""

    read_at: datetime
    version: str
    schema: int
    tzdb: str
    tzdb_in_force: str | None
    worker_versions: dict[str, int]
    stalled: list[Stalled] = []
    schedulers: list[Scheduler]
    lag_seconds: float
    reaper_age_seconds: float | None
    server: Server
    tables: list[Table]
    indexes: list[Index]
    expected_indexes: frozenset[str]
    missing_partitions: list[str]
    replicas: list[Replica]
    read_replica: ReadReplica | None = None
    slots: list[Slot]
    clock_difference_seconds: float
    overloads: Sequence[Overload] = ()
    clocks: list[HostClock] = []
    clock_set_back: ClockSetBack | None = None
    clashes: list[Clash] = []
    drained_hosts: Sequence[DrainedHost] = ()
    is_unfinished: bool = False  # the schema may be used by the version before, too
    unroutable: list[Unroutable] = []
    archive_age_seconds: float | None = None  # None: there is no archive
    archive_failures: list[ArchiveFailure] = []
    failing_channels: list[FailingChannel] = []
    waiting_recovery: WaitingRecovery | None = None
    unopened_secrets: UnopenedSecrets | None = None
    xmin_holder: XminHolder | None = None  # None: nothing holds vacuum back
    freeze_age: FreezeAge | None = None
    disk: Disk | None = None  # None: it cannot be seen from here

    @property
    def shards_held(self) -> int:
        """Return how many shards live schedulers hold."""
        return sum(one.shards for one in self.schedulers)


def findings(facts: Facts) -> list[Finding]:
    """Return the findings, the gravest first."""
    found = [
        *_engine(facts),
        *_recovery(facts.waiting_recovery),
        *_secrets(facts.unopened_secrets),
        *_storage(facts),
        *_space(facts),
        *_archive(facts),
        *_durability(facts.server),
        *_server(facts),
        *_clocks(facts),
        *_agreement(facts),
        *(_warning("handler_clash", f"{_capital(one.text)}.", f"{_capital(one.remedy)}.") for one in facts.clashes),
        *_unroutable(facts),
        *_channels(facts.failing_channels),
    ]
    return sorted(found, key=lambda one: SEVERITIES.index(one.severity))


def is_well(found: Iterable[Finding]) -> bool:
    """Return whether nothing needs a person; notices do not."""
    return all(one.severity == "notice" for one in found)


def _engine(facts: Facts) -> Iterator[Finding]:
    if facts.server.is_read_only:
        yield _error(
            "read_only",
            "The database is read-only: no run can start or end.",
            "Point DULY_DATABASE_URL at its primary.",
        )
    if not facts.schedulers:
        yield _error("no_scheduler", "No scheduler is running: schedules do not fire.", "Start one: `duly scheduler`.")
    elif facts.shards_held < SHARDS:
        yield _error(
            "shards_unheld",
            f"{SHARDS - facts.shards_held} of {SHARDS} shards are held by no scheduler: their schedules do not fire.",
            "Check the schedulers' logs. A scheduler whose time zone data is not in force holds no shard.",
        )
    if facts.lag_seconds > LAG_SECONDS_MAX:
        yield _error(
            "staging_delayed",
            f"Staging is {facts.lag_seconds:.0f} s behind: runs start late.",
            "Start another scheduler, `duly scheduler`, and check the load of the database.",
        )
    if facts.reaper_age_seconds is None or facts.reaper_age_seconds > REAPER_SECONDS_MAX:
        age = facts.reaper_age_seconds
        since = "has not run yet" if age is None else f"has not run for {age:.0f} s"
        yield _error(
            "reaper_silent",
            f"The reaper {since}: runs of lost workers are not retried.",
            "Start a scheduler, which runs the reaper: `duly scheduler`.",
        )
    for worker in facts.stalled:
        blocker = f"handler {', '.join(worker.handlers)} blocks it" if worker.handlers else "a handler blocks it"
        yield _error(
            "worker_stalled",
            f"Worker {worker.name} has started nothing for {worker.seconds:.0f} s: {blocker}.",
            "Give a long computation a timeout, so that it runs in a child process, and await instead of blocking in an async"
            " def. Restart the worker if the handler does not end.",
        )
    if not facts.worker_versions:
        yield _warning("no_worker", "No worker is running: no run starts.", "Start one: `duly worker app:app`.")
    yield from _backlogs(facts.overloads)


def _recovery(waiting: WaitingRecovery | None) -> Iterator[Finding]:
    if waiting is None:
        return
    remedy = "Read the plan, `duly recover`; then `duly recover approve` or `duly recover dismiss`."
    if waiting.backup_at is not None:
        yield _error(
            "restored_waits",
            f"This system was restored from the backup of {moment_text(waiting.backup_at)}, and is held: nothing starts until a"
            " person decides.",
            remedy,
        )
    elif waiting.missed:
        yield _warning(
            "recovery_waits",
            f"{some(waiting.missed, 'occurrence')} of the time before {moment_text(waiting.opened_at)} will not be created until"
            " a person decides.",
            remedy,
        )


def _secrets(unopened: UnopenedSecrets | None) -> Iterator[Finding]:
    if unopened is None:
        return
    counts = {
        some(unopened.signing_secrets, "signing secret"): unopened.signing_secrets,
        some(unopened.channels, "channel"): unopened.channels,
        some(unopened.jobs, "job or run", "jobs or runs"): unopened.jobs,
    }
    where, keys = ", ".join(text for text, number in counts.items() if number), few(unopened.key_ids)
    yield _error(
        "secrets_unreadable",
        f"{some(sum(counts.values()), 'sealed value')} ({where}) cannot be opened: the keyring has no key {keys}. Webhooks that"
        " need them wait, and notifications fail.",
        f"Add the line of key {keys} from the old keyring to {unopened.file}, behind the first line, and restart every process"
        " that reads it. If the line is lost, rotate the signing secrets, and send channels and credentials anew.",
    )


def _backlogs(overloads: Sequence[Overload]) -> Iterator[Finding]:
    """Report the oldest backlogs; the last finding says how many more there are."""
    oldest = sorted(overloads, key=lambda one: -one.age)[:_NAMED_MAX]
    more = len(overloads) - len(oldest)
    for number, one in enumerate(oldest, 1):
        others = f" {more} more queues are overloaded." if more and number == len(oldest) else ""
        yield _warning(
            "queue_overloaded",
            f"Queue {one.queue} of tenant {one.tenant} is overloaded: {one.waited}.{others}",
            f"Start more workers: `duly worker app:app --queue {one.queue}`; `duly queues` shows who serves it.",
        )


def _storage(facts: Facts) -> Iterator[Finding]:
    missing = sorted(facts.expected_indexes - {one.name for one in facts.indexes})
    if missing:
        yield _error(
            "index_missing",
            f"{_named(missing, 'index', 'indexes')} missing: lookups scan whole tables.",
            "Recreate each with `create index concurrently`, as src/duly/store/schema/baseline.sql defines it.",
        )
    invalid = sorted(one.name for one in facts.indexes if not one.is_valid)
    if invalid:
        yield _error(
            "index_invalid",
            f"{_named(invalid, 'index', 'indexes')} not valid: PostgreSQL maintains but does not use them.",
            f"reindex index concurrently duly.{invalid[0]};",
        )
    if facts.missing_partitions:
        yield _error(
            "partition_missing",
            f"{_named(facts.missing_partitions, 'partition', 'partitions')} missing, for tomorrow: history will go to the"
            " default partition, which is slow to clean up.",
            "Start a scheduler, which creates partitions ahead of time; if one runs, its log has the error.",
        )
    for table in facts.tables:
        if table.dead_rows >= max(DEAD_ROWS_LEAST, DEAD_TIMES_MAX * table.dead_limit):
            yield _warning(
                "vacuum_behind",
                f"Table {table.name} has {table.dead_rows:,} dead rows; autovacuum should start at {table.dead_limit:,.0f}.",
                f"End long transactions, then `vacuum duly.{table.name};`. If it recurs, raise autovacuum_vacuum_cost_limit.",
            )


def _space(facts: Facts) -> Iterator[Finding]:
    """Report what the server runs out of: what vacuum must keep, transaction ids, and the disk."""
    if (holder := facts.xmin_holder) is not None and holder.age > XMIN_AGE_MAX:
        yield _warning(
            "xmin_held_back",
            f"Vacuum cannot remove rows deleted within the last {holder.age:,} transactions:"
            f" {_HOLDERS[holder.kind].format(name=holder.name)} holds them back.",
            _LET_GO[holder.kind].format(name=holder.name, quoted=_sql_text(holder.name)),
        )
    if (freeze := facts.freeze_age) is not None and freeze.age > FREEZE_AGE_MAX:
        yield Finding(
            "freeze_age",
            "error" if freeze.age > FREEZE_AGE_GRAVE else "warning",
            f"Database {freeze.database} has rows that were not frozen for {freeze.age:,} transactions: the server stops before"
            f" {TRANSACTION_IDS:,}.",
            "Remove what holds vacuum back, then `vacuum (freeze)` the tables of that database with the highest"
            " age(relfrozenxid) in pg_class. Autovacuum must be on.",
        )
    if (disk := facts.disk) is not None and disk.free_bytes < DISK_SHARE_MIN * disk.total_bytes:
        yield Finding(
            "disk_fills_up",
            "error" if disk.free_bytes < DISK_BYTES_MIN else "warning",
            f"The disk of {disk.folder} has {disk.free_bytes / (1 << 30):.1f} GiB free of {disk.total_bytes / (1 << 30):.1f}:"
            " when it is full, nothing is accepted and nothing ends.",
            "Shorten retention_succeeded and retention_failed, drop idle replication slots, or enlarge the disk. Never delete"
            " files of PostgreSQL.",
        )


def _sql_text(name: str) -> str:
    return "'" + name.replace("'", "''") + "'"


def _archive(facts: Facts) -> Iterator[Finding]:
    if facts.archive_age_seconds is not None and facts.archive_age_seconds > ARCHIVE_SECONDS_MAX:
        yield _warning(
            "archive_stopped",
            f"No scheduler has archived history for {facts.archive_age_seconds / 3600:.0f} h: it stays in the database.",
            "Start a scheduler with archive_url. To drop history without an archive instead: `duly archive stop`.",
        )
    if facts.archive_failures:
        first = facts.archive_failures[0]
        more = len(facts.archive_failures) - 1
        others = f" {some(more, 'other archive')} failed, too." if more else ""
        yield _warning(
            "archive_failing",
            f"{first.name} could not be archived, and stays in the database: {first.error.rstrip('.')}.{others}",
            "Remove the cause; the next try comes within five minutes. `duly archive` lists archives and their errors.",
        )


def _durability(server: Server) -> Iterator[Finding]:
    for name, harm in _HARM_WHEN_OFF.items():
        if getattr(server, name) in (False, "off"):
            remedy = f"alter system set {name} = on; select pg_reload_conf();"
            yield _error(f"{name}_off", f"{name} is off: {harm}.", remedy)
    if server.wal_level == "minimal":
        yield _notice(
            "wal_level_minimal",
            "wal_level is minimal: neither replicas nor point-in-time recovery are possible.",
            "alter system set wal_level = replica; and restart the server.",
        )


def _server(facts: Facts) -> Iterator[Finding]:
    server = facts.server
    if server.prepared_transactions and (server.oldest_prepared_seconds or 0.0) > PREPARED_SECONDS_MAX:
        yield _warning(
            "prepared_transactions",
            f"{some(server.prepared_transactions, 'prepared transaction')}, the oldest for"
            f" {server.oldest_prepared_seconds:.0f} s: vacuum cannot remove rows deleted since.",
            "select gid, prepared from pg_prepared_xacts; then `commit prepared` or `rollback prepared` each.",
        )
    if (server.oldest_transaction_seconds or 0.0) > TRANSACTION_SECONDS_MAX:
        yield _warning(
            "old_transaction",
            f"A transaction has been open for {server.oldest_transaction_seconds:.0f} s: vacuum cannot remove rows"
            " deleted since.",
            "Find it in pg_stat_activity by xact_start, and end it with pg_terminate_backend.",
        )
    if server.connections > CONNECTIONS_SHARE_MAX * server.connections_max:
        yield _warning(
            "connections_scarce",
            f"{server.connections} of {server.connections_max} connections are in use.",
            "Raise max_connections, or put a pooler in front and set pooler = true.",
        )
    for replica in facts.replicas:
        if (replica.lag_seconds or 0.0) > REPLICA_SECONDS_MAX or (replica.lag_bytes or 0) > RETAINED_BYTES_MAX:
            yield _warning(
                "replica_lags",
                f"Replica {replica.name} is behind by {replica.lag_bytes or 0:,} bytes, {replica.lag_seconds or 0:.0f} s.",
                "Check its log and its network: a failover now would lose the difference.",
            )
    if facts.read_replica is not None and facts.read_replica.problem is not None:
        yield _warning(
            "read_replica_unused",
            f"The replica of DULY_READ_URL is not read: {facts.read_replica.problem}. Lists and figures come from the primary.",
            "Check that the address is that of a standby of this database, and its log and network; or unset DULY_READ_URL.",
        )
    for slot in facts.slots:
        if not slot.is_active and slot.retained_bytes > RETAINED_BYTES_MAX:
            yield _warning(
                "slot_idle",
                f"Replication slot {slot.name} is inactive and retains {slot.retained_bytes:,} bytes of WAL.",
                _LET_GO["slot"].format(quoted=_sql_text(slot.name)),
            )


def _clocks(facts: Facts) -> Iterator[Finding]:
    if (back := facts.clock_set_back) is not None:
        yield _error(
            "database_clock_set_back",
            f"The database's clock was set back by {back.seconds:.0f} s: schedules do not fire until"
            f" {moment_text(back.resumes_at)}.",
            "Correct the clock of the database's host and keep it synchronised with chrony or systemd-timesyncd. If it was ahead"
            " before and is right now, run urgent jobs by hand: duly jobs trigger JOB.",
        )
    differing = [one for one in facts.clocks if abs(one.offset_seconds) > CLOCK_SECONDS_MAX]
    for host in sorted({one.host for one in differing}):
        of_host = [one for one in differing if one.host == host]
        worst = max(of_host, key=lambda one: abs(one.offset_seconds)).offset_seconds
        roles = ", ".join(sorted({one.role for one in of_host}))
        yield _warning(
            "host_clock_differs",
            f"The clock of host {host} ({roles}) is {_offset_text(worst)}. Runs and signatures use the"
            " database's clock; logs and certificate checks on that host do not.",
            "Synchronise its clock with chrony or systemd-timesyncd.",
        )


def _offset_text(seconds: float) -> str:
    return f"{abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} the database's"


def _agreement(facts: Facts) -> Iterator[Finding]:
    reported = {one.tzdb for one in facts.schedulers if one.tzdb is not None} | {facts.tzdb}
    if facts.tzdb_in_force is not None:
        reported.add(facts.tzdb_in_force)
    if len(reported) > 1:
        yield _warning(
            "tzdb_differs",
            f"Time zone data differs between processes: {', '.join(sorted(reported))}"
            + ("." if facts.tzdb_in_force is None else f"; {facts.tzdb_in_force} is in force."),
            "Install the same tzdata everywhere: pip install --upgrade tzdata, and restart.",
        )
    versions = {one.version for one in facts.schedulers} | set(facts.worker_versions) | {facts.version}
    if len(versions) > 1:
        yield _notice(
            "versions_differ",
            f"Processes of several versions run: {', '.join(sorted(versions))}.",
            "Finish the upgrade: two versions may share a schema, and not three.",
        )
    if facts.is_unfinished:
        yield _notice(
            "migration_unfinished",
            f"Schema {facts.schema} is not finished: processes of the version before may still run and start.",
            "When the version before is no longer wanted: `duly migrate --finish`.",
        )
    for drained in facts.drained_hosts:
        yield _notice(
            "host_drained",
            f"Host {drained.host} has been drained since {moment_text(drained.since)}: what runs there takes nothing new.",
            f"When it is to work again: `duly drain {drained.host} --undo`.",
        )
    if abs(facts.clock_difference_seconds) > CLOCK_SECONDS_MAX:
        yield _notice(
            "clock_differs",
            f"This machine's clock is {_offset_text(facts.clock_difference_seconds)}. Runs use the"
            " database's clock, so none is late; times in logs do not match.",
            "Synchronise both clocks with chrony or systemd-timesyncd.",
        )


def _unroutable(facts: Facts) -> Iterator[Finding]:
    for one in facts.unroutable:
        count = some(one.runs, "run") + (" or more" if one.is_more else "")
        waits = "waits" if one.runs == 1 and not one.is_more else "wait"
        since = f"since {moment_text(one.oldest_due_at)}, {spoken(facts.read_at - one.oldest_due_at)} ago"
        others = one.tenants != [TENANT_DEFAULT]
        of_tenants = f" of {'tenant' if len(one.tenants) == 1 else 'tenants'} {few(one.tenants)}" if others else ""
        lacks = "has that handler" if not is_reserved(one.handler) else "allows it"
        why = f"no live worker of queue {one.queue} {lacks}" if one.is_served else f"no worker serves queue {one.queue}"
        yield _warning(
            "unroutable",
            f"{count} of {one.handler} on queue {one.queue}{of_tenants} {waits} {since}: {why}.",
            f"{_capital(unroutable_remedy(one.handler, one.queue))}. To cancel them:"
            f" duly runs cancel --filter {quote(f'handler:{quoted(one.handler)} AND queue:{quoted(one.queue)}')}",
        )


def _channels(failing: Sequence[FailingChannel]) -> Iterator[Finding]:
    for one in failing:
        of_tenant = "" if one.tenant == TENANT_DEFAULT else f" of tenant {one.tenant}"
        what = "gave up" if one.state == "dead" else "is being retried"
        why = "" if one.reason is None else f": {one.reason}"
        again = f" Then deliver it again: duly dead replay {one.run_id}." if one.state == "dead" else ""
        yield _warning(
            "channel_failing",
            f"Notifications do not arrive at channel {one.channel}{of_tenant}; its latest delivery {what}{why}.",
            f"Correct the channel and try it: duly notify test {quote(one.channel)}.{again}",
        )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def tomorrow_of(read_at: datetime) -> str:
    """Return the next day as the names of its partitions write it: they must exist."""
    return f"{read_at + timedelta(days=1):%Y%m%d}"


def _named(names: Sequence[str], one: str, many: str) -> str:
    return f"{one.capitalize()} {names[0]} is" if len(names) == 1 else f"{many.capitalize()} {few(names)} are"


def _error(code: str, message: str, remedy: str) -> Finding:
    return Finding(code, "error", message, remedy)


def _warning(code: str, message: str, remedy: str) -> Finding:
    return Finding(code, "warning", message, remedy)


def _notice(code: str, message: str, remedy: str) -> Finding:
    return Finding(code, "notice", message, remedy)
