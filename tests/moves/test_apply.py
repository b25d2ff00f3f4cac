"""A file of schedules: planned, applied as a whole or not at all, and applied again to no effect."""

import asyncio
from datetime import timedelta

import msgspec
import pytest

from duly.domain.errors import QuotaReached, Refused, Unsettled
from duly.domain.jobs.declaration import Declarations
from duly.domain.jobs.manifest import read_manifest
from duly.domain.jobs.manifest_export import export
from duly.domain.jobs.manifest_plan import NotTheFiles, PlanChanged, StepKind
from duly.domain.jobs.manifest_text import read_text, write_text
from duly.domain.problems import InvalidManifest
from duly.domain.runs.options import options_of
from duly.domain.runs.retry import Retry
from duly.moves.cancel import cancel_job
from duly.moves.schedules import apply as moves
from duly.moves.schedules.calendars import put_calendar
from duly.moves.schedules.declare import Became, declare
from duly.moves.schedules.edit import amend
from duly.moves.schedules.pause import pause, resume
from duly.moves.schedules.schedule import find_job_id
from duly.moves.submit import submit_recurring
from duly.store.connection.session import Sessions
from duly.store.tables import applied as store
from duly.store.tables import jobs, schedules
from tests.builders import RNG, a_key, a_schedule, a_worker, staged
from tests.clock import START  # Monday, 2026-11-02 09:00:00 UTC

TENANT = 1
NOON = {"cron": "0 12 * * *"}


def a_file(source="billing", calendars=None, **named):
    """Give a file in which every job is at noon unless it says otherwise."""
    made = {name.replace("_", "-"): {"target": "greet", "schedule": NOON, **job} for name, job in named.items()}
    return read_manifest({"source": source, "calendars": calendars, "jobs": made})


async def applied(database, file, **flags):
    return await moves.apply(database, TENANT, file, RNG, **flags)


async def planned(database, file):
    found = await moves.plan(database, TENANT, file)
    return {step.name: step for step in found.steps}


async def job(database, name):
    found = await jobs.find(database, await find_job_id(database, name))
    assert found
    return found


async def names(database):
    rows = await database.fetch("select name from duly.jobs where state in ('active', 'paused') order by name")
    return [row[0] for row in rows]


async def rows(database):
    """Everything an apply could touch, to compare before and after."""
    tables = ("jobs", "timers", "calendars", "payloads", "ready", "idempotency_keys")
    return [await database.fetch(f"select * from duly.{table} order by 1, 2, 3") for table in tables]


async def test_apply_creates_missing_jobs_as_the_file_defines_them(database):
    file = a_file(
        nightly={
            "schedule": {"cron": "30 2 * * *", "tz": "Europe/Paris", "jitter": "PT5M"},
            "queue": "mail",
            "priority": 2,
            "payload": {"customer": 7},
            "retry": {"max_attempts": 3, "base": "PT2S"},
            "timeout": "PT30S",
            "concurrency": {"key": "mail", "limit": 4},
            "tags": ["slow"],
        },
        held={"paused": True},
    )

    done = await applied(database, file)

    assert [(one.name, one.kind) for one in done.done] == [("held", "create"), ("nightly", "create")]
    made = await job(database, "nightly")
    assert (made["owner"], made["source"], made["queue"], made["priority"]) == ("file", "billing", "mail", 2)
    assert msgspec.json.decode(made["payload"]) == {"customer": 7}
    assert made["options"] == options_of(
        retry=Retry(3, 2), timeout_seconds=30, concurrency=("mail", 4), tags=("slow",), own=True
    )
    assert made["next_run_at"] == START.replace(day=3, hour=1, minute=30)
    held = await job(database, "held")
    assert (held["state"], held["pause_reason"]) == ("paused", "paused in the file 'billing'")


async def test_applying_twice_changes_nothing(database):
    file = a_file(noon={}, held={"paused": True}, often={"schedule": {"every": "PT5M"}, "payload": {"a": "x" * 2000}})
    await applied(database, file)
    before = await rows(database)

    again = await applied(database, file)

    assert (again.done, again.plan.is_empty, again.plan.unchanged) == ((), True, 3)
    assert await rows(database) == before


