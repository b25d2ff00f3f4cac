"""Looking names up: shared, kept for a moment, and bounded, whatever a name server does."""

from __future__ import annotations

import asyncio
import threading

import pytest

from duly.outbound.resolver import KEPT_SECONDS, LOOKUPS_MAX, LOOKUPS_PER_TENANT_MAX, SystemResolver, Unresolved
from tests.clock import ManualClock


class Server:
    """A name server that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = threading.Event()

    def look_up(self, host):
        self.asked.append(host)
        assert self.may_answer.wait(10)
        if host.startswith("none"):
            raise OSError("no such name")
        return ["192.0.2.7"]


@pytest.fixture
def server():
    server = Server()
    yield server
    server.may_answer.set()


async def ask_all(resolver, hosts, tenant=1):
    return await asyncio.gather(*(resolver.addresses_of(host, tenant) for host in hosts), return_exceptions=True)


async def test_concurrent_lookups_of_a_name_share_one_response(server):
    resolver = SystemResolver(ManualClock(), server.look_up)
    asking = asyncio.create_task(ask_all(resolver, ["a.example"] * 100))
    await asyncio.sleep(0)
    server.may_answer.set()

    assert await asking == [["192.0.2.7"]] * 100
    assert server.asked == ["a.example"]


async def test_an_answer_is_kept_for_a_moment_and_no_longer(server):
    server.may_answer.set()
    clock = ManualClock()
    resolver = SystemResolver(clock, server.look_up)
    for _ in range(3):
        await resolver.addresses_of("a.example", 1)
    assert len(server.asked) == 1

    await clock.advance(KEPT_SECONDS)
    await resolver.addresses_of("a.example", 1)
    assert len(server.asked) == 2


async def test_a_name_that_is_not_there_is_not_kept(server):
    server.may_answer.set()
    resolver = SystemResolver(ManualClock(), server.look_up)
    for _ in range(2):
        with pytest.raises(Unresolved, match="no such name"):
            await resolver.addresses_of("none.example", 1)
    assert len(server.asked) == 2


async def asked_for(server, number):
    async with asyncio.timeout(10):
        while len(server.asked) < number:
            await asyncio.sleep(0.01)


async def test_lookups_of_a_tenant_beyond_its_share_wait_and_leave_room_for_others(server):
    resolver = SystemResolver(ManualClock(), server.look_up)
    mine = asyncio.create_task(ask_all(resolver, [f"slow{number}.example" for number in range(100)], tenant=1))
    await asyncio.sleep(0)
    other = asyncio.create_task(ask_all(resolver, ["other.example"], tenant=2))
    await asked_for(server, LOOKUPS_PER_TENANT_MAX + 1)
    assert len(server.asked) == LOOKUPS_PER_TENANT_MAX + 1
    assert server.asked[-1] == "other.example"
    server.may_answer.set()

    assert await mine == [["192.0.2.7"]] * 100
    assert await other == [["192.0.2.7"]]


async def test_a_name_that_waits_in_the_line_of_one_tenant_is_looked_up_for_another(server):
    resolver = SystemResolver(ManualClock(), server.look_up)
    hosts = [f"slow{number}.example" for number in range(LOOKUPS_PER_TENANT_MAX + 1)]
    mine = asyncio.create_task(ask_all(resolver, hosts, tenant=1))
    await asked_for(server, LOOKUPS_PER_TENANT_MAX)

    other = asyncio.create_task(resolver.addresses_of(hosts[-1], 2))
    await asked_for(server, LOOKUPS_PER_TENANT_MAX + 1)
    server.may_answer.set()

    assert server.asked[-1] == hosts[-1]
    assert await other == ["192.0.2.7"]
    assert await mine == [["192.0.2.7"]] * len(hosts)


async def test_all_tenants_together_are_bounded_even_when_they_stop_waiting(server):
    resolver = SystemResolver(ManualClock(), server.look_up)
    tasks = [
        asyncio.create_task(ask_all(resolver, [f"slow{number}.{tenant}.example" for number in range(10)], tenant))
        for tenant in range(10)
    ]
    await asked_for(server, LOOKUPS_MAX)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(resolver.addresses_of("another.example", 99), 0.05)
    assert len(server.asked) == LOOKUPS_MAX

    server.may_answer.set()
    async with asyncio.timeout(10):
        assert await resolver.addresses_of("another.example", 99) == ["192.0.2.7"]
    assert server.asked[LOOKUPS_MAX:] == ["another.example"], "nobody waits for the others"


async def test_this_machine_is_found_by_its_usual_name():
    assert "127.0.0.1" in await SystemResolver(ManualClock()).addresses_of("localhost", 1)
