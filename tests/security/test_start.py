"""What a start of `duly up` gives away: to whoever reads a terminal or a log, and to other accounts of the machine."""

import os
import pty
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.cli.processes import DULY, Up, environment, running, wait_for

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

    def test_what_is_shown_to_try_opens_the_api(self, tmp_path: Path) -> None:
        folder = tmp_path / "it's a folder"
        folder.mkdir()
        with running(*UP, "--data", "my data", cwd=folder) as process:
            Up(process, folder)
            _, header, address = typed(process.wait_for_line("  try "), folder).splitlines()
            request = urllib.request.Request(address, headers=dict([header.split(": ")]))
            with urllib.request.urlopen(request, timeout=20) as answer:
                assert answer.status == 200

