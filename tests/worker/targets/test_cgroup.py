"""Control groups of commands: their trees are ended and counted as a whole, and limited as a whole where the kernel can.

What is here depends on the machine: each story says what holds with the controllers and what holds without.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from duly.domain.runs.outcome import Failed, Succeeded
from duly.worker.targets import cgroup
from duly.worker.targets.cgroup import Groups, Limits
from duly.worker.targets.command import Commands
from duly.worker.targets.sandbox import find_sandbox
from tests.worker.stories import until
from tests.worker.targets.scene import (
    CEILING,
    PYTHON,
    SHELL,
    Attempt,
    a_mark,
    attempt,
    marked,
    python,
    sh,
    with_and_without_sandbox,
)

GROUND = cgroup.look()
MEBIBYTE = 1_048_576
LIMITS = Limits(512 * MEBIBYTE, 64)
NUMBERS = count(1)
needs_mounts = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and the Debian package util-linux: unshare"
)
BURN = """
import os, sys, time
children = [os.fork() for _ in range(int(sys.argv[1]))] if int(sys.argv[1]) else []
if 0 in children or not children:
    while time.process_time() < float(sys.argv[2]): pass
    os._exit(0)
for child in children: os.waitpid(child, 0)
"""
FILL = """
import os, sys, time
children = []
for _ in range(2):
    children.append(os.fork())
    if not children[-1]:
        kept = bytearray(int(sys.argv[1]) << 20)
        kept[::4096] = b"x" * len(kept[::4096])
        time.sleep(1)
        os._exit(0)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children))