async def test_a_failure_in_the_last_job_leaves_nothing(database):
    await applied(database, a_file(kept={}, gone={}))
    before = await rows(database)
    await database.execute(
        "create function duly.refuse() returns trigger language plpgsql as"
        " $$ begin raise exception using errcode = 'DU005', message = 'refused by the test'; end $$;"
        " create trigger refuse before update of generation on duly.jobs for each row"
        " when (new.name = 'kept') execute function duly.refuse()"
    )
    try:
        file = a_file(calendars={"holidays": {"dates": ["2026-12-25"]}}, new={}, kept={"queue": "mail"})
        with pytest.raises(InvalidManifest, match=r"jobs\.kept: refused by the test"):
            await applied(database, file, prune=True)
    finally:
        await database.execute("drop trigger refuse on duly.jobs; drop function duly.refuse()")

    assert await rows(database) == before


async def test_apply_changes_each_field_that_differs(database):
    await applied(database, a_file(noon={"payload": {"a": 1}}))

    file = a_file(noon={"payload": {"a": 2}, "queue": "mail", "schedule": {"cron": "0 13 * * *"}, "timeout": 5})
    step = (await planned(database, file))["noon"]
    done = await applied(database, file)

    assert (step.kind, step.is_drift) == (StepKind.CHANGE, False)
    fields = {one.field: (one.before, one.after) for one in step.differences}
    assert fields["queue"] == ("default", "mail")
    assert fields["payload"] == ({"a": 1}, {"a": 2})
    assert fields["schedule.trigger"][1] == {"type": "cron", "expr": "0 13 * * *"}
    assert fields["timeout"] == (None, "PT5S")
    assert [one.kind for one in done.done] == [StepKind.CHANGE]
    changed = await job(database, "noon")
    assert (changed["generation"], changed["queue"]) == (2, "mail")
    assert changed["next_run_at"] == START.replace(hour=13)
    assert (await moves.plan(database, TENANT, file)).is_empty


async def test_apply_reports_jobs_missing_from_the_file_and_removes_them_on_prune(database):
    await applied(database, a_file(kept={}, gone={}))
    await submit_recurring(database, a_schedule(name="by-hand"), key=a_key())
    await applied(database, a_file("other", others={}))

    left = await applied(database, a_file(kept={}))
    assert (left.done, left.orphans) == ((), ("gone",))
    assert await names(database) == ["by-hand", "gone", "kept", "others"]

    pruned = await applied(database, a_file(kept={}), prune=True)
    assert [(one.name, one.kind) for one in pruned.done] == [("gone", "remove")]
    assert await names(database) == ["by-hand", "kept", "others"], "only what this file has made"
    assert (await moves.plan(database, TENANT, a_file(kept={}))).is_empty

    await applied(database, a_file(kept={}, gone={}))
    assert await names(database) == ["by-hand", "gone", "kept", "others"], "put back, it is made anew"


async def test_a_pruned_job_fires_no_more(database, clock):
    await applied(database, a_file(soon={"schedule": {"every": "PT1S"}}))
    await staged(database)
    assert await database.fetchval("select count(*) from duly.ready")

    await applied(database, a_file(), prune=True)

    await clock.advance(timedelta(seconds=30))
    await staged(database)
    assert await database.fetchval("select count(*) from duly.ready") == 0


async def test_apply_reports_outside_changes_as_drift_and_reverts_them(database):
    file = a_file(noon={}, other={})
    await applied(database, file)
    await amend(database, await find_job_id(database, "noon"), lambda one: msgspec.structs.replace(one, queue="mail"))

    step = (await planned(database, file))["noon"]
    assert (step.kind, step.is_drift) == (StepKind.CHANGE, True)
    assert "version 2, applied 1" in (step.note or "")
    assert [(one.before, one.after) for one in step.differences] == [("mail", "default")]

    await applied(database, file)
    assert (await job(database, "noon"))["queue"] == "default"
    assert (await moves.plan(database, TENANT, file)).is_empty

    await cancel_job(database, await find_job_id(database, "other"))
    step = (await planned(database, file))["other"]
    assert (step.kind, step.is_drift) == (StepKind.CREATE, True)
    await applied(database, file)
    assert await names(database) == ["noon", "other"]


async def test_plan_reports_no_drift_after_the_file_adopts_a_manual_change(database):
    await applied(database, a_file(noon={}))
    await amend(database, await find_job_id(database, "noon"), lambda one: msgspec.structs.replace(one, queue="mail"))

    await applied(database, a_file(noon={"queue": "mail"}))

    step = (await planned(database, a_file(noon={"queue": "slow"})))["noon"]
    assert (step.kind, step.is_drift) == (StepKind.CHANGE, False)


