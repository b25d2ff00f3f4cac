"""Commands and containers through a real worker and PostgreSQL: what they come to, and that nothing survives the worker."""

import os
import signal
from contextlib import contextmanager

import pytest

from duly.domain.runs.retry import Retry
from duly.domain.targets.target import Command, Container, handler_of
from duly.moves.cancel import CancelAnswer, cancel_run
from duly.store.boxes import history, runs
from duly.store.reads import explain
from duly.worker.handlers import Registry
from duly.worker.targets import Targets
from tests.cli.processes import Process
from tests.worker.family import family_of
from tests.worker.stories import attempts_of, ended, reaping, state_of, submitted, until, working
from tests.worker.targets.engine import IMAGE, names
from tests.worker.targets.scene import PYTHON, SHELL, a_mark, command_lines, commands, marked, needs_bubblewrap, sh

pytestmark = needs_bubblewrap
LEASE_SECONDS = "2"
ONCE = Retry(max_attempts=1)


async def submitted_target(store, target, **more):
    """Submit a run of a target."""
    return await submitted(store, handler_of(target), target=target, **more)


def serving(**more) -> Targets:
    """Offer a shell and Python."""
    return Targets(commands(**more).handlers())


async def lines_of(store, run_id) -> list[tuple[str, str]]:
    """Read a run's log."""
    return [(row["level"], row["message"]) for row in await runs.read_logs(store, run_id, (0, 0))]


class TestCommands:
    """In a worker of this process."""

    async def test_its_lines_and_its_result_are_kept(self, url, store):
        target = sh("echo working; echo hm >&2; cat")
        async with working(url, Registry(), targets=serving()):
            run_id = await submitted_target(store, target, payload={"customer": 7})
            assert await ended(store, run_id) == "succeeded"

        found = await runs.find(store, run_id)
        assert found is not None
        assert found["attempts"][0]["result"] == '{"customer": 7}'
        assert sorted(await lines_of(store, run_id)) == [
            ("info", "hm"),
            ("info", "working"),
            ("info", '{"customer": 7}'),
        ]
        assert await history.verify(store) == []

    async def test_status_75_is_tried_again_and_others_are_not(self, url, store):
        again = sh('test "$DULY_ATTEMPT" = 3 && exit 0; exit 75')
        async with working(url, Registry(), targets=serving()):
            retried = await submitted_target(store, again)
            final = await submitted_target(store, sh("exit 1"))
            assert await ended(store, retried) == "succeeded"
            assert await ended(store, final) == "dead"

        assert await attempts_of(store, retried) == [(1, "failed"), (2, "failed"), (3, "succeeded")]
        assert await attempts_of(store, final) == [(1, "failed")]

    async def test_a_cancel_reaches_it_and_all_it_started(self, url, store):
        mark = a_mark()
        async with working(url, Registry(), targets=serving()):
            run_id = await submitted_target(store, sh("setsid sleep $1 & sleep $1", mark))
            await until(lambda: len(marked(mark)) >= 4)
            assert await cancel_run(store, run_id) == CancelAnswer.REQUESTED
            assert await ended(store, run_id) == "cancelled"

        assert marked(mark) == []

    async def test_its_timeout_is_that_of_the_run(self, url, store):
        mark = a_mark()
        async with working(url, Registry(), targets=serving()):
            run_id = await submitted_target(
                store, sh("trap '' TERM; sleep $1; sleep $1", mark), timeout=0.3, retry=ONCE
            )
            assert await ended(store, run_id) == "dead"

        assert {outcome for _, outcome in await attempts_of(store, run_id)} == {"timed_out"}
        assert marked(mark) == []

    async def test_stopped_worker_leaves_no_process_and_its_run_continues_elsewhere(self, url, store):
        mark = a_mark()
        async with working(url, Registry(), targets=serving(), grace_seconds=0.3):
            run_id = await submitted_target(store, sh('test "$DULY_ATTEMPT" = 2 && exit 0; sleep $1; sleep $1', mark))
            await until(lambda: marked(mark))
        assert marked(mark) == []

        async with working(url, Registry(), targets=serving()):
            assert await ended(store, run_id) == "succeeded"

    async def test_command_that_no_worker_allows_is_not_claimed_and_explain_names_the_fix(self, url, store):
        async with working(url, Registry(), targets=serving(allowed=(PYTHON,))) as worker:
            run_id = await submitted_target(store, sh("exit 0"))
            allowed = await submitted_target(store, Command((PYTHON, "-c", "")))
            assert await ended(store, allowed) == "succeeded"
            told = await explain.run(store, 1, run_id)

            assert await state_of(store, run_id) == "ready"
            assert worker.health.held == 0

        assert told is not None
        [reason] = [reason for reason in told.reasons if reason.code == "unroutable"]
        assert f"DULY_COMMANDS={SHELL} duly worker" in reason.text
        assert await attempts_of(store, run_id) == []


@contextmanager
def a_worker(url, folder, **settings):
    """Run `duly worker` in a process of its own."""
    process = Process(
        "worker",
        cwd=folder,
        DULY_DATABASE_URL=url,
        DULY_LEASE=LEASE_SECONDS,
        DULY_COMMAND_CGROUP="optional",
        PYTHONPATH=os.environ["PYTHONPATH"],
        **settings,
    )
    try:
        process.wait_for_line(" serves ")
        yield process
    finally:
        process.process.kill()
        process.process.wait()


