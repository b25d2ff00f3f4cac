"""Sessions of the dashboard: a cookie that stands for a key, for no longer than the key stands, and only for pages of ours."""

from datetime import timedelta

import httpx
import pytest

from duly.api.auth.api_keys import Keys
from duly.api.auth.browser import Logins
from duly.api.dispatch import Dispatcher
from duly.log import Log
from duly.moves.admin.admit import Admission
from duly.store.retention import Expiring, forget_expired
from tests.api.application import Application
from tests.api.front import A_TARGET, Front

ORIGIN = {"Origin": "http://duly"}


@pytest.fixture(scope="module")
def application():
    """An application of our own, because people log in."""
    return Application()


@pytest.fixture
async def front(application, parts, sessions, database):
    """The application with its door open, also to those who log in."""
    keys = Keys(database)
    door = Dispatcher(
        *(database, sessions, keys, Admission(database), lambda _: None, Log("test")),
        logins=Logins(database, keys, is_secure=False),
    )
    app = application.over(parts.vitals, door)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://duly") as client:
        yield Front(client, database, [], door)


class Browser:
    """Somebody who has logged in."""

    def __init__(self, client, answer):
        self.client = client
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        self.csrf = answer.json()["csrf"]

    async def ask(self, method, path, headers=None, **request):
        """Ask as a page of ours does."""
        given = {"Cookie": self.cookie, "X-Duly-CSRF": self.csrf, **ORIGIN} if headers is None else headers
        return await self.client.request(method, path, headers=given, **request)


async def logged_in(front, caller):
    answer = await front.client.post("/v1/session", json={"key": caller.key}, headers=ORIGIN)
    assert answer.status_code == 200, answer.text
    front.client.cookies.clear()
    return Browser(front.client, answer)


async def test_key_opens_a_session_with_the_rights_of_the_key(front, api):
    browser = await logged_in(front, api)

    who = (await browser.ask("GET", "/v1/session")).json()
    made = await browser.ask("POST", "/v1/jobs", json={"target": A_TARGET})

    assert (who["tenant"], who["key_id"], who["is_operator"]) == (1, api.key_id, True)
    assert made.status_code == 202
    assert (await browser.ask("GET", "/v1/jobs")).status_code == 200


async def test_of_a_session_only_a_hash_is_kept(front, api, database):
    browser = await logged_in(front, api)
    token = browser.cookie.partition("=")[2]
    [row] = await database.fetch("select browser_sessions::text as text from duly.browser_sessions")

    assert token not in row["text"]


@pytest.mark.parametrize("key", ["", "nonsense", "duly_aaaaaaaaaa_" + "a" * 39])
async def test_invalid_key_opens_no_session(front, key):
    answer = await front.client.post("/v1/session", json={"key": key})

    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
    assert "set-cookie" not in answer.headers


async def test_a_key_that_may_not_read_opens_none(front):
    worker = await front.caller("worker")
    answer = await front.client.post("/v1/session", json={"key": worker.key})

    assert answer.status_code == 403
    assert "jobs:read" in answer.json()["detail"]


async def test_a_session_may_no_more_than_its_key(front):
    browser = await logged_in(front, await front.caller("jobs:read"))

    assert (await browser.ask("GET", "/v1/jobs")).status_code == 200
    assert (await browser.ask("POST", "/v1/jobs", json={"target": A_TARGET})).status_code == 403


async def test_a_change_must_come_from_a_page_of_ours(front, api):
    browser = await logged_in(front, api)
    cookie, csrf = {"Cookie": browser.cookie}, {"X-Duly-CSRF": browser.csrf}
    others = [
        {**cookie, **csrf},
        {**cookie, **ORIGIN},
        {**cookie, **csrf, "Origin": "http://evil.example"},
        {**cookie, **csrf, "Origin": "null"},
        {**cookie, **ORIGIN, "X-Duly-CSRF": "0" * 64},
    ]

    answers = [await browser.ask("POST", "/v1/jobs", headers, json={"target": A_TARGET}) for headers in others]

    assert [answer.status_code for answer in answers] == [403] * len(others)
    assert (await browser.ask("GET", "/v1/jobs", cookie)).status_code == 200


async def test_a_page_of_somebody_else_cannot_log_people_in(front, api):
    answer = await front.client.post("/v1/session", json={"key": api.key}, headers={"Origin": "http://evil.example"})
    assert "scope" not in answer.json()["title"]
    assert "from a page of this address" in answer.json()["remedy"]

    assert answer.status_code == 403


async def test_a_revoked_key_ends_its_sessions_within_five_seconds(front, api, clock):
    caller = await front.caller()
    browser = await logged_in(front, caller)
    await browser.ask("GET", "/v1/jobs")

    await api.delete(f"/v1/keys/{caller.key_id}")
    await clock.advance(timedelta(seconds=4))

    assert (await browser.ask("GET", "/v1/jobs")).status_code == 401


async def test_logout_ends_the_session(front, api):
    browser = await logged_in(front, api)
    answer = await browser.ask("DELETE", "/v1/session")

    assert answer.status_code == 204
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert (await browser.ask("GET", "/v1/session")).status_code == 401


async def test_a_session_ends_twelve_hours_after_its_last_use(front, api, clock, database):
    browser = await logged_in(front, api)
    await clock.advance(timedelta(hours=11))
    assert (await browser.ask("GET", "/v1/session")).status_code == 200
    await clock.advance(timedelta(hours=11))
    assert (await browser.ask("GET", "/v1/session")).status_code == 200
    await clock.advance(timedelta(hours=12))

    assert (await browser.ask("GET", "/v1/session")).status_code == 401
    await forget_expired(database, Expiring.SESSIONS, 100)
    assert await database.fetchval("select count(*) from duly.browser_sessions") == 0


@pytest.mark.parametrize("cookie", ["duly_session=", "duly_session=x", "duly_session=" + "a" * 52, 'duly_session="\\'])
async def test_unknown_cookie_grants_no_access(front, cookie):
    answer = await front.client.get("/v1/jobs", headers={"Cookie": cookie})

    assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")


async def test_api_key_takes_precedence_over_a_cookie(front, api):
    browser = await logged_in(front, await front.caller("jobs:read"))
    headers = {"Cookie": browser.cookie, "Authorization": f"Bearer {api.key}"}

    assert (await browser.ask("POST", "/v1/jobs", headers, json={"target": A_TARGET})).status_code == 202


async def test_audit_attributes_log_in_log_out_and_changes_to_the_session(front, api, database):
    browser = await logged_in(front, api)
    made = await browser.ask("POST", "/v1/jobs", json={"target": A_TARGET})
    assert made.status_code == 202, made.text
    await browser.ask("DELETE", "/v1/session")
    await browser.ask("DELETE", "/v1/session")
    refused = await front.client.post("/v1/session", json={"key": f"{api.key}x"}, headers=ORIGIN)
    assert "Bearer" not in refused.json()["remedy"], "whoever logs in sends no header"
    assert refused.status_code == 401

    rows = await database.fetch("select action, actor_kind, actor, subject_id from duly.audit")
    job_id = made.json()["job_id"]
    assert {tuple(row) for row in rows} == {
        ("session.opened", "session", api.key_id, api.key_id),
        ("job.created", "session", api.key_id, job_id),
        ("session.closed", "session", api.key_id, api.key_id),
    }
    assert len(rows) == 3
