"""Mail to servers that refuse, hang, lie or break off; and to one that does as it should, encrypted."""

import asyncio
import socket
import ssl
import struct
import subprocess
from contextlib import asynccontextmanager

import msgspec
import pytest
from aiosmtpd.smtp import SMTP, AuthResult

from duly.outbound.calling import DeadlinePassed
from duly.outbound.errors import BadAnswer, NoAnswer, NotAllowed
from duly.outbound.smtp import Mail, MailRefused, deliver
from tests.outbound.servers import TENANT, Names, a_caller, serving

CONTENT = b"Subject: x\r\n\r\n.dots\r\n..more\r\n"
MAIL = Mail("127.0.0.1", 25, "none", None, None, "duly@example.com", ["ops@example.com"], CONTENT)


class Box:
    """Takes mail for everybody but `nobody@…`."""

    def __init__(self) -> None:
        self.taken: list[tuple[list[str], bytes]] = []
        self.logins: list[tuple[bytes, bytes]] = []

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("nobody@"):
            return "550 no such mailbox"
        if address.startswith("later@"):
            return "450 try again later"
        envelope.rcpt_tos.append(address)
        return "250 ok"

    async def handle_DATA(self, server, session, envelope):
        self.taken.append((envelope.rcpt_tos, envelope.content))
        return "250 ok"

    def authenticate(self, server, session, envelope, mechanism, data):
        self.logins.append((data.login, data.password))
        return AuthResult(success=data.password == b"hush", handled=False)


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    """Both sides of TLS for mail.example."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = str(folder / "certificate.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=mail.example", "-addext", "subjectAltName=DNS:mail.example", "-days", "1"]
    subprocess.run([*command, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=certificate)


@asynccontextmanager
async def a_mail_server(box, **more):
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: SMTP(box, loop=loop, **more), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def sent(port, *, seconds=5.0, tls=None, allow=("127.0.0.1:{}",), **changed):
    mail = msgspec.structs.replace(MAIL, port=port, **changed)
    names = Names(mail_example=[["127.0.0.1"]])
    async with a_caller(*(one.format(port) for one in allow), names=names) as caller:
        return await deliver(caller, mail, tenant=TENANT, seconds=seconds, tls=tls)


def saying(*lines):
    """Behave as a server that says these lines, one for each that it reads, and then nothing."""

    async def behave(reader, writer):
        for line in lines:
            writer.write(line + b"\r\n")
            await writer.drain()
            await reader.readline()
        await asyncio.sleep(3_600)

    return behave


def leaving_after(*lines):
    """Behave as a server that says these lines, one for each that it reads, and resets the connection."""

    async def behave(reader, writer):
        for line in lines:
            writer.write(line + b"\r\n")
            await writer.drain()
            await reader.readline()
        reset = struct.pack("ii", 1, 0)  # on, and without lingering
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
        writer.transport.abort()

    return behave


async def test_message_arrives_as_it_was_written():
    box = Box()
    async with a_mail_server(box) as port:
        assert await sent(port) == []

    assert box.taken == [(["ops@example.com"], CONTENT)]


async def test_refused_recipients_are_named_and_the_others_served():
    box = Box()
    async with a_mail_server(box) as port:
        refused = await sent(port, recipients=["nobody@example.com", "ops@example.com"])
        with pytest.raises(MailRefused, match="550 no such mailbox") as all_refused:
            await sent(port, recipients=["nobody@example.com"])

    assert (refused, len(box.taken), all_refused.value.is_final) == (["nobody@example.com"], 1, True)


@pytest.mark.parametrize("names", [("later", "nobody"), ("nobody", "later")])
async def test_refusal_of_all_recipients_is_not_final_if_one_may_be_served_later(names):
    async with a_mail_server(Box()) as port:
        with pytest.raises(MailRefused, match="450 try again later") as refused:
            await sent(port, recipients=[f"{name}@example.com" for name in names])

    assert not refused.value.is_final


async def test_mail_is_encrypted_and_logged_in_for(certified):
    box, (server_tls, client_tls) = Box(), certified
    more = {"tls_context": server_tls, "require_starttls": True, "authenticator": box.authenticate}
    async with a_mail_server(box, **more) as port:
        login = {"host": "mail.example", "security": "starttls", "user": "duly"}
        await sent(port, tls=client_tls, password="hush", **login)
        with pytest.raises(MailRefused, match="the login") as refused:
            await sent(port, tls=client_tls, password="wrong-secret", **login)

    assert "wrong-secret" not in str(refused.value)
    assert (len(box.taken), box.logins[0]) == (1, (b"duly", b"hush"))


async def test_certificate_of_another_is_refused(certified):
    box, (server_tls, _) = Box(), certified
    async with a_mail_server(box, tls_context=server_tls) as port:
        with pytest.raises(NoAnswer, match="TLS"):
            await sent(port, host="mail.example", security="starttls", tls=ssl.create_default_context())

    assert box.taken == []


async def test_password_is_not_sent_where_starttls_is_not_offered():
    async with serving(saying(b"220 hello", b"250 plain")) as port:
        with pytest.raises(BadAnswer, match="no STARTTLS"):
            await sent(port, security="starttls", user="duly", password="hush")


@pytest.mark.parametrize(
    ("lines", "error"),
    [
        ((b"554 go away",), MailRefused),
        ((b"HTTP/1.1 200 OK",), BadAnswer),
        ((b"220 hello", b"421 busy"), MailRefused),
        ((b"220 hello", b"250-" + b"x" * 10_000), NoAnswer),
        ((b"220 hello", b"\r\n".join([b"250-x"] * 200)), BadAnswer),
    ],
)
async def test_odd_answers_are_errors(lines, error):
    async with serving(saying(*lines)) as port:
        with pytest.raises(error):
            await sent(port)


ENVELOPE = (b"220 hello", b"250 plain", b"250 ok", b"250 ok", b"354 go on")


@pytest.mark.parametrize("steps", range(len(ENVELOPE) + 1))
async def test_connection_that_is_lost_is_the_servers_failure(steps):
    async with serving(leaving_after(*ENVELOPE[:steps])) as port:
        with pytest.raises(NoAnswer, match="broke off"):
            await sent(port)


async def test_connection_that_is_lost_while_a_long_message_is_written_is_the_servers_failure():
    long = CONTENT + (b"x" * 1_022 + b"\r\n") * 16_384
    async with serving(leaving_after(*ENVELOPE)) as port:
        with pytest.raises(NoAnswer, match="broke off at the message"):
            await sent(port, content=long)


async def test_encrypted_connection_that_is_lost_while_a_long_message_is_written_is_the_servers_failure(certified):
    server_tls, client_tls = certified
    long = CONTENT + (b"x" * 1_022 + b"\r\n") * 16_384
    server = await asyncio.start_server(leaving_after(*ENVELOPE), "127.0.0.1", 0, ssl=server_tls)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(NoAnswer, match="broke off at the message"):
            await sent(port, content=long, host="mail.example", security="tls", tls=client_tls)


async def test_server_that_hangs_is_left_at_the_deadline():
    async with serving(saying(b"220 hello")) as port:
        with pytest.raises(DeadlinePassed):
            await sent(port, seconds=0.2)


async def test_address_that_is_not_allowed_is_not_connected_to():
    async with a_mail_server(Box()) as port:
        with pytest.raises(NotAllowed, match=r"smtp://127\.0\.0\.1"):
            await sent(port, allow=())
