"""Programs that mean harm: what they reach, what they use up, and what they leave behind."""

import asyncio
import os
import shutil
import socket
import time
from pathlib import Path

import msgspec
import pytest

from duly.domain.errors import Refused
from duly.domain.runs.outcome import Failed, Succeeded, TimedOut
from duly.domain.targets.target import Command
from duly.worker.targets.command import Commands, check_sandbox
from duly.worker.targets.output import KEPT_BYTES_MAX, LINE_BYTES_MAX, LINE_COST_BYTES
from duly.worker.targets.sandbox import account_of, find_sandbox
from tests.worker.stories import until
from tests.worker.targets.scene import (
    CEILING,
    Attempt,
    a_folder_for_all,
    a_mark,
    attempt,
    commands,
    marked,
    needs_bubblewrap,
    python,
    sh,
    with_and_without_sandbox,
)

pytestmark = needs_bubblewrap
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: changes to other accounts")

MEBIBYTE = 1_048_576
BOMB = """
import os, sys
os.write(1, b'started\\n')
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


class TestReach:
    """What a command gets at."""

    async def test_sandboxed_program_sees_nothing_of_the_server(self, tmp_path, monkeypatch):
        key, data = tmp_path / "tls.key", tmp_path / ".duly"
        data.mkdir()
        for file in (key, data / "key"):
            file.write_text("the server's secret")
            file.chmod(0o644)
        monkeypatch.chdir(tmp_path)
        wanted = [
            key,
            data / "key",
            tmp_path,
            Path("/root"),
            Path("/home"),
            Path("/etc/shadow"),
            Path("/var"),
            Path("/sys"),
        ]

        ended, lines = await attempt(
            commands(hidden=(data, key, tmp_path)),
            sh('for path; do cat "$path" || ls "$path"; done', *map(str, wanted)),
        )

        assert isinstance(ended, Failed)
        assert lines.of("stdout") == []
        assert len(lines.of("stderr")) == 2 * len(wanted)

    async def test_hidden_paths_stay_hidden_within_paths_that_the_operator_shows(self):
        with a_folder_for_all() as folder:
            data, key = folder / "data", folder / "server.key"
            data.mkdir()
            for file in (data / "secret", key, folder / "tool"):
                file.write_text("content")
            script = 'cat "$1/tool"; ls -A "$1/data"; cat "$1/data/secret"; cat "$1/server.key"'

            ended, lines = await attempt(
                commands(hidden=(data, key), paths=(folder,)), sh(script, str(folder), ok=(0, 1))
            )

        assert ended == Succeeded('"content"')
        assert lines.of("stdout") == ["content"]

    async def test_hidden_paths_stay_hidden_within_the_visible_part_of_etc(self):
        hidden = [Path("/etc/passwd"), Path("/etc/ssl/certs"), Path("/etc/localtime")]  # The last is a link elsewhere.
        assert all(path.exists() for path in hidden)
        script = 'cat "$1" "$3"; ls -A "$2"; test -s /etc/group && echo seen'

        _, lines = await attempt(commands(hidden=hidden), sh(script, *map(str, hidden)))

        assert lines.of("stdout") == ["seen"]

    @with_and_without_sandbox
    async def test_command_reads_the_environment_of_no_other_process(self, required, monkeypatch):
        monkeypatch.setenv("SECRET_OF_THE_SERVER", secret := f"hunter{a_mark()}")
        holder = await asyncio.create_subprocess_exec("/bin/sleep", "60")  # It has what the server was started with.
        if not required and os.geteuid() != 0:
            pytest.skip("needs root: without a sandbox only another user is kept out")

        ended, lines = await attempt(
            commands(required=required), sh("cat /proc/*/environ /proc/$PPID/environ | tr '\\0' '\\n'; true")
        )

        assert isinstance(ended, Succeeded)
        assert secret not in "\n".join(lines.of("stdout"))
        assert secret in Path(f"/proc/{holder.pid}/environ").read_text()
        holder.kill()
        await holder.wait()

    async def test_sandboxed_program_sees_only_its_own_processes(self):
        ended, _ = await attempt(commands(), sh("echo /proc/[0-9]*"))

        assert isinstance(ended, Succeeded)
        assert len((ended.result or "").split()) <= 3

    @with_and_without_sandbox
    async def test_sandboxed_program_inherits_only_its_three_streams(self, required):
        reading, writing = os.pipe()
        os.set_inheritable(writing, True)
        try:
            ended, _ = await attempt(
                commands(required=required), python("import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))")
            )
        finally:
            os.close(reading)
            os.close(writing)

        assert ended == Succeeded("[0,1,2,3]")  # The last is that of the listing itself.

    @with_and_without_sandbox
    async def test_command_can_reopen_its_own_streams(self, required):
        ended, lines = await attempt(
            commands(required=required), sh("echo out >/proc/self/fd/1; echo err >/proc/self/fd/2; cat /proc/self/fd/0")
        )

        assert ended == Succeeded("{}")
        assert (lines.of("stdout"), lines.of("stderr")) == (["out", "{}"], ["err"])

    @as_root
    @with_and_without_sandbox
    async def test_sandboxed_program_is_never_root_and_cannot_become_root(self, required):
        ended, lines = await attempt(
            commands(required=required), sh("id -u; id -G; grep -E 'CapEff|CapPrm' /proc/self/status")
        )

        nobody = account_of(None)
        assert isinstance(ended, Succeeded)
        assert nobody is not None
        assert lines.of("stdout")[:2] == [str(nobody.uid), str(nobody.gid)]
        assert all(line.endswith("\t0000000000000000") for line in lines.of("stdout")[2:])

    async def test_command_gains_no_privileges_and_creates_no_namespaces(self):
        ended, lines = await attempt(
            commands(), sh("grep -E 'NoNewPrivs|CapBnd' /proc/self/status; unshare -U true || echo refused")
        )

        assert isinstance(ended, Succeeded)
        assert lines.of("stdout") == ["CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "refused"]

    async def test_sandboxed_program_writes_only_to_its_own_scratch_space(self):
        slots = ["/", "/usr", "/etc", "/dev", "/usr/bin/sh", "/proc/sys/kernel/hostname"]
        script = 'for place; do (echo x >"$place/x" || echo x >"$place") 2>/dev/null && echo "$place"; done'

        ended, _ = await attempt(
            commands(), sh(f"{script}; echo x >/tmp/x && echo x >/dev/shm/x && echo only here", *slots)
        )

        assert ended == Succeeded('"only here"')

    async def test_a_link_in_its_scratch_leads_nowhere(self):
        """Whatever name it guesses or races for in /tmp is its own, so no link there is followed by anybody else."""
        name = f"duly-{a_mark()}"
        target = Path("/tmp") / name
        target.write_text("ours")
        try:
            script = (
                'test -e "/tmp/$1" && echo seen; ln -s /etc/passwd "/tmp/$1";'
                ' ln -s / /tmp/out; ls /tmp/out/root; echo theirs >"/tmp/other-$1"'
            )
            ended, lines = await attempt(commands(), sh(script, name))
            both = [Attempt(commands(), sh("mkdir /tmp/lock && echo mine; sleep 0.3", name)) for _ in range(2)]
            outcomes = [await one.outcome() for one in both]
        finally:
            content = target.read_text()
            target.unlink()

        assert isinstance(ended, Succeeded)
        assert lines.of("stdout") == []
        assert content == "ours"
        assert not Path(f"/tmp/other-{name}").exists()
        assert outcomes == [Succeeded('"mine"')] * 2

    async def test_sandboxed_program_has_no_network_unless_worker_and_job_allow_it(self):
        script = "import socket, sys\nsocket.create_connection(('127.0.0.1', int(sys.argv[1])), 2).sendall(b'hello')"
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])
            refused, _ = await attempt(commands(network=True), python(script, port))
            allowed, _ = await attempt(commands(network=True), python(script, port, network=True))
            server.settimeout(1)
            connection, _ = server.accept()
            with connection:
                assert connection.recv(5) == b"hello"

        assert isinstance(refused, Failed)
        assert "refused" in refused.reason or "unreachable" in refused.reason
        assert allowed == Succeeded(None)

    async def test_a_program_elsewhere_is_shown_alone(self):
        with a_folder_for_all() as folder:
            tool = folder / "tool"
            tool.write_text('#!/bin/sh\nls -A "$(dirname "$0")"\n')
            tool.chmod(0o755)
            (folder / "beside").write_text("not shown")

            ended, _ = await attempt(commands(allowed=(str(tool),)), Command((str(tool),)))

        assert ended == Succeeded('"tool"')


class TestUse:
    """What a command uses up."""

    async def test_a_fork_bomb_is_held_to_its_processes_and_ended(self):
        mark = a_mark()
        one = Attempt(commands(), python(BOMB, mark, processes=20), timeout=1.5)
        await until(lambda: one.lines.of("stdout"))

        counts = []
        while not one.task.done():
            counts.append(len(marked(mark)))
            await asyncio.sleep(0.05)

        assert await one.outcome() == TimedOut(1.5)
        assert 20 <= max(counts) <= 23  # The launcher and the sandbox carry the mark as well.
        assert marked(mark) == []

    @as_root
    async def test_without_a_sandbox_a_fork_bomb_is_ended_too(self):
        mark = a_mark()
        one = Attempt(commands(required=False), python(BOMB, mark, processes=60), timeout=1.0)

        began = time.monotonic()
        assert await one.outcome() == TimedOut(1.0)
        assert time.monotonic() - began < 15
        assert marked(mark) == []

    async def test_two_bombs_do_not_use_up_the_processes_of_a_third(self):
        mark = a_mark()
        bombs = [Attempt(commands(), python(BOMB, mark, processes=30), timeout=2.0) for _ in range(2)]
        for bomb in bombs:
            await until(lambda bomb=bomb: bomb.lines.of("stdout"))

        ended, _ = await attempt(
            commands(), sh("for i in 1 2 3 4 5; do sleep 0.1 & done; wait; echo well", processes=10)
        )

        assert ended == Succeeded('"well"')
        for bomb in bombs:
            await bomb.outcome()

    @pytest.mark.parametrize(
        "script",
        [
            "(sleep $1 &)",
            "((sleep $1 &) &)",
            "setsid sleep $1 &",
            "(setsid setsid sleep $1 &)",
            "nohup sleep $1 >/dev/null 2>&1 &",
            "trap '' TERM HUP INT; (setsid sh -c 'sleep $0; sleep $0' $1 &)",
        ],
    )
    @with_and_without_sandbox
    async def test_detached_process_ends_with_its_command(self, required, script):
        mark = a_mark()

        ended, _ = await attempt(commands(required=required), sh(f"{script}\nsleep 0.1; echo done", mark))

        assert ended == Succeeded('"done"')
        assert marked(mark) == []

    async def test_a_gibibyte_of_output_is_read_counted_and_not_kept(self):
        Path("/proc/self/clear_refs").write_text("5")  # The peak is counted from here.
        before = _memory("VmRSS")

        ended, lines = await attempt(commands(), sh("head -c 1073741824 /dev/zero; echo; echo 7"))

        assert ended == Succeeded("7")
        assert _memory("VmHWM") - before < 50 * MEBIBYTE
        kept = sum(len(line) + LINE_COST_BYTES for line in lines.of("stdout"))
        assert KEPT_BYTES_MAX - LINE_BYTES_MAX - LINE_COST_BYTES <= kept <= KEPT_BYTES_MAX
        level, words, _ = lines.lines[-1]
        assert level == "warning"
        assert words.startswith("the output is longer than is kept: of 1073741827 bytes, ")

    async def test_memory_beyond_the_limit_is_not_given(self):
        ended, _ = await attempt(commands(), python("bytearray(300 * 2**20)", memory_bytes=128 * MEBIBYTE))
        within, _ = await attempt(commands(), python("bytearray(30 * 2**20)", memory_bytes=128 * MEBIBYTE))

        assert isinstance(ended, Failed)
        assert ended.reason == "exit status 1: MemoryError"
        assert within == Succeeded(None)

    @with_and_without_sandbox
    async def test_a_loop_without_end_uses_its_cpu_seconds_and_no_more(self, required):
        ended, _ = await attempt(commands(required=required), sh("while :; do :; done", cpu_seconds=1), timeout=30)

        assert isinstance(ended, Failed)
        assert ended.reason == "killed by SIGXCPU"
        assert ended.retryable

    async def test_files_end_at_their_limit_however_many_they_are(self):
        one, _ = await attempt(commands(), sh("head -c 10000000 /dev/zero >/tmp/a", file_bytes=MEBIBYTE))
        many, _ = await attempt(
            commands(),
            sh("for i in 1 2 3 4 5; do head -c 500000 /dev/zero >/tmp/$i || exit 9; done", file_bytes=MEBIBYTE),
        )

        assert isinstance(one, Failed)
        assert isinstance(many, Failed)
        assert many.reason.startswith("exit status 9")
        assert "No space left" in many.reason


class TestSetUp:
    """What a worker finds when it starts."""

    async def test_a_sandbox_that_works_passes(self):
        await check_sandbox(find_sandbox(required=True, user=None, paths=(), hidden=()), CEILING)

    async def test_sandbox_that_cannot_be_set_up_is_refused_with_its_own_message(self):
        broken = msgspec.structs.replace(
            find_sandbox(required=True, user=None, paths=(), hidden=()), paths=(Path("/nowhere/at/all"),)
        )

        with pytest.raises(Refused, match="Can't find source path /nowhere/at/all"):
            await check_sandbox(broken, CEILING)
        ended, _ = await attempt(
            Commands(broken, {"/bin/sh": ()}, CEILING, network=False, grace_seconds=0.5), sh("exit 0")
        )
        assert isinstance(ended, Failed)
        assert ended.retryable
        assert "could not be set up" in ended.reason

    def test_without_bubblewrap_commands_are_refused_unless_the_operator_does_without(self, monkeypatch):
        found = shutil.which
        monkeypatch.setattr(shutil, "which", lambda name: None if name == "bwrap" else found(name))

        with pytest.raises(Refused, match="install the package bubblewrap"):
            find_sandbox(required=True, user=None, paths=(), hidden=())
        assert find_sandbox(required=False, user=None, paths=(), hidden=()).bubblewrap is None

    @as_root
    @pytest.mark.parametrize(
        ("user", "words"), [("root", "never run as root"), ("0", "never run as root"), ("no-such-user", "no such user")]
    )
    def test_a_user_that_commands_must_not_be_is_refused(self, user, words):
        with pytest.raises(Refused, match=words):
            account_of(user)

    @pytest.mark.parametrize("path", ["/", "/nowhere/at/all", "/bin/../usr"])
    def test_command_path_that_exposes_more_than_it_names_is_refused(self, path):
        with pytest.raises(Refused, match="command_paths"):
            find_sandbox(required=True, user=None, paths=(Path(path),), hidden=())


def _memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(name)
