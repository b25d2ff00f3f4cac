"""Each scenario runs, in a size that takes seconds, and says what a program may rely on."""

import json
import subprocess
import sys

import psycopg
import pytest

KEYS = {
    "scenario",
    "config",
    "runs_per_second",
    "baseline_per_second",
    "ratio",
    "early",
    "lost",
    "duplicates",
    "latency_ms",
    "skew_ms",
}
PERCENTILES = {"p50", "p95", "p99", "max"}
SMALL = {
    "submit": ["--runs", "2000", "--singles", "50"],
    "drain": ["--runs", "2000", "--waiting", "200"],
    "concurrency": ["--runs", "1000", "--keys", "100"],
    "latency": ["--samples", "20", "--pause-ms", "5"],
    "burst": ["--runs", "500", "--ahead-seconds", "2"],
    "recurring": ["--jobs", "1000", "--rate", "500", "--seconds", "3", "--ahead-seconds", "3"],
    "fair": ["--flood", "3000", "--samples", "10", "--pause-ms", "10"],
    "herd": ["--jobs", "500", "--jitter-seconds", "2", "--ahead-seconds", "4", "--steady-per-second", "20"],
    "outage": ["--schedules", "20", "--hours", "1", "--seconds", "2", "--new-per-second", "20"],
    "tick": ["--few", "200", "--many", "2000", "--due", "20", "--calls", "5"],
    "idle": ["--seconds", "1", "--few", "100", "--many", "400", "--firing", "100", "--firing-seconds", "1"],
    "moves": ["--jobs", "2000", "--runs", "1000", "--batch", "100"],
    "unroutable": ["--unroutable", "3000", "--limit", "10", "--claims", "3"],
    "lists": ["--jobs", "2000", "--attempts", "2000", "--waiting", "500", "--pages", "3"],
    "webhooks": ["--requests", "500", "--slow", "20", "--steady-per-second", "100", "--steady-seconds", "0.5"],
    "workflows": ["--workflows", "10", "--width", "20", "--chains", "5", "--pause-ms", "10"],
    "wheel": ["--few", "100", "--many", "1000"],
}
# What every result of these tells besides; a fault in it would go unseen until someone reads a figure.
MORE = {
    "submit": {"one_by_one", "one_by_one_sync", "baseline"},
    "drain": {"cpu_us_per_run", "baseline"},
    "concurrency": {"cpu_us_per_run", "baseline"},
    "latency": {"sync_ms", "baseline_ms"},
    "burst": {"recorded_skew_ms", "baseline"},
    "recurring": {"recorded_skew_ms", "windows", "cpu_percent"},
    "fair": {"samples_beside"},
    "herd": {"beside_ms"},
    "outage": {"fire_once", "new_per_second"},
    "tick": {"few_ms", "many_ms"},
    "idle": {"cpu_percent", "memory_mib"},
    "moves": {"cpu_us_per_row", "baseline_cpu_us_per_row"},
    "unroutable": {
        "claim_cpu_ms",
        "first_claim_cpu_ms",
        "mark_unroutable",
        "mark_cpu_us",
        "restored",
        "bring_back_cpu_us",
    },
    "lists": {"slowest_p99_ms", "lists"},
    "webhooks": {"sender_per_second", "beside_slow_ms", "slow_ratio", "destinations"},
    "workflows": {"edge_ms", "submitted_per_second"},
    "wheel": {"sparse"},
}
# Receivers have sealed secrets of their own, as with any worker: the healthy and the slow.
EXACT = {"webhooks": {"destinations": 2}}

SCHEMAS = "select nspname from pg_namespace where nspname like 'duly%'"
WITHOUT_BASELINE = {"fair"}  # Bare SQL knows no tenants.


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a scenario as a person would."""
    command = [sys.executable, "-m", "duly.bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)


def result_of(*arguments: str) -> dict:
    """Run a scenario as a program would: standard output is exactly one JSON object, and nothing else."""
    done = bench(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    result: dict = json.loads(done.stdout)
    return result


@pytest.fixture
def scratch_url(postgres):
    """A database to throw away."""
    name = postgres.create()
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.mark.parametrize("scenario", SMALL)
def test_scenario_writes_a_single_json_object_that_meets_the_contract(scenario, scratch_url):
    where = [] if scenario == "wheel" else ["--database-url", scratch_url]

    result = result_of(scenario, *SMALL[scenario], *where)

    assert result.keys() >= KEYS | MORE[scenario]
    assert result["scenario"] == scenario
    assert result.items() >= EXACT.get(scenario, {}).items()
    assert (result["lost"], result["duplicates"], result["early"]) == (0, 0, 0)
    assert result["runs_per_second"] > 0
    if scenario not in WITHOUT_BASELINE:
        assert result["baseline_per_second"] > 0
        assert result["ratio"] > 0
    assert result["latency_ms"].keys() == result["skew_ms"].keys() == PERCENTILES
    assert result["config"]["cores"] >= 1
    with psycopg.connect(scratch_url) as connection:
        assert connection.execute(SCHEMAS).fetchall() == [], "a given database is left empty"


def test_bench_without_a_database_creates_and_reports_a_temporary_one(tmp_path):
    done = bench("drain", "--runs", "1000", "--json", "--folder", str(tmp_path))

    config = json.loads(done.stdout)["config"]
    assert (config["database"], config["fsync"], config["runs"]) == ("temporary", True, 1000)
    assert "temporary PostgreSQL" in done.stderr
    assert "fsync on" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_person_gets_a_table(scratch_url):
    done = bench("submit", "--runs", "200", "--singles", "5", "--database-url", scratch_url)

    assert done.returncode == 0, done.stderr
    assert "runs_per_second" in done.stdout
    assert "one_by_one" in done.stdout


def test_somebodys_jobs_are_not_thrown_away(scratch_url):
    with psycopg.connect(scratch_url, autocommit=True) as connection:
        connection.execute("create schema duly")
        connection.execute("create table duly.jobs (name text)")

        done = bench("submit", *SMALL["submit"], "--database-url", scratch_url, "--json")

        assert done.returncode != 0
        assert done.stdout == ""
        assert "give an empty scratch database" in done.stderr
        assert connection.execute("select count(*) from duly.jobs").fetchone() == (0,)


def test_percentiles_are_values_that_were_measured():
    from duly.bench.report import percentiles

    found = percentiles(number / 1000 for number in range(1, 101))

    assert (found.p50, found.p95, found.p99, found.max) == (50.0, 95.0, 99.0, 100.0)
    assert percentiles([0.007]).p50 == percentiles([0.007]).max == 7.0
    assert percentiles([]).p50 is None


def test_bench_reports_the_cost_of_triggers_in_microseconds():
    result = result_of("triggers")

    assert result.keys() >= KEYS
    assert 0 < result["cohort_hit_us"] < result["next_us_median"] < result["compile_us_median"] < result["worst_us"]
