"""The page of metrics, from their definitions."""

from __future__ import annotations

from duly.api.metrics.definitions import METRICS, Metric
from scripts.reference.markdown import document, table

_PORTS = {
    "installation": "every",
    "process": "every",
    "api": "API, `duly up`",
    "scheduler": "scheduler, `duly up`",
    "worker": "worker, `duly up`",
}
_HEAD = """
Every metric, in the format of Prometheus or, where it is asked for, OpenMetrics. The API serves `/metrics` with the operator's
key; with `metrics_port`, each process serves its own on an address of its own, without a key.

Metrics of the **installation** come from the database: every port has the same values, so a scrape of one port is enough, and
over several ports the aggregation is `max`, also of rates: `max by (queue) (rate(duly_dead_letters_total[5m]))`. One process at
a time reads them, every 5 seconds, for all. Their counters survive every process. The others are those of one process, and are
aggregated as the column says. `duly up` adds up its processes and has all of them on one port.

A label that users choose, such as a queue, takes at most 100 values of one tenant and 1,000 in all; later ones are counted under
`other`. A queue in which nothing has ended for a week loses its label. A histogram has `_bucket`, `_sum` and `_count`.
"""


def page() -> str:
    """Write the page."""
    groups = {
        "The installation": ("installation",),
        "Each process": ("process",),
        "The API": ("api",),
        "Schedulers": ("scheduler",),
        "Workers": ("worker",),
    }
    parts = [
        f"## {title}\n\n"
        + table(
            ["metric", "type", "labels", "port", "aggregate by", "meaning"],
            [_row(metric) for metric in METRICS if metric.scope in scopes],
        )
        for title, scopes in groups.items()
    ]
    return document("Metrics", _HEAD, *parts)


def _row(metric: Metric) -> tuple[str, ...]:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"`{metric.name}`", metric.kind, labels, _PORTS[metric.scope], f"`{metric.aggregation}`", metric.meaning
