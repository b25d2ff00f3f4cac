"""Both clients against the real application: over the network, without one, and with answers that are lost."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import httpx2
import msgspec
import pytest

import duly
from duly.client import AsyncClient, Client, FunctionTarget, JobSpec, JobTarget, command, container, webhook
from duly.client.definitions import JobFields, written
from duly.client.errors import Forbidden, Invalid, KeyReused, NotFound, Unauthorized, Unavailable, VersionChanged
from duly.domain.errors import InvalidOption
from duly.settings import load
from duly.wire.runs import TargetSummary
from scripts import sync_client
from tests.api.front import EVERY_HOUR
from tests.builders import a_ready_run
from tests.client.faults import Between

LATER = {"trigger": {"type": "at", "at": "2030-01-01T00:00:00Z"}}


async def counted(database, table="ready"):
    return await database.fetchval(f"select count(*) from duly.{table}")


def test_the_two_colours_are_in_step():
    found = {path.name: path.read_text() for path in sorted(sync_client.TARGET.glob("*.py"))}

    assert found == sync_client.modules(), "run python -m scripts.sync_client"


def test_every_field_of_a_definition_can_be_given():
    assert set(JobFields.__annotations__) == set(JobSpec.__struct_fields__) - {"target"}


class TestJobs:
    async def test_a_job_is_created_read_changed_replaced_and_ended(self, client):
        made = await client.jobs.create("app:mail", name="hourly", schedule=EVERY_HOUR, payload={"n": 1})
        job = await client.jobs.get(made.job_id)
        changed = await client.jobs.change(job.job_id, {"queue": "mail"}, version=job.version)
        replaced = await client.jobs.replace(
            str(job.job_id), FunctionTarget(handler="app:other"), version=changed.version, schedule=EVERY_HOUR
        )
        ended = await client.jobs.delete(job.job_id, running="stop")

        assert (job.name, job.payload, changed.queue) == ("hourly", {"n": 1}, "mail")
        assert (replaced.target.handler, replaced.queue, ended.status) == ("app:other", "default", "cancelled")

    async def test_a_target_that_is_no_function_is_created_read_and_put_back(self, client):
        target = webhook("https://receiver.example/orders", headers={"X-Api-Key": "k"}, retry=[404], callback_within=90)
        made = await client.jobs.create(target, name="order", schedule=EVERY_HOUR, payload={"order": 7})
        job = await client.jobs.get(made.job_id)
        put = await client.jobs.replace(job.job_id, job.target, version=job.version, schedule=EVERY_HOUR, name="order")
        listed = [one async for one in client.jobs.list("handler:@webhook")]
        others = [
            await client.jobs.create(other)
            for other in (command(["/usr/bin/rsync", "-a"], ok=[0, 24]), container("busybox", ["ls"], cpus=0.5))
        ]
        runs = [await client.runs.get(one.job_id) for one in others]

        assert (job.target.type, job.target.url, job.target.retry) == ("webhook", target.url, [404])
        assert (job.target.headers, job.target.callback_within) == ({"X-Api-Key": "***"}, "PT1M30S")
        assert put.target == job.target
        assert [one.target.url for one in listed] == [target.url]
        assert [run.target.type for run in runs if run.target] == ["command", "container"]

    def test_a_target_of_a_type_that_is_new_is_read_as_far_as_it_is_known(self):
        told = {"type": "robot", "arm": 3, "url": "https://robot.example/"}
        run = {"type": "robot", "handler": "@robot", "url": None, "arm": 3}

        assert msgspec.convert(told, JobTarget) == JobTarget(type="robot", url="https://robot.example/")
        assert msgspec.convert(run, TargetSummary).type == "robot"

    async def test_a_job_has_one_name(self, client):
        first = await client.jobs.put_by_name("reports/daily é", "app:mail", schedule=EVERY_HOUR)
        second = await client.jobs.put_by_name("reports/daily é", "app:mail", schedule=EVERY_HOUR, queue="mail")

        assert (first.job_id, second.queue, second.name) == (second.job_id, "mail", "reports/daily é")

    async def test_client_triggers_skips_pauses_and_resumes_a_job(self, client):
        job = await client.jobs.create("app:mail", schedule=EVERY_HOUR)

        run = await client.jobs.trigger(job.job_id, payload={"n": 2}, key="k")
        again = await client.jobs.trigger(job.job_id, payload={"n": 2}, key="k")
        skipped = await client.jobs.skip_next(job.job_id)
        paused = await client.jobs.pause(job.job_id, reason="tea")
        resumed = await client.jobs.resume(job.job_id)

        assert run.run_id == again.run_id
        assert skipped.scheduled_at == job.next_run_at
        assert (paused.status, resumed.status) == ("paused", "active")

    async def test_client_counts_creates_and_cancels_a_backfill(self, client, database):
        now = await database.read_clock()
        start, end = now - timedelta(hours=5), now
        anchored = {"trigger": {"type": "interval", "every": "PT1H", "anchor": "2020-01-01T00:00:00Z"}}
        job = await client.jobs.create("app:mail", schedule=anchored)

        dry = await client.jobs.backfill(job.job_id, start, end, dry_run=True)
        made = await client.jobs.backfill(job.job_id, start, end, rate=0.01)
        status = await client.backfills.get(made.backfill_id)
        stopped = await client.backfills.cancel(made.backfill_id)

        assert (dry.backfill_id, dry.count) == (None, made.count)
        assert (status.state, stopped.backfill_id) == ("active", made.backfill_id)

    async def test_create_many_sends_chunks_and_returns_a_result_for_each_line(self, client, database):
        jobs = [JobSpec(target=FunctionTarget(handler="app:mail"), payload={"n": n}) for n in range(7)]
        jobs[3] = JobSpec(target=FunctionTarget(handler=""), queue="mail")

        answers = [answer async for answer in client.jobs.create_many(iter(jobs), chunk=3, key="all")]
        again = [answer async for answer in client.jobs.create_many(iter(jobs), chunk=3, key="all")]

        assert [answer.line for answer in answers] == [1, 2, 3, 4, 5, 6, 7]
        assert [answer.line for answer in answers if answer.error] == [4]
        assert [answer.job_id for answer in again] == [answer.job_id for answer in answers]
        assert await counted(database) == 6


class TestOthers:
    async def test_calendars(self, client):
        kept = await client.calendars.put("holidays", {"dates": ["2026-12-25"]})
        names = [calendar.name async for calendar in client.calendars.list()]
        read = await client.calendars.get("holidays")
        await client.calendars.delete("holidays")

        assert (kept.schedules, names, read.definition["dates"]) == (0, ["holidays"], ["2026-12-25"])
        with pytest.raises(NotFound):
            await client.calendars.get("holidays")

    async def test_a_schedule_is_tried_out(self, client):
        seen = await client.preview(
            {"trigger": {"type": "cron", "expr": "0 8 * * MON"}}, after=datetime(2026, 11, 1, tzinfo=UTC), n=2
        )

        assert [fire.scheduled_at for fire in seen.next] == ["2026-11-02T08:00:00Z", "2026-11-09T08:00:00Z"]


class TestRefusals:
    async def test_invalid_request_raises_with_its_pointer(self, client):
        with pytest.raises(Invalid) as raised:
            await client.jobs.create("app:mail", priority=12)

        assert [fault.pointer for fault in raised.value.errors] == ["/priority"]
        assert (raised.value.code, raised.value.status) == ("invalid_body", 422)
        assert raised.value.request_id
        assert raised.value.remedy

    async def test_each_refusal_has_its_exception(self, client, front, transport):
        job = await client.jobs.create("app:mail", schedule=EVERY_HOUR, key="k")
        reader = await front.caller("jobs:read")

        with pytest.raises(duly.NotFound, match="no job"):
            await client.jobs.get(uuid4())
        with pytest.raises(NotFound):
            await client.jobs.get("no/id?at=all#")
        with pytest.raises(KeyReused):
            await client.jobs.create("app:other", key="k")
        with pytest.raises(VersionChanged):
            await client.jobs.change(job.job_id, {"queue": "mail"}, version=7)
        async with AsyncClient("http://duly", reader.key, transport=transport) as weak:
            with pytest.raises(Forbidden, match="jobs:write"):
                await weak.jobs.create("app:mail")
        async with AsyncClient("http://duly", "duly_x_y", transport=transport) as stranger:
            with pytest.raises(Unauthorized):
                await stranger.jobs.get(job.job_id)

    async def test_a_change_of_any_version_needs_none(self, client):
        job = await client.jobs.create("app:mail", schedule=EVERY_HOUR)

        assert (await client.jobs.change(job.job_id, {"queue": "mail"}, version=None)).queue == "mail"


class TestFaults:
    async def test_lost_responses_do_not_duplicate_a_job(self, proxy, caller, database):
        proxy.lose = 2
        async with AsyncClient(proxy.url, caller.key, deadline=10.0) as client:
            made = await client.jobs.create("app:mail", payload={"n": 1})

        assert proxy.lost == 2
        assert await database.fetch("select job_id from duly.ready") == [(made.job_id,)]

    async def test_the_same_without_a_loop(self, proxy, caller, database):
        def create() -> UUID:
            with Client(proxy.url, caller.key, deadline=10.0) as client:
                return client.jobs.create("app:mail", payload={"n": 1}).job_id

        proxy.lose = 1
        made = await asyncio.to_thread(create)

        assert proxy.lost == 1
        assert await database.fetch("select job_id from duly.ready") == [(made,)]

    async def test_lost_response_does_not_repeat_a_job_change(self, proxy, caller):
        async with AsyncClient(proxy.url, caller.key, deadline=10.0) as client:
            job = await client.jobs.create("app:mail", schedule=EVERY_HOUR, timeout="PT2M")
            version = (await client.jobs.get(job.job_id)).version
            proxy.lose = 1
            changed = await client.jobs.change(job.job_id, {"timeout": 90, "queue": "mail"}, version=version)
            proxy.lose = 1
            replaced = await client.jobs.replace(
                job.job_id, "app:mail", version=changed.version, schedule=EVERY_HOUR, timeout=60.0
            )

        assert proxy.lost == 2
        assert (changed.version, changed.queue) == (version + 1, "mail")
        assert (replaced.version, replaced.queue) == (version + 2, "default")

    async def test_lost_response_does_not_duplicate_a_batch_of_jobs(self, proxy, caller, database):
        jobs = [JobSpec(target=FunctionTarget(handler="app:mail"), payload={"n": n}) for n in range(5)]
        async with AsyncClient(proxy.url, caller.key, deadline=10.0) as client:
            proxy.lose = 1
            answers = [answer async for answer in client.jobs.create_many(jobs, chunk=3)]

        assert (len(answers), await counted(database), proxy.lost) == (5, 5, 1)

    async def test_bulk_cancel_counts_its_changes_despite_lost_responses(self, proxy, caller, database):
        for _ in range(5):
            await a_ready_run(database)
        async with AsyncClient(proxy.url, caller.key, deadline=10.0) as client:
            proxy.lose = 2
            done = await client.runs.cancel_many(all=True)

        assert (proxy.lost, done.matched, done.changed, done.is_partial) == (2, 5, 5, False)
        assert await counted(database) == 0

    async def test_bulk_cancel_continues_after_a_partial_response(self, client, database, monkeypatch):
        monkeypatch.setattr("duly.api.routes.bulk._CHANGE_SECONDS", 0)
        monkeypatch.setattr("duly.moves.bulk._BATCH", 2)
        for _ in range(9):
            await a_ready_run(database)

        done = await client.runs.cancel_many(all=True, limit=7)
        assert (done.matched, done.changed) == (7, 7)
        assert await counted(database) == 2
        rest = await client.runs.cancel_many(all=True)
        assert (rest.changed, rest.next_page_token) == (2, None)

    async def test_connections_are_kept(self, proxy, caller):
        async with AsyncClient(proxy.url, caller.key) as client:
            for _ in range(5):
                await client.jobs.create("app:mail")

        assert proxy.connections == 1

    async def test_the_answers_of_somebody_in_between_are_survived(self, transport, caller, database):
        between = Between(
            transport,
            [
                httpx2.ConnectError("refused"),
                httpx2.Response(503, headers={"Retry-After": "0"}),
                httpx2.Response(502, text="<html>bad gateway</html>"),
            ],
        )
        async with AsyncClient("http://duly", caller.key, transport=between) as client:
            await client.jobs.create("app:mail")

        assert len({request.headers["idempotency-key"] for request in between.sent}) == 1
        assert (len(between.sent), await counted(database)) == (4, 1)

    async def test_unreachable_server_raises_a_readable_message(self, caller, unused_tcp_port):
        async with AsyncClient(f"http://127.0.0.1:{unused_tcp_port}", caller.key, deadline=0.3) as client:
            with pytest.raises(
                Unavailable, match=rf"No answer from http://127.0.0.1:{unused_tcp_port}: .*given up after"
            ):
                await client.jobs.create("app:mail")


class TestWithoutALoop:
    async def test_blocking_client_matches_the_async_client(self, blocking):
        def story() -> tuple:
            made = blocking.jobs.create("app:mail", schedule=EVERY_HOUR, name="hourly")
            job = blocking.jobs.get(made.job_id)
            many = list(blocking.jobs.create_many([JobSpec(target=FunctionTarget(handler="app:mail"))] * 3, chunk=2))
            blocking.calendars.put("holidays", {"dates": ["2026-12-25"]})
            names = [calendar.name for calendar in blocking.calendars.list()]
            with pytest.raises(NotFound):
                blocking.jobs.get(uuid4())
            return job.name, [answer.line for answer in many], names

        assert await asyncio.to_thread(story) == ("hourly", [1, 2, 3], ["holidays"])


class TestUrlAndKey:
    def test_they_come_from_the_environment(self, monkeypatch):
        monkeypatch.setenv("DULY_URL", "https://duly.example/base/")
        monkeypatch.setenv("DULY_API_KEY", "duly_abc_secret")

        with duly.Client() as client:
            assert client.url == "https://duly.example/base"
            assert client._transport.address.headers() == {"Authorization": "Bearer duly_abc_secret"}

    @pytest.mark.parametrize(
        "url", ["", "127.0.0.1:7300", "ftp://x", "http://", "http://a:99999", "http://a/?b", "http://me:pw@a"]
    )
    def test_invalid_server_url_is_refused(self, url):
        with pytest.raises(InvalidOption) as raised:
            Client(url, "duly_abc_secret")

        assert "pw" not in str(raised.value)

    def test_without_a_url_the_remedy_is_named(self, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("DULY_URL", raising=False)
        with pytest.raises(InvalidOption, match="DULY_URL"):
            Client(key="duly_abc_secret")

    async def test_the_key_is_seen_nowhere(self, transport, caller, caplog, monkeypatch):
        caplog.set_level(logging.DEBUG)
        monkeypatch.setenv("DULY_API_KEY", caller.key)
        between = Between(transport, [httpx2.ReadError("cut")])
        async with AsyncClient("http://duly", transport=between, deadline=1.0) as client:
            with pytest.raises(NotFound) as raised:
                await client.jobs.get(uuid4())
            seen = [
                repr(client),
                repr(client.jobs),
                repr(client._transport.address),
                repr(client._transport.address._key),
            ]
        error = raised.value

        assert error.__cause__ is None
        assert error.__context__ is None
        secret = caller.key.rsplit("_", 1)[1]
        assert secret not in " ".join([*seen, repr(error), str(error), caplog.text, repr(load())])

    def test_batch_request_omits_default_values(self):
        job = JobSpec(target=FunctionTarget(handler="app:mail"), queue="mail")

        assert msgspec.json.decode(written(job)) == {
            "target": {"type": "function", "handler": "app:mail"},
            "queue": "mail",
        }
