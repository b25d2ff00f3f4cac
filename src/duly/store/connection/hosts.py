"""The way to a server: one connection to whichever host of an address is the right one.

An address may name several hosts, of which one takes writes (`target_session_attrs=read-write`) or is a standby. The driver
tries them in order under one timeout, so a first host that has lost its power hides the others. Here each has the whole
timeout, the next is tried when one has not answered for a moment, and the one that was right last time comes first.

A server that vanishes sends nothing, so the operating system is told to ask: a connection to it is over after some seconds.
The server is told to ask us likewise.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit

import asyncpg
from asyncpg.exceptions import TargetServerAttributeNotMatched

from duly.postgres.clients import variables
from duly.settings import check_parameters

if TYPE_CHECKING:
    from duly.store.connection.pool import Lent

STAGGER_SECONDS = 0.25  # after which the next host is tried beside one that has not answered
VANISHED_SECONDS = 10  # a statement may take longer: the server's kernel answers for it
_PROBE_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 5, 2, 3
# The same on the server's side, for one session: otherwise it keeps the sessions of a host that has vanished for hours.
# Over a Unix socket it means nothing; behind a pooler a session is not ours.
SERVER_ASKS = (
    f"set_config('tcp_user_timeout', '{VANISHED_SECONDS * 1000}', false),"
    f" set_config('tcp_keepalives_idle', '{_PROBE_IDLE_SECONDS}', false),"
    f" set_config('tcp_keepalives_interval', '{_PROBE_SECONDS}', false),"
    f" set_config('tcp_keepalives_count', '{_PROBES}', false)"
)
_ANSWER_SECONDS = 5.0
_PREFER_STANDBY = "prefer-standby"
_WANTED = {
    "read-write": "takes writes",
    "primary": "is a primary",
    "standby": "is a standby",
    "read-only": "refuses writes",
}
_UNLIKE = {
    "read-write": "a standby or read-only",
    "primary": "a standby",
    "standby": "no standby",
    "read-only": "not read-only",
}
_AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
)
# What libpq knows and the driver would send to the server as one of its settings. The driver has ways of its own.
_LIBPQ_ONLY = {
    "connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout",
    "gssencmode", "channel_binding", "load_balance_hosts", "sslcompression", "sslsni", "fallback_application_name",
}  # fmt: skip


class NoHost(ConnectionError):
    """No host of an address is the right one: the message says what each answered."""


class Host(NamedTuple):
    """A host of an address, as the driver takes it."""

    name: str
    port: int

    def __str__(self) -> str:
        return f"{self.name}:{self.port}"


class Hosts:
    """The hosts of one address."""

    def __init__(self, url: str) -> None:
        """Raises ValueError for a wrong list of hosts, or a parameter that cannot be kept."""
        check_parameters(url)
        self._url = without_libpq_only(url)
        self._hosts = hosts_in(url)
        named = dict(parse_qsl(urlsplit(url).query))
        self._attribute = named.get("target_session_attrs")
        self._timeout = float(named["connect_timeout"]) if named.get("connect_timeout", "0") != "0" else None

    async def connect(self, *, of_several: str = "read-write", **settings: Any) -> Lent:
        """Return a connection to the right host: where several are named and nothing else, to one that is `of_several`.

        Raises NoHost, or what the only one that answered said.
        """
        attribute = self._attribute or (of_several if len(self._hosts) > 1 else None)
        if self._timeout is not None:
            settings["timeout"] = min(self._timeout, settings.get("timeout", self._timeout))
        if attribute != _PREFER_STANDBY:
            return await self._connect(attribute, settings)
        with suppress(OSError, asyncpg.PostgresError):
            return await self._connect("standby", settings)
        return await self._connect("any", settings)

    async def _connect(self, attribute: str | None, settings: dict[str, Any]) -> Lent:
        if attribute is not None:
            settings = settings | {"target_session_attrs": attribute}
        if len(self._hosts) > 1:
            connection = await self._first_of_all(attribute, settings)
        else:
            try:
                connection = await asyncpg.connect(self._url, **settings)
            except TargetServerAttributeNotMatched as error:
                raise NoHost(_none(attribute, ["it " + _said(attribute, error)], 1)) from None
        ask_whether_it_lives(connection)
        return connection

    async def _first_of_all(self, attribute: str | None, settings: dict[str, Any]) -> Lent:
        """Try the hosts one after another, beside those that do not answer; the first right one is taken."""
        left = list(self._hosts)
        tries: dict[asyncio.Task[Lent], Host] = {}
        errors: dict[Host, BaseException] = {}
        try:
            while left or tries:
                if left:
                    host = left.pop(0)
                    tries[asyncio.create_task(self._try(host, settings))] = host
                wait_seconds = STAGGER_SECONDS if left else None
                done, _ = await asyncio.wait(tries, timeout=wait_seconds, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=lambda task: self._hosts.index(tries[task])):
                    host = tries.pop(task)
                    if (error := task.exception()) is None:
                        self._hosts.remove(host)
                        self._hosts.insert(0, host)
                        return task.result()
                    errors[host] = error
        finally:
            for task in tries:
                task.add_done_callback(_drop)
                task.cancel()
        raise _reason(attribute, errors)

    async def _try(self, host: Host, settings: dict[str, Any]) -> Lent:
        return await asyncpg.connect(self._url, host=host.name, port=host.port, **settings)


def hosts_in(url: str) -> list[Host]:
    """List the hosts that an address names, in its order; none: it leaves that to the environment."""
    named = variables(url, {})
    names = named.get("PGHOST", "").split(",")
    ports = named.get("PGPORT", "").split(",")
    if names == [""]:
        return []
    if len(ports) == 1:
        ports *= len(names)
    if len(ports) != len(names):
        raise ValueError(f"{len(names)} hosts and {len(ports)} ports: name one port, or one for each host")
    return [Host(name, int(port or 5432)) for name, port in zip(names, ports, strict=True)]


def without_libpq_only(url: str) -> str:
    """Return an address without the parameters that are for libpq alone."""
    named = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    kept = [(name, value) for name, value in named if name not in _LIBPQ_ONLY]
    if len(kept) == len(named):
        return url
    return "?".join(filter(None, (url.partition("?")[0], urlencode(kept))))


def ask_whether_it_lives(connection: Lent) -> None:
    """Let the operating system ask a silent server whether it is there."""
    transport = getattr(connection, "_transport", None)
    found = transport.get_extra_info("socket") if transport is not None else None
    if found is None or found.family == socket.AF_UNIX:
        return
    options = {
        "SO_KEEPALIVE": (socket.SOL_SOCKET, 1),
        "TCP_KEEPIDLE": (socket.IPPROTO_TCP, _PROBE_IDLE_SECONDS),
        "TCP_KEEPINTVL": (socket.IPPROTO_TCP, _PROBE_SECONDS),
        "TCP_KEEPCNT": (socket.IPPROTO_TCP, _PROBES),
        "TCP_USER_TIMEOUT": (socket.IPPROTO_TCP, VANISHED_SECONDS * 1000),
    }
    for name, (level, value) in options.items():
        if (option := getattr(socket, name, None)) is not None:  # not every system has each
            with suppress(OSError):
                found.setsockopt(level, option, value)


async def let_server_ask(connection: Lent) -> None:
    """Let the server ask whether we live, over a connection that no pool has opened."""
    await connection.execute(f"select {SERVER_ASKS}", timeout=_ANSWER_SECONDS)


def _reason(attribute: str | None, errors: dict[Host, BaseException]) -> BaseException:
    """Return what to raise when no host was right: a refusal, such as of a login, is for the operator to mend."""
    for error in errors.values():
        if isinstance(error, asyncpg.PostgresError) and not isinstance(error, _AWAY):
            return error
    return NoHost(
        _none(attribute, [f"{host} {_said(attribute, error)}" for host, error in errors.items()], len(errors))
    )


def _said(attribute: str | None, error: BaseException) -> str:
    match error:
        case TargetServerAttributeNotMatched():
            return f"is {_UNLIKE.get(attribute or '', 'of another kind')}"
        case TimeoutError():
            return "does not answer"
        case ConnectionRefusedError():
            return "refuses the connection"
    return f"says {str(error) or type(error).__name__}"


def _none(attribute: str | None, said: Iterable[str], number: int) -> str:
    wanted = _WANTED.get(attribute or "", "answers")
    return f"{'none of its hosts' if number > 1 else 'no host'} {wanted}: {', '.join(said)}"


def _drop(task: asyncio.Task[Lent]) -> None:
    """Close a connection that came when another had been taken."""
    if not task.cancelled() and task.exception() is None:
        task.result().terminate()
