"""Rules of notifications in files: applied with the jobs or not at all, audited, restored after drift, and removed on prune."""

import pytest

from duly.domain.jobs.manifest import read_manifest
from duly.domain.jobs.manifest_export import export
from duly.domain.jobs.manifest_plan import NotTheFiles, PlanChanged, StepKind
from duly.domain.notifications.rule import RuleSpec
from duly.domain.problems import InvalidManifest
from duly.moves.admin import notifications
from duly.moves.schedules import apply as moves
from duly.store.connection.session import Sessions
from duly.store.tables import applied as files
from duly.store.tables import notifications as store
from tests.builders import RNG, a_dead_run
from tests.moves.test_audit import ROOT
from tests.moves.test_notifications import a_channel, noticed, watched

TENANT = 1
RULE = {"events": ["dead"], "channels": ["ops"]}


def a_file(source="billing", jobs=(), **rules):
    made = {name: {"target": "greet", "schedule": {"cron": "0 12 * * *"}} for name in jobs}
    return read_manifest(
        {"source": source, "jobs": made, "notification_rules": {name: {**RULE, **rule} for name, rule in rules.items()}}
    )


async def applied(database, file, **flags):
    return await moves.apply(database, TENANT, file, RNG, **flags)


async def planned(database, file):
    found = await moves.plan(database, TENANT, file)
    return {step.name: step for step in found.rules}


async def rules(database, tenant=TENANT):
    return {one.name: (one.source, one.spec.mode, one.is_drifted) for one in await store.rules(database, tenant)}


async def test_rules_are_stored_with_the_jobs_and_a_second_apply_changes_nothing(database):
    await a_channel(database)
    file = a_file(jobs=["nightly"], all={"mode": "digest", "late_after": "PT300S"})
    assert (await planned(database, file))["all"].kind is StepKind.CREATE

    done = await applied(database, file)

    assert (done.rules, [one.name for one in done.done]) == (("all",), ["nightly"])
    assert await rules(database) == {"all": ("billing", "digest", False)}
    again = await moves.plan(database, TENANT, file)
    assert (again.is_empty, again.unchanged) == (True, 2)


async def test_rule_of_a_file_notices_as_any_other(database):
    await a_channel(database)
    await applied(database, a_file(all={}))
    await a_dead_run(database)

    await watched(database)

    assert [event for event, _ in await noticed(database)] == ["dead"]


async def test_file_is_applied_with_its_rules_or_not_at_all(database):
    await a_channel(database)
    await database.execute(
        "insert into duly.notification_rules (tenant, name, definition, selects, events, mode, channels, created_at, updated_at,"
        " late_to, absent_to) select 1, 'r' || number, '{}', '{}', '{dead}', 'every', '{ops}', now, now, now, now"
        " from generate_series(1, 100) as number, duly.clock_now() as now"
    )

    with pytest.raises(InvalidManifest, match=r"notification_rules\.all: this tenant has 100 rules"):
        await applied(database, a_file(jobs=["nightly"], all={}))

    assert await database.fetchval("select count(*) from duly.jobs") == 0


async def test_plan_names_channels_that_do_not_exist(database):
    with pytest.raises(InvalidManifest, match=r"notification_rules\.all\.channels\[0\]: no channel is named 'ops'"):
        await planned(database, a_file(all={}))


async def test_rule_changed_by_hand_is_drift_until_the_file_is_applied_again(database):
    await a_channel(database)
    file = a_file(all={})
    await applied(database, file)
    await notifications.put_rule(database, TENANT, "all", RuleSpec(events=["dead"], channels=["ops"], mode="digest"))

    step = (await planned(database, file))["all"]
    [summary] = await files.files(database, TENANT, "", 10)
    assert (step.kind, step.is_drift, [one.field for one in step.differences]) == (StepKind.CHANGE, True, ["mode"])
    assert (summary.rules, summary.drifted_rules) == (1, 1)
    assert (await rules(database))["all"] == ("billing", "digest", True)

    await applied(database, file)
    assert (await rules(database))["all"] == ("billing", "every", False)


