"""Notifications: channels, rules, and past notifications."""

from __future__ import annotations

from typing import Any

from duly.api import paging
from duly.api.operations import Call, Routes
from duly.api.response import Response
from duly.domain.errors import InvalidOption, NotFound
from duly.domain.notifications.channel import AppriseChannel, ChannelSpec, WebhookChannel, check_channel, scheme_of
from duly.domain.notifications.message import Notification as Noticed
from duly.domain.notifications.rule import RuleSpec
from duly.domain.runs.run import NOTIFICATIONS
from duly.domain.tenancy.audit import Action
from duly.moves.admin import notifications as moves
from duly.store.tables import notifications as store
from duly.wire.notifications import (
    Channel,
    Channels,
    ChannelTest,
    LatestDelivery,
    Notification,
    NotificationDelivery,
    NotificationList,
    NotificationQuery,
    NotificationRule,
    NotificationRules,
)
from duly.wire.schema.shapes import Nothing

routes = Routes("notifications", reads="jobs:read", writes="jobs:write")
_NEWEST = 2**63 - 1


@routes.add("GET /v1/channels", responses={200: Channels})
async def list_channels(call: Call[Nothing, None]) -> Response:
    """List all channels, each with its latest delivery."""
    found = await store.channels(call.database, call.tenant)
    return Response(200, Channels(items=[_channel(one) for one in found]))


@routes.add("GET /v1/channels/{name}", responses={200: Channel})
async def read_channel(call: Call[Nothing, None]) -> Response:
    """Read a channel."""
    return Response(200, await _found_channel(call, call.known_name))


@routes.add(
    "PUT /v1/channels/{name}",
    scope="admin",
    responses={200: Channel},
    refuses=("invalid_option", "conflict"),
    audits=(Action.CHANNEL_SAVED,),
)
async def put_channel(call: Call[Nothing, ChannelSpec]) -> Response:
    """Store a channel, new or changed. It is sealed, and no response shows its secrets."""
    spec = check_channel(call.body)
    match spec:
        case WebhookChannel():
            call.services.allowed.check_url(spec.url)
        case AppriseChannel() if scheme_of(spec.url) not in call.services.allowed.apprise_schemes:
            raise InvalidOption(
                f"Apprise scheme {scheme_of(spec.url)!r} is not allowed; the operator allows each by name, in the setting"
                " apprise_schemes of the API and of the workers"
            )
    await moves.put_channel(call.database, call.needed_keyring, call.tenant, call.name, spec, call.services.rng)
    return Response(200, await _found_channel(call, call.name))


@routes.add(
    "DELETE /v1/channels/{name}",
    scope="admin",
    responses={204: None},
    refuses=("invalid_option",),
    audits=(Action.CHANNEL_DELETED,),
)
async def delete_channel(call: Call[Nothing, None]) -> Response:
    """Delete a channel that no rule uses."""
    await moves.drop_channel(call.database, call.tenant, call.known_name)
    return Response(204)


@routes.add(
    "POST /v1/channels/{name}/test",
    responses={202: ChannelTest},
    refuses=("not_found",),
    audits=(Action.CHANNEL_TESTED,),
)
async def test_channel(call: Call[Nothing, None]) -> Response:
    """Send a test to a channel. It is delivered once, without retries; its run says how that went."""
    key = call.key or str(call.services.rng.uuid())
    run_id = await moves.test_channel(call.database, call.tenant, call.known_name, key)
    call.wake(NOTIFICATIONS)
    return Response(202, ChannelTest(run_id=run_id), {"Location": f"/v1/runs/{run_id}"})


@routes.add("GET /v1/notification-rules", responses={200: NotificationRules})
async def list_notification_rules(call: Call[Nothing, None]) -> Response:
    """List all rules."""
    found = await store.rules(call.database, call.tenant)
    return Response(200, NotificationRules(items=[NotificationRule.of(one, definition=one.spec) for one in found]))


@routes.add("GET /v1/notification-rules/{name}", responses={200: NotificationRule})
async def read_notification_rule(call: Call[Nothing, None]) -> Response:
    """Read a rule."""
    return Response(200, await _found_rule(call, call.known_name))


@routes.add(
    "PUT /v1/notification-rules/{name}",
    responses={200: NotificationRule},
    refuses=("invalid_option", "invalid_filter"),
    audits=(Action.RULE_SAVED,),
)
async def put_notification_rule(call: Call[Nothing, RuleSpec]) -> Response:
    """Store a rule, new or changed. A new one covers what happens from then on."""
    await moves.put_rule(call.database, call.tenant, call.name, call.body)
    return Response(200, await _found_rule(call, call.name))


@routes.add("DELETE /v1/notification-rules/{name}", responses={204: None}, audits=(Action.RULE_DELETED,))
async def delete_notification_rule(call: Call[Nothing, None]) -> Response:
    """Delete a rule. Its past notifications stay; those that wait to be sent are not sent."""
    await moves.drop_rule(call.database, call.tenant, call.known_name)
    return Response(204)


@routes.add("GET /v1/notifications", responses={200: NotificationList})
async def list_notifications(call: Call[NotificationQuery, None]) -> Response:
    """List notifications, the newest first, each with its deliveries."""
    requested = call.query
    of = f"notifications {requested.rule}"
    before = paging.position(requested.page_token, of, int)
    found = await store.page(call.database, call.tenant, requested.rule, before or _NEWEST, requested.page_size)
    last = found[-1][0].notification_id if len(found) == requested.page_size else None
    return paging.page(NotificationList, [_notification(*one) for one in found], last, of)


async def _found_channel(call: Call[Any, Any], name: str) -> Channel:
    found = await store.channels(call.database, call.tenant, name)
    if not found:
        raise NotFound(f"no channel is named {name!r}; GET /v1/channels lists them")
    return _channel(found[0])


async def _found_rule(call: Call[Any, Any], name: str) -> NotificationRule:
    found = await store.rules(call.database, call.tenant, name)
    if not found:
        raise NotFound(f"no rule is named {name!r}; GET /v1/notification-rules lists them")
    return NotificationRule.of(found[0], definition=found[0].spec)


def _channel(one: store.Channel) -> Channel:
    latest = None if one.latest is None else LatestDelivery.of(one.latest)
    return Channel.of(one, configuration=one.shown, latest=latest)


def _notification(one: Noticed, deliveries: list[store.Delivered]) -> Notification:
    return Notification.of(one, text=one.sentence, deliveries=[NotificationDelivery.of(each) for each in deliveries])