async def test_apply_changes_a_pause_only_if_the_file_sets_it(database):
    await applied(database, a_file(noon={}, held={"paused": True}))
    await pause(database, await find_job_id(database, "noon"), "it misbehaves")
    assert (await moves.plan(database, TENANT, a_file(noon={}, held={"paused": True}))).is_empty

    file = a_file(noon={"paused": False}, held={})
    assert [(step.name, step.pausing) for step in (await planned(database, file)).values()] == [("noon", "resume")]
    await applied(database, file)
    assert (await job(database, "noon"))["state"] == "active"
    assert (await job(database, "held"))["state"] == "paused"

    await resume(database, await find_job_id(database, "held"))
    await applied(database, a_file(noon={}, held={"paused": True}))
    assert (await job(database, "held"))["state"] == "paused"


async def test_apply_adopts_a_job_created_by_hand_only_on_request(database):
    made = await submit_recurring(database, a_schedule(name="noon", queue="mail"), key=a_key())
    before = await rows(database)

    with pytest.raises(NotTheFiles, match="job 'noon' was created by hand; adopt it with --adopt"):
        await applied(database, a_file(new={}, noon={}))
    assert await rows(database) == before

    done = await applied(database, a_file(new={}, noon={}), adopt=True)
    assert {one.name: one.kind for one in done.done} == {"new": "create", "noon": "adopt"}
    noon = await job(database, "noon")
    assert (noon["job_id"], noon["owner"], noon["source"], noon["queue"]) == (made.job_id, "file", "billing", "default")
    assert (await moves.plan(database, TENANT, a_file(new={}, noon={}))).is_empty


async def test_a_job_moves_from_one_file_to_another_by_adoption(database):
    await applied(database, a_file("old", noon={}))

    with pytest.raises(NotTheFiles, match="belongs to the file 'old'"):
        await applied(database, a_file("new", noon={}))
    await applied(database, a_file("new", noon={}), adopt=True)

    assert (await job(database, "noon"))["generation"] == 1, "the same definition is not a new version"
    assert (await applied(database, a_file("old"), prune=True)).done == (), "it is the old file's no more"


async def test_job_declared_in_code_is_adopted_only_after_its_program_has_ended(database, clock):
    declaration = msgspec.structs.replace(a_schedule(name="noon"), owner="code", source="app:app")
    declarations = Declarations(TENANT, "app:app", [declaration])
    await a_worker(database, declares=declarations.entries())
    await declare(database, declarations, RNG)

    with pytest.raises(NotTheFiles, match="'noon' is declared in app:app, which is running"):
        await applied(database, a_file(noon={}), adopt=True)

    await clock.advance(timedelta(seconds=60))  # The worker beats no more.
    await declare(database, Declarations(TENANT, "app:app"), RNG)
    assert (await job(database, "noon"))["removed_at"]
    await applied(database, a_file(noon={}), adopt=True)
    noon = await job(database, "noon")
    assert (noon["owner"], noon["state"], noon["removed_at"]) == ("file", "active", None)


async def test_a_program_that_declares_a_files_name_leaves_it_alone(database):
    await applied(database, a_file(noon={}))
    declaration = msgspec.structs.replace(a_schedule(name="noon"), owner="code", source="app:app")

    [answer] = await declare(database, Declarations(TENANT, "app:app", [declaration]), RNG)

    assert answer.became is Became.NAME_TAKEN
    assert (await moves.plan(database, TENANT, a_file(noon={}))).is_empty


async def test_applies_at_once_do_not_fight(database):
    files = [a_file(one={"queue": f"q{n}"}, two={}, **{f"own-{n}": {}}) for n in range(4)]

    done = await asyncio.gather(*(applied(database, file, prune=True) for file in files))

    last = (await job(database, "one"))["queue"]
    [winner] = [n for n in range(4) if last == f"q{n}"]
    assert await names(database) == ["one", f"own-{winner}", "two"], "what stands is one file, whole"
    assert sum(one.kind is StepKind.CREATE and one.name == "two" for each in done for one in each.done) == 1
    assert (await job(database, "one"))["generation"] == 4


async def test_an_edit_during_an_apply_is_noticed(database):
    """The edit comes between the look and the change; the apply looks again, and the file has the last word."""
    await applied(database, a_file(noon={}))
    job_id = await find_job_id(database, "noon")
    look, edits = store.standing, [2, 3]

    async def edited_after_the_look(inside, *arguments):
        found = await look(inside, *arguments)
        if edits:
            priority = edits.pop()
            await amend(database, job_id, lambda one: msgspec.structs.replace(one, priority=priority))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "standing", edited_after_the_look)
        await applied(database, a_file(noon={"queue": "mail"}))

    noon = await job(database, "noon")
    assert (edits, noon["queue"], noon["priority"], noon["generation"]) == ([], "mail", 5, 4)


