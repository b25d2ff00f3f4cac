"""Sessions of the dashboard: bound to this very host and scheme, one for a browser, and seen and ended by whoever may."""

from uuid import uuid4

import pytest

from tests.security.doors import an_open_door


class Browser:
    """A browser that keeps what it is told to, as far as its address allows."""

    def __init__(self, front, scheme="http", host="duly.example", agent="Firefox"):
        self.front = front
        self.scheme = scheme
        self.host = host
        self.agent = agent
        self.cookies = {}
        self.csrf = ""

    async def ask(self, method, path, **more):
        headers = {"Host": self.host, "Origin": f"{self.scheme}://{self.host}", "User-Agent": self.agent}
        headers |= (
            {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())} if self.cookies else {}
        )
        headers |= {"X-Duly-CSRF": self.csrf} if self.csrf else {}
        self.front.client.cookies.clear()
        return await self.front.client.request(method, path, headers={**headers, **more.pop("headers", {})}, **more)

    async def log_in(self, caller, **more):
        answer = await self.ask("POST", "/v1/session", json={"key": caller.key}, **more)
        if answer.is_success:
            name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
            self.cookies[name], self.csrf = value, answer.json()["csrf"]
        return answer


@pytest.fixture
async def front(database):
    async with an_open_door(database) as opened:
        yield opened


@pytest.fixture
async def secure(database):
    """A server that browsers reach over TLS, its own or that of a proxy."""
    async with an_open_door(database, is_secure=True) as opened:
        yield opened


class TestCookie:
    async def test_over_tls_it_is_of_this_host_alone(self, secure):
        answer = await Browser(secure, "https").log_in(await secure.caller())

        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-duly_session=")
        parts = set(cookie.split("; "))
        assert {"Path=/", "HttpOnly", "SameSite=Strict", "Secure"} <= parts
        assert not any(part.lower().startswith("domain") for part in parts)

    @pytest.mark.parametrize("host", ["127.0.0.1:7300", "localhost", "[::1]:7300"])
    async def test_host_header_cannot_remove_secure_from_the_cookie(self, secure, host):
        answer = await Browser(secure, "https", host).log_in(await secure.caller())

        assert "Secure" in answer.headers["set-cookie"].split("; ")

    @pytest.mark.parametrize("header", ["X-Forwarded-Proto", "X-Forwarded-Ssl", "Forwarded"])
    async def test_no_header_decides_it(self, front, header):
        said = {header: "proto=https" if header == "Forwarded" else "https"}
        answer = await Browser(front).log_in(await front.caller(), headers=said)

        assert answer.headers["set-cookie"].startswith("duly_session=")
        assert "Secure" not in answer.headers["set-cookie"].split("; ")

    async def test_a_cookie_that_another_host_could_have_set_opens_nothing_over_tls(self, secure):
        """Any host of the same domain can set a cookie that has not the prefix."""
        browser = Browser(secure, "https")
        await browser.log_in(await secure.caller())
        [token] = browser.cookies.values()

        browser.cookies = {"duly_session": token}

        assert (await browser.ask("GET", "/v1/session")).status_code == 401


class TestOrigin:
    @pytest.mark.parametrize("is_secure", [False, True])
    async def test_a_page_of_the_other_scheme_changes_nothing(self, database, is_secure):
        ours, theirs = ("https", "http") if is_secure else ("http", "https")
        async with an_open_door(database, is_secure=is_secure) as front:
            browser, caller = Browser(front, ours), await front.caller()
            await browser.log_in(caller)
            browser.scheme = theirs

            refused = await browser.ask("DELETE", "/v1/session")
            assert (refused.status_code, "plain_http" in refused.json()["remedy"]) == (403, True)
            assert (await browser.log_in(caller)).status_code == 403

            browser.scheme = ours
            assert (await browser.ask("DELETE", "/v1/session")).status_code == 204

    @pytest.mark.parametrize("origin", ["http://duly.example.evil.org", "http://evil.org", "null", "duly.example", ""])
    async def test_a_page_of_another_host_changes_nothing(self, front, origin):
        browser = Browser(front)
        await browser.log_in(await front.caller())

        assert (await browser.ask("DELETE", "/v1/session", headers={"Origin": origin})).status_code == 403

    @pytest.mark.parametrize(("scheme", "host"), [("https", "duly.example:443"), ("https", "Duly.Example")])
    async def test_the_same_address_written_otherwise_is_ours(self, secure, scheme, host):
        browser = Browser(secure, scheme, host)
        same = {"Origin": "https://duly.example"}

        assert (await browser.log_in(await secure.caller(), headers=same)).status_code == 200


