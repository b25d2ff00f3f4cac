"""Webhooks, commands and containers of an app: submitted as handlers are."""

import asyncpg
import pytest

from duly import App, InvalidArguments, InvalidOption, InvalidPayload, Retry, UnknownQueue, Workflow
from duly.domain.runs.options import options_of
from duly.domain.targets.target import Command, Container, Webhook
from duly.store.boxes.options import decode
from tests.builders import counts

URL = "https://receiver.example/orders"


async def kept(database, table="ready"):
    [row] = await database.fetch(f"select handler, queue, payload::text, options::text from duly.{table}")
    return row["handler"], row["queue"], row["payload"], decode(row["options"])


async def test_a_webhook_is_submitted_with_its_payload(app, database):
    order = app.webhook(URL, method="put", headers={"Accept": "text/plain"}, retry=[404], callback_within="PT1H")

    handle = await order.options(retry=Retry(3), timeout="PT10S").submit(order=7)

    handler, queue, payload, options = await kept(database)
    assert (handler, queue, payload) == ("@webhook", "default", '{"order": 7}')
    assert options.policy.target == Webhook(URL, "PUT", {"Accept": "text/plain"}, (), (404,), 3600.0)
    assert (options.policy.retry.max_attempts, options.policy.timeout_seconds) == (3, 10.0)
    assert handle.job_id == handle.run_id
    assert repr(order) == "<Target @webhook>"


async def test_a_command_and_a_container_are_submitted_each_under_its_name(app, database):
    await app.command(["/usr/bin/rsync", "-a"], environment={"LANG": "C"}, ok=[0, 24], cpu_seconds=5).submit({"a": 1})
    assert await kept(database) == (
        "@command:/usr/bin/rsync",
        "default",
        '{"a": 1}',
        options_of(target=Command(("/usr/bin/rsync", "-a"), {"LANG": "C"}, cpu_seconds=5, ok=(0, 24))),
    )
    await database.execute("delete from duly.ready")
    await app.container("busybox", ["echo", "hello"], cpus=0.5, queue="mail").submit()
    handler, queue, _, options = await kept(database)
    assert (handler, queue) == ("@container:busybox", "mail")
    assert options.policy.target == Container("busybox", ("echo", "hello"), cpus=0.5)


async def test_headers_and_variables_may_be_pairs(app, database):
    await app.webhook(URL, headers=[("Accept", "text/plain")]).submit()
    assert (await kept(database))[3].policy.target.headers == {"Accept": "text/plain"}
    await database.execute("delete from duly.ready")
    await app.command(["/bin/true"], environment=[("LANG", "C")]).submit()
    assert (await kept(database))[3].policy.target.environment == {"LANG": "C"}


def test_from_a_plain_function_many_at_once(app):
    handles = app.webhook(URL).submit_many_sync([{"order": 1}, {"order": 2}])

    assert len({handle.job_id for handle in handles}) == 2


@pytest.mark.parametrize("is_kept", [True, False])
async def test_webhook_submit_joins_the_transaction_of_the_caller(app, database_url, database, is_kept):
    connection = await asyncpg.connect(database_url)
    transaction = connection.transaction()
    await transaction.start()
    await app.webhook(URL).options(connection=connection).submit(order=7)
    during = await counts(database)
    await (transaction.commit() if is_kept else transaction.rollback())
    await connection.close()

    assert during == {}
    assert await counts(database) == ({"ready": 1} if is_kept else {})


async def test_webhook_target_supports_schedules_like_a_handler(app, database):
    job = await app.webhook(URL).options(cron="0 2 * * *", name="nightly").submit(order=7)
    await app.job("nightly").edit(priority=2, arguments={"more": True})
    row = await database.fetchrow("select handler, payload::text, options::text, priority from duly.jobs")

    assert (row["handler"], row["payload"], row["priority"]) == ("@webhook", '{"more": true, "order": 7}', 2)
    assert decode(row["options"]).policy.target == Webhook(URL)
    assert job.next_fires


async def test_a_schedule_of_a_target_is_declared_in_code(app):
    app.webhook(URL).declare(
        "nightly", cron="0 2 * * *", queue="mail", retry=Retry(2), payload={"order": 7}, tags=["a"]
    )

    [job] = app.declarations("shop:app").jobs
    assert (job.name, job.handler, job.queue, job.payload) == ("nightly", "@webhook", "mail", '{"order":7}')
    options = job.options
    assert (options.policy.target, options.policy.retry.max_attempts, options.metadata.tags) == (
        Webhook(URL),
        2,
        ("a",),
    )
    with pytest.raises(InvalidOption, match="two schedules are called 'nightly'"):
        app.webhook(URL).declare("nightly", every="PT1H")
    with pytest.raises(InvalidOption, match="'x' does not say when; give cron="):
        app.webhook(URL).declare("x")


def test_invalid_target_is_refused_before_any_write(app):
    with pytest.raises(InvalidOption, match="must begin with http"):
        app.webhook("ftp://receiver.example")
    with pytest.raises(InvalidOption, match=r"argv '/bin/echo hello' is not a list of texts"):
        app.command("/bin/echo hello")
    with pytest.raises(InvalidOption, match="'echo' is not an absolute path"):
        app.command(["echo"])
    with pytest.raises(InvalidArguments, match="by keywords, or as one mapping"):
        app.webhook(URL).submit_sync({"a": 1}, b=2)
    with pytest.raises(InvalidArguments, match="of @webhook are not a mapping with names"):
        app.webhook(URL).submit_sync([1])
    with pytest.raises(InvalidPayload):
        app.webhook(URL).submit_sync(a=object())


def test_a_strict_app_knows_its_queues():
    app = App(queues=["mail"], strict=True)

    assert app.webhook(URL, queue="mail").queue == "mail"
    with pytest.raises(UnknownQueue):
        app.webhook(URL)


def test_a_function_is_not_called_as_a_target_is(app):
    with pytest.raises(InvalidOption, match="handler '@webhook' begins with @"):
        app.handler(name="@webhook")(lambda: None)
    with pytest.raises(InvalidOption, match="begins with @"):
        app.handler(name="x", aliases=["@command:/bin/sh"])(lambda: None)


REFUSED_ADDRESSES = [
    ("http://10.0.0.1/", "address 10.0.0.1"),
    ("http://[::ffff:169.254.169.254]/", "address 169.254.169.254"),
    ("https://receiver.example:22/", "port 22"),
    ("http://127.0.0.1/", "address 127.0.0.1"),
]


@pytest.mark.parametrize(("url", "named"), REFUSED_ADDRESSES)
async def test_an_address_that_no_worker_would_call_is_refused_where_it_is_submitted(app, database, url, named):
    webhook = app.webhook(url)
    work = app.handler(name="told")(lambda: None)
    for submit in (
        lambda: webhook.submit(order=7),
        lambda: webhook.submit_many([{"order": 7}]),
        lambda: webhook.options(every="PT1H", name="hourly").submit(),
        lambda: work.options(on_end={"url": url}).submit(),
    ):
        with pytest.raises(InvalidOption, match=named):
            await submit()
    flow = Workflow("calls")
    flow.add("call", webhook)
    with pytest.raises(InvalidOption, match=named):
        await flow.submit()
    assert await counts(database) == {}


async def test_webhook_to_an_allowed_address_is_submitted(app, database, monkeypatch):
    monkeypatch.setenv("DULY_EGRESS_ALLOW", "10.0.0.1:9000")
    await app.webhook("http://10.0.0.1:9000/").submit(order=7)
    assert (await counts(database))["ready"] == 1
