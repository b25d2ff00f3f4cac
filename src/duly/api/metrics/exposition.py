"""The text of a scrape, in the format of Prometheus or of OpenMetrics. Written by hand: a thousand queues make 25,000 lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import accumulate

from duly.api.metrics.definitions import BY_NAME, METRICS, Family, Metric

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_VALUES_KEPT = 10_000
_TOGETHER: dict[str, Callable[[float, float], float]] = {"sum": float.__add__, "max": max, "min": min}


def content_type(accept: str) -> str:
    """Return the format that an Accept header prefers: OpenMetrics only where it is named."""
    wanted = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for part in accept.split(","):
        kind, *parameters = (word.strip().lower() for word in part.split(";"))
        if kind in wanted:
            weights = [_weight(word[2:]) for word in parameters if word.startswith("q=")]
            wanted[kind] = max(wanted[kind], weights[0] if weights else 1.0)
    named = wanted["application/openmetrics-text"]
    return OPENMETRICS if named and named >= wanted["text/plain"] else TEXT


def _weight(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def render(families: Iterable[Family], content_type: str) -> bytes:
    """Write families in the order of the definitions; those of one name become one."""
    found: dict[str, list[Family]] = {}
    for family in families:
        found.setdefault(family.name, []).append(family)
    is_openmetrics = content_type == OPENMETRICS
    lines: list[str] = []
    for metric in METRICS:
        if metric.name in found:
            lines += _head(metric, is_openmetrics=is_openmetrics)
            for family in found[metric.name]:
                lines += _lines(family)
    if is_openmetrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode()


def _head(metric: Metric, *, is_openmetrics: bool) -> Iterator[str]:
    """OpenMetrics names a family without the suffix of its samples; Prometheus does not know the type info."""
    name, kind = metric.name, metric.kind
    if is_openmetrics:
        name = name.removesuffix("_total") if kind == "counter" else name.removesuffix("_info")
    elif kind == "info":
        kind = "gauge"
    meaning = metric.meaning.replace("`", "")
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"


def _lines(family: Family) -> Iterator[str]:
    name, metric = family.name, BY_NAME[family.name]
    for values, value in family.samples:
        labels = _labels(metric.labels, values)
        yield f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"
    bounds = _bounds(metric.bounds) if family.histograms else ()
    for values, counts, total in family.histograms:
        labels = _labels(metric.labels, values)
        start, end = (f"{name}_bucket{{{labels},", f"{{{labels}}}") if labels else (f"{name}_bucket{{", "")
        cumulated = list(accumulate(counts))
        for bound, count in zip(bounds, cumulated, strict=True):
            yield f"{start}{bound} {count}"
        yield f"{name}_sum{end} {total}"
        yield f"{name}_count{end} {cumulated[-1]}"


@lru_cache
def _bounds(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return tuple(f'le="{bound}"}}' for bound in (*bounds, "+Inf"))


@lru_cache(_VALUES_KEPT)
def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def merged(families: Iterable[Family]) -> list[Family]:
    """Aggregate the families of several processes: one family of each name, with one value of each label."""
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    histograms: dict[str, dict[tuple[str, ...], tuple[list[int], float]]] = {}
    for family in families:
        together = _TOGETHER[BY_NAME[family.name].aggregation]
        into = samples.setdefault(family.name, {})
        for values, value in family.samples:
            into[values] = together(into[values], float(value)) if values in into else float(value)
        buckets = histograms.setdefault(family.name, {})
        for values, counts, total in family.histograms:
            before, sum_before = buckets.get(values, ([0] * len(counts), 0.0))
            buckets[values] = [one + other for one, other in zip(before, counts, strict=True)], sum_before + total
    return [
        Family(
            name,
            list(samples[name].items()),
            [(values, counts, total) for values, (counts, total) in histograms[name].items()],
        )
        for name in samples
    ]
