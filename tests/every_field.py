"""Specs of jobs that between them set every field of `JobSpec` and of the structs within, for tests that go through the doors.

All values are in the form in which they are shown, so that a door which renders one differently is seen.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from duly.domain.fields import non_defaults
from duly.domain.jobs.spec import (
    Callback,
    Concurrency,
    EventMatch,
    JobSpec,
    NodeEdge,
    NodeReference,
    NodeSpec,
    RateLimit,
    RetryPolicy,
    RetryRule,
    WorkflowTarget,
)
from duly.domain.targets.spec import CommandTarget, ContainerTarget, FunctionTarget, WebhookTarget

RETRY = RetryPolicy(
    policy="list",
    max_attempts=3,
    base="PT2S",
    cap="PT1M",
    jitter="equal",
    delays=["PT1S", "PT1H"],
    max_age="PT12H",
    rules=[
        RetryRule(error="*Timeout", action="snooze", delay="PT5M"),
        RetryRule(status="4xx", action="dead"),
        RetryRule(exit=75, action="retry"),
    ],
)
SCHEDULE: dict[str, Any] = {
    "trigger": {"type": "cron", "expr": "0 8 * * 1-5", "tz": "Europe/Paris"},
    "start": "2026-12-01T00:00:00Z",
    "end": "2027-12-01T00:00:00Z",
    "max_runs": 5,
    "jitter": {"max": "PT5M", "per": "occurrence"},
    "misfire": {"policy": "fire_all", "grace": "PT1M", "window": "PT1H", "rate": 2.0, "limit": 10},
    "overlap": {"policy": "allow"},
    "calendars": [{"name": "holidays", "mode": "exclude", "on_hit": "defer"}],
    "pause_on_failure": 3,
}
POLICY: dict[str, Any] = {
    "retry": RETRY,
    "timeout": "PT5M",
    "concurrency": Concurrency(key="customer-7", limit=3),
    "rate_limit": RateLimit(key="mail", limit=10, per="PT1M", burst=5),
    "expires_after": "PT30M",
    "redact": ["$.card", "$..password"],
    "queue": "mail",
    "priority": 2,
    "tags": ["night", "eu"],
}
DEFAULT = RetryPolicy()  # A target that is no function has a policy of its own.
AT = datetime(2026, 12, 1, 9, 30, tzinfo=UTC)

SPECS: dict[str, JobSpec] = {
    "function": JobSpec(
        target=FunctionTarget(handler="greet"),
        name="whole",
        payload={"name": "a"},
        schedule=SCHEDULE,
        on_end=Callback(url="https://hooks.example/done", queue="calls"),
        on_failure=Callback(job="mourn"),
        **POLICY,
    ),
    "webhook": JobSpec(
        target=WebhookTarget(
            url="https://hooks.example/in",
            method="PUT",
            headers={"X-Shop": "a"},
            final=[410],
            retry=[404],
            callback_within="PT1H",
        ),
        name="on order",
        on_event=EventMatch(type="shop.order.placed", source="https://shop.example/orders"),
        concurrency=Concurrency(key="line", order="fifo"),
        retry=DEFAULT,
    ),
    "command": JobSpec(
        target=CommandTarget(
            argv=["/usr/bin/rsync", "-a"],
            environment={"TOKEN": "***"},
            network=True,
            memory_bytes=10_000_000,
            cpu_seconds=2.5,
            processes=4,
            file_bytes=1_000,
            ok=[0, 3],
            retry=[11],
        ),
        schedule={"trigger": {"type": "at", "at": AT.isoformat()}},
        expires_at=datetime(2026, 12, 1, 12, tzinfo=UTC),
        retry=DEFAULT,
    ),
    "container": JobSpec(
        target=ContainerTarget(
            image="busybox",
            argv=["true"],
            environment={"LANG": "C"},
            network=True,
            memory_bytes=10_000_000,
            cpus=1.5,
            processes=4,
            ok=[0, 3],
            retry=[11],
        ),
        schedule={"trigger": {"type": "at", "delay": "PT10M"}},
        retry=DEFAULT,
    ),
    "workflow": JobSpec(
        target=WorkflowTarget(
            name="nightly",
            nodes={
                "extract": NodeSpec(target=FunctionTarget(handler="greet"), payload={"day": 1}, **POLICY),
                "page": NodeSpec(
                    target=WebhookTarget(url="https://hooks.example/page"),
                    depends_on=["extract"],
                    map=NodeReference(node="extract", path=["pages", 0]),
                    payload={"url": {"$item": True}},
                    expires_at=datetime(2027, 12, 1, 12, tzinfo=UTC),
                    retry=DEFAULT,
                ),
                "load": NodeSpec(
                    target=CommandTarget(argv=["/usr/bin/rsync"]),
                    depends_on=[NodeEdge(node="page", on="always")],
                    retry=DEFAULT,
                ),
            },
        ),
        name="flow",
        schedule={"trigger": {"type": "interval", "every": "PT1H", "anchor": "2026-12-01T00:00:00Z"}},
        tags=["night"],
        retry=DEFAULT,
    ),
}


def shown(spec: JobSpec) -> dict[str, Any]:
    """Give what a response shows of a spec."""
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(spec))
    target = {name: part for name, part in fields["target"].items() if part is not None}
    is_workflow = isinstance(spec.target, WorkflowTarget)
    return {**fields, "target": non_defaults(spec.target) if is_workflow else target}


def untried() -> list[str]:
    """Name the fields that no spec sets to anything but their default."""
    known: set[str] = set()
    tried: set[str] = set()
    for struct in (one for spec in SPECS.values() for one in _structs(spec)):
        kind = type(struct)
        known |= {f"{kind.__name__}.{field.encode_name}" for field in msgspec.structs.fields(kind)}
        tried |= {
            f"{kind.__name__}.{name}" for name in non_defaults(struct) if name != kind.__struct_config__.tag_field
        }
    return sorted(known - tried)


def _structs(value: Any) -> Iterator[msgspec.Struct]:
    if isinstance(value, msgspec.Struct):
        yield value
        parts = [getattr(value, name) for name in value.__struct_fields__]
    else:
        parts = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []
    for part in parts:
        yield from _structs(part)
