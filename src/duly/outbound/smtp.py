"""SMTP to a checked address: one message, one connection, the same rules about addresses and ports as for webhooks.

The guard looks the server's name up once, and we connect to what it found. After STARTTLS nothing is believed that
came before. A server that hangs is left at the caller's deadline, like any other.
"""

from __future__ import annotations

import asyncio
import ssl
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from typing import Literal

import msgspec

from duly.outbound.addresses import Address, read_address
from duly.outbound.calling import Caller
from duly.outbound.errors import BadAnswer, NoAnswer, OutboundError

_LINES_MAX = 100
_LINE_BYTES_MAX = 4_096
_ANSWER_CHARACTERS_MAX = 200
_US = "duly"


class Mail(msgspec.Struct, frozen=True):
    """A message, and the server that takes it. `content` has CRLF line ends."""

    host: str
    port: int
    security: Literal["starttls", "tls", "none"]
    user: str | None
    password: str | None
    sender: str
    recipients: Sequence[str]
    content: bytes

    def __repr__(self) -> str:
        return f"Mail({self.host}:{self.port})"


class MailRefused(OutboundError):
    """The server answered with a refusal; one with a 5 in front would be repeated at each try."""

    def __init__(self, step: str, code: int, text: str) -> None:
        super().__init__(f"the mail server answered {step} with {code} {text}".rstrip())
        self.is_final = code >= 500


async def deliver(
    caller: Caller, mail: Mail, *, tenant: int, seconds: float, tls: ssl.SSLContext | None = None
) -> list[str]:
    """Hand a message over within `seconds`. Returns the recipients that the server refused, if it took any.

    Raises InvalidOption, MailRefused and OutboundError.
    """
    return await caller.within(seconds, tenant, _deliver(caller, mail, tenant, tls or _usual_tls()))


async def _deliver(caller: Caller, mail: Mail, tenant: int, tls: ssl.SSLContext) -> list[str]:
    addresses = await caller.addresses_of("smtp", mail.host, mail.port, tenant=tenant)
    session = await _connected(mail, addresses, tls)
    try:
        await session.take("the connection", 220)
        known = await session.hello()
        if mail.security == "starttls":
            if "STARTTLS" not in known:
                raise BadAnswer("the mail server offers no STARTTLS; use security tls, or another port")
            await session.command("STARTTLS", "STARTTLS", 220)
            await session.start_tls(tls, mail.host)
            known = await session.hello()
        if mail.user is not None and mail.password is not None:
            await session.log_in(mail.user, mail.password, known.get("AUTH", ""))
        refused = await session.send(mail)
        session.write("QUIT")
        return refused
    finally:
        session.close()


async def _connected(mail: Mail, addresses: Sequence[Address], tls: ssl.SSLContext) -> _Session:
    is_tls = mail.security == "tls"
    failure: OSError | None = None
    for address in addresses:
        try:
            reader, writer = await asyncio.open_connection(
                str(address),
                mail.port,
                limit=_LINE_BYTES_MAX,
                ssl=tls if is_tls else None,
                server_hostname=mail.host if is_tls else None,
            )
        except OSError as error:
            failure = error
            continue
        peer = writer.get_extra_info("peername")
        if peer is None or read_address(str(peer[0])) != address:
            writer.close()
            raise NoAnswer("no answer from the mail server", f"the connection goes to {peer}, not to {address}")
        return _Session(reader, writer)
    raise NoAnswer("no answer from the mail server: the connection failed", f"{type(failure).__name__}: {failure}")


