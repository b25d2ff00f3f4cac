"""Lists, bulk actions and explanations on the command line."""

import asyncio
import json

import pytest

from duly.store.connection.database import Database
from tests.builders import a_dead_run, a_ready_run, a_waiting_run, a_worker
from tests.cli.processes import inside
from tests.clock import ManualClock


@pytest.fixture
def duly(database_url, tmp_path):
    """Run one command on a database that holds nothing, on Monday, 2026-11-02 at 09:00 UTC."""
    return lambda *arguments: inside(*arguments, "--database-url", database_url, cwd=tmp_path)


@pytest.fixture
def story(database_url):
    """Let something happen in the database."""

    async def on_database(part):
        clock = ManualClock()
        async with Database(database_url, clock=clock) as database:
            clock.moves(database)
            return await part(database)

    return lambda part: asyncio.run(on_database(part))


async def three_dead(database):
    worker_id = await a_worker(database)
    return [await a_dead_run(database, worker_id, tags=tags) for tags in (["new"], ["new"], [])]


def test_a_filter_chooses_and_a_wrong_one_shows_where(duly):
    duly("submit", "greet", "--every", "PT1H", "--name", "report-a", "--tag", "new", "--tag", "eu")
    duly("submit", "greet", "--every", "PT1H", "--name", "report-b")

    [job] = json.loads(duly("jobs", "--filter", "name:report* AND tag:new", "--json").stdout)
    assert (job["name"], job["tags"]) == ("report-a", ["new", "eu"])
    assert [row["name"] for row in json.loads(duly("jobs", "--tag", "eu", "--json").stdout)] == ["report-a"]
    assert "tags  new, eu" in duly("jobs", "show", "report-a").stdout

    refused = duly("jobs", "--filter", "queue:mail AND nam:x")
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        "duly: no field 'nam' here; known: state, queue, name, tag, handler, owner, created_at, next_run_at",
        "  queue:mail AND nam:x",
        "                 ^^^",
        "  try: did you mean name?",
    ]


def test_empty_list_names_the_filter_that_matched_nothing(duly):
    assert duly("runs").stdout == "no runs; make one: duly submit HANDLER\n"
    assert (
        duly("runs", "--filter", "queue:mail", "--state", "dead").stdout == 'no runs fit queue:mail AND state:"dead"\n'
    )
    assert duly("jobs", "--tag", "eu").stdout == 'no schedules fit tag:"eu"\n'
    assert duly("dead").stdout == "no dead runs\n"
    assert duly("dead", "--queue", "mail").stdout == 'no dead runs fit queue:"mail"\n'
    duly("submit", "greet", "--every", "PT1H", "--name", "report", "--at", "2030-01-01T00:00Z")
    assert duly("runs", "--job", "report").stdout == 'no runs fit job:"report"\n'


def test_a_list_longer_than_a_page_is_read_to_its_limit(duly, story):
    async def many(database):
        await database.execute(
            "insert into duly.ready (run_id, job_id, scheduled_at, due_at, generation, tenant, attempt, priority, losses,"
            " suspect, payload_stored, queue, handler) select gen_random_uuid(), gen_random_uuid(), now(), now(), 1, 1,"
            " 0, 5, 0, false, false, 'default', 'greet' from generate_series(1, 450)"
        )

    story(many)

    assert len({row["run_id"] for row in json.loads(duly("runs", "--json", "--limit", "1000").stdout)}) == 450
    assert len(json.loads(duly("runs", "--json", "--limit", "430").stdout)) == 430


def test_dead_letters_are_counted_edited_replayed_and_discarded_by_filter(duly, story):
    dead = [str(run_id) for run_id in story(three_dead)]

    dry = duly("dead", "replay", "--filter", "tag:new", "--dry-run").stdout.splitlines()
    assert dry[0] == "2 runs would be replayed; nothing was changed"
    assert sorted(line.strip() for line in dry[1:]) == sorted(dead[:2])
    assert duly("dead", "edit", dead[0], "--payload", '{"customer": 8}').stdout == f"run {dead[0]}: edited\n"
    assert 'payload {"customer": 8}' in duly("dead", "show", dead[0]).stdout
    assert duly("dead", "edit", "--filter", "tag:new", "--payload", "{}", "--yes").stdout == "2 runs edited\n"
    capped = duly("dead", "replay", "--filter", "tag:new", "--limit", "1", "--yes").stdout
    assert capped == "1 run replayed; more fit than the limit, so repeat the command for the rest\n"
    assert duly("dead", "replay", "--filter", "tag:new", "--yes").stdout == "1 run replayed\n"
    assert duly("dead", "discard", "--all", "--yes").stdout == "1 run discarded\n"
    assert duly("dead").stdout == "no dead runs\n"


