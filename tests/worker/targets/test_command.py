"""A command: what it is given, what its end means, and how it is stopped."""

import asyncio
import os
import signal
import time

import msgspec
import pytest

from duly.domain.runs.outcome import Cancelled, Failed, Succeeded, TimedOut
from duly.domain.targets.target import COMMAND
from tests.worker.stories import until
from tests.worker.targets.scene import (
    GRACE_SECONDS,
    PYTHON,
    SHELL,
    Attempt,
    a_mark,
    attempt,
    command_lines,
    commands,
    marked,
    needs_bubblewrap,
    python,
    sh,
    with_and_without_sandbox,
)

pytestmark = needs_bubblewrap


@pytest.mark.parametrize(
    ("script", "more", "outcome", "retryable"),
    [
        ("exit 0", {}, Succeeded, None),
        ("exit 75", {}, Failed, True),
        ("exit 1", {}, Failed, False),
        ("exit 127", {}, Failed, False),
        ("exit 255", {}, Failed, False),
        ("exit 3", {"ok": (0, 3)}, Succeeded, None),
        ("exit 0", {"ok": (3,)}, Failed, False),
        ("exit 4", {"retry": (4,)}, Failed, True),
        ("exit 75", {"retry": (4,)}, Failed, False),
        ("kill -SEGV $$", {}, Failed, True),
        ("kill -KILL $$", {}, Failed, True),
    ],
)
@with_and_without_sandbox
async def test_command_exit_status_decides_the_outcome(required, script, more, outcome, retryable):
    ended, _ = await attempt(commands(required=required), sh(script, **more))

    assert type(ended) is outcome
    assert getattr(ended, "retryable", None) is retryable


@with_and_without_sandbox
async def test_death_by_a_signal_is_status_128_and_its_number_to_a_job_that_names_it(required):
    runner = commands(required=required)

    assert (await attempt(runner, sh("kill -KILL $$", ok=(137,))))[0] == Succeeded(None)
    unnamed, _ = await attempt(runner, sh("kill -40 $$"))
    assert isinstance(unnamed, Failed)
    assert unnamed.reason == ("exit status 168" if required else "killed by signal 40")


async def test_in_a_sandbox_a_status_above_128_is_taken_for_a_signal():
    assert (await attempt(commands(), sh("exit 137")))[0] == (await attempt(commands(), sh("kill -KILL $$")))[0]


@with_and_without_sandbox
async def test_a_failure_names_its_status_or_signal_and_the_last_words(required):
    runner = commands(required=required)

    said, _ = await attempt(runner, sh("echo first >&2; echo no such customer >&2; exit 2"))
    killed, _ = await attempt(runner, sh("kill -ABRT $$"))

    assert isinstance(said, Failed)
    assert said.reason == "exit status 2: no such customer"
    assert said.detail is not None
    assert msgspec.json.decode(said.detail)["stderr"] == "first\nno such customer\n"
    assert isinstance(killed, Failed)
    assert killed.reason == "killed by SIGABRT"


@with_and_without_sandbox
async def test_command_reads_its_payload_from_stdin_and_returns_its_last_json_line(required):
    program = python("import json, sys\nprint('working')\nprint(json.dumps({'got': json.load(sys.stdin)}))")

    ended, lines = await attempt(commands(required=required), program, payload='{"a":[1,"ü"]}')

    assert ended == Succeeded('{"got":{"a":[1,"ü"]}}')
    assert lines.of("stdout")[0] == "working"


@pytest.mark.parametrize(
    ("script", "result"),
    [
        ("true", None),
        ("echo; echo", None),
        ("echo two words", '"two words"'),
        ("echo first; echo second", '"first\\nsecond"'),
        ("echo 42", "42"),
        ("echo null", "null"),
        ("echo '[1, 2]'; echo text", '"[1, 2]\\ntext"'),
        ("echo said >&2", None),
        ("printf 'a\\000b\\377'", '"a\ufffdb\ufffd"'),
    ],
)
async def test_a_result_is_a_last_line_of_json_or_else_the_text(script, result):
    ended, _ = await attempt(commands(), sh(script))

    assert ended == Succeeded(result)


async def test_command_succeeds_without_reading_a_payload_larger_than_a_pipe():
    ended, _ = await attempt(commands(), sh("exit 0"), payload='"' + "x" * 250_000 + '"')

    assert ended == Succeeded(None)


@with_and_without_sandbox
async def test_command_environment_contains_only_job_variables_and_run_identity(required, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "hunter2")
    one = Attempt(
        commands(required=required, variables=("GREETING", "EMPTY", "UNUSED")),
        python(
            "import json, os; print(json.dumps(dict(os.environ)))",
            environment={"GREETING": "two words", "EMPTY": ""},
        ),
    )
    ended = await one.outcome()

    assert isinstance(ended, Succeeded)
    seen = msgspec.json.decode(ended.result or "")
    for added_by_the_interpreter_or_the_shell in ("LC_CTYPE", "PWD"):
        seen.pop(added_by_the_interpreter_or_the_shell, None)
    assert seen == {
        "GREETING": "two words",
        "EMPTY": "",
        "DULY_RUN_ID": str(one.run.run_id),
        "DULY_JOB_ID": str(one.run.job_id),
        "DULY_ATTEMPT": "1",
        "DULY_FENCE": "1",
        "DULY_SCHEDULED_AT": "2026-11-02T09:00:00+00:00",
    }


