"""What a start of `duly up` gives away: to whoever reads a terminal or a log, and to other accounts of the machine."""

import os
import pty
import pwd
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.cli.processes import DULY, Up, duly, environment, running, wait_for

OWN_UID = 64_999
UP = ("up", "--port", "0", "--no-demo", "--workers", "0")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: changes to other accounts")


class Terminal:
    """A `duly up` on a terminal, and what was shown there."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self._process, self._screen = process, screen
        self.text = ""
        os.set_blocking(screen, False)
        wait_for(lambda: "ready in" in self.read())

    def read(self) -> str:
        """Read what has been shown so far."""
        with suppress(BlockingIOError, OSError):
            while data := os.read(self._screen, 65_536):
                self.text += data.decode()
        return self.text


@contextmanager
def on_a_terminal(folder: Path) -> Iterator[Terminal]:
    """Run `duly up` on a terminal until it is ready, and stop it."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*DULY, *UP], cwd=folder, env=environment(), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.terminate()
        process.wait(30)
        os.close(ours)


def key_in(folder: Path) -> str:
    """Read the key of a folder."""
    return (folder / ".duly/api-key").read_text().strip()


def typed(line: str, folder: Path) -> str:
    """Run the command of a line `try` in a shell, as somebody would who copies it."""
    command = line.partition("curl")[2]
    script = f'curl() {{ printf "%s\\n" "$@"; }}; curl {command}'
    return subprocess.run(["sh", "-c", script], cwd=folder, capture_output=True, text=True, check=True).stdout


class TestKey:
    """The key of the operator."""

    def test_a_log_never_gets_it(self, tmp_path: Path) -> None:
        with running(*UP, cwd=tmp_path) as process:
            up = Up(process, tmp_path)
            told = process.wait_for_line("  key ")
            line = process.wait_for_line("  try ")

        assert key_in(tmp_path) not in process.text
        assert not re.search(r"duly_\w{10}_", process.text)
        assert told == "  key         in ./.duly/api-key"
        assert typed(line, tmp_path).splitlines() == [
            "-H",
            f"Authorization: Bearer {key_in(tmp_path)}",
            f"{up.address}/v1/jobs",
        ]

    def test_a_terminal_shows_it_at_the_first_start_only(self, tmp_path: Path) -> None:
        with on_a_terminal(tmp_path) as first:
            pass
        with on_a_terminal(tmp_path) as second:
            pass

        key = key_in(tmp_path)
        assert first.text.count(key) == 1
        assert f"  key         {key}   (shown once; kept in ./.duly/api-key)" in first.text
        assert key not in second.text
        assert "  key         in ./.duly/api-key" in second.text

    def test_printed_try_command_opens_the_api(self, tmp_path: Path) -> None:
        folder = tmp_path / "it's a folder"
        folder.mkdir()
        with running(*UP, "--data", "my data", cwd=folder) as process:
            Up(process, folder)
            _, header, address = typed(process.wait_for_line("  try "), folder).splitlines()
            request = urllib.request.Request(address, headers=dict([header.split(": ")]))
            with urllib.request.urlopen(request, timeout=20) as answer:
                assert answer.status == 200


@as_root
class TestAccount:
    """Who runs the embedded PostgreSQL where we are root, and who else is the same account."""

    def test_start_names_the_account_whose_programs_may_read_the_database(self, tmp_path: Path) -> None:
        """The folder keeps other accounts out; whoever is the server's own gets in by way of its process."""
        with running(*UP, cwd=tmp_path) as process:
            Up(process, tmp_path)
            owner = pwd.getpwuid((tmp_path / ".duly/postgres").stat().st_uid)
            [server] = [
                member
                for member in process.family()
                if member.name() == "postgres"
                and member.ppid() in {one.pid for one in process.family() if one.name() != "postgres"}
            ]
            stolen = subprocess.run(
                ["cat", f"/proc/{server.pid}/cwd/PG_VERSION"], user=owner.pw_uid, group=owner.pw_gid,
                extra_groups=[], capture_output=True, text=True, check=False,
            )  # fmt: skip

        assert stolen.returncode == 0
        assert (
            f"  account     {owner.pw_name}: its other programs may read the database;"
            " for an account of its own, stop it, then useradd --system duly && chown -R duly: ./.duly/postgres"
        ) in process.lines

    @pytest.mark.skipif(shutil.which("unshare") is None, reason="needs the Debian package util-linux: unshare")
    def test_an_account_of_its_own_is_used_where_there_is_one(self, tmp_path: Path) -> None:
        """The account is added for this start alone, in a mount namespace of its own."""
        (tmp_path / "passwd").write_text(
            Path("/etc/passwd").read_text() + f"duly:x:{OWN_UID}:{OWN_UID}::/:/bin/false\n"
        )
        script = f'mount --bind {tmp_path / "passwd"} /etc/passwd && exec "$@"'
        process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", script, "sh", *DULY, *UP], cwd=tmp_path, env=environment(),
            stdout=(tmp_path / "said").open("w"), stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            wait_for(lambda: "ready in" in (tmp_path / "said").read_text())
            assert (tmp_path / ".duly/postgres").stat().st_uid == OWN_UID
            assert "  account " not in (tmp_path / "said").read_text()
        finally:
            process.terminate()
            process.wait(30)

    def test_commands_without_a_sandbox_never_share_its_account(self, tmp_path: Path) -> None:
        folder = tmp_path / ".duly" / "postgres"
        folder.mkdir(parents=True)
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)

        said = duly(
            *UP, cwd=tmp_path, DULY_COMMANDS="/bin/sh", DULY_COMMAND_SANDBOX="none", DULY_COMMAND_CGROUP="optional"
        )

        assert said.returncode == 1
        assert "commands run as nobody, which also runs the embedded PostgreSQL, and without a sandbox" in said.stderr
        assert "set command_user" in said.stderr
