"""Calendars from the command line."""

import json

import pytest

from tests.cli.processes import inside

HOLIDAYS = {
    "name": "holidays",
    "tz": "Europe/Paris",
    "dates": ["2026-11-03"],
    "windows": [{"start": "2026-12-31T18:00:00Z", "end": "2027-01-01T06:00:00Z"}],
    "weekly": [{"days": "SAT,SUN", "from": "00:00", "to": "24:00"}],
}


@pytest.fixture
def duly(database_url, tmp_path):
    """Run one command on a database that holds nothing, on Monday, 2026-11-02 at 09:00 UTC."""
    return lambda *arguments: inside(*arguments, "--database-url", database_url, cwd=tmp_path)


@pytest.fixture
def write(tmp_path):
    """Write a calendar to a file."""

    def to_file(calendar):
        (tmp_path / "calendar.json").write_text(calendar if isinstance(calendar, str) else json.dumps(calendar))
        return "calendar.json"

    return to_file


def test_a_calendar_is_put_listed_shown_and_deleted(duly, write):
    assert duly("calendars", "put", write(HOLIDAYS)).stdout == "calendar holidays is kept; 0 schedules armed by it\n"
    assert duly("calendars").stdout.splitlines()[1].split() == ["holidays", "Europe/Paris", "1", "1", "1"]
    assert json.loads(duly("calendars", "--json").stdout) == [HOLIDAYS]
    assert duly("calendars", "show", "holidays").stdout.splitlines() == [
        "calendar holidays, Europe/Paris",
        "dates   2026-11-03",
        "window  2026-12-31T18:00:00Z to 2027-01-01T06:00:00Z",
        "weekly  SAT,SUN 00:00 to 24:00",
        "no job uses it",
    ]
    assert duly("calendars", "delete", "holidays").stdout == "calendar holidays is deleted\n"
    assert "no calendars" in duly("calendars").stdout
    duly("calendars", "put", write(HOLIDAYS))
    deleted = json.loads(duly("calendars", "delete", "holidays", "--json").stdout)
    assert deleted == {"name": "holidays", "deleted": True}


def test_the_jobs_that_use_it_are_armed_anew(duly, write):
    duly("calendars", "put", write({"name": "holidays"}))
    said = duly("submit", "report", "--cron", "0 12 * * *", "--calendar", "holidays:exclude:defer", "--name", "noon")
    assert "next  2026-11-02 12:00:00 UTC" in said.stdout

    put = duly("calendars", "put", write({"name": "holidays", "dates": ["2026-11-02"]}))

    assert put.stdout.splitlines() == [
        "calendar holidays is kept; 1 schedule armed by it",
        "next  2026-11-03 00:00:00Z  noon",
    ]
    assert json.loads(duly("calendars", "show", "holidays", "--json").stdout)["jobs"][0]["name"] == "noon"
    assert "excludes holidays (defer)" in duly("jobs", "show", "noon").stdout
    refused = duly("calendars", "delete", "holidays")
    assert (refused.returncode, "used by noon" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    ("calendar", "code", "words"),
    [
        ("{", 2, "is not JSON"),
        ("7", 1, "is not an object"),
        ({"dates": []}, 1, "name is missing"),
        ({"name": "x", "dats": []}, 1, "did you mean dates?"),
        ({"name": "x", "dates": ["2026-02-30"]}, 1, "dates[0]"),
        ({"name": "x", "weekly": [{"days": "MONDAY", "from": "00:00", "to": "24:00"}]}, 1, "use MON"),
        ({"name": "x", "windows": [{"start": "2026-11-02T00:00:00Z", "end": "2026-11-01T00:00:00Z"}]}, 1, "swap them"),
    ],
)
def test_invalid_calendar_is_refused_with_a_remedy(duly, write, calendar, code, words):
    said = duly("calendars", "put", write(calendar))

    assert (said.returncode, said.stdout) == (code, ""), said
    assert words in said.stderr


def test_resource_that_does_not_exist_is_not_found(duly):
    assert duly("calendars", "put", "nowhere.json").returncode == 2
    assert duly("calendars", "show", "x").returncode == 4
    assert duly("calendars", "delete", "x").returncode == 4
