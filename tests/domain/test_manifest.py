"""Files of schedules, and every error in them."""

import json
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from duly.domain.jobs.manifest import read_manifest
from duly.domain.jobs.manifest_diff import Kept
from duly.domain.jobs.manifest_export import export
from duly.domain.jobs.manifest_schedule import KEYS
from duly.domain.jobs.manifest_schema import json_schema
from duly.domain.jobs.manifest_shapes import CALENDARS_MAX, JOBS_MAX, ScheduleEntry
from duly.domain.jobs.manifest_text import read_text
from duly.domain.problems import InvalidManifest, Problem
from duly.domain.runs.options import NO_OPTIONS, RunPolicy, options_of
from duly.domain.runs.retry import Retry

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = DOCS / "duly.schema.json"


def read(text):
    document = read_text(text, "duly.yaml")
    return read_manifest(document.value, document.places, "duly.yaml")


def one(job, head=""):
    """Read a file with one job, given as YAML in one line."""
    return read(f"source: s\n{head}\njobs:\n  j: {{target: greet, schedule: daily, {job}}}").jobs["j"]


def schedule(written, head=""):
    return read(f"source: s\n{head}\njobs:\n  j: {{target: greet, schedule: {written}}}").jobs["j"].job.schedule


def problems(text):
    with pytest.raises(InvalidManifest) as error:
        read(text)
    return [problem.described("f") for problem in error.value.problems]


def test_a_job_is_owned_by_its_file_and_known_by_its_name():
    wanted = one("payload: {a: 1}, priority: 0, queue: mail, paused: true")

    assert (wanted.job.name, wanted.job.owner, wanted.job.source) == ("j", "file", "s")
    assert (wanted.job.handler, wanted.job.queue, wanted.job.priority) == ("greet", "mail", 0)
    assert (wanted.job.payload, wanted.job.options, wanted.is_paused) == ('{"a":1}', NO_OPTIONS, True)
    assert one("paused: null").is_paused is None


def test_manifest_defaults_apply_to_every_job():
    head = "defaults: {queue: mail, priority: 2, retry: {max_attempts: 3}, timeout: PT5S, tz: Europe/Paris}"

    job = one("priority: 9", head).job
    assert (job.queue, job.priority) == ("mail", 9)
    assert job.options == options_of(retry=Retry(3), timeout_seconds=5)
    assert job.schedule["trigger"] == {"type": "text", "text": "daily", "tz": "Europe/Paris"}
    own = one("retry: {base: 2, cap: PT1M}, timeout: null", head).job.options
    assert own == options_of(retry=Retry(5, 2, 60))
    assert schedule("{cron: 0 1 * * *, tz: UTC}", head)["trigger"]["tz"] == "UTC"
    assert schedule("{every: PT5M}", head)["trigger"] == {"type": "interval", "every": "PT5M"}
    assert "tz" not in schedule("{cron: CRON_TZ=Asia/Tokyo 0 1 * * *}", head)["trigger"]
    members = schedule(
        "{trigger: {type: any, of: [{type: cron, expr: 0 1 * * *}, {type: interval, every: PT7H}]}}", head
    )
    assert [member.get("tz") for member in members["trigger"]["of"]] == ["Europe/Paris", None]


def test_tags_alone_leave_the_rest_to_the_handler():
    own = options_of(retry=Retry(2), timeout_seconds=9)

    tagged = one("tags: [a, b, a]").job.options
    assert tagged == options_of(tags=("a", "b"))
    assert tagged.policy.or_handlers(own.policy) == RunPolicy(Retry(2), 9, own=True)
    assert one("tags: [a], retry: {}").job.options == options_of(tags=("a",), own=True)
    assert one("", "defaults: {tags: [all]}").job.options.metadata.tags == ("all",)
    assert one("tags: []", "defaults: {tags: [all]}").job.options == NO_OPTIONS


@pytest.mark.parametrize(
    ("written", "trigger"),
    [
        ("every day at 9am", {"type": "text", "text": "every day at 9am"}),
        ("{every: PT15M, tz: Europe/Paris}", {"type": "interval", "every": "PT15M", "tz": "Europe/Paris"}),
        ("{delay: PT1H}", {"type": "at", "delay": "PT1H"}),
        ("{when: daily, tz: Asia/Tokyo}", {"type": "text", "text": "daily", "tz": "Asia/Tokyo"}),
        ("{cron: 0 1 * * *}", {"type": "cron", "expr": "0 1 * * *"}),
        ("{every: PT5M, mode: fixed_delay}", {"type": "interval", "every": "PT5M", "mode": "fixed_delay"}),
        (
            "{every: PT5M, anchor: 2026-01-01T00:00:00Z}",
            {"type": "interval", "every": "PT5M", "anchor": "2026-01-01T00:00:00Z"},
        ),
        ("{at: 2026-12-01T09:00:00Z}", {"type": "at", "at": "2026-12-01T09:00:00Z"}),
        ("{trigger: {type: cron, expr: 0 1 * * *}}", {"type": "cron", "expr": "0 1 * * *"}),
    ],
)
def test_manifest_schedule_accepts_short_forms(written, trigger):
    assert schedule(written) == {"trigger": trigger}


