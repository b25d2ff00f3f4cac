"""The read replica: a standby from which lists and figures are read, while it is ours and recent.

Once a second the primary is asked for the position of its log, and the replica for the one that it has replayed. A
replica that has replayed the primary's position of a moment has everything committed before that moment; so its age is
known without its clock, also when nothing is written, and grows when either server is silent. When the replica does not
answer, all connections to it are closed at once: reads that wait for it fail, and are done on the primary.

See docs/decisions/0046-lists-may-be-read-from-a-replica.md.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import asyncpg
import msgspec

from duly.clock import moment_of
from duly.domain.diagnosis.doctor import ReadReplica
from duly.log import Log
from duly.store.connection.database import Database, Unavailable
from duly.store.connection.session import Sessions
from duly.store.connection.statements import load

if TYPE_CHECKING:
    from duly.store.connection.pool import Lent

SQL = load("connection/replica")
LOOK_SECONDS = 1.0
ANSWER_SECONDS = 1.0  # a replica that takes longer to say where it is does not answer
KNOWN_SECONDS = 3.0  # a look that is older says nothing: the loop that looks hangs
FAILURES_MAX, REST_SECONDS = 3, 5.0
STATEMENT_TIMEOUT = timedelta(seconds=2)
_CONNECTIONS_MAX, _SESSIONS_MAX, _FIGURES_MAX = 4, 8, 2
_NOT_YET = "it has not answered yet"


class _Server(msgspec.Struct, frozen=True):
    """A server's answer. The position is that of its log; None: a server of the other kind."""

    position: int | None
    database_id: int
    founded_at: datetime | None
    schema: int | None
    edition: int | None

    @property
    def installation(self) -> tuple[object, ...]:
        """Return the identity of its data."""
        return self.database_id, self.founded_at


class ReplicaDatabase(Database):
    """Connections to the replica. The clock is the primary's: the replica's own is never taken for the database's time."""

    def __init__(self, primary: Database, url: str, size_max: int) -> None:
        seconds = STATEMENT_TIMEOUT.total_seconds()
        super().__init__(url, size_max=size_max, pooler=primary.pooler, command_timeout=seconds, clock=primary.clock)
        self._settings |= {"timeout": ANSWER_SECONDS, "of_several": "standby"}
        self._pool = self.another_pool(size_max)

    async def read_clock(self) -> datetime:
        """Return the primary's time, as far as it is known."""
        return moment_of(self.clock.now())

    async def _connected(self, connection: Lent) -> None:
        """Report nothing to the clock."""


class ReplicaPools:
    """One generation of connections: closed as a whole when the replica must not be read any more."""

    def __init__(self, primary: Database, url: str) -> None:
        self.database = ReplicaDatabase(primary, url, _CONNECTIONS_MAX)
        self.sessions = Sessions(self.database, size_max=_SESSIONS_MAX)
        self.figures = Sessions(self.database, size_max=_FIGURES_MAX)

    async def close(self) -> None:
        """Break every connection; what waits on one fails."""
        await self.sessions.close()
        await self.figures.close()
        await self.database.close()