def test_dead_letter_commands_report_outcomes_as_json(duly, story):
    dead = [str(run_id) for run_id in story(three_dead)]

    def reads(*arguments):
        return json.loads(duly("dead", *arguments, "--json").stdout)

    assert reads("edit", dead[2], "--payload", "{}") == [{"run_id": dead[2], "answer": "edited"}]
    dry = reads("replay", "--filter", "tag:new", "--dry-run")
    assert sorted(dry.pop("sample")) == sorted(dead[:2])
    assert dry == {"matched": 2, "moved": 0, "dry_run": True, "refused": [], "more": False}
    capped = reads("discard", "--filter", "tag:new", "--limit", "1", "--yes")
    assert (capped["matched"], capped["moved"], capped["dry_run"], capped["more"]) == (1, 1, False, True)
    assert reads("edit", "--all", "--payload", "{}", "--yes")["moved"] == 2
    assert reads("discard", dead[2], "--yes") == [{"run_id": dead[2], "answer": "discarded"}]
    refused = duly("dead", "replay", dead[2], "--json")
    assert (refused.returncode, json.loads(refused.stdout)) == (4, [{"run_id": dead[2], "answer": "not_dead"}])


@pytest.mark.parametrize("verb", [["replay"], ["edit", "--payload", "{}"], ["discard"]])
def test_dead_runs_are_changed_in_bulk_only_when_somebody_agrees(duly, story, verb):
    story(three_dead)

    refused = duly("dead", *verb, "--all")

    assert refused.returncode == 2
    assert "no terminal to confirm on; add --yes" in refused.stderr
    assert len(json.loads(duly("dead", "--json").stdout)) == 3


@pytest.mark.parametrize(
    "arguments", [[], ["--dry-run"], ["--filter", " "], ["--filter", "queue:a", "--all"], ["--queue", "mail"]]
)
def test_a_bulk_action_must_say_which(duly, arguments):
    refused = duly("dead", "replay", *arguments)

    assert refused.returncode == 2
    assert "--filter" in refused.stderr


def test_a_run_and_a_job_are_explained(duly, story):
    run_id = story(lambda database: a_ready_run(database, queue="mail"))
    duly("submit", "greet", "--every", "PT1H", "--name", "hourly")

    said = duly("explain", str(run_id)).stdout.splitlines()
    assert said[0] == f"run {run_id} is ready"
    assert said[1].startswith("  no worker serves queue mail")
    assert said[1].endswith("duly worker module:app --queue mail")
    told = json.loads(duly("explain", "hourly", "--json").stdout)
    assert (told["kind"], told["state"]) == ("job", "active")
    assert [reason["code"] for reason in told["reasons"]][:2] == ["no_scheduler", "not_due"]
    assert duly("explain", "00000000-0000-0000-0000-000000000001").returncode == 4


def test_waiting_run_is_shown_with_its_blocker(duly, story):
    async def begin(database):
        await a_worker(database, queues=["mail"], handlers=["other"])
        return await a_ready_run(database, queue="mail", handler="unknown"), await a_waiting_run(database, delay=90)

    nobody_knows, later = (str(run_id) for run_id in story(begin))

    said = duly("runs", "show", nobody_knows).stdout.splitlines()
    assert said[0] == f"run {nobody_knows} is ready"
    assert said[-1] == duly("explain", nobody_knows).stdout.splitlines()[1].strip()
    assert "handler 'unknown'" in said[-1]
    assert "duly worker module:app --queue mail" in said[-1]
    assert "no attempts yet" in duly("runs", "show", later).stdout


def test_a_waiting_run_is_explained_with_its_moment(duly, story):
    run_id = story(lambda database: a_waiting_run(database, delay=90))

    assert "due at 2026-11-02 09:01:30Z, in 90 s" in duly("explain", str(run_id)).stdout
