"""Metrics of destinations: circuits by state, and requests by result. None is named: tenants choose their names."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from duly.domain.targets.circuit import State
from duly.store.tables.destinations import Totals

WAITING_RUNS_MAX = 100_000


def families(totals: Totals) -> Iterator[Metric]:
    """Return every metric."""
    states = GaugeMetricFamily(
        "duly_destinations", "Destinations of webhooks, by circuit breaker state.", labels=["state"]
    )
    for state in State:
        states.add_metric([state.value], totals.states.get(state.value, 0))
    yield states
    yield GaugeMetricFamily(
        "duly_webhooks_in_flight", "Requests in flight, as reported by workers.", value=totals.in_flight
    )
    yield GaugeMetricFamily(
        "duly_waiting_webhook_runs",
        "Runs that wait for a destination, counted up to 100,000.",
        value=totals.waiting_runs,
    )
    requests = CounterMetricFamily(
        "duly_webhook_requests", "Requests that ended, by health of the destination.", labels=["class"]
    )
    requests.add_metric(["healthy"], totals.healthy)
    requests.add_metric(["failing"], totals.failing)
    yield requests
    retries = CounterMetricFamily(
        "duly_webhook_retries", "Retries of webhooks: sent, or delayed because there were too many.", labels=["class"]
    )
    retries.add_metric(["sent"], totals.retries)
    retries.add_metric(["rejected"], totals.rejected)
    yield retries