class Replica:
    """Looks after the replica at `url` of the installation that `primary` leads to."""

    def __init__(self, primary: Database, url: str, *, lag_max: timedelta, log: Log) -> None:
        self._primary = primary
        self._url = url
        self._lag_seconds_max = lag_max.total_seconds()
        self._log = log
        self._clock = primary.clock
        self._pools: ReplicaPools | None = None
        self._probe: ReplicaDatabase | None = None
        self._marks: deque[tuple[float, int]] = deque()  # when the primary was asked, and its position
        self._ours: _Server | None = None
        self._replayed: int | None = None
        self._seen_at: float | None = None  # the replica has all that was committed before
        self._looked_at = float("-inf")
        self._problem: str | None = _NOT_YET
        self._logged: str | None = None
        self._failures = 0
        self._rests_until = float("-inf")
        self._looking = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Replica:
        await self.look()
        self._watching = asyncio.create_task(self._watch(), name="duly-replica")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._let_go()
        if self._probe is not None:
            await self._probe.close()

    # ------------------------------------------------------------------------------------------------------- its state

    @property
    def age_seconds(self) -> float | None:
        """Return how old its data are at the most; None when that is not known."""
        return None if self._seen_at is None else max(0.0, self._clock.monotonic() - self._seen_at)

    @property
    def problem(self) -> str | None:
        """Return why it may not be read now; None: it may."""
        if self._clock.monotonic() - self._looked_at > KNOWN_SECONDS:
            return self._problem or "it was not looked at lately"
        if self._problem is None and (age := self.age_seconds or 0.0) > self._lag_seconds_max:
            return self._lags(age)
        if self._problem is None and self._clock.monotonic() < self._rests_until:
            return f"its last {FAILURES_MAX} reads failed; it is tried again within {REST_SECONDS:g} s"
        return self._problem

    @property
    def pools(self) -> ReplicaPools | None:
        """Return the connections to read over; None while it may not be read."""
        return self._pools if self.problem is None else None

    @property
    def fact(self) -> ReadReplica:
        """Return its state, for the doctor."""
        return ReadReplica(self.problem, self.age_seconds)

    def moment(self) -> float:
        """Return this moment, to ask later with `has`."""
        return self._clock.monotonic()

    def has(self, moment: float) -> bool:
        """Return whether it has everything that was committed before a moment."""
        return self._seen_at is not None and self._seen_at >= moment

    def succeeded(self) -> None:
        """Take a read that was answered."""
        self._failures = 0

    def failed(self, error: Exception) -> None:
        """Take a read that failed. After several in a row nothing is read here for some seconds, though it answers looks."""
        self._failures += 1
        if self._failures >= FAILURES_MAX:
            self._failures, self._rests_until = 0, self._clock.monotonic() + REST_SECONDS
            self._log.warning("replica_rests", seconds=REST_SECONDS, reason=str(error))

    # -------------------------------------------------------------------------------------------------------- the looks

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except Exception as error:  # noqa: BLE001 - reads go on at the primary
                self._log.error("replica_look_failed", error=repr(error))

    async def look(self) -> None:
        """Look at both servers once. Concurrent looks are one after another."""
        async with self._looking:
            self._problem = await self._problem_of_replica(await self._mark_primary())
            self._looked_at = self._clock.monotonic()
            if self._problem is not None:
                await self._let_go()
            elif self._pools is None:
                self._pools = ReplicaPools(self._primary, self._url)
            self._say()

    async def _mark_primary(self) -> int | None:
        """Ask the primary for the position of its log, and keep it."""
        asked_at = self._clock.monotonic()
        while self._marks and asked_at - self._marks[0][0] > self._lag_seconds_max + KNOWN_SECONDS:
            self._marks.popleft()
        with suppress(Unavailable, asyncpg.PostgresError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await self._primary.fetch_row_as(_Server, SQL["primary"])
            assert found is not None
            self._ours = found
            if found.position is not None:
                self._marks.append((asked_at, found.position))
            return found.position
        return None

    async def _problem_of_replica(self, newest: int | None) -> str | None:
        replayed, self._replayed = self._replayed, None
        found = await self._ask_replica()
        if isinstance(found, str):
            return found
        ours = self._ours
        if ours is None:
            return "the primary has not answered yet"
        if found.position is None:
            # Where the address names several hosts, or a name that moves, the next connection leads to the new standby.
            await self._hang_up()
            return "it is no standby: it was promoted, or never was one"
        if found.installation != ours.installation:
            return "it has the data of another installation, or of another database of this one"
        if (found.schema, found.edition) != (ours.schema, ours.edition):
            return (
                f"it has schema {found.schema} and functions of edition {found.edition},"
                f" the primary {ours.schema} and {ours.edition}"
            )
        self._replayed = found.position
        if replayed is not None and newest is not None and replayed > newest:
            return "it is ahead of the primary, so it follows another server"
        seen = [asked_at for asked_at, position in self._marks if position <= found.position]
        if seen:
            self._seen_at = seen[-1]
        age = self.age_seconds
        if age is None:
            return "it has not yet replayed what the primary had when this process began to look"
        return self._lags(age) if age > self._lag_seconds_max else None

    async def _ask_replica(self) -> _Server | str:
        """Return its answer, or why there is none."""
        self._probe = self._probe or ReplicaDatabase(self._primary, self._url, 1)
        asking = asyncio.create_task(self._probe.fetch_row_as(_Server, SQL["standby"]))
        done, _ = await asyncio.wait({asking}, timeout=ANSWER_SECONDS)
        if not done:
            await self._hang_up()  # breaks the connection, so the task ends
            asking.add_done_callback(_forget)
            asking.cancel()
            return f"it does not answer within {ANSWER_SECONDS:g} s"
        error = asking.exception()
        if error is None:
            found = asking.result()
            assert found is not None
            return found
        if isinstance(error, asyncpg.UndefinedTableError | asyncpg.InvalidSchemaNameError):
            return "it has no schema of Duly"
        if isinstance(error, Unavailable | asyncpg.PostgresError | OSError | TimeoutError):
            return f"it does not answer: {error}"
        raise error

    async def _hang_up(self) -> None:
        if self._probe is not None:
            await self._probe.close()
            self._probe = None

    def _lags(self, age: float) -> str:
        return f"it lags by {age:.1f} s, more than read_lag allows ({self._lag_seconds_max:g} s)"

    async def _let_go(self) -> None:
        pools, self._pools = self._pools, None
        if pools is not None:
            await pools.close()

    def _say(self) -> None:
        """Log a change once; a lag that grows is one."""
        kind = None if self._problem is None else self._problem.split(" by ")[0].split(":")[0]
        if kind == self._logged and self._problem is not None:
            return
        if self._problem is not None:
            self._log.warning("replica_not_read", reason=self._problem, next="lists and figures come from the primary")
        elif self._logged is not None:
            self._log.warning("replica_read_again", age_seconds=round(self.age_seconds or 0.0, 3))
        self._logged = kind


def is_failure(error: Exception) -> bool:
    """Return whether a read failed because of the replica: it is done again on the primary."""
    return isinstance(error, Unavailable | asyncpg.PostgresError | asyncpg.InterfaceError | OSError)


def _forget(task: asyncio.Task[_Server | None]) -> None:
    if not task.cancelled():
        task.exception()
