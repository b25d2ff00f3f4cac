"""Notifications by real processes, to a real receiver, a real mail server and a service of Apprise; schedulers are killed."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from datetime import datetime
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

import msgspec
import pytest
from aiosmtpd.smtp import SMTP
from standardwebhooks.webhooks import Webhook

from duly.clock import Rng
from duly.domain.notifications.channel import AppriseChannel, EmailChannel, WebhookChannel
from duly.domain.notifications.rule import RuleSpec
from duly.domain.tenancy.sealing import new_key_line, read_keyring
from duly.moves.admin import destinations
from duly.moves.admin import notifications as moves
from duly.store.connection.database import Database
from tests.builders import an_active_schedule
from tests.end_to_end.house import PYTHONPATH, ROOT, a_house, wait_until

LONG = 40.0
RNG = Rng()
CHANNELS = count(1)  # each has a name of its own: what one test let fail is tried again later, by its channel's name
CLOSED = count(20)  # ports where nobody listens, each for one run: a circuit that has opened would hold the next


class Hooks(ThreadingHTTPServer):
    """Takes each request."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.taken: list[tuple[float, dict[str, str], bytes]] = []


class Taking(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Hooks)
        self.server.taken.append((time.time(), dict(self.headers), body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Mailbox:
    """Takes mail, unless it is told to refuse it or to hang."""

    def __init__(self) -> None:
        self.mails: list[tuple[float, list[str], bytes]] = []
        self.refuses = self.hangs = False
        self.port = 0

    async def handle_DATA(self, server, session, envelope):
        if self.hangs:
            await asyncio.sleep(3_600)
        if self.refuses:
            return "550 no such mailbox"
        self.mails.append((time.time(), list(envelope.rcpt_tos), envelope.content))
        return "250 taken"


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text(new_key_line(RNG.secret).reveal() + "\n")
    return path


@pytest.fixture(scope="module")
def house(tmp_path_factory, keys):
    with a_house(tmp_path_factory.mktemp("notifications")) as opened:
        command = [sys.executable, "-m", "duly", "worker", "--name", "w", "--database-url", opened.url]
        command += ["--secrets-key", str(keys), "--egress-loopback", "--webhooks", "50", "--lease", "5"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DULY_")}
        environment |= {"PYTHONPATH": PYTHONPATH, "DULY_APPRISE_SCHEMES": "json"}
        with (opened.folder / "w.log").open("ab") as log:
            opened.processes["w"] = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
        wait_until(lambda: opened.ask("select count(*) from duly.workers")[0][0] == 1, LONG, what="a worker")
        yield opened


@pytest.fixture
def hooks():
    server = Hooks()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join(5)


@pytest.fixture
def mailbox():
    box, loop = Mailbox(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    serving = loop.create_server(lambda: SMTP(box, loop=loop), "127.0.0.1", 0)
    server = asyncio.run_coroutine_threadsafe(serving, loop).result(10)
    box.port = server.sockets[0].getsockname()[1]
    yield box
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)


@pytest.fixture(autouse=True)
def without_rules(house):
    house.ask("delete from duly.notification_rules returning 1")


def asking(house, do):
    """Do something with a database of the house."""

    async def within():
        async with Database(house.url) as database:
            return await do(database)

    return asyncio.run(within())


def a_rule(house, keys, channel, *events, **more):
    keyring, name = read_keyring(keys.read_text(), "test"), f"ops-{next(CHANNELS)}"

    async def put(database):
        await moves.put_channel(database, keyring, 1, name, channel, RNG)
        await moves.put_rule(database, 1, "all", RuleSpec(events=list(events), channels=[name], **more))

    asking(house, put)


def a_dead_run(house):
    """Let a run end as a dead letter. Gives its id, and when it ended."""
    options = {"target": {"type": "webhook", "url": f"http://127.0.0.1:{next(CLOSED)}/"}, "retry": {"max_attempts": 1}}
    [(run_id,)] = house.ask(
        "select job_id from duly.submit_many(1, gen_random_uuid()::text, array['@webhook'], array['{}'], array['default'],"
        " array[5]::smallint[], array[null]::timestamptz[], array[null]::interval[], array[%s]::text[])",
        msgspec.json.encode(options).decode(),
    )
    ended = "select date_part('epoch', finished_at) from duly.attempts where run_id = %s and became = 'dead'"
    wait_until(lambda: house.ask(ended, run_id), LONG, what="the dead letter")
    return run_id, house.ask(ended, run_id)[0][0]


def deliveries(house):
    return house.ask(
        "select coalesce(became::text, 'none'), reason from duly.notification_deliveries left join duly.attempts using (run_id)"
        " order by notification_deliveries.created_at, attempts.finished_at"
    )


def test_dead_run_reaches_a_webhook_signed_within_two_seconds(house, keys, hooks):
    url = f"http://127.0.0.1:{hooks.server_port}/in"
    a_rule(house, keys, WebhookChannel(url=url, headers={"X-Team": "ops"}), "dead")

    run_id, ended_at = a_dead_run(house)
    wait_until(lambda: hooks.taken, LONG, what="the notification")

    [(arrived_at, headers, body)] = hooks.taken
    assert arrived_at - ended_at < 2.0
    event = msgspec.json.decode(body)
    assert event["type"] == "duly.notification.v1"
    assert [one["run_id"] for one in event["data"]["notifications"]] == [str(run_id)]
    assert headers["X-Team"] == "ops"

    async def secret(database):
        keyring = read_keyring(keys.read_text(), "test")
        found = await destinations.secrets_for(database, keyring, 1, url.removesuffix("/in"), RNG)
        return found[0].text.reveal()

    Webhook(asking(house, secret)).verify(body, {name.lower(): value for name, value in headers.items()})


def test_mail_arrives_and_a_refused_one_is_a_dead_letter(house, keys, mailbox):
    channel = EmailChannel(
        host="127.0.0.1", port=mailbox.port, security="none", sender="duly@example.com", recipients=["ops@example.com"]
    )
    a_rule(house, keys, channel, "dead")
    a_dead_run(house)
    wait_until(lambda: mailbox.mails, LONG, what="the mail")
    [(_, recipients, content)] = mailbox.mails
    mail = message_from_bytes(content)
    assert recipients == ["ops@example.com"]
    assert mail["Subject"].startswith("Duly: job @webhook gave up")
    assert "run" in mail.get_payload()

    mailbox.refuses = True
    a_dead_run(house)

    wait_until(lambda: deliveries(house)[-1][0] == "dead", LONG, what="the refusal")
    assert "550 no such mailbox" in deliveries(house)[-1][1]


def test_mail_server_that_hangs_delays_no_other_channel(house, keys, mailbox, hooks):
    mailbox.hangs = True
    channel = EmailChannel(
        host="127.0.0.1", port=mailbox.port, security="none", sender="duly@example.com", recipients=["ops@example.com"]
    )
    a_rule(house, keys, channel, "dead")

    async def second(database):
        hook = WebhookChannel(url=f"http://127.0.0.1:{hooks.server_port}/in")
        await moves.put_channel(database, read_keyring(keys.read_text(), "test"), 1, "hook", hook, RNG)
        await moves.put_rule(database, 1, "second", RuleSpec(events=["dead"], channels=["hook"]))

    asking(house, second)

    _, ended_at = a_dead_run(house)

    wait_until(lambda: hooks.taken, LONG, what="the other channel")
    assert hooks.taken[0][0] - ended_at < 2.0


def test_apprise_sends_what_the_operator_allows(house, keys, hooks):
    a_rule(house, keys, AppriseChannel(url=f"json://127.0.0.1:{hooks.server_port}/in"), "dead")
    a_dead_run(house)
    wait_until(lambda: hooks.taken, LONG, what="Apprise")
    assert b"gave up" in hooks.taken[0][2]

    a_rule(house, keys, AppriseChannel(url=f"form://127.0.0.1:{hooks.server_port}/in"), "dead")
    a_dead_run(house)

    wait_until(lambda: deliveries(house)[-1][0] == "dead", LONG, what="the refusal")
    assert "scheme form is not allowed" in deliveries(house)[-1][1]
    assert len(hooks.taken) == 1


def test_absence_is_noticed_while_every_scheduler_is_dead(house, keys, hooks):
    house.start_scheduler("scheduler0")
    wait_until(lambda: house.ask("select count(*) from duly.schedulers")[0][0] == 1, LONG, what="a scheduler")
    a_rule(house, keys, WebhookChannel(url=f"http://127.0.0.1:{hooks.server_port}/in"), "absent", absent_after="PT2S")
    house.kill("scheduler0", stays_dead=True)
    asking(house, lambda database: an_active_schedule(database, name="beat", every=3_600))

    wait_until(lambda: hooks.taken, LONG, what="the absence")

    [one, *_] = msgspec.json.decode(hooks.taken[0][2])["data"]["notifications"]
    assert (one["event"], one["subject"]) == ("absent", "beat")
    limit = msgspec.convert(one["happened_at"], datetime).timestamp() + 2.0
    assert hooks.taken[0][0] - limit < 30.0
