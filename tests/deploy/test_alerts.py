"""Each alert fires for what it is there for and for nothing else, and leads to its runbook. `promtool` evaluates them."""

import re
from pathlib import Path

import pytest
import yaml

from duly.api.metrics.definitions import BY_NAME
from tests.deploy.promtool import needs_promtool, promtool

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
RUNBOOKS = (ROOT / "docs" / "how-to" / "runbooks.md").read_text()
GROUPS = yaml.safe_load((FOLDER / "rules.yml").read_text())["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}
DOCS = "http://docs"
SLOW_MINUTES = 100  # later than that, time passes in steps of half an hour

# An installation that does well, scraped at two ports, which show the same of it.
WELL = {
    "duly_api_replica_used{P}": "1x{N}",
    'duly_api_requests_total{P,operation="create_job",status="2xx"}': "0+60x{N}",
    'duly_api_requests_total{P,operation="create_job",status="5xx"}': "0+1x{N}",
    'duly_api_request_duration_seconds_bucket{P,operation="create_job",le="1.0"}': "0+60x{N}",
    'duly_api_request_duration_seconds_bucket{P,operation="create_job",le="+Inf"}': "0+60x{N}",
    'duly_clock_offset_seconds{P,role="worker",host="one"}': "-0.4x{N}",
    "duly_database_clock_set_back_seconds{P}": "0x{N}",
    "duly_database_connections{P}": "40x{N}",
    "duly_database_connections_max{P}": "100x{N}",
    'duly_database_dead_rows{P,table="ready"}': "20000x{N}",
    "duly_database_freeze_age_transactions{P}": "100000000x{N}",
    "duly_database_oldest_prepared_seconds{P}": "0x{N}",
    "duly_database_oldest_transaction_seconds{P}": "20x{N}",
    "duly_database_replica_lag_seconds{P}": "1x{N}",
    "duly_database_slot_retained_bytes{P}": "1000x{N}",
    "duly_database_up{P}": "1x{N}",
    'duly_database_xmin_age_transactions{P,holder="transaction"}': "2000x{N}",
    'duly_dead_letters_total{P,queue="mail"}': "5x{N}",
    'duly_destinations{P,state="open"}': "0x{N}",
    "duly_fenced_outcomes_total{P}": "0x{N}",
    "duly_figures_age_seconds{P}": "4x{N}",
    "duly_fire_skew_objective_ratio{P}": "0.95x{N}",
    'duly_fire_skew_seconds_bucket{P,queue="mail",le="1.0"}': "0+599x{N}",
    'duly_fire_skew_seconds_count{P,queue="mail"}': "0+600x{N}",
    "duly_lease_expiries_total{P}": "3x{N}",
    'duly_pauses{P,scope="queue"}': "0x{N}",
    'duly_queue_oldest_age_seconds{P,queue="mail",lane="live"}': "12x{N}",
    'duly_queue_oldest_age_seconds{P,queue="mail",lane="backfill"}': "9000x{N}",
    "duly_reaper_age_seconds{P}": "0.5x{N}",
    'duly_runs_total{P,queue="mail",outcome="succeeded"}': "0+600x{N}",
    'duly_scheduler_round_age_seconds{P,loop="expire"}': "1x{N}",
    'duly_scheduler_tick_duration_seconds_bucket{P,le="0.5"}': "0+60x{N}",
    'duly_scheduler_tick_duration_seconds_bucket{P,le="+Inf"}': "0+60x{N}",
    "duly_schedulers{P}": "2x{N}",
    "duly_shard_grants_total{P}": "64x{N}",
    "duly_shards_held{P}": "64x{N}",
    "duly_staging_lag_seconds{P}": "0x{N}",
    "duly_stalled_workers{P}": "0x{N}",
    "duly_unroutable_runs{P}": "0x{N}",
    "duly_workers{P}": "4x{N}",
    'up{P,job="duly"}': "1x{N}",
    'node_filesystem_avail_bytes{I,job="duly-database",fstype="ext4",mountpoint="/data"}': "50x{N}",
    'node_filesystem_size_bytes{I,job="duly-database",fstype="ext4",mountpoint="/data"}': "100x{N}",
}
# For each alert: what is otherwise, after how many minutes it must fire, and its labels.
QUEUE = {"queue": "mail"}
SERIES = {series.partition("{")[0]: series for series in WELL}
AT_PORT = {"instance": "b:9300"}
ILL = {
    "DulyStartDelay": ({'duly_fire_skew_seconds_bucket{P,queue="mail",le="1.0"}': "0+120x{N}"}, 70, {}),
    "DulyStartDelaySlow": ({'duly_fire_skew_seconds_bucket{P,queue="mail",le="1.0"}': "0+560x{N}"}, 4_410, {}),
    "DulyQueueAge": ({'duly_queue_oldest_age_seconds{P,queue="mail",lane="live"}': "301x{N}"}, 6, QUEUE),
    "DulyQueueOverloaded": (
        {'duly_queue_overloaded{P,tenant="7",queue="mail"}': "1x{N}"},
        6,
        {"tenant": "7", **QUEUE},
    ),
    "DulyUnroutable": ({"duly_unroutable_runs{P}": "3x{N}"}, 6, {}),
    "DulyPaused": ({'duly_pauses{P,scope="queue"}': "1x{N}"}, 1_500, {"scope": "queue"}),
    "DulyDeadLetters": ({'duly_dead_letters_total{P,queue="mail"}': "5x20 6x{N}"}, 25, QUEUE),
    "DulyDeadLetterShare": ({'duly_dead_letters_total{P,queue="mail"}': "0+90x{N}"}, 41, {}),
    "DulyFencedOutcomes": ({"duly_fenced_outcomes_total{P}": "0x20 1x{N}"}, 25, {}),
    "DulyAbsent": (None, 6, {}),
    "DulyTargetDown": ({'up{P,job="duly"}': "0x{N}"}, 6, {"job": "duly", **AT_PORT}),
    "DulyNoScheduler": ({"duly_schedulers{P}": "0x{N}"}, 1, {}),
    "DulyShardsUnheld": ({"duly_shards_held{P}": "48x{N}"}, 2, {}),
    "DulyStagingDelayed": ({"duly_staging_lag_seconds{P}": "6x{N}"}, 2, {}),
    "DulyReaperSilent": ({"duly_reaper_age_seconds{P}": "20x{N}"}, 2, {}),
    "DulyRoundOverdue": (
        {'duly_scheduler_round_age_seconds{P,loop="expire"}': "61x{N}"},
        2,
        {"loop": "expire", **AT_PORT},
    ),
    "DulyTickSlow": (
        {
            'duly_scheduler_tick_duration_seconds_bucket{P,le="1.0"}': "0x{N}",
            'duly_scheduler_tick_duration_seconds_bucket{P,le="2.5"}': "0+60x{N}",
            'duly_scheduler_tick_duration_seconds_bucket{P,le="0.5"}': "0x{N}",
        },
        31,
        {},
    ),
    "DulyShardTakeovers": ({"duly_shard_grants_total{P}": "0+16x{N}"}, 40, {}),
    "DulyNoWorker": ({"duly_workers{P}": "0x{N}"}, 3, {}),
    "DulyWorkerStalled": ({"duly_stalled_workers{P}": "1x{N}"}, 2, {}),
    "DulyLeaseExpiries": ({"duly_lease_expiries_total{P}": "3x20 4x{N}"}, 25, {}),
    "DulyHostClockDiffers": (
        {'duly_clock_offset_seconds{P,role="worker",host="one"}': "-3x{N}"},
        6,
        {"role": "worker", "host": "one"},
    ),
    "DulyDatabaseClockSetBack": ({"duly_database_clock_set_back_seconds{P}": "30x{N}"}, 2, {}),
    "DulyCircuitOpen": ({'duly_destinations{P,state="open"}': "1x{N}"}, 16, {}),
    "DulyApiErrors": ({'duly_api_requests_total{P,operation="create_job",status="5xx"}': "0+6x{N}"}, 11, {}),
    "DulyApiSlow": (
        {
            'duly_api_request_duration_seconds_bucket{P,operation="create_job",le="1.0"}': "0+30x{N}",
            'duly_api_request_duration_seconds_bucket{P,operation="create_job",le="2.5"}': "0+60x{N}",
        },
        31,
        {},
    ),
    "DulyReadReplicaUnused": ({"duly_api_replica_used{P}": "0x{N}"}, 11, AT_PORT),
    "DulyDatabaseDown": ({"duly_database_up{P}": "0x{N}"}, 2, AT_PORT),
    "DulyFiguresStale": ({"duly_figures_age_seconds{P}": "61+60x{N}"}, 3, AT_PORT),
    "DulyDiskFillsUp": (
        {SERIES["node_filesystem_avail_bytes"]: "39-0.3x{N}"},
        70,
        {"job": "duly-database", "fstype": "ext4", "mountpoint": "/data"},
    ),
    "DulyXminHeldBack": (
        {'duly_database_xmin_age_transactions{P,holder="slot"}': "2000000x{N}"},
        16,
        {"holder": "slot"},
    ),
    "DulyOldTransaction": ({"duly_database_oldest_transaction_seconds{P}": "301x{N}"}, 6, {}),
    "DulyPreparedTransactions": ({"duly_database_oldest_prepared_seconds{P}": "100x{N}"}, 6, {}),
    "DulyVacuumBehind": ({'duly_database_dead_rows{P,table="ready"}': "2000000x{N}"}, 16, {"table": "ready"}),
    "DulyFreezeAge": ({"duly_database_freeze_age_transactions{P}": "1500000000x{N}"}, 16, {}),
    "DulyConnectionsScarce": ({"duly_database_connections{P}": "90x{N}"}, 6, {}),
    "DulySlotIdle": ({"duly_database_slot_retained_bytes{P}": "2000000000x{N}"}, 6, {}),
    "DulyReplicaLags": ({"duly_database_replica_lag_seconds{P}": "90x{N}"}, 6, {}),
}
# Further causes of an alert.
MORE = [("DulyDeadLetters", ({'duly_dead_letters_total{P,queue="new"}': "_x20 1x{N}"}, 25, {"queue": "new"}))]
# Which alerts come along: they are about the same.
TOGETHER = {"DulyDeadLetterShare": {"DulyDeadLetters"}, "DulyStartDelay": {"DulyStartDelaySlow"}}


def series(changed, samples):
    """Give the series of two ports; what is otherwise is so for all of the installation, and of a process for the second."""
    given = {}
    for name, values in ({} if changed is None else WELL | changed).items():
        metric = name.partition("{")[0].removesuffix("_bucket").removesuffix("_count")
        is_shared = metric in BY_NAME and BY_NAME[metric].scope == "installation"
        for instance in ("a:9300", "b:9300"):
            used = values if is_shared or instance == "b:9300" else WELL.get(name, values)
            port = f'installation="main",instance="{instance}"'
            given[name.replace("P", port, 1).replace("{I", '{installation="main"')] = used.replace("{N}", str(samples))
    return [{"series": name, "values": values} for name, values in given.items()]


def case(name, changed, minutes, labels):
    """Give one test of promtool: this alert fires, and no other."""
    firing = {} if name is None else {name: labels}
    step = 30 if minutes > SLOW_MINUTES else 1
    return {
        "name": name or "well",
        "interval": f"{step}m",
        "external_labels": {"duly_docs": DOCS},
        "input_series": series(changed, minutes // step + 1),
        "alert_rule_test": [
            {
                "eval_time": f"{minutes}m",
                "alertname": alert,
                "exp_alerts": [expected(alert, firing[alert])] if alert in firing else [],
            }
            for alert in ALERTS
            if alert not in TOGETHER.get(name, ())
        ],
    }


def expected(alert, labels):
    rule = ALERTS[alert]
    main = {} if alert == "DulyAbsent" else {"installation": "main"}
    found = {**main, **labels, **rule["labels"]}
    written = {name: filled(text, found) for name, text in rule["annotations"].items()}
    return {"exp_labels": found, "exp_annotations": written}


def filled(text, labels):
    """Fill in what Prometheus would."""
    text = text.replace("{{ $externalLabels.duly_docs }}", DOCS)
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)


@needs_promtool
@pytest.mark.timeout(300)
def test_each_alert_fires_for_its_cause_and_none_fires_where_all_is_well(tmp_path):
    cases = [case(None, {}, minutes, {}) for minutes in (5, 70, 4_410)]
    cases += [case(name, *given) for name, given in (*ILL.items(), *MORE)]
    for step in ("1m", "30m"):
        tests = {
            "rule_files": [str(FOLDER / "rules.yml")],
            "evaluation_interval": step,
            "tests": [each for each in cases if each["interval"] == step],
        }
        (tmp_path / f"{step}.yml").write_text(yaml.safe_dump(tests, sort_keys=False))

    promtool("test", "rules", tmp_path / "1m.yml", tmp_path / "30m.yml")


def test_each_alert_has_a_test():
    assert ILL.keys() == ALERTS.keys()


@needs_promtool
def test_rules_and_the_scrape_configuration_are_valid():
    promtool("check", "config", FOLDER / "prometheus.yml")


@pytest.mark.parametrize("name", ALERTS)
def test_each_alert_leads_to_its_runbook(name):
    rule = ALERTS[name]
    code = rule["labels"]["code"]

    assert rule["annotations"]["runbook_url"].endswith(f"/how-to/runbooks.html#{code}")
    assert f"\n## {code}\n" in RUNBOOKS
    assert name in RUNBOOKS


def test_each_runbook_belongs_to_an_alert():
    codes = re.findall(r"^## (\w+)$", RUNBOOKS, re.MULTILINE)
    assert sorted(codes) == sorted({rule["labels"]["code"] for rule in ALERTS.values()})