def test_manifest_schedule_parts_accept_short_forms():
    written = "{cron: 0 1 * * *, jitter: PT5M, misfire: skip, overlap: allow, calendars: [a, {name: b}], end: null}"
    assert schedule(written) == {
        "trigger": {"type": "cron", "expr": "0 1 * * *"},
        "jitter": {"max": "PT5M"},
        "misfire": {"policy": "skip"},
        "overlap": {"policy": "allow"},
        "calendars": [{"name": "a"}, {"name": "b"}],
    }


def test_manifest_reports_all_errors_in_order():
    assert problems(
        """\
sources: s
defaults: {prio: 3}
calendars:
  hols: {dates: [2026-02-30], name: x}
  days: {dates: [2026-02-30]}
  bad: 7
jobs:
  a:
    target: {handlr: x}
    schedule: {cron: 61 * * * *, tz: UTC}
    retry: {max_attempts: "3"}
  b: {target: x, schedule: {every: PT5M, cron: 0 1 * * *}}
  c: {target: x, schedule: {cron: 0 1 * * *, mode: x}, priority: 11}
  d: {target: x, schedule: {}, timeout: -1, payload: {a: "\\0"}}
  e: 7
  f: {target: x, schedule: {trigger: {type: cron, expr: "* *"}, tz: UTC}}
  g: {target: x, schedule: 7, concurrency: {key: k, limit: 0}}
  h: {target: x, schedule: {trigger: {type: any, of: [{type: at, at: 7}, {type: crn}]}, misfire: twice}}
  i: {target: x, schedule: daily, retry: {base: PT9S, cap: PT1S}, <<: {a: b}}
"""
    ) == [
        "f:1:1: sources: 'sources' is not a key here; did you mean source?",
        "f:1:1: source is missing; give it",
        "f:2:12: defaults.prio: 'prio' is not a key here; did you mean priority?",
        "f:4:31: calendars.hols.name: a calendar's name is the key above it; remove this line",
        "f:5:18: calendars.days.dates[0]: dates[0] '2026-02-30': there is no such day; check month and day",
        "f:6:3: calendars.bad: 7 is not a mapping with keys such as dates",
        "f:9:5: jobs.a.target: handler is missing; give it",
        "f:9:14: jobs.a.target.handlr: 'handlr' is not a key here; did you mean handler?",
        "f:10:16: jobs.a.schedule.cron: minute 61 is outside 0–59",
        "f:11:13: jobs.a.retry.max_attempts: '3' is invalid: expected `int`, got `str`",
        "f:12:42: jobs.b.schedule.cron: every and cron are both triggers; keep one",
        "f:13:46: jobs.c.schedule.mode: mode is for every, not for cron; remove it",
        "f:13:56: jobs.c.priority: 11 is invalid: expected `int` <= 9",
        "f:14:18: jobs.d.schedule: the schedule has no trigger; give every, cron, when, at, delay or trigger",
        "f:14:32: jobs.d.timeout: timeout -1.0 must be more than 0; leave it out for none",
        "f:14:45: jobs.d.payload: the payload of x contains a NUL character, which PostgreSQL cannot store; remove it",
        "f:15:3: jobs.e: 7 is not a mapping with keys such as target",
        "f:16:65: jobs.f.schedule.tz: tz goes into the trigger",
        "f:17:18: jobs.g.schedule: 7 is not a schedule; write {cron: …}, {every: …} or words",
        "f:17:53: jobs.g.concurrency.limit: 0 is invalid: expected `int` >= 1",
        "f:18:66: jobs.h.schedule.trigger.of[0].at: at 7 is not text; write 2026-11-01T09:00:00Z",
        "f:18:75: jobs.h.schedule.trigger.of[1].type: type 'crn' is not a trigger type; did you mean cron?",
        "f:18:89: jobs.h.schedule.misfire.policy: misfire.policy 'twice' is unknown; use fire_once, fire_all, skip",
        "f:19:35: jobs.i.retry: retry base 'PT9S' and cap 'PT1S': base must be 0 or more, and cap at least base",
        "f:19:67: jobs.i.<<: merge keys are not supported; put shared values under defaults",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f:1:1: None is not a mapping with keys such as source"),
        ("[a]", "f:1:1: ['a'] is not a mapping with keys such as source"),
        ("source: s\njobs: [a]", "f:2:1: jobs: ['a'] is not a mapping of names"),
        ("source: ''", "f:1:1: source: the value is empty; write at least one character"),
        (
            "source: s\njobs: {a: {target: {handler: h}, schedule: {every: PT1H}, retry: {policy: often}}}",
            (
                "f:2:67: jobs.a.retry.policy: 'often' is invalid: invalid enum value 'often';"
                " give one of exponential, fixed, linear, list"
            ),
        ),
        ('source: "a\\nb"', "f:1:1: source: source 'a\\nb' is not a name: 1 to 200 printable characters"),
    ],
)
def test_invalid_manifest_is_refused(text, message):
    if not text:
        with pytest.raises(InvalidManifest, match="None is not a mapping"):
            read(text)
    else:
        assert problems(text) == [message]


