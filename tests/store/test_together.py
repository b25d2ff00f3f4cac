"""Several statements as one transaction: kept together, undone together, and tried again together."""

import pytest

from duly.domain.tenancy.audit import Actor
from duly.store.connection.database import TRIES_MAX, Unavailable
from duly.store.connection.together import together

ROLLED_BACK = "do $$ begin raise exception using errcode = '40001', message = 'in the way of another'; end $$"


async def put(database, name):
    await database.execute("insert into duly.calendars values (1, $1, '{}', now())", name)


async def names(database):
    return [row[0] for row in await database.fetch("select name from duly.calendars order by name")]


async def test_all_of_it_is_kept_or_none(database):
    async def fail(inside):
        await put(inside, "a")
        assert await names(inside) == ["a"]
        raise ValueError("enough")

    async def two(inside):
        await put(inside, "b")
        await put(inside, "c")
        return await names(inside)

    with pytest.raises(ValueError, match="enough"):
        await together(database, fail)
    assert await names(database) == []
    assert await together(database, two) == ["b", "c"] == await names(database)


async def test_transaction_that_the_server_rolled_back_is_repeated_as_a_whole(database):
    tries = []

    async def twice(inside):
        tries.append(await names(inside))
        await put(inside, "a")
        if len(tries) < 2:
            await inside.execute(ROLLED_BACK)

    await together(database, twice)
    assert (tries, await names(database)) == ([[], []], ["a"])


async def test_transaction_gives_up_after_its_last_retry(database):
    tries = []

    async def never(inside):
        tries.append(1)
        await inside.execute(ROLLED_BACK)

    with pytest.raises(Unavailable, match=f"refused {TRIES_MAX} times"):
        await together(database, never)
    assert len(tries) == TRIES_MAX


async def test_inside_a_transaction_it_is_a_part_of_that_one(database):
    async def fail(inside):
        await put(inside, "undone")
        raise ValueError("enough")

    async def outer(inside):
        await put(inside, "kept")
        with pytest.raises(ValueError, match="enough"):
            await together(inside, fail)
        assert await names(inside) == ["kept"]
        await together(inside, lambda nested: put(nested, "too"))

    await together(database, outer)
    assert await names(database) == ["kept", "too"]


async def test_the_transaction_is_in_the_name_of_the_same_actor(database):
    actor = Actor("local", "local:ops", "local:ops")

    async def who(inside):
        return inside.actor

    assert await together(database, who) is None
    assert await together(database.acting_as(actor), who) == actor
