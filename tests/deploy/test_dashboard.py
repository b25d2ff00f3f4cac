"""The Grafana dashboard and the alerts read only what a running Duly exports, and Prometheus accepts every expression."""

import json
import re
import urllib.request
from collections import defaultdict

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families as parse_text

from duly.api.metrics.definitions import BY_NAME, METRICS
from tests.cli.conftest import project, up
from tests.cli.processes import wait_for
from tests.deploy.promtool import needs_promtool, promtool
from tests.deploy.test_alerts import GROUPS, ROOT

__all__ = ["project", "up"]

DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "duly.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
ALERTED = [rule["expr"] for group in GROUPS for rule in group["rules"]]
# Those that stand there only where they are needed: without a replica, an overload or a webhook there is none.
OCCASIONAL = {
    "duly_api_list_reads_total",
    "duly_api_replica_age_seconds",
    "duly_api_replica_used",
    "duly_api_shed_submissions_total",
    "duly_queue_overload_age_seconds",
    "duly_queue_overloaded",
}
OF_PROMETHEUS = {"installation", "instance", "job", "le"}
OPERATIONS = "by|on|without|ignoring|group_left|group_right"
SUFFIXES = ("_bucket", "_count", "_sum")


def selected(expression):
    """Give the metrics of ours that an expression reads, and the labels that it names for each; those it groups by for all."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    grouped = {
        word
        for words in re.findall(rf"\b(?:{OPERATIONS}) \(([^)]*)\)", expression)
        for word in re.findall(r"\w+", words)
    }
    for name, _, chosen in re.findall(r"\b(duly_\w+)({([^}]*)})?", expression):
        found[name] |= set(re.findall(r'(\w+)(?:=|!=|=~|!~)"', chosen))
    return {name: labels - OF_PROMETHEUS for name, labels in found.items()}, grouped - OF_PROMETHEUS


@pytest.fixture(scope="module")
def scrape(up):
    """The labels of each sample that a running Duly exports, by its name, after a run and a webhook."""
    assert up.duly("run", "greet", "name=Ada", "--wait").returncode == 0
    up.duly("run", "fail", "reason=broken", "--wait")

    def counted():
        with urllib.request.urlopen(up.asking("/metrics"), timeout=20) as answer:
            text = answer.read().decode()
        is_whole = all(
            part in text
            for part in ('queue="default",outcome="failed"} 1', "duly_worker_slots{", "duly_clock_offset_seconds{")
        )
        return text if is_whole else None

    found: defaultdict[str, set[frozenset[str]]] = defaultdict(set)
    for family in parse_text(wait_for(counted)):
        for sample in family.samples:
            found[sample.name] |= {frozenset(sample.labels)}
    return found


@pytest.mark.parametrize("expression", [*QUERIES, *ALERTED])
def test_every_metric_and_label_of_a_query_is_in_a_scrape(scrape, expression):
    metrics, grouped = selected(expression)
    known = set()
    for name, labels in metrics.items():
        whole = next((name.removesuffix(suffix) for suffix in SUFFIXES if name.removesuffix(suffix) in BY_NAME), name)
        assert whole in BY_NAME, f"{name} is no metric of ours"
        if whole not in OCCASIONAL:
            assert name in scrape
            assert all(labels <= found for found in scrape[name]), f"{name} has no label {labels}"
        known |= set(BY_NAME[whole].labels)
    assert grouped <= known


def test_a_running_duly_exports_what_the_reference_lists(scrape):
    whole = {metric.name + ("_count" if metric.kind == "histogram" else "") for metric in METRICS}
    ours = {name for name in scrape if name.startswith("duly_") and not name.endswith(("_bucket", "_sum"))}

    assert ours - whole == set()
    assert whole - ours <= OCCASIONAL


def test_every_metric_is_on_the_dashboard_or_in_an_alert():
    read = {name for expression in [*QUERIES, *ALERTED] for name in selected(expression)[0]}
    shown = {name.removesuffix(suffix) for name in read for suffix in ("", *SUFFIXES)}

    assert {metric.name for metric in METRICS} - shown == set()


@needs_promtool
def test_prometheus_accepts_every_query(tmp_path):
    queries = [one.replace("$__rate_interval", "5m").replace("$installation", ".*") for one in QUERIES]
    rules = [{"record": f"query:{number}", "expr": one} for number, one in enumerate(queries)]
    (tmp_path / "queries.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))

    assert f"{len(QUERIES)} rules found" in promtool("check", "rules", tmp_path / "queries.yml")


def test_panels_have_a_place_of_their_own():
    places = {
        (cell["x"] + dx, cell["y"] + dy)
        for panel in DASHBOARD["panels"]
        for cell in [panel["gridPos"]]
        for dx in range(cell["w"])
        for dy in range(cell["h"])
    }
    assert len(places) == sum(panel["gridPos"]["w"] * panel["gridPos"]["h"] for panel in DASHBOARD["panels"])
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