class TestOneForABrowser:
    async def test_a_new_log_in_ends_the_session_before(self, front, database):
        browser, first, second = Browser(front), await front.caller(), await front.stranger()
        await browser.log_in(first)
        stolen = dict(browser.cookies)

        await browser.log_in(second)

        assert (await browser.ask("GET", "/v1/session")).json()["key_id"] == second.key_id
        browser.cookies = stolen
        assert (await browser.ask("GET", "/v1/session")).status_code == 401
        rows = await database.fetch("select tenant, actor from duly.audit where action = 'session.closed'")
        assert [tuple(row) for row in rows] == [(1, first.key_id)], "told to whose it was, and in its own name"

    async def test_a_wrong_key_ends_nothing(self, front):
        browser, caller = Browser(front), await front.caller()
        await browser.log_in(caller)
        caller.key = "nonsense"
        assert (await browser.log_in(caller)).status_code == 401

        assert (await browser.ask("GET", "/v1/session")).status_code == 200

    async def test_a_key_has_so_many_sessions_and_the_oldest_end(self, front, database, clock, monkeypatch):
        monkeypatch.setattr("duly.moves.admin.log_in.SESSIONS_OF_KEY_MAX", 3)
        caller, browsers = await front.caller(), [Browser(front) for _ in range(5)]
        for browser in browsers:
            await clock.advance(10)
            await browser.log_in(caller)

        assert [(await one.ask("GET", "/v1/session")).status_code for one in browsers] == [401, 401, 200, 200, 200]


class TestListed:
    async def listed(self, asking, query=""):
        answer = await asking("GET", f"/v1/sessions{query}")
        assert answer.status_code == 200, answer.text
        return answer.json()["items"]

    async def test_sessions_tell_when_and_from_where_and_which_is_this_one(self, front, clock):
        caller = await front.caller()
        phone, laptop = Browser(front, agent="Phone\tx" + "y" * 300), Browser(front, agent="Laptop")
        await phone.log_in(caller)
        await clock.advance(300)
        await laptop.log_in(caller)
        await phone.ask("GET", "/v1/session")

        [last, first] = await self.listed(laptop.ask)

        assert (last["user_agent"], last["is_current"], first["is_current"]) == ("Laptop", True, False)
        assert (first["address"], first["key_id"], len(first["user_agent"])) == ("127.0.0.1", caller.key_id, 200)
        assert first["opened_at"] < last["opened_at"] == first["last_used_at"]
        assert not any(token in str([last, first]) for one in (phone, laptop) for token in one.cookies.values())

    async def test_revoked_session_loses_access_within_five_seconds(self, front, clock, database):
        caller = await front.caller()
        thief, owner = Browser(front), Browser(front)
        for browser in (thief, owner):
            await browser.log_in(caller)
            await browser.ask("GET", "/v1/session")
        [other] = [one for one in await self.listed(owner.ask) if not one["is_current"]]

        assert (await owner.ask("DELETE", f"/v1/sessions/{other['session_id']}")).status_code == 204
        await clock.advance(4)

        assert (await thief.ask("GET", "/v1/session")).status_code == 401
        assert (await owner.ask("GET", "/v1/session")).status_code == 200
        assert (await owner.ask("DELETE", f"/v1/sessions/{other['session_id']}")).status_code == 404
        assert await database.fetchval("select count(*) from duly.audit where action = 'session.closed'") == 1

    async def test_a_key_that_is_no_admin_sees_and_ends_its_own_alone(self, front):
        admin, reader = await front.caller(), await front.caller("jobs:read")
        one, other = Browser(front), Browser(front)
        await one.log_in(admin)
        await other.log_in(reader)
        [own] = await self.listed(other.ask)
        [theirs] = [seen for seen in await self.listed(one.ask) if seen["is_current"]]

        assert own["is_current"]
        assert (await other.ask("DELETE", f"/v1/sessions/{theirs['session_id']}")).status_code == 404
        assert (await other.ask("DELETE", f"/v1/sessions/{own['session_id']}")).status_code == 204

    async def test_an_admin_of_another_tenant_sees_and_ends_none(self, front):
        operator, stranger = await front.caller(), await front.stranger()
        browser = Browser(front)
        await browser.log_in(operator)
        [seen] = await self.listed(operator.ask)

        assert await self.listed(stranger.ask) == []
        assert (await stranger.get("/v1/sessions?tenant=1")).status_code == 403
        assert (await stranger.delete(f"/v1/sessions/{seen['session_id']}")).status_code == 404
        assert (await stranger.delete(f"/v1/sessions/{uuid4()}")).status_code == 404
        assert (await browser.ask("GET", "/v1/session")).status_code == 200

    async def test_the_operator_sees_and_ends_those_of_a_tenant(self, front):
        operator, stranger = await front.caller(), await front.stranger()
        await Browser(front).log_in(stranger)

        [seen] = await self.listed(operator.ask, f"?tenant={stranger.tenant}")
        assert (await operator.delete(f"/v1/sessions/{seen['session_id']}")).status_code == 204
        assert await self.listed(operator.ask, f"?tenant={stranger.tenant}") == []

    async def test_sessions_come_in_pages(self, front, clock):
        operator = await front.caller()
        for _ in range(3):
            await Browser(front).log_in(operator)
        first = (await operator.get("/v1/sessions?page_size=2")).json()
        rest = (await operator.get(f"/v1/sessions?page_size=2&page_token={first['next_page_token']}")).json()

        ids = [one["session_id"] for one in (*first["items"], *rest["items"])]
        assert (len(ids), len(set(ids)), rest["next_page_token"]) == (3, 3, None)

    async def test_sessions_of_a_revoked_key_are_not_listed(self, front):
        operator, gone = await front.caller(), await front.caller()
        await Browser(front).log_in(gone)
        await operator.delete(f"/v1/keys/{gone.key_id}")

        assert await self.listed(operator.ask) == []