async def test_only_the_plan_that_was_expected_is_applied(database):
    file = a_file(noon={"queue": "mail"})
    seen = await moves.plan(database, TENANT, file)
    assert (await moves.plan(database, TENANT, a_file(noon={}))).digest != seen.digest

    await applied(database, a_file(noon={}))
    with pytest.raises(PlanChanged, match="plan is out of date: make a new plan"):
        await applied(database, file, expected=seen.digest)
    assert (await job(database, "noon"))["queue"] == "default"

    await applied(database, file, expected=(await moves.plan(database, TENANT, file)).digest)
    assert (await job(database, "noon"))["queue"] == "mail"


async def test_calendars_of_the_file_are_kept_before_the_jobs_that_use_them(database):
    uses = {"schedule": {**NOON, "calendars": ["holidays"]}}
    await applied(database, a_file(calendars={"holidays": {"dates": ["2026-11-02"]}}, noon=uses))
    assert (await job(database, "noon"))["next_run_at"] == START.replace(day=3, hour=12)

    file = a_file(calendars={"holidays": {"dates": ["2026-11-02", "2026-11-03"]}}, noon=uses)
    found = await moves.plan(database, TENANT, file)
    assert [(step.name, step.kind) for step in found.calendars] == [("holidays", "change")]
    await applied(database, file)
    assert (await job(database, "noon"))["next_run_at"] == START.replace(day=4, hour=12)

    await applied(database, a_file(noon={}), prune=True)
    assert list(await schedules.calendars(database, TENANT, None)) == ["holidays"], "others may use it"


async def test_manifest_lists_all_unacceptable_jobs_at_once(database):
    text = """
source: billing
jobs:
  past: {target: greet, schedule: {at: 2026-11-01T00:00:00Z}}
  fine: {target: greet, schedule: every day at 9am}
  lost: {target: greet, schedule: {cron: 0 12 * * *, calendars: [holidays]}}
"""
    await put_calendar(database, {"name": "holiday"})
    document = read_text(text, "duly.yaml")
    file = read_manifest(document.value, document.places, "duly.yaml")

    for verb in (planned, applied):
        with pytest.raises(InvalidManifest) as refused:
            await verb(database, file)
        [past, lost] = refused.value.problems
        assert (past.path, past.line) == (("jobs", "past", "schedule", "trigger", "at"), 4)
        assert (lost.path[:3], lost.line, "did you mean holiday?" in lost.message) == (
            ("jobs", "lost", "schedule"),
            6,
            True,
        )
    assert await names(database) == []


async def test_a_one_shot_that_has_run_is_done_and_another_moment_is_another(database, clock):
    file = a_file(once={"schedule": {"at": "2026-11-02T09:00:10Z"}})
    await applied(database, file)
    await clock.advance(timedelta(seconds=30))
    await staged(database)
    assert await names(database) == []

    assert (await moves.plan(database, TENANT, file)).is_empty
    later = a_file(once={"schedule": {"at": "2026-11-02T10:00:00Z"}})
    assert (await planned(database, later))["once"].kind is StepKind.CREATE
    await applied(database, later)
    assert await names(database) == ["once"]


async def test_two_ways_to_write_the_same_are_the_same(database):
    await applied(
        database,
        a_file(
            often={"schedule": {"every": "PT5M"}},
            noon={"schedule": {"cron": "0 12 * * *", "tz": "UTC", "overlap": "skip", "misfire": {"grace": "PT60S"}}},
            dated={"schedule": {**NOON, "start": "2026-12-01T01:00:00+01:00"}},
        ),
    )
    same = a_file(
        often={"schedule": {"trigger": {"type": "interval", "every": "PT300S", "mode": "fixed_rate"}}},
        noon={"priority": 5, "payload": {}},
        dated={"schedule": {**NOON, "start": "2026-12-01T00:00:00Z"}},
    )
    assert (await planned(database, same)) == {}