"""


def grouped(*, required: bool = False) -> Commands:
    """Allow a shell and Python, each attempt in a control group of its own."""
    sandbox = find_sandbox(required=required, user=None, paths=(), hidden=())
    return Commands(
        sandbox, {SHELL: (), PYTHON: ()}, CEILING, network=False, grace_seconds=0.5, groups=Groups(cgroup.prepare())
    )


def started(runner: Commands, target, **more) -> Attempt:
    """Start an attempt under a fence that no other has."""
    return Attempt(runner, target, fence=next(NUMBERS), **more)


async def ended(runner: Commands, target, **more):
    """Run a target to its end."""
    return await started(runner, target, **more).outcome()


def group_of(pid: int) -> str:
    """Read which group of version 2 a process is in."""
    [line] = [line for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.startswith("0::")]
    return line[3:]


def ours() -> list[Path]:
    """List the groups that this process has made and that are still there."""
    assert GROUND.folder is not None
    return list(GROUND.folder.glob(f"duly.*.{os.getpid()}.*"))


def used(outcome) -> dict[str, Any]:
    """Read what an attempt used."""
    told: dict[str, Any] = json.loads(outcome.detail)["used"]
    return told


def test_cgroup_look_matches_the_controllers_of_the_kernel():
    ground = cgroup.look()

    if ground.folder is None:
        assert ground.missing
        assert not ground.controllers
        return
    there = set((ground.folder / "cgroup.controllers").read_text().split())
    assert ground.controllers == there & {"memory", "pids"}
    assert (ground.missing is None) == ({"memory", "pids"} <= there)
    assert all(name in (ground.missing or "") for name in {"memory", "pids"} - there)
    assert ours() == []


def looked(script: str) -> str:
    """Look in a mount namespace of its own, after a script has changed it."""
    look = "from duly.worker.targets import cgroup; g = cgroup.look(); print(g.folder, g.missing, sep='|')"
    source = Path(cgroup.__file__).parents[3]
    command = f'set -e; {script}; PYTHONPATH={source} exec {sys.executable} -c "{look}"'
    said = subprocess.run(
        ["unshare", "--mount", SHELL, "-c", command], capture_output=True, text=True, check=True, timeout=60
    )
    return said.stdout.strip()


def needs_groups(story: Any) -> Any:
    """Tell a story where there are groups. Where there can be none, another holds: it is said why."""

    def it_says_what_is_missing() -> None:
        assert GROUND.missing

    return story if GROUND.folder is not None else it_says_what_is_missing


@needs_groups
@needs_mounts
def test_cgroup_check_reports_that_none_are_mounted():
    assert looked("umount -a -l -t cgroup2") == (
        "None|control groups of version 2 are not mounted; mount cgroup2 at /sys/fs/cgroup"
    )


@needs_groups
@needs_mounts
def test_cgroup_check_reports_that_none_can_be_created():
    mounted = next(
        line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup2 " in line
    )

    said = looked(f"mount -o remount,bind,ro {mounted}")

    assert said.startswith("None|no control group can be created in ")
    assert said.endswith("; let this user write there")


@needs_groups
@with_and_without_sandbox
async def test_all_of_an_attempt_is_in_a_group_of_its_own_and_ends_with_it(required):
    mark = a_mark()
    fork = f"import os, time\nos.fork() or (os.setsid(), os.fork(), os.execv('/bin/sleep', ['sleep', '{mark}']))\ntime.sleep(1e9)"
    one = started(grouped(required=required), python(fork))
    await until(lambda: len(marked(mark)) == 2)

    [folder] = ours()
    assert all(Path(group_of(pid)).name == folder.name for pid in marked(mark))
    assert Path(group_of(os.getpid())).name != folder.name

    one.cancel()
    await one.outcome()

    await until(lambda: not marked(mark))
    assert ours() == []


@needs_groups
async def test_two_attempts_are_in_two_groups_and_the_end_of_one_is_not_that_of_the_other():
    runner, first, second = grouped(), a_mark(), a_mark()
    one, other = (started(runner, sh(f"sleep {mark}; true")) for mark in (first, second))
    await until(lambda: marked(first) and marked(second))

    one.cancel()
    await one.outcome()

    assert not marked(first)
    assert marked(second)
    other.cancel()
    await other.outcome()
    assert ours() == []


@needs_groups
@with_and_without_sandbox
async def test_attempt_stores_the_resource_usage_of_its_command(required):
    runner = grouped(required=required)

    well = await ended(runner, python(BURN, "2", "0.2"))
    ill = await ended(runner, sh("echo no >&2; exit 3"))

    assert isinstance(well, Succeeded)
    assert used(well)["cpu_seconds"] >= 0.4
    assert isinstance(ill, Failed)
    assert (ill.reason, ill.exit) == ("exit status 3: no", 3)
    assert set(used(ill)) == {"cpu_seconds", "memory_peak_bytes", "out_of_memory"}
    if "memory" in GROUND.controllers:
        assert used(well)["memory_peak_bytes"] > MEBIBYTE
    else:
        assert used(well)["memory_peak_bytes"] is None


@needs_groups
@with_and_without_sandbox
async def test_cpu_time_is_limited_for_all_of_them_together(required):
    """Each of four uses less than the limit, so that the limit of a process alone would let them be."""
    runner = grouped(required=required)

    stopped = await ended(runner, python(BURN, "4", "0.9", cpu_seconds=1.0))
    within = await ended(runner, python(BURN, "2", "0.2", cpu_seconds=1.0))

    assert isinstance(stopped, Failed)
    assert (stopped.reason, stopped.retryable) == ("killed by SIGXCPU", True)
    assert 1.0 <= used(stopped)["cpu_seconds"] < 2.0
    assert isinstance(within, Succeeded)
    assert ours() == []


@needs_groups
async def test_memory_is_limited_for_all_of_them_together_where_there_is_a_controller():
    """Two processes that hold less than the limit each, and more together."""
    outcome = await ended(grouped(), python(FILL, "90", memory_bytes=150 * MEBIBYTE))

    if "memory" in GROUND.controllers:
        assert isinstance(outcome, Failed)
        assert outcome.reason.startswith("out of memory, killed by SIGKILL")
        assert used(outcome)["out_of_memory"] is True
    else:
        assert isinstance(outcome, Succeeded)
        assert used(outcome)["out_of_memory"] is False


@needs_groups
async def test_control_group_that_cannot_be_created_fails_the_attempt_and_is_named():
    runner, number = grouped(), next(NUMBERS)
    taken = Groups(GROUND).create(number, LIMITS)
    try:
        outcome = await Attempt(runner, sh("true"), fence=number).outcome()
    finally:
        taken.remove()

    assert isinstance(outcome, Failed)
    assert outcome.reason.startswith("the control group of /bin/sh could not be created: ")
    assert taken.folder.name in outcome.reason
    assert outcome.retryable


@needs_groups
async def test_next_worker_ends_the_processes_that_a_killed_worker_left():
    """Without a sandbox, and with its launcher killed too, nobody else would."""
    mark = a_mark()
    script = f"""
import os, sys, time
from duly.worker.targets import cgroup
group = cgroup.Groups(cgroup.look()).create(1, cgroup.Limits({LIMITS.memory_bytes}, 64))
if not os.fork():
    (group.folder / "cgroup.procs").write_text("0")
    os.setsid()
    os.execv("/bin/sleep", ["sleep", "{mark}"])
print("ready", flush=True)
time.sleep(1e9)
"""
    source = str(Path(cgroup.__file__).parents[3])
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env={"PYTHONPATH": source}) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        await until(lambda: marked(mark))
        groups = Groups(GROUND)
        groups.end_orphans()
        assert marked(mark), "its worker lives"

        worker.send_signal(signal.SIGKILL)
        worker.wait(10)

        await until(lambda: groups.end_orphans() == 0 and not marked(mark))


async def test_without_groups_it_runs_under_its_own_limits_alone():
    sandbox = find_sandbox(required=False, user=None, paths=(), hidden=())
    runner = Commands(sandbox, {SHELL: (), PYTHON: ()}, CEILING, network=False, grace_seconds=0.5)

    outcome, _ = await attempt(runner, sh("ulimit -v; true"))

    assert outcome == Succeeded(str(CEILING.memory_bytes // 1_024))
