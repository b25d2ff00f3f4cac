"""Destinations and their secrets as they cross HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import UNSET, Meta, UnsetType

from duly.domain.fields import Duration, Moment
from duly.domain.targets.destination import RATE_MAX, RATE_MIN, RETRY_SHARE_DEFAULT, SLOTS_DEFAULT, SLOTS_MAX
from duly.wire.pages import Items, Page
from duly.wire.schema.shapes import RequestModel, ResponseModel

Slots = Annotated[int, Meta(ge=1, le=SLOTS_MAX, description="Maximum number of concurrent requests.")]
RatePerSecond = Annotated[
    float, Meta(ge=RATE_MIN, le=RATE_MAX, description="Maximum number of requests per second; null: no limit.")
]
Url = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=2048,
        description="Any URL of the destination; only its scheme, host and port are used.",
        examples=["https://hooks.example/in"],
    ),
]


RetryShare = Annotated[
    float,
    Meta(
        ge=0,
        le=1,
        description="Retries allowed per first attempt, plus one per second; 1: no limit.",
    ),
]


class DestinationRequest(RequestModel, frozen=True):
    """A destination to create before the first webhook goes there, so that the receiver can be given its secret."""

    url: Url
    slots: Slots = SLOTS_DEFAULT
    rate_per_second: RatePerSecond | None = None
    retry_share: RetryShare = RETRY_SHARE_DEFAULT


class DestinationChange(RequestModel, frozen=True):
    """Limits of a destination; those left out stay as they are."""

    slots: Slots | UnsetType = UNSET
    rate_per_second: RatePerSecond | UnsetType | None = UNSET
    retry_share: RetryShare | UnsetType = UNSET


class Destination(ResponseModel, frozen=True):
    """A destination of webhooks: its limits and its health."""

    destination_id: UUID
    origin: str
    state: Annotated[
        Literal["closed", "open", "half_open"],
        Meta(
            description="State of the circuit breaker. closed: requests are sent; open: they wait; half_open: one is tried."
        ),
    ]
    wait_until: Annotated[
        Moment | None, Meta(description="Time of the next request while the circuit is open; null: now.")
    ]
    state_changed_at: Annotated[Moment, Meta(description="Time of the last change of state.")]
    slots: int
    rate_per_second: float | None
    in_flight: Annotated[int, Meta(description="Requests in flight, as last reported by the workers.")]
    waiting_runs: Annotated[int, Meta(description="Blocked runs that wait for it, counted up to 10,000.")]
    steady_rate: Annotated[float | None, Meta(description="Usual number of successful responses per second.")]
    ramp_rate: Annotated[
        float | None, Meta(description="Slow start after an outage: its first rate. Null: no slow start.")
    ]
    healthy_total: int
    failing_total: int
    created_at: Moment
    retry_share: Annotated[float, Meta(description="Retries allowed per first attempt.")]
    retries_total: Annotated[int, Meta(description="Retries sent.")]
    rejected_total: Annotated[int, Meta(description="Retries delayed because there were too many.")]


class DestinationList(Page[Destination], frozen=True):
    """A page of destinations, in order of their origins."""


class DestinationOpening(RequestModel, frozen=True):
    """The time for which the circuit stays open."""

    duration: Annotated[Duration, Meta(description="PT1S to P7D.", examples=["PT10M"])] = "PT10M"


class WaitingRun(ResponseModel, frozen=True):
    """A run that waits for a destination. Waiting uses up no attempt."""

    run_id: UUID
    job_id: UUID
    queue: str
    attempt: Annotated[int, Meta(description="Attempts used.")]
    scheduled_at: Moment
    due_at: Moment
    waits_since: Moment


class WaitingRunList(Page[WaitingRun], frozen=True):
    """A page of runs that wait for a destination, in the order in which they go on."""


class FailedAttempt(ResponseModel, frozen=True):
    """An attempt that failed at a destination."""

    run_id: UUID
    job_id: UUID
    attempt: int
    finished_at: Moment
    outcome: Literal["failed", "timed_out"]
    status: Annotated[int | None, Meta(description="Response status; null: no response.")]
    reason: Annotated[str | None, Meta(description="In words.")]


class FailedAttemptList(Page[FailedAttempt], frozen=True):
    """A page of attempts that failed at a destination, the last first."""


class SigningSecret(ResponseModel, frozen=True):
    """A secret that signs requests to a destination."""

    number: int
    secret: Annotated[str, Meta(description="`whsec_` and base64, the format of Standard Webhooks.")]
    created_at: Moment
    retires_at: Annotated[Moment | None, Meta(description="End of its validity; null: it is the newest.")]

    def __repr__(self) -> str:
        return f"SigningSecret({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return the fields for printing, without the secret."""
        return [(name, "***" if name == "secret" else getattr(self, name)) for name in self.__struct_fields__]


class SigningSecrets(Items[SigningSecret], frozen=True):
    """The valid secrets, the newest first. While there are two, requests are signed with both."""