async def test_the_anchor_of_a_period_matters_where_the_file_names_it(database):
    await applied(database, a_file(often={"schedule": {"every": "PT1H"}}))
    began = (await job(database, "often"))["anchor_at"]

    same = a_file(often={"schedule": {"every": "PT1H", "anchor": began.isoformat()}})
    assert await planned(database, same) == {}
    moved = a_file(often={"schedule": {"every": "PT1H", "anchor": "2026-11-02T09:30:00Z"}})
    [difference] = (await planned(database, moved))["often"].differences
    assert difference.field == "schedule.trigger"
    await applied(database, moved)
    assert (await job(database, "often"))["next_run_at"] == START.replace(minute=30)
    assert await planned(database, moved) == {}
    assert await planned(database, a_file(often={"schedule": {"every": "PT1H"}})) == {}


EVERY_KIND = {
    "cron": {"trigger": {"type": "cron", "expr": "30 2 * * 1-5", "tz": "Europe/London"}},
    "hashed": {"trigger": {"type": "cron", "expr": "H H * * *"}},
    "interval": {"trigger": {"type": "interval", "every": "PT90S"}},
    "anchored": {"trigger": {"type": "interval", "every": "PT90S", "anchor": "2026-11-05T00:00:07Z"}},
    "local-anchor": {
        "trigger": {"type": "interval", "every": "PT1H", "anchor": "2026-11-05T00:00:07", "tz": "Asia/Tokyo"}
    },
    "spread": {"trigger": {"type": "interval", "every": "PT1H"}, "jitter": {"max": "PT5M", "per": "occurrence"}},
    "delay": {"trigger": {"type": "interval", "every": "PT90S", "mode": "fixed_delay"}},
    "late-delay": {
        "trigger": {"type": "interval", "every": "PT90S", "mode": "fixed_delay", "anchor": "2026-11-05T00:00:00Z"},
        "start": "2026-11-06T00:00:00Z",
    },
    "at": {"trigger": {"type": "at", "at": "2026-12-01T09:00:00", "tz": "Europe/Paris"}},
    "iso": {"trigger": {"type": "iso8601", "text": "R/2026-01-31T09:00:00Z/P1M"}},
    "rrule": {
        "trigger": {
            "type": "rrule",
            "rrule": "FREQ=MONTHLY;BYDAY=-1FR",
            "dtstart": "2026-01-30T17:00:00",
            "tz": "America/New_York",
            "exdates": ["2026-12-25T17:00:00"],
        }
    },
    "text": {"trigger": {"type": "text", "text": "every weekday at 9:30am", "tz": "Europe/Paris"}},
    "relative": {"trigger": {"type": "text", "text": "tomorrow at 9am"}},
    "any": {
        "trigger": {"type": "any", "of": [{"type": "cron", "expr": "0 1 * * *"}, {"type": "interval", "every": "PT7H"}]}
    },
    "parts": {
        "trigger": {"type": "cron", "expr": "0 12 * * *"},
        "start": "2026-11-03T00:00:00Z",
        "end": "2027-11-03T00:00:00Z",
        "max_runs": 9,
        "jitter": {"max": "PT5M"},
        "misfire": {"policy": "fire_all", "grace": "PT5S", "window": "P2D", "rate": 2, "limit": 7},
        "overlap": {"policy": "queue", "limit": 3},
        "calendars": [{"name": "holidays", "mode": "exclude", "on_hit": "defer"}],
        "pause_on_failure": 4,
    },
}


async def exported(database, source="billing", *, by_hand=False):
    """Write what stands as YAML, and read it again."""
    found = await store.exported(database, TENANT, source, 100, by_hand=by_hand)
    text = write_text(export(source, found, await schedules.calendars(database, TENANT, None)))
    document = read_text(text, "duly.yaml")
    return read_manifest(document.value, document.places, "duly.yaml")


async def test_plan_of_an_exported_file_shows_no_difference(database, clock):
    calendars = {"holidays": {"tz": "Europe/Paris", "dates": ["2026-12-25"], "weekly": []}}
    kinds = {name: {"schedule": schedule} for name, schedule in EVERY_KIND.items()}
    options = {
        "retried": {"retry": {"max_attempts": 3, "base": 1.234567, "cap": "PT2H"}},
        "default-retry": {"retry": {}},
        "tagged": {"tags": ["slow", "night"]},
        "all-tagged": {"tags": ["slow"], "retry": {}},
        "timed": {"timeout": 0.25, "concurrency": {"key": "a: b", "limit": 2}},
        "paid": {
            "payload": {"yes": "no", "n": [1, 2.5, None, True], "long": "x" * 2000, "at": "2026-01-01", "e": "1e3"}
        },
        "held": {"paused": True, "queue": "null", "priority": 0},
    }
    file = a_file(calendars=calendars, **kinds, **options)
    await applied(database, file)
    await clock.advance(timedelta(days=2))  # What is relative stays what it became.

    again = await exported(database)

    assert sorted(again.jobs) == sorted(file.jobs)
    assert {name: step.differences for name, step in (await planned(database, again)).items()} == {}
    assert (await moves.plan(database, TENANT, again)).is_empty
    assert (await applied(database, again)).done == ()


