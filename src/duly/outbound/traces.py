"""OpenTelemetry traces of runs: submit, stage, claim, attempt and webhook, sent to a collector as OTLP over HTTP.

Off until `set_up` names a collector: then nothing of it is imported, and each place that would report a span asks one
question. Spans are queued in memory and sent by a thread; when the queue is full or the collector does not answer they
are dropped, so no run waits for it. They say which run, job, attempt and queue; a payload, a result, the text of an
error and a URL are never in them.
"""

from __future__ import annotations

import atexit
import importlib.util
import threading
from collections.abc import Mapping
from typing import Any, Protocol
from uuid import UUID

import msgspec

from duly.domain.errors import Refused
from duly.domain.runs.options import RunMetadata
from duly.domain.runs.run import Run
from duly.domain.runs.trace import ATTEMPT, CLAIM, STAGE, SUBMIT, WEBHOOK, Caller, Trace, trace_of
from duly.log import Log

QUEUE_MAX = 8_192  # spans that wait for the collector; more are dropped
SEND_SECONDS = 5.0  # for one batch
DELAY_SECONDS = 1.0
LAST_SECONDS = 1.0  # that the end of a process waits for its last spans
# Other libraries bring the bare API, which sends nothing.
_NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


class Collector(msgspec.Struct, frozen=True):
    """A collector: its address, without `/v1/traces`; its headers; and the part of traces that it is sent."""

    endpoint: str
    service: str = "duly"
    headers: Mapping[str, str] = {}
    ratio: float = 1.0


_collector: Collector | None = None
_unsent: str | None = None  # why spans that were asked for are not sent, until it is logged
_processor: Any = None
_scope: Any = None
_resource: Any = None
_lock = threading.Lock()


def set_up(collector: Collector | None) -> None:
    """Send spans to a collector from now on; None: to none. Raises Refused without the packages of `duly[otel]`."""
    global _collector, _unsent
    if collector is not None and not is_installed():
        raise Refused("otel_endpoint is set, but OpenTelemetry is not installed: pip install 'duly[otel]'")
    _collector, _unsent = collector, None


def send_none(why: str) -> None:
    """Send no spans, and log the reason once, in place of the first."""
    global _collector, _unsent
    _collector, _unsent = None, why


def is_installed() -> bool:
    """Return whether the packages of `duly[otel]` are there."""
    try:
        return all(importlib.util.find_spec(name) is not None for name in _NEEDED)
    except ModuleNotFoundError:
        return False


def is_on() -> bool:
    """Return whether spans are sent."""
    global _unsent
    if _unsent is not None:
        Log("traces").warning("traces_not_sent", reason=_unsent)
        _unsent = None
    return _collector is not None


def traced(run: Run) -> Trace:
    """Return the trace of a run."""
    is_one_shot = run.run_id == run.job_id or run.metadata.node is not None
    return trace_of(run.run_id, is_one_shot=is_one_shot, traceparent=run.metadata.traceparent)


def submitted(run_id: UUID, metadata: RunMetadata, began: float, ended: float, facts: Mapping[str, object]) -> None:
    """Report that a one-shot was submitted, between two moments in seconds since 1970."""
    trace = trace_of(run_id, is_one_shot=True, traceparent=metadata.traceparent)
    named = {"duly.job_id": str(run_id), **facts, **_request(metadata)}
    parent = None if trace.parent is None else trace.parent.span_id
    _report(SUBMIT, trace, trace.root, parent, began, ended, named)


class Due(Protocol):
    """A run that a scheduler stages."""

    @property
    def run_id(self) -> UUID:
        """Its id."""

    @property
    def job_id(self) -> UUID:
        """Its job."""

    @property
    def queue(self) -> str:
        """Its queue."""

    @property
    def handler(self) -> str:
        """Its handler."""

    @property
    def tenant(self) -> int:
        """Its tenant."""

    @property
    def traceparent(self) -> str | None:
        """The trace of the request that created it."""

    @property
    def is_one_shot(self) -> bool | None:
        """Return whether it continues that trace."""


def staged(run: Due, began: float, ended: float) -> None:
    """Report that a run was staged."""
    trace = trace_of(run.run_id, is_one_shot=bool(run.is_one_shot), traceparent=run.traceparent)
    span_id = trace.span_id(STAGE)
    facts = {
        "duly.job_id": str(run.job_id),
        "duly.queue": run.queue,
        "duly.handler": run.handler,
        "duly.tenant": run.tenant,
    }
    _report(STAGE, trace, span_id, None if span_id == trace.root else trace.root, began, ended, facts)


def claimed(run: Run, began: float, ended: float) -> None:
    """Report that a worker has claimed a run."""
    trace = traced(run)
    _report(CLAIM, trace, trace.span_id(CLAIM, run.fence), trace.root, began, ended, _facts(run))


