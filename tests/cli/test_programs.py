"""Programs of a worker besides its app: refused where they cannot work, described where they can, hidden from commands."""

from pathlib import Path

import pytest

from duly.cli.up import programs
from duly.domain.errors import Refused
from duly.settings import load
from duly.worker.targets import cgroup
from tests.cli.processes import inside
from tests.worker.targets.scene import needs_bubblewrap

SHELL = "/bin/sh"
ROOT = Path(__file__).parents[2]


def settings(folder, **given: str):
    """Read settings as a worker in a folder would."""
    return load({}, {f"DULY_{name.upper()}": value for name, value in given.items()}, folder)


@needs_bubblewrap
def test_worker_offers_only_the_allowed_commands(tmp_path):
    allowed = settings(tmp_path, commands=f"{SHELL},/usr/bin/env", command_cgroup="optional")

    handlers, parts = programs.of(allowed, "worker")

    assert [handler.name for handler in handlers] == ["@command:/bin/sh", "@command:/usr/bin/env"]
    assert parts == []
    assert programs.of(settings(tmp_path), "worker") == ([], [])


@needs_bubblewrap
def test_up_starts_nothing_when_an_allowed_command_cannot_run(tmp_path):
    said = inside("up", cwd=tmp_path, DULY_COMMANDS="/usr/bin/no-such-program")

    assert said.returncode == 1
    assert "/usr/bin/no-such-program is not a program that can be run here" in said.stderr
    assert not (tmp_path / ".duly").exists()


def test_a_variable_that_no_job_may_set_cannot_be_allowed(tmp_path):
    with pytest.raises(Refused, match=r"commands: /bin/sh: variable 'LD_PRELOAD' may not be set by a job"):
        programs.of(settings(tmp_path, commands=f"{SHELL}=LANG LD_PRELOAD"), "worker")


def test_an_engine_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(Refused, match="container_command = no-such-engine: there is no such program"):
        programs.of(settings(tmp_path, containers="image:1", container_command="no-such-engine"), "worker")


def test_startup_reports_allowed_commands_and_warns_about_a_missing_sandbox(tmp_path):
    [plain, limits] = programs.words(settings(tmp_path, commands=SHELL))
    [bare, _] = programs.words(settings(tmp_path, commands=SHELL, command_sandbox="none"))
    [connected, _] = programs.words(settings(tmp_path, commands=SHELL, command_network="true"))

    assert plain == "commands: /bin/sh, in a sandbox, without network"
    assert "WITHOUT A SANDBOX" in bare
    assert connected == "commands: /bin/sh, in a sandbox, with network where a job asks for it"
    assert limits == f"limits of commands: {programs.limits_in_words(cgroup.look())}"
    assert list(programs.words(settings(tmp_path))) == []


def test_startup_reports_the_extent_of_command_limits():
    nothing = programs.limits_in_words(cgroup.Ground(missing="there is none; mount it"))
    some = programs.limits_in_words(cgroup.Ground(Path("/sys"), missing="it has no controller memory"))
    everything = programs.limits_in_words(cgroup.Ground(Path("/sys"), frozenset({"memory", "pids"})))

    page, _, heading = programs.LIMITS_PAGE.partition("#")
    assert nothing == f"memory and CPU time of each process alone; see {programs.LIMITS_PAGE}"
    assert some == f"CPU time of all its processes together, memory of each alone; see {programs.LIMITS_PAGE}"
    assert everything == "memory and CPU time of all its processes together"
    assert f"## {heading.replace('-', ' ').capitalize()}" in (ROOT / page).read_text().splitlines()


def test_no_command_sees_where_the_worker_is_its_settings_its_data_or_its_keys(tmp_path, monkeypatch):
    (tmp_path / "duly.toml").write_text('tls_key = "server.key"')
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")

    hidden = set(programs._hidden(settings(tmp_path / "inner")))

    assert hidden == {tmp_path / "inner", tmp_path / "duly.toml", tmp_path / ".duly", tmp_path / "server.key"}
