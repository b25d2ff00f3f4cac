"""What others write cannot command the terminal of whoever looks: every command shows it as what it is."""

import json
import re
from pathlib import Path

import pytest

from duly.cli.render import say
from duly.cli.render.output import print_json, print_table

# Names the window, colours, empties the screen, overwrites the line, colours by the second set, turns the line round.
HOSTILE = "\x1b]0;pwned\x07\x1b[31mred\x1b[2J\rover\x9b31m\u202egnp.exe\x7f"
SHOWN = "\\x1b]0;pwned\\x07\\x1b[31mred\\x1b[2J\\x0dover\\x9b31m\\u202egnp.exe\\x7f"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def all_of(said):
    return said.stdout + said.stderr


@pytest.fixture(scope="module")
def victims(up):
    """Runs, schedules and a workflow that hold what somebody hostile has written, by name."""
    greeted = up.duly("run", "greet", f"name={HOSTILE}", "--wait", "--output", "json")
    failed = up.duly("run", "fail", f"reason={HOSTILE}", "--wait")
    dead = up.duly("run", "fail", f"reason={HOSTILE}", "--wait", "--output", "json")
    job = up.duly("submit", "greet", f"name={HOSTILE}", "--every", "PT1H", "--name", "hostile", "-q").stdout.strip()
    file = up.folder / "hostile.json"
    node = {"target": "fail", "payload": {"reason": HOSTILE}, "retry": {"max_attempts": 1}}
    file.write_text(json.dumps({"name": "hostile", "nodes": {"broken": node}}))
    workflow = up.duly("workflows", "submit", str(file), "--wait", "--json").stdout
    said = {"greeted": greeted, "failed": failed}
    yield {
        "run": json.loads(greeted.stdout)["run_id"],
        "dead": json.loads(dead.stdout)["run_id"],
        "job": job,
        "workflow": json.loads(workflow)["workflow_id"],
        "said": said,
    }
    up.duly("jobs", "cancel", "hostile")


@pytest.mark.parametrize("what", ["greeted", "failed"])
def test_output_of_an_awaited_run_is_escaped_in_the_terminal(victims, what):
    said = victims["said"][what]

    assert not OBEYED.search(all_of(said))
    assert SHOWN in said.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("runs",),
        ("runs", "show", "{dead}"),
        ("runs", "show", "{run}"),
        ("logs", "{run}"),
        ("dead",),
        ("dead", "show", "{dead}"),
        ("explain", "{dead}"),
        ("jobs", "show", "hostile"),
        ("workflows", "show", "{workflow}"),
    ],
    ids=" ".join,
)
def test_stored_text_is_escaped_in_the_terminal(up, victims, command):
    said = up.duly(*(word.format(**victims) for word in command))

    assert said.returncode == 0, said.stderr
    assert not OBEYED.search(all_of(said))
    # Folded in a table, and in JSON as JSON writes it.
    assert re.search(r"\\(x|u00)1b\]0;pwned", all_of(said).replace("\n", "")), "it is there, and seen"


@pytest.mark.parametrize(
    "command",
    [
        ("jobs",),
        ("jobs", "pause", "hostile", "--reason", HOSTILE),
        ("pause", "--queue", "hostile", "--reason", HOSTILE),
        ("queues",),
        ("audit",),
        ("workflows",),
        ("workers",),
        ("explain", "{job}"),
        ("runs", "--filter", f"reason:{HOSTILE}"),
        ("submit", HOSTILE),
        ("jobs", "show", HOSTILE),
        ("next", HOSTILE),
        ("runs", "show", "{dead}", "--json"),
        ("runs", "--json"),
        ("logs", "{run}", "--json"),
    ],
    ids=lambda command: " ".join(command[:2]).encode("ascii", "ignore").decode()[:20],
)
def test_nothing_is_obeyed_in_answers_refusals_and_json(up, victims, command):
    said = up.duly(*(word.format(**victims) if word.startswith("{") else word for word in command))

    assert not OBEYED.search(all_of(said))


def test_a_cell_of_a_table_is_one_line(capsys):
    print_table([["a\nb\tc"]], ["id"])

    assert "a\\nb\\tc" in capsys.readouterr().out


def test_json_means_the_same(capsys):
    print_json({"text": HOSTILE})

    shown = capsys.readouterr().out
    assert not OBEYED.search(shown)
    assert json.loads(shown) == {"text": HOSTILE}


def test_half_a_character_is_shown(capsys):
    say.say("\ud800")

    assert capsys.readouterr().out == "\\ud800\n"


def test_nothing_is_shown_by_another_way():
    """A terminal is written to by `say` alone; the two besides write what is ours."""
    folder = Path(say.__file__).parent
    ours = {"say.py", "completion.py", "doctor.py"}
    others = [file.name for file in folder.glob("*.py") if "click.echo(" in file.read_text() and file.name not in ours]
    assert others == []
