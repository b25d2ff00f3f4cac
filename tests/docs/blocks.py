"""The code blocks of the README and of docs/, and how each kind is run.

A page is run in a scratch folder of its own, beside a real `duly up`, its blocks in order. `text`, `http` and `mermaid` are for
reading. A comment on the line before a fence says otherwise: `<!-- not run: REASON -->`, or `<!-- keeps running -->` for a
command that does not end by itself. A comment that begins with `setup` holds shell lines that readers need not see.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from duly.domain.jobs.manifest import read_manifest, read_workflow
from duly.domain.jobs.manifest_text import read_text
from duly.postgres.embedded import attach
from tests.cli.processes import Process, environment, wait_for

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if "decisions" not in p.parts)]
FOR_READING = ("text", "http", "mermaid")
PORTS = ("7300", "9000")  # as pages write them; a page that runs gets free ones
BLOCK_SECONDS = 60.0
_BLOCK = re.compile(
    r"^<!-- setup\n(?P<setup>.*?)^-->"
    r"|^(?:<!-- (?P<marker>[^\n]*?) -->\n)?"
    r"^(?P<fence>`{3,})(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n(?P<text>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)
# What "…" stands for, durations and times of day: of these the output may have any.
_VARYING = re.compile(r"\s*…\s*|<?\d+(?:\.\d+)? m?s\b|\d\d:\d\d:\d\d(?:\.\d+)?")
_REQUEST = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (/\S+)")


@dataclass(frozen=True)
class Block:
    """One fenced block, or the hidden lines of a setup."""

    page: Path
    line: int
    language: str
    title: str
    marker: str
    text: str

    @property
    def where(self) -> str:
        """The place that an editor jumps to."""
        return f"{os.path.relpath(self.page, ROOT)}:{self.line}"

    @property
    def reason(self) -> str:
        """Why it is not run; "" if it is."""
        return self.marker.removeprefix("not run:").strip() if self.marker.startswith("not run:") else ""

    @property
    def is_run(self) -> bool:
        """Whether a test does something with it."""
        return not self.reason and self.language not in FOR_READING


def blocks(page: Path) -> list[Block]:
    """Read the blocks of a page, in order."""
    text = page.read_text()
    return [_block(page, text, found) for found in _BLOCK.finditer(text)]


def _block(page: Path, text: str, found: re.Match[str]) -> Block:
    line = text.count("\n", 0, found.start()) + 1
    if found["setup"] is not None:
        return Block(page, line, "sh", "", "", found["setup"])
    return Block(page, line, found["language"], found["title"] or "", found["marker"] or "", found["text"])


class Page:
    """A scratch folder with a `duly up` in it, a shell and a Python that remember what earlier blocks did."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = dict(zip(PORTS, map(str, _free_ports(len(PORTS))), strict=True))
        self._started: list[Process | subprocess.Popen[str]] = []
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = environment(PATH=path, PYTHONPATH=str(folder), COLUMNS="150", TZ="UTC")
        self._kinds: dict[str, Callable[[Block], None]] = {
            "sh": self._shell, "console": self._console, "python": self._python, "sql": self._sql,
            "yaml": self._yaml, "json": self._json, "toml": lambda block: void(tomllib.loads(block.text)),
        }  # fmt: skip

    def __enter__(self) -> Page:
        up = Process("up", "--no-demo", "--port", self._ports["7300"], cwd=self._folder)
        self._started.append(up)
        up.wait_for_line("ready in")
        self._environment["DULY_API_KEY"] = (self._folder / ".duly" / "api-key").read_text().strip()
        self._environment["DATABASE_URL"] = str(attach(self._folder / ".duly"))
        (self._folder / ".state").write_text("")
        more = {"DULY_URL": f"http://127.0.0.1:{self._ports['7300']}", "DULY_DATA": str(self._folder / ".duly")}
        self._interpreter = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("interpreter.py"))],
            cwd=self._folder, env=self._environment | more, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        assert self._interpreter.stdin
        self._interpreter.stdin.close()
        self._interpreter.wait(BLOCK_SECONDS)
        for process in reversed(self._started):
            if isinstance(process, Process):
                process.close()
            else:
                _end(process)

    def run(self, block: Block) -> None:
        """Do with a block what its language says. Raises AssertionError, and what cannot be read."""
        if block.title and not _REQUEST.fullmatch(block.title):
            self._write(block)
        if block.language in ("yaml", "json", "toml") or not block.title:
            self._kinds[block.language](block)

    def _write(self, block: Block) -> None:
        path = self._folder / block.title
        path.parent.mkdir(parents=True, exist_ok=True)
        is_first = not path.exists()
        path.write_text(self._here(block.text))
        if block.title == "app.py" and is_first:
            worker = Process("worker", "app:app", "--reload", cwd=self._folder)
            self._started.append(worker)
            wait_for(lambda: worker.lines)

    def _shell(self, block: Block) -> None:
        if block.marker == "keeps running":
            self._start(block.text, [])
            return
        code, output = self._bash(block.text)
        assert code == 0, f"{block.where} ended with {code}:\n{output}"

    def _console(self, block: Block) -> None:
        for command, shown in _commands(block.text):
            if block.marker == "keeps running":
                output = self._start(command, shown)
                code = 0
            else:
                code, output = self._bash(command)
            absent = missing_line(shown, output)
            assert not absent, f"{block.where}: `{command}` did not print {absent!r}, but:\n{output}"
            assert code == 0 or shown, f"{block.where}: `{command}` ended with {code}:\n{output}"

    def _bash(self, text: str) -> tuple[int, str]:
        """Run lines in a shell that begins where the last one ended."""
        script = f"set -eu -o pipefail; . {self._folder}/.state\n{self._here(text)}\n"
        keep = f"(declare -fp; export -p; printf 'cd %q\\n' \"$PWD\") > {self._folder}/.state"
        done = subprocess.run(
            ["bash", "-c", script + keep], cwd=self._folder, env=self._environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=BLOCK_SECONDS,
        )  # fmt: skip
        return done.returncode, self._there(done.stdout)

    def _start(self, text: str, shown: list[str]) -> str:
        """Run lines in a shell until the page ends; give their output once it has what is shown, or after a while."""
        process = subprocess.Popen(
            ["bash", "-c", f"set -eu; . {self._folder}/.state\n{self._here(text)}"],
            cwd=self._folder, env=self._environment | {"PYTHONUNBUFFERED": "1"}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self._started.append(process)
        lines: list[str] = []
        threading.Thread(target=lambda: lines.extend(process.stdout or ()), daemon=True).start()
        deadline = time.monotonic() + BLOCK_SECONDS
        while missing_line(shown, self._there("".join(lines))) and time.monotonic() < deadline:
            time.sleep(0.05)
        return self._there("".join(lines))

    def _python(self, block: Block) -> None:
        assert self._interpreter.stdin
        assert self._interpreter.stdout
        print(json.dumps([self._here(block.text), block.where]), file=self._interpreter.stdin, flush=True)
        error = json.loads(self._interpreter.stdout.readline())
        assert not error, f"{block.where}:\n{error}"

    def _sql(self, block: Block) -> None:
        file = self._folder / ".block.sql"
        file.write_text(block.text)
        code, output = self._bash(f"cd {self._folder}; duly psql -v ON_ERROR_STOP=1 -f {file}")
        assert code == 0, f"{block.where}:\n{output}"

    def _yaml(self, block: Block) -> None:
        document = read_text(block.text, block.where).value
        if isinstance(document, dict) and "nodes" in document:
            read_workflow(document)
        elif isinstance(document, dict) and {"jobs", "duly"} & document.keys():
            read_manifest(document)
        if block.title == "duly.yaml":
            code, output = self._bash(f"duly plan -f {block.title}")
            assert code == 0, f"{block.where}:\n{output}"

    def _json(self, block: Block) -> None:
        json.loads(block.text)
        if asked := _REQUEST.fullmatch(block.title):
            method, path = asked.groups()
            headers = {
                "Authorization": f"Bearer {self._environment['DULY_API_KEY']}",
                "Content-Type": "application/json",
            }
            url = f"http://127.0.0.1:{self._ports['7300']}{path}"
            body = self._here(block.text).encode()
            urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method)).close()

    def _here(self, text: str) -> str:
        return _replaced(text, self._ports)

    def _there(self, text: str) -> str:
        return _replaced(text, {ours: shown for shown, ours in self._ports.items()})


def void(_: object) -> None:
    """Reading was all."""


def missing_line(shown: list[str], output: str) -> str:
    """Give the first shown line that the output does not have behind those before it; "" if it has all of them."""
    rest: Iterator[str] = iter(output.splitlines())
    for line in shown:
        pattern = ".*".join(map(re.escape, _VARYING.split(_squeezed(line))))
        if not any(re.fullmatch(pattern, _squeezed(said)) for said in rest):
            return line
    return ""


def _commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Give each command of a console with the lines that are shown under it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command = re.match(r"(?:.*\\\n)*.*\n", part)
        assert command
        yield command[0], [line for line in part[command.end() :].splitlines() if line.strip()]


def _squeezed(line: str) -> str:
    return " ".join(line.split())


def _replaced(text: str, pairs: dict[str, str]) -> str:
    return re.sub(rf"\b({'|'.join(pairs)})\b", lambda found: pairs[found[1]], text)


def _end(process: subprocess.Popen[str]) -> None:
    """Ask a shell and all that it started to stop, and end whoever does not."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