def kill_with_launchers(process: Process, mark: str) -> None:
    """Kill a worker and whoever would tidy up behind it, at once."""
    launchers = [pid for pid, line in command_lines().items() if "launch.py" in line and mark in line]
    for pid in (*launchers, process.process.pid):
        os.kill(pid, signal.SIGSTOP)
    for pid in (*launchers, process.process.pid):
        os.kill(pid, signal.SIGKILL)


class TestWorkerProcess:
    """In a process of its own, which is killed."""

    async def test_worker_process_names_its_allowed_commands_and_runs_them(self, url, store, tmp_path):
        with a_worker(url, tmp_path, DULY_COMMANDS=SHELL) as process:
            run_id = await submitted_target(store, sh("echo 42"))
            assert await ended(store, run_id) == "succeeded"
            process.wait_for_line(f"commands: {SHELL}, in a sandbox, without network")

    @pytest.mark.parametrize("sandbox", ["required", "none"])
    async def test_killed_it_leaves_no_process_behind(self, url, store, tmp_path, sandbox):
        mark = a_mark()
        script = "(setsid sleep $1 &); trap '' TERM HUP; sleep $1; sleep $1"
        with a_worker(url, tmp_path, DULY_COMMANDS=SHELL, DULY_COMMAND_SANDBOX=sandbox) as process:
            for _ in range(3):
                await submitted_target(store, sh(script, mark))
            await until(lambda: len(marked(mark)) >= 12)

            process.process.kill()

            await until(lambda: marked(mark) == [])

    async def test_killed_together_with_the_launcher_a_sandbox_ends_all_the_same(self, url, store, tmp_path):
        mark = a_mark()
        with a_worker(url, tmp_path, DULY_COMMANDS=SHELL) as process:
            await submitted_target(store, sh("(setsid sleep $1 &); sleep $1", mark))
            await until(lambda: len(marked(mark)) >= 5)

            kill_with_launchers(process, mark)

            await until(lambda: marked(mark) == [])

    async def test_killed_at_any_moment_of_a_start_it_leaves_no_process_behind(self, url, store, tmp_path):
        mark = a_mark()
        for _ in range(2):
            with a_worker(url, tmp_path, DULY_COMMANDS=SHELL) as process:
                for _ in range(4):
                    await submitted_target(store, sh("sleep $1", mark))
                await until(lambda: marked(mark))
                process.process.kill()
                await until(lambda: marked(mark) == [])

    async def test_worker_process_ends_its_commands_when_its_lease_is_lost(self, url, store, tmp_path):
        mark = a_mark()
        with a_worker(url, tmp_path, DULY_COMMANDS=SHELL) as process:
            await submitted_target(store, sh("trap '' TERM; sleep $1; sleep $1", mark))
            await until(lambda: marked(mark))
            [pulse] = [
                pid
                for pid in family_of(process.process.pid)
                if "duly.worker.heartbeat.process" in command_lines().get(pid, "")
            ]

            os.kill(pulse, signal.SIGSTOP)

            await until(lambda: marked(mark) == [])
            os.kill(pulse, signal.SIGKILL)

    async def test_worker_process_does_not_start_with_an_allowed_program_that_cannot_run(self, url, tmp_path):
        process = Process("worker", cwd=tmp_path, DULY_DATABASE_URL=url, DULY_COMMANDS="/usr/bin/no-such-program")

        assert process.process.wait(20) == 1
        assert "/usr/bin/no-such-program is not a program that can be run here" in process.text

    async def test_a_container_runs_and_killed_it_leaves_none_behind(self, url, store, tmp_path, engine):
        allowed = {
            "DULY_CONTAINERS": IMAGE,
            "DULY_CONTAINER_COMMAND": " ".join(engine.command),
            "DULY_CONTAINER_OPTIONS": " ".join(engine.options),
        }
        forever = Container(IMAGE, ("/bin/sh", "-c", "trap '' TERM; echo started; while :; do sleep 1; done"))
        with a_worker(url, tmp_path, **allowed) as process:
            process.wait_for_line(f"containers: {IMAGE}, through ")
            run_id = await submitted_target(
                store, Container(IMAGE, ("/bin/sh", "-c", "cat; echo; echo 6")), payload={"a": 1}
            )
            assert await ended(store, run_id) == "succeeded"
            assert names(engine) == []
            await submitted_target(store, forever)
            await until(lambda: names(engine))

            process.process.kill()
            await until(lambda: names(engine) == [])

        found = await runs.find(store, run_id)
        assert found is not None
        assert found["attempts"][0]["result"] == "6"

        async with reaping(store):
            with a_worker(url, tmp_path, **allowed) as process:
                await until(lambda: names(engine))
                [left] = names(engine)
                kill_with_launchers(process, IMAGE)
            assert names(engine) == [left]
            # The next worker finds it when it starts, and runs what it was for again, under another fence.
            with a_worker(url, tmp_path, **allowed):
                await until(lambda: names(engine) and left not in names(engine))
