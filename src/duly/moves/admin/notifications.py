"""Notifications: change channels and rules, test a channel; and watch and send, which any process may do at any time."""

from __future__ import annotations

from uuid import UUID

import msgspec

from duly.clock import Rng
from duly.domain.errors import DulyError, InvalidOption, NotFound, Refused
from duly.domain.jobs.job import check_name
from duly.domain.notifications.channel import (
    ChannelSpec,
    about_channel,
    check_channel,
    packed,
    shown_channel,
    unpacked,
)
from duly.domain.notifications.rule import RuleSpec, read_rule, sends_at
from duly.domain.runs.run import NOTIFICATIONS
from duly.domain.tenancy.audit import Action, Subject
from duly.domain.tenancy.sealing import Keyring
from duly.log import Log
from duly.moves.admin.audit import audited, record
from duly.store.connection import hints
from duly.store.connection.database import Database
from duly.store.tables import notifications as store

PASS_SECONDS = 1.0


@audited
async def put_channel(
    database: Database, keyring: Keyring, tenant: int, name: str, spec: ChannelSpec, rng: Rng
) -> None:
    """Store a channel, new or changed, its configuration sealed. Raises InvalidOption."""
    name, spec = check_name(name, "channel"), check_channel(spec)
    sealed = keyring.seal(packed(spec), about_channel(tenant, name), rng.secret)
    kind = str(spec.__struct_config__.tag)
    await store.put_channel(database, tenant, name, kind, shown_channel(spec), sealed)
    await record(database, tenant, Action.CHANNEL_SAVED, Subject("channel", name, name), kind=kind)


@audited
async def drop_channel(database: Database, tenant: int, name: str) -> None:
    """Delete a channel. Raises NotFound, or InvalidOption while a rule uses it."""
    answer = await store.drop_channel(database, tenant, name)
    if answer == "missing":
        raise _no_channel(name)
    if answer != "dropped":
        raise InvalidOption(f"channel {name!r} is {answer}; change that rule first")
    await record(database, tenant, Action.CHANNEL_DELETED, Subject("channel", name, name))


async def opened_channel(database: Database, keyring: Keyring, tenant: int, name: str) -> ChannelSpec:
    """Open a channel. Raises NotFound, CannotOpen."""
    sealed = await store.sealed_channel(database, tenant, name)
    if sealed is None:
        raise _no_channel(name)
    return unpacked(keyring.open(sealed, about_channel(tenant, name)))


@audited
async def test_channel(database: Database, tenant: int, name: str, key: str) -> UUID:
    """Send a test to a channel. Returns its run. Raises NotFound."""
    run_id = await store.test_channel(database, tenant, name, key)
    if run_id is None:
        raise _no_channel(name)
    await record(database, tenant, Action.CHANNEL_TESTED, Subject("channel", name, name), run_id=str(run_id))
    return run_id


@audited
async def put_rule(database: Database, tenant: int, name: str, spec: RuleSpec) -> None:
    """Store a rule, new or changed. Raises InvalidOption, InvalidFilter."""
    name = check_name(name, "rule")
    await store.put_rule(database, tenant, name, read_rule(spec))
    detail = {"events": ",".join(spec.events), "channels": ",".join(spec.channels)}
    await record(database, tenant, Action.RULE_SAVED, Subject("rule", name, name), **detail)


@audited
async def drop_rule(database: Database, tenant: int, name: str) -> None:
    """Delete a rule. Raises NotFound."""
    if not await store.drop_rule(database, tenant, name):
        raise NotFound(f"no rule is named {name!r}; `duly notify` lists them")
    await record(database, tenant, Action.RULE_DELETED, Subject("rule", name, name))


async def step(database: Database, log: Log) -> int:
    """Record what is new, and send what may be sent now. Returns the number of rules with new deliveries.

    Every process that lives does this about once a second; the database lets one at a time.
    """
    if not await store.watch(database):
        return 0
    sent = 0
    for one in await store.waiting(database):
        try:
            at = sends_at(read_rule(store.read_spec(one.spec)), one.first_at, one.sent)
        except (Refused, msgspec.ValidationError) as error:  # stored by another version: the others go on
            log.error("notification_rule_unreadable", tenant=one.tenant, rule=one.rule, error=str(error))
            continue
        if at <= one.now:
            sent += await store.send(database, one)
    if sent:
        await hints.send(database, [NOTIFICATIONS])
    return sent


async def keep_watching(database: Database, log: Log) -> None:
    """Take a step about once a second, for ever."""
    failed = False
    while True:
        try:
            await step(database, log)
            failed = False
        except DulyError as error:
            # The database is away, which the process says elsewhere.
            if not failed:
                log.warning("notifications_delayed", error=str(error))
            failed = True
        except Exception as error:  # noqa: BLE001 - a fault in here must not end a process that has other work
            log.error("notifications_failed", error=repr(error))
        await database.clock.sleep(PASS_SECONDS)


def _no_channel(name: str) -> NotFound:
    return NotFound(f"no channel is named {name!r}; `duly notify channels` lists them")
