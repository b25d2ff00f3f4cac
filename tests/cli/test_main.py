"""The door itself: what it costs, what it says, and how it fails."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from duly import __version__
from duly.cli import main
from duly.cli.main import SECTIONS, call, cli
from duly.domain.errors import DatabaseUnusable, JobEnded, NotFound, Refused, Unsettled
from duly.settings import SettingsError
from duly.store.connection.database import Unavailable
from tests.cli.processes import duly, environment

HEAVY = ("asyncio", "asyncpg", "litestar", "msgspec", "rich", "uvicorn", "uvloop")
LIST_HEAVY = f"""
import sys
from duly.cli.main import call
code = call(sys.argv[1:])
heavy = [name for name in {HEAVY} if name in sys.modules]
print(code, heavy, file=sys.stderr)
"""


def imported_by(*arguments):
    done = subprocess.run(
        [sys.executable, "-c", LIST_HEAVY, *arguments], env=environment(), capture_output=True, text=True, timeout=20
    )
    return done.stdout, done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_version_and_help_import_nothing_heavy(flag):
    said, imported = imported_by(flag)

    assert imported == "0 []"
    assert flag != "--version" or said == f"duly {__version__}\n"


def test_a_worker_and_a_scheduler_do_not_carry_the_web():
    for role in ("worker", "scheduler"):
        _, imported = imported_by(role, "--help")
        assert "litestar" not in imported
        assert "uvicorn" not in imported
        assert "rich" not in imported


def test_help_lists_every_command_and_the_exit_codes():
    said = CliRunner().invoke(cli, ["--help"]).output

    assert all(f"  {name} " in said for section in SECTIONS.values() for name in section)
    assert "3    the database cannot be used" in said


def test_every_flag_that_the_settings_show_is_taken_by_a_command_that_heeds_it():
    flags = {name: {parameter.name for parameter in command.params} for name, command in _commands(cli)}
    heeded = set().union(*(names for name, names in flags.items() if name != "config"))

    assert sorted(flags["config"] - heeded) == []


# They serve, or write what is for another program anyway.
WITHOUT_JSON = {"up", "scheduler", "api", "worker", "init", "schema", "new-key", "completion", "psql"}


def test_every_command_accepts_json_except_the_listed_exceptions():
    leaves = [(name, command) for name, command in _commands(cli) if not isinstance(command, click.Group)]
    flags = [(name, {flag for parameter in command.params for flag in parameter.opts}) for name, command in leaves]

    assert sorted(name for name, given in flags if "--json" not in given) == sorted(WITHOUT_JSON)


def _commands(group):
    """Yield every command, at any depth, with its name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield name, command
        if isinstance(command, click.Group):
            yield from _commands(command)


@pytest.mark.parametrize("name", [name for section in SECTIONS.values() for name in section])
def test_every_command_can_be_imported_and_explains_itself(name):
    result = CliRunner().invoke(cli, [name, "--help"])

    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("no"), 1),
        (SettingsError("no"), 2),
        (click.UsageError("no"), 2),
        (DatabaseUnusable("no"), 3),
        (Unavailable("no"), 3),
        (NotFound("no"), 4),
        (JobEnded("no"), 1),
        (Unsettled("job 7"), 1),
        (click.Abort(), 1),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("no"), 70),
    ],
)
def test_each_kind_of_failure_has_its_exit_code_and_no_trace(monkeypatch, capsys, error, code):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(main.cli, "main", fail)

    assert call([]) == code
    assert "Traceback" not in capsys.readouterr().err


def test_an_unexpected_error_is_a_sentence_and_the_trace_is_there_for_the_asking(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import duly.cli.commands.system.init as i\ni._FILES = None\n")

    said = duly("init", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert said.returncode == 70
    assert said.stderr.count("\n") == 1
    assert "DULY_LOG_LEVEL=debug" in said.stderr


def test_an_unknown_setting_stops_every_command_with_its_name(tmp_path):
    said = duly("config", cwd=tmp_path, DULY_PROT="1")

    assert (said.returncode, said.stdout) == (2, "")
    assert "did you mean DULY_PORT?" in said.stderr


def test_an_unknown_setting_that_is_like_no_other_suggests_none(tmp_path):
    said = duly("config", cwd=tmp_path, DULY_XYZZY="1")

    assert said.returncode == 2
    assert "unknown setting DULY_XYZZY in the environment; `duly config` lists them all" in said.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_completion(shell):
    assert "_DULY_COMPLETE" in CliRunner().invoke(cli, ["completion", shell]).output


def test_completion_completes(tmp_path):
    said = duly(cwd=tmp_path, _DULY_COMPLETE="bash_complete", COMP_WORDS="duly wor", COMP_CWORD="1")

    assert "plain,worker" in said.stdout.splitlines()


def test_a_reader_that_leaves_is_no_error_worth_a_trace(tmp_path):
    command = f"{sys.executable} -m duly config | true"
    said = subprocess.run(
        command, shell=True, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=20
    )

    assert said.stderr == ""