def test_target_handlers_list_only_allowed_programs_and_images():
    assert [handler.name for handler in commands().handlers()] == [COMMAND + SHELL, COMMAND + PYTHON]
    assert commands(allowed=()).handlers() == []


@pytest.mark.parametrize(
    ("more", "setting"),
    [
        ({"memory_bytes": 1 << 40}, "command_memory"),
        ({"file_bytes": 1 << 40}, "command_memory"),
        ({"processes": 65}, "command_processes"),
        ({"network": True}, "command_network"),
        ({"memory_bytes": -1}, "more than 0"),
        ({"memory_bytes": 0}, "more than 0"),
        ({"file_bytes": -1}, "more than 0"),
        ({"processes": -1}, "more than 0"),
        ({"cpu_seconds": -1}, "more than 0"),
        ({"cpu_seconds": 1e12}, "no limit above"),
    ],
)
async def test_command_with_a_limit_out_of_bounds_fails_and_names_the_setting(more, setting):
    ended, _ = await attempt(commands(), sh("exit 0", **more))

    assert isinstance(ended, Failed)
    assert not ended.retryable
    assert setting in ended.reason


@with_and_without_sandbox
async def test_a_cancel_asks_it_to_end_and_lets_it_say_good_bye(required):
    mark = a_mark()
    program = sh("trap 'echo bye; exit 0' TERM; echo started; sleep $1 & wait", mark)
    one = Attempt(commands(required=required), program)
    await until(lambda: one.lines.of("stdout"))

    began = time.monotonic()
    one.cancel()

    assert await one.outcome() == Cancelled()
    assert one.lines.of("stdout") == ["started", "bye"]
    assert time.monotonic() - began < GRACE_SECONDS + 2
    assert marked(mark) == []


@with_and_without_sandbox
async def test_command_that_ignores_the_stop_request_is_killed_after_the_grace(required):
    mark = a_mark()
    one = Attempt(commands(required=required), sh("trap '' TERM; echo started; sleep $1; sleep $1", mark))
    await until(lambda: one.lines.of("stdout"))

    began = time.monotonic()
    one.cancel()

    assert await one.outcome() == Cancelled()
    assert GRACE_SECONDS <= time.monotonic() - began < GRACE_SECONDS + 5
    assert marked(mark) == []


@with_and_without_sandbox
async def test_a_timeout_ends_it_with_all_it_started(required):
    mark = a_mark()
    one = Attempt(commands(required=required), sh("setsid sleep $1 & sleep $1", mark), timeout=0.5)

    assert await one.outcome() == TimedOut(0.5)
    assert marked(mark) == []


@with_and_without_sandbox
async def test_a_worker_that_ends_is_in_a_hurry_and_the_run_may_be_tried_again(required, monkeypatch):
    monkeypatch.setattr("duly.worker.targets.program.HURRIED_SECONDS", 0.1)
    mark = a_mark()
    runner = commands(required=required)
    one = Attempt(runner, sh("trap '' TERM; echo started; sleep $1", mark))
    await until(lambda: one.lines.of("stdout"))

    began = time.monotonic()
    one.interrupt()
    ended = await one.outcome()

    assert isinstance(ended, Failed)
    assert ended.retryable
    assert time.monotonic() - began < GRACE_SECONDS + 3
    assert marked(mark) == []


async def test_a_second_cancel_leaves_no_time_and_nothing_behind():
    mark = a_mark()
    # Short sleeps: a shell that is asked between its look at the traps and its fork answers after the sleep.
    script = "(trap '' TERM; exec sleep $1) & trap 'echo asked' TERM; echo started; while :; do sleep 0.05; done"
    one = Attempt(commands(grace_seconds=60), sh(script, mark))
    await until(lambda: one.lines.of("stdout"))
    one.cancel()
    await until(lambda: "asked" in one.lines.of("stdout"))

    one.cancel()

    assert await one.outcome(10) == Cancelled()
    assert marked(mark) == []


@with_and_without_sandbox
async def test_a_cancel_at_any_moment_of_the_start_leaves_nothing_behind(required):
    mark = a_mark()
    runner = commands(required=required)
    for reservations in range(1, 30, 2):
        one = Attempt(runner, sh("sleep $1", mark))
        for _ in range(reservations):
            await asyncio.sleep(0.004)
        one.cancel()
        await one.outcome()

    await until(lambda: marked(mark) == [])


async def test_a_sandbox_dies_with_its_launcher_and_the_run_may_be_tried_again():
    mark = a_mark()
    one = Attempt(commands(), sh("echo started; sleep $1", mark))
    await until(lambda: one.lines.of("stdout"))

    [launcher] = [pid for pid, line in command_lines().items() if mark in line and "launch.py" in line]
    os.kill(launcher, signal.SIGKILL)
    ended = await one.outcome()

    assert isinstance(ended, Failed)
    assert ended.retryable
    await until(lambda: marked(mark) == [])