class _Session:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._under_tls: asyncio.StreamWriter | None = None

    def close(self) -> None:
        self._writer.close()

    def write(self, line: str) -> None:
        assert "\r" not in line
        assert "\n" not in line
        self._writer.write(line.encode() + b"\r\n")

    async def command(self, step: str, line: str, *expected: int) -> list[str]:
        """Send a command and take its answer; `step` stands for it in an error, since the line may be secret."""
        self.write(line)
        return await self.take(step, *expected)

    async def take(self, step: str, *expected: int) -> list[str]:
        """Read one answer. Raises MailRefused for another code than is expected."""
        lines: list[str] = []
        while len(lines) < _LINES_MAX:
            try:
                line = (await self._reader.readuntil(b"\n")).decode("utf-8", "replace").rstrip()
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
                raise NoAnswer(f"the mail server broke off at {step}", f"{type(error).__name__}: {error}") from None
            code, more, text = line[:3], line[3:4], line[4:]
            if not (code.isascii() and code.isdigit()):
                raise BadAnswer(f"the answer to {step} is no SMTP")
            lines.append(text)
            if more != "-":
                if int(code) not in expected:
                    raise MailRefused(step, int(code), _shown(text))
                return lines
        raise BadAnswer(f"the answer to {step} has more than {_LINES_MAX} lines")

    async def hello(self) -> dict[str, str]:
        """Greet the server. Returns its extensions, with their parameters."""
        lines = await self.command("EHLO", f"EHLO {_US}", 250)
        return {name.upper(): rest.upper() for name, _, rest in (line.partition(" ") for line in lines[1:])}

    async def start_tls(self, tls: ssl.SSLContext, host: str) -> None:
        """Encrypt the connection, with a reader of its own: what came before in clear text is dropped."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_LINE_BYTES_MAX, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport = await loop.start_tls(self._writer.transport, protocol, tls, server_hostname=host)
        except OSError as error:
            raise NoAnswer(
                "the mail server's TLS was refused: its certificate is not for it, or not trusted", str(error)
            ) from None
        assert transport is not None
        protocol.connection_made(transport)
        self._under_tls = self._writer  # kept: a writer that is collected closes its transport, on which ours rests
        self._reader, self._writer = reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    async def log_in(self, user: str, password: str, offered: str) -> None:
        """Log in by the method that the server offers."""
        methods = offered.split()
        if "PLAIN" in methods:
            word = b64encode(f"\0{user}\0{password}".encode()).decode()
            await self.command("the login", f"AUTH PLAIN {word}", 235)
        elif "LOGIN" in methods:
            await self.command("the login", "AUTH LOGIN", 334)
            await self.command("the login", b64encode(user.encode()).decode(), 334)
            await self.command("the login", b64encode(password.encode()).decode(), 235)
        else:
            raise BadAnswer("the mail server offers no login that we know: PLAIN or LOGIN")

    async def send(self, mail: Mail) -> list[str]:
        """Send the message to all recipients that the server takes.

        Raises MailRefused when it takes none: a refusal that may not last, if one of them is such.
        """
        await self.command("the sender", f"MAIL FROM:<{mail.sender}>", 250)
        refused: dict[str, MailRefused] = {}
        for recipient in mail.recipients:
            try:
                await self.command(f"recipient {recipient}", f"RCPT TO:<{recipient}>", 250, 251)
            except MailRefused as refusal:
                refused[recipient] = refusal
        if len(refused) == len(mail.recipients):
            raise min(refused.values(), key=lambda refusal: refusal.is_final)
        await self.command("the message", "DATA", 354)
        lines = mail.content.replace(b"\r\n.", b"\r\n..")
        self._writer.write((b"." if lines.startswith(b".") else b"") + lines.rstrip(b"\r\n") + b"\r\n.\r\n")
        try:
            await self._writer.drain()
        except OSError as error:
            raise NoAnswer("the mail server broke off at the message", f"{type(error).__name__}: {error}") from None
        await self.take("the message", 250)
        return list(refused)


def _shown(text: str) -> str:
    printable = "".join(character if character.isprintable() else " " for character in text)
    return printable[:_ANSWER_CHARACTERS_MAX]


@cache
def _usual_tls() -> ssl.SSLContext:
    """Return the system's trusted certificates."""
    return ssl.create_default_context()