async def test_jobs_created_by_hand_are_exported_and_adopted_unchanged(database):
    await put_calendar(database, {"name": "holidays", "dates": ["2026-12-25"]})
    for name, schedule in EVERY_KIND.items():
        wanted = a_file(**{name: {"schedule": schedule}}).jobs[name].job
        await submit_recurring(database, msgspec.structs.replace(wanted, owner="api", source=None), key=a_key())

    file = await exported(database, "mine", by_hand=True)
    steps = await planned(database, file)

    assert {(step.kind, step.differences) for step in steps.values()} == {(StepKind.ADOPT, ())}
    await applied(database, file, adopt=True)
    assert (await moves.plan(database, TENANT, file)).is_empty
    assert (await moves.plan(database, TENANT, await exported(database, "mine"))).is_empty


async def test_another_tenants_jobs_are_not_seen(database):
    await moves.apply(database, 2, a_file(noon={"queue": "theirs"}), RNG)

    assert (await planned(database, a_file(noon={})))["noon"].kind is StepKind.CREATE
    await applied(database, a_file(), prune=True)
    assert await names(database) == ["noon"]


async def test_refusal_by_the_store_names_the_job(database):
    file = a_file(noon={"schedule": {**NOON, "overlap": "queue"}, "concurrency": {"key": "k"}})
    for step in (applied, planned):
        with pytest.raises(Refused, match=r"jobs\.noon: overlap queue beside a concurrency key"):
            await step(database, file)
    assert await names(database) == []


async def test_a_tenants_session_applies_for_that_tenant_alone(database):
    """The same move on a transaction that is open already, as the role that sees one tenant."""
    [theirs] = await database.fetch(
        "insert into duly.tenants (name, created_at) values ('theirs', now()) returning tenant"
    )
    await applied(database, a_file(noon={"queue": "ours"}))
    file = a_file(calendars={"holidays": {"dates": ["2026-12-25"]}}, noon={"queue": "theirs"}, gone={"paused": True})

    async with Sessions(database) as sessions:
        async with sessions.open(theirs[0]) as session:
            found = await moves.plan(session, theirs[0], file)
            assert {step.kind for step in found.steps} == {StepKind.CREATE}
            await moves.apply(session, theirs[0], file, RNG, expected=found.digest)
        changed = a_file(noon={"queue": "mail", "paused": True})
        async with sessions.open(theirs[0]) as session:
            done = await moves.apply(session, theirs[0], changed, RNG, prune=True)
            assert [(one.name, one.kind) for one in done.done] == [("noon", "change"), ("gone", "remove")]
            with pytest.raises(NotTheFiles):
                await moves.apply(session, theirs[0], a_file("other", new={}, noon={}), RNG)
            assert (await moves.plan(session, theirs[0], changed)).is_empty, "what was refused is undone alone"
        with pytest.raises(Unsettled):  # For the session there is no such tenant.
            async with sessions.open(theirs[0]) as session:
                await moves.apply(session, TENANT, a_file(noon={"queue": "mine"}), RNG)

    rows = await database.fetch("select tenant = 1, queue, state from duly.jobs where name = 'noon' order by 1")
    assert [tuple(row) for row in rows] == [(False, "mail", "paused"), (True, "ours", "active")]


async def test_a_quota_holds_for_a_file_and_undoes_all_of_it(database):
    await database.execute("update duly.tenants set schedules_max = 2 where tenant = 1")
    try:
        async with Sessions(database) as sessions:
            with pytest.raises(QuotaReached):
                async with sessions.open(TENANT) as session:
                    await moves.apply(session, TENANT, a_file(one={}, two={}, three={}), RNG)
            async with sessions.open(TENANT) as session:
                await moves.apply(session, TENANT, a_file(one={}, two={}), RNG)
    finally:
        await database.execute("update duly.tenants set schedules_max = null where tenant = 1")
    assert await names(database) == ["one", "two"]
