"""Channels: the receivers of notifications, as people write them, as they are shown, and as they are sealed.

The whole configuration of a channel is one sealed value, bound to its tenant and name; what is shown of it has no secret.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from duly.domain.errors import InvalidOption
from duly.domain.fields import Spec
from duly.domain.targets.checks import check_target
from duly.domain.targets.masking import HIDDEN, masked
from duly.domain.targets.spec import Headers, Url
from duly.domain.targets.target import Webhook
from duly.domain.tenancy.api_key import Secret
from duly.domain.triggers.errors import shown

CHANNELS_MAX = 100  # of a tenant
RECIPIENTS_MAX = 50
PORT_DEFAULT = 587
_CHARACTERS_MAX = 320
_ADDRESS = re.compile(r"[^\s@<>,;:\"\\()\[\]]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*")
_HOST = re.compile(r"[A-Za-z0-9_.:-]{1,253}")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]{1,31})://\S", re.IGNORECASE)

Security = Literal["starttls", "tls", "none"]
Address = Annotated[str, Meta(max_length=_CHARACTERS_MAX, examples=["ops@example.com"])]


class WebhookChannel(Spec, frozen=True, tag_field="kind", tag="webhook"):
    """A signed request to a URL, with a CloudEvent as its body."""

    url: Url
    headers: Headers = msgspec.field(default_factory=dict)


class EmailChannel(Spec, frozen=True, tag_field="kind", tag="email"):
    """Mail through an SMTP server."""

    host: Annotated[str, Meta(description="Name or address of the SMTP server.", examples=["smtp.example.com"])]
    sender: Address
    recipients: Annotated[list[Address], Meta(min_length=1, max_length=RECIPIENTS_MAX)]
    port: Annotated[int, Meta(ge=1, le=65_535)] = PORT_DEFAULT
    security: Annotated[
        Security, Meta(description="starttls: encrypted after the greeting; tls: from the start; none: in clear text.")
    ] = "starttls"
    user: str | None = None
    password: Annotated[str | None, Meta(description="Shown as ***.")] = None

    def __repr__(self) -> str:
        return f"EmailChannel({self.host}:{self.port})"


class AppriseChannel(Spec, frozen=True, tag_field="kind", tag="apprise"):
    """Any service that Apprise knows, by an Apprise URL of a scheme that the operator allows."""

    url: Annotated[
        str,
        Meta(
            max_length=2_048,
            description="An Apprise URL; only its scheme is shown.",
            examples=["slack://TokenA/TokenB/TokenC/#ops"],
        ),
    ]

    def __repr__(self) -> str:
        return f"AppriseChannel({scheme_of(self.url)})"


ChannelSpec = WebhookChannel | EmailChannel | AppriseChannel


def check_channel(spec: ChannelSpec) -> ChannelSpec:
    """Check a channel by itself, and return it in its normal form. Raises InvalidOption."""
    match spec:
        case WebhookChannel():
            target = check_target(webhook_of(spec))
            assert isinstance(target, Webhook)
            _refuse_hidden(target.url, *target.headers.values())
            return msgspec.structs.replace(spec, url=target.url)
        case EmailChannel():
            return _checked_email(spec)
        case AppriseChannel():
            if _SCHEME.match(spec.url) is None or not spec.url.isprintable():
                raise InvalidOption(
                    "the URL of an apprise channel is scheme://…, such as slack://…; see Apprise's list"
                )
            _refuse_hidden(spec.url)
            return spec


def webhook_of(spec: WebhookChannel) -> Webhook:
    """Return the target that a webhook channel stands for."""
    return Webhook(spec.url, headers=spec.headers)


def scheme_of(url: str) -> str:
    """Return the scheme of an Apprise URL."""
    return url.partition("://")[0].lower()


def shown_channel(spec: ChannelSpec) -> dict[str, Any]:
    """Return what people may see of a channel, beside its kind."""
    match spec:
        case WebhookChannel():
            target = masked(webhook_of(spec))
            return {"url": target.url, "headers": dict(target.headers)}
        case EmailChannel():
            plain = msgspec.to_builtins(spec)
            return {**plain, "password": None if spec.password is None else HIDDEN}
        case AppriseChannel():
            return {"url": f"{scheme_of(spec.url)}://{HIDDEN}"}


def about_channel(tenant: int, name: str) -> bytes:
    """Return what a sealed channel is bound to."""
    return msgspec.json.encode([tenant, "channel", name])


def packed(spec: ChannelSpec) -> Secret:
    """Return a channel as the text that is sealed."""
    return Secret(msgspec.json.encode(spec).decode())


def unpacked(secret: Secret) -> ChannelSpec:
    """Parse an opened channel."""
    spec: ChannelSpec = msgspec.json.decode(secret.reveal(), type=ChannelSpec)
    return spec


def _checked_email(spec: EmailChannel) -> EmailChannel:
    for address in (spec.sender, *spec.recipients):
        if _ADDRESS.fullmatch(address) is None or not address.isascii():
            raise InvalidOption(f"{shown(address)} is not an e-mail address, such as ops@example.com")
    if _HOST.fullmatch(spec.host) is None:
        raise InvalidOption(f"host {shown(spec.host)} is not the name or address of a server")
    if (spec.user is None) != (spec.password is None):
        raise InvalidOption("an e-mail channel has a user and a password, or neither")
    if spec.password is not None and spec.security == "none":
        raise InvalidOption("a password is not sent in clear text: use security starttls or tls")
    if spec.password is not None:
        _refuse_hidden(spec.password)
    return msgspec.structs.replace(spec, recipients=list(dict.fromkeys(spec.recipients)))


def _refuse_hidden(*values: str) -> None:
    if any(value == HIDDEN or f"={HIDDEN}" in value or f"//{HIDDEN}" in value for value in values):
        raise InvalidOption(f"{HIDDEN} is how a secret is shown, and stands for nothing here; send the value itself")