def attempted(run: Run, began: float, ended: float, outcome: str, error: str | None) -> None:
    """Report an attempt: its outcome, and the class of its error."""
    trace = traced(run)
    facts = {**_facts(run), "duly.outcome": outcome, **({} if error is None else {"error.type": error})}
    _report(ATTEMPT, trace, trace.span_id(ATTEMPT, run.fence), trace.root, began, ended, facts)


def called(run: Run, began: float, ended: float, status: int | None, error: str | None) -> None:
    """Report the request of a webhook."""
    if _collector is None:
        return
    trace = traced(run)
    facts = {**_facts(run), **({} if status is None else {"http.response.status_code": status})}
    facts |= {} if error is None else {"error.type": error}
    _report(WEBHOOK, trace, trace.span_id(WEBHOOK, run.fence), trace.span_id(ATTEMPT, run.fence), began, ended, facts)


def traceparent_for(run: Run) -> str | None:
    """Return the `traceparent` of a run's webhook: ours where spans are sent, and the caller's otherwise."""
    if _collector is None:
        return run.metadata.traceparent
    trace = traced(run)
    return trace.traceparent(trace.span_id(WEBHOOK, run.fence), _collector.ratio)


def _facts(run: Run) -> dict[str, object]:
    facts: dict[str, object] = {
        "duly.job_id": str(run.job_id),
        "duly.attempt": run.attempt,
        "duly.queue": run.queue,
        "duly.handler": run.handler,
        "duly.tenant": run.tenant,
    }
    return facts | _request(run.metadata)


def _request(metadata: RunMetadata) -> dict[str, object]:
    return {} if metadata.request_id is None else {"duly.request_id": metadata.request_id}


def _report(
    kind: str, trace: Trace, span_id: int, parent: int | None, began: float, ended: float, facts: Mapping[str, object]
) -> None:
    """Queue a span. Never waits, and never fails its caller."""
    collector = _collector
    if collector is None or not trace.is_sampled(collector.ratio):
        return
    try:
        _processor_for(collector).on_end(_span(kind, trace, span_id, parent, began, ended, facts))
    except Exception as error:  # noqa: BLE001 - a run is worth more than its span
        Log("traces").warning("span_dropped", kind=kind, run_id=trace.run_id, error=repr(error))


def _span(
    kind: str, trace: Trace, span_id: int, parent: int | None, began: float, ended: float, facts: Mapping[str, Any]
) -> Any:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode

    kinds = {SUBMIT: SpanKind.SERVER, ATTEMPT: SpanKind.CONSUMER, WEBHOOK: SpanKind.CLIENT}
    has_failed = "error.type" in facts or facts.get("duly.outcome") in ("failed", "timed_out", "lost")
    return ReadableSpan(
        f"duly.{kind}",
        context=_context(trace.trace_id, span_id),
        parent=None if parent is None else _context(trace.trace_id, parent, is_remote=True),
        resource=_resource,
        attributes={"duly.run_id": str(trace.run_id), **facts},
        links=() if trace.link is None else (Link(_linked(trace.link)),),
        kind=kinds.get(kind, SpanKind.INTERNAL),
        status=Status(StatusCode.ERROR if has_failed else StatusCode.UNSET),
        start_time=int(began * 1e9),
        end_time=int(max(began, ended) * 1e9),
        instrumentation_scope=_scope,
    )


def _context(trace_id: int, span_id: int, *, is_remote: bool = False) -> Any:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(trace_id, span_id, is_remote=is_remote, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _linked(caller: Caller) -> Any:
    return _context(caller.trace_id, caller.span_id, is_remote=True)


def _processor_for(collector: Collector) -> Any:
    """Return what queues spans; the first one imports OpenTelemetry and starts its thread."""
    global _processor, _resource, _scope
    with _lock:
        if _processor is None:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.sdk.util.instrumentation import InstrumentationScope

            from duly import __version__

            _resource = Resource({"service.name": collector.service, "service.version": __version__})
            _scope = InstrumentationScope("duly", __version__)
            exporter = OTLPSpanExporter(
                f"{collector.endpoint.rstrip('/')}/v1/traces", headers=dict(collector.headers), timeout=SEND_SECONDS
            )
            _processor = BatchSpanProcessor(
                exporter,
                max_queue_size=QUEUE_MAX,
                schedule_delay_millis=DELAY_SECONDS * 1_000,
                max_export_batch_size=512,
            )
            atexit.register(end)
    return _processor


def end(seconds: float = LAST_SECONDS) -> None:
    """Send the last spans, for so long at most."""
    global _processor
    processor, _processor = _processor, None
    if processor is not None:
        last = threading.Thread(target=processor.shutdown, name="duly-traces-end", daemon=True)
        last.start()
        last.join(seconds)