def test_an_empty_file_asks_for_nothing():
    assert read("source: s\njobs:\n").jobs == {}
    assert read("source: s").jobs == {}


@pytest.mark.parametrize(("key", "most"), [("jobs", JOBS_MAX), ("calendars", CALENDARS_MAX)])
def test_a_file_holds_so_many_and_no_more(key, most):
    entry = {"target": "x", "schedule": {"every": "PT5M"}} if key == "jobs" else {"dates": []}

    def a_file(count):
        return {"source": "s", key: {f"n{number}": entry for number in range(count)}}

    assert len(getattr(read_manifest(a_file(most)), key)) == most
    with pytest.raises(InvalidManifest, match=f"there are {most + 1}; the limit is {most} per file"):
        read_manifest(a_file(most + 1))


def test_without_a_text_there_are_paths_and_pointers():
    with pytest.raises(InvalidManifest) as error:
        read_manifest({"source": "s", "jobs": {"a/b~c": {"target": "x", "schedule": {"cron": "61 * * * *"}}}})
    [problem] = error.value.problems
    assert problem == Problem(("jobs", "a/b~c", "schedule", "cron"), "minute 61 is outside 0–59")
    assert problem.pointer == "/jobs/a~1b~0c/schedule/cron"


def test_manifest_error_truncates_a_long_list_of_problems():
    error = InvalidManifest([Problem(("jobs", str(number)), "wrong") for number in range(60)])
    assert (len(error.problems), str(error).splitlines()[-1]) == (60, "and 10 more")


def test_the_schema_in_the_docs_is_the_one_of_the_code():
    """Write it anew with `duly schema > docs/duly.schema.json`."""
    assert json.loads(SCHEMA.read_text()) == json_schema()


def test_the_schema_knows_the_keys_that_the_reader_knows():
    assert {field.name for field in msgspec.structs.fields(ScheduleEntry)} == set(KEYS)
    assert json_schema()["$defs"]["JobEntry"]["additionalProperties"] is False


def test_the_file_in_the_docs_is_one():
    text = (
        (DOCS / "how-to" / "schedules-as-code.md")
        .read_text()
        .partition('```yaml title="duly.yaml"\n')[2]
        .partition("```")[0]
    )
    assert sorted(read(text).jobs) == ["nightly-report", "ring", "sweep", "sync"]


RETRY = (
    "retry: {policy: list, max_attempts: 3, delays: [PT1S, PT1H], jitter: none, max_age: PT12H,"
    ' rules: [{error: "*Timeout", action: snooze, delay: PT5M}, {status: 4xx, action: dead}]}, expires_after: PT30M'
)


def test_a_policy_and_an_expiry_are_read_and_exported_as_they_were_written():
    wanted = one(RETRY).job
    options = wanted.options

    assert (options.policy.retry.delays, options.policy.retry.jitter) == ((1.0, 3600.0), 0.0)
    assert options.policy.expires_seconds == 1800.0
    standing = (UUID(int=1), "j", "file", "s", "active", None, 1, 1)
    shape = json.dumps({"trigger": {"type": "cron", "expr": "0 0 * * *"}})
    kept = Kept(*standing, "greet", wanted.payload, "default", 5, wanted.options, shape, None, None)
    written = export("s", [kept], {})["jobs"]["j"]
    assert written["retry"] == {
        "policy": "list",
        "max_attempts": 3,
        "jitter": "none",
        "delays": ["PT1S", "PT1H"],
        "max_age": "PT12H",
        "rules": [
            {"error": "*Timeout", "action": "snooze", "delay": "PT5M"},
            {"status": "4xx", "action": "dead"},
        ],
    }
    again = read_manifest({"source": "s", "jobs": {"j": written}}, {}, "duly.yaml").jobs["j"].job
    assert again.options == options


def test_invalid_retry_rule_in_a_manifest_names_its_path():
    [problem] = problems("source: s\njobs:\n  j: {target: greet, schedule: daily, retry: {rules: [{action: dead}]}}")

    assert "jobs.j.retry: " in problem
    assert "exactly one of error, status and exit" in problem