async def test_rule_that_is_as_the_file_says_by_hand_is_no_drift_after_the_next_apply(database):
    await a_channel(database)
    await applied(database, a_file(all={}))
    await notifications.put_rule(database, TENANT, "all", RuleSpec(events=["dead"], channels=["ops"], mode="digest"))

    await applied(database, a_file(all={"mode": "digest"}))

    assert (await rules(database))["all"] == ("billing", "digest", False)


async def test_rule_deleted_by_hand_is_made_again(database):
    await a_channel(database)
    file = a_file(all={})
    await applied(database, file)
    await notifications.drop_rule(database, TENANT, "all")

    await applied(database, file)

    assert await rules(database) == {"all": ("billing", "every", False)}


async def test_rule_that_the_file_no_longer_has_is_kept_until_prune(database):
    await a_channel(database)
    await applied(database, a_file(all={}, night={}))

    kept = await applied(database, a_file(all={}))
    assert (kept.orphan_rules, kept.rules, set(await rules(database))) == (("night",), (), {"all", "night"})

    pruned = await applied(database, a_file(all={}), prune=True)
    assert (pruned.orphan_rules, pruned.rules, set(await rules(database))) == ((), ("night",), {"all"})


@pytest.mark.parametrize("other", [None, "shop"])
async def test_rule_of_another_is_adopted_only_on_request(database, other):
    await a_channel(database)
    if other is None:
        await notifications.put_rule(database, TENANT, "all", RuleSpec(events=["late"], channels=["ops"]))
    else:
        await applied(database, a_file(other, all={"events": ["late"]}))

    with pytest.raises(NotTheFiles, match="rule 'all'"):
        await applied(database, a_file(all={}))
    assert (await rules(database))["all"][0] == other

    await applied(database, a_file(all={}), adopt=True)
    assert (await rules(database))["all"][0] == "billing"


async def test_only_the_plan_that_was_expected_is_applied(database):
    await a_channel(database)
    digest = (await moves.plan(database, TENANT, a_file(all={}))).digest

    with pytest.raises(PlanChanged):
        await applied(database, a_file(all={"mode": "digest"}), expected=digest)

    assert await rules(database) == {}
    await applied(database, a_file(all={}), expected=digest)


async def test_plan_of_an_exported_file_shows_no_difference(database):
    await a_channel(database)
    await applied(database, a_file(all={"quiet": {"start": "22:00", "end": "07:00", "tz": "Europe/Berlin"}}, night={}))
    await notifications.put_rule(database, TENANT, "mine", RuleSpec(events=["late"], channels=["ops"]))

    written = export("billing", [], {}, await store.exported(database, TENANT, "billing", by_hand=False))
    all_of_them = export("billing", [], {}, await store.exported(database, TENANT, "billing", by_hand=True))

    assert (await moves.plan(database, TENANT, read_manifest(written))).is_empty
    assert set(all_of_them["notification_rules"]) == {"all", "mine", "night"}
    assert await files.sources(database, TENANT) == {"billing": 2}


async def test_apply_is_audited_as_one(database):
    await a_channel(database)

    await applied(database.acting_as(ROOT), a_file(all={}, night={}))

    entries = await database.fetch("select action, detail->>'rules' as rules from duly.audit")
    assert [tuple(entry) for entry in entries] == [("file.applied", "2")]


async def test_tenants_session_applies_rules_for_that_tenant_alone(database):
    await database.execute("insert into duly.tenants (tenant, name, created_at) values (2, 'other', duly.clock_now())")
    await a_channel(database)
    await applied(database, a_file(all={}))

    async with Sessions(database, size_max=1) as sessions, sessions.open(2) as session:
        with pytest.raises(InvalidManifest, match="no channel is named"):
            await moves.apply(session, 2, a_file(all={"mode": "digest"}), RNG)
        assert await store.ruled(session, 1, "billing", ["all"]) == {}
        await store.drop_rule(session, 2, "all")

    assert await rules(database) == {"all": ("billing", "every", False)}
