"""The systemd units: systemd reads them without a complaint, and rates how little a process may do."""

import os
import shutil
import stat
import subprocess

import pytest

from tests.deploy.deployed import UNITS

NAMES = sorted(path.name for path in UNITS.glob("*.service"))
# From 0, confined, to 10. A plain unit without options has 9.6.
EXPOSURE_MAX, EXPOSURE_OF_COMMANDS_MAX = 2.0, 3.5

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs the Debian package systemd")


@pytest.fixture
def installed(tmp_path):
    """The units in a root of their own, with a program where they start one."""
    units, program = tmp_path / "etc/systemd/system", tmp_path / "opt/duly/bin/duly"
    units.mkdir(parents=True)
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    # What they refer to besides.
    for target in ("sysinit.target", "basic.target", "shutdown.target", "network-online.target", "multi-user.target"):
        (units / target).write_text("[Unit]\nDescription=of systemd\nDefaultDependencies=no\n")
    for name in NAMES:
        shutil.copy(UNITS / name, units)
    return tmp_path


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze."""
    return subprocess.run(
        ["systemd-analyze", *arguments], capture_output=True, text=True, env=os.environ | {"SYSTEMD_COLORS": "0"}
    )


@needs_systemd
@pytest.mark.parametrize("name", NAMES)
def test_systemd_reads_a_unit_without_a_complaint(installed, name):
    instance = name.replace("@.", "@mail.")
    done = analyze("verify", f"--root={installed}", "--man=no", "--recursive-errors=no", instance)

    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "duly" in line] == []


@needs_systemd
def test_systemd_reads_the_drop_in_of_commands_without_a_complaint(installed):
    drop_in = installed / "etc/systemd/system/duly-worker@.service.d/commands.conf"
    drop_in.parent.mkdir()
    # DelegateSubgroup came with 254; an older systemd says that it does not know it, and goes on.
    text = (UNITS / "duly-worker-commands.conf").read_text()
    drop_in.write_text(text.replace("DelegateSubgroup=duly-worker\n", ""))

    done = analyze("verify", f"--root={installed}", "--man=no", "duly-worker@mail.service")
    rated = analyze(
        "security", "--offline=true", f"--root={installed}", f"--threshold={EXPOSURE_OF_COMMANDS_MAX * 10:g}",
        "duly-worker@mail.service",
    )  # fmt: skip

    assert "DelegateSubgroup=duly-worker" in text
    assert [line for line in done.stderr.splitlines() if "duly" in line] == []
    assert rated.returncode == 0, rated.stdout


@needs_systemd
@pytest.mark.parametrize("name", NAMES)
def test_systemd_rates_a_unit_as_confined(installed, name):
    done = analyze(
        "security",
        "--offline=true",
        f"--root={installed}",
        f"--threshold={EXPOSURE_MAX * 10:g}",
        name.replace("@.", "@mail."),
    )

    assert done.returncode == 0, done.stdout


@needs_systemd
def test_the_rating_notices_an_option_that_is_gone(installed):
    unit = installed / "etc/systemd/system/duly-api.service"
    unit.write_text(unit.read_text().replace("ProtectSystem=strict\n", "").replace("PrivateUsers=yes\n", ""))
    unit.write_text(
        unit.read_text().replace("SystemCallFilter=@system-service\n", "").replace("CapabilityBoundingSet=\n", "")
    )

    done = analyze("security", "--offline=true", f"--root={installed}", f"--threshold={EXPOSURE_MAX * 10:g}", unit.name)

    assert done.returncode != 0


@pytest.mark.parametrize("name", NAMES)
def test_secrets_reach_a_unit_as_credentials(name):
    text = (UNITS / name).read_text()

    assert "LoadCredential=database_url:/etc/duly/database_url\n" in text
    assert "DULY_DATABASE_URL_FILE=%d/database_url" in text
    assert "DULY_DATABASE_URL=" not in text
    assert "\nUser=duly\n" in text
