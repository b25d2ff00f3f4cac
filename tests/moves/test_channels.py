"""Sealed channels are rotated to a new key: `duly secrets rotate` leaves none that needs an old one, and loses no change."""

import pytest

from duly.clock import Rng
from duly.domain.notifications.channel import AppriseChannel, EmailChannel, WebhookChannel
from duly.domain.tenancy.sealing import KEY_BYTES, CannotOpen, Keyring
from duly.moves.admin import reseal as module
from duly.moves.admin.notifications import opened_channel, put_channel
from duly.moves.admin.reseal import reseal
from duly.store.tables import notifications as store
from tests.builders import RNG

OLD = Keyring({"old": b"1" * KEY_BYTES})
BOTH = Keyring({"new": b"2" * KEY_BYTES, "old": b"1" * KEY_BYTES})
NEW = Keyring({"new": b"2" * KEY_BYTES})
LOST = Keyring({"lost": bytes(KEY_BYTES)})
HOOK = WebhookChannel(url="https://hooks.example/in?token=hush")
MAIL = EmailChannel(
    host="smtp.example.com", sender="a@b.example", recipients=["c@d.example"], user="u", password="hush"
)
SLACK = AppriseChannel(url="slack://TokenA/TokenB/TokenC/#ops")


async def key_ids(database):
    return [row[0] for row in await database.fetch("select distinct key_id from duly.channels order by key_id")]


async def test_rotation_reseals_every_channel_of_every_tenant(database, monkeypatch):
    monkeypatch.setattr(module, "ROWS", 2)
    await database.execute("insert into duly.tenants (tenant, name, created_at) values (2, 'other', duly.clock_now())")
    for tenant in (1, 2):
        for name, channel in (("hook", HOOK), ("mail", MAIL), ("slack", SLACK)):
            await put_channel(database, OLD, tenant, name, channel, RNG)

    done, again = await reseal(database, BOTH, Rng()), await reseal(database, BOTH, Rng())

    assert (done.rows, done.left, done.unopened, again.rows) == (6, 0, 0, 0)
    assert await key_ids(database) == ["new"]
    for tenant in (1, 2):
        for name, channel in (("hook", HOOK), ("mail", MAIL), ("slack", SLACK)):
            assert await opened_channel(database, NEW, tenant, name) == channel
            with pytest.raises(CannotOpen):
                await opened_channel(database, OLD, tenant, name)


async def test_rotation_does_not_undo_a_change_of_a_channel_meanwhile(database):
    await put_channel(database, OLD, 1, "ops", HOOK, RNG)
    [held] = await store.sealed_before(database, "new", (0, ""), 10)
    await put_channel(database, OLD, 1, "ops", MAIL, RNG)

    assert await store.reseal(database, held, held.sealed) is False
    assert await opened_channel(database, OLD, 1, "ops") == MAIL


async def test_channel_that_does_not_open_holds_up_no_rotation_and_is_reported(database):
    await put_channel(database, LOST, 1, "lost", HOOK, RNG)
    await put_channel(database, OLD, 1, "ops", HOOK, RNG)

    done = await reseal(database, BOTH, Rng())

    assert (done.rows, done.unopened, await key_ids(database)) == (1, 1, ["lost", "new"])
    assert "restore that key's line" in str(done.why)


async def test_channel_is_bound_to_its_tenant_and_name(database):
    await put_channel(database, NEW, 1, "ops", HOOK, RNG)
    await database.execute(
        "insert into duly.channels (tenant, name, kind, shown, sealed, key_id, updated_at)"
        " select 2, name, kind, shown, sealed, key_id, updated_at from duly.channels"
        " union all select 1, 'other', kind, shown, sealed, key_id, updated_at from duly.channels"
    )

    for tenant, name in ((2, "ops"), (1, "other")):
        with pytest.raises(CannotOpen):
            await opened_channel(database, NEW, tenant, name)
