"""A container: the same contract as a command's, and that none is left behind."""

import time

import msgspec
import pytest

from duly.domain.runs.outcome import Cancelled, Failed, Succeeded, TimedOut
from duly.domain.targets.target import CONTAINER, Container
from duly.worker.targets.container import Containers
from duly.worker.targets.orphans import OWNER_LABEL, Owner
from tests.worker.stories import until
from tests.worker.targets.engine import IMAGE, ask, names
from tests.worker.targets.scene import CEILING, GRACE_SECONDS, Attempt, attempt, command_lines

MEBIBYTE = 1_048_576


@pytest.fixture
def containers(engine):
    """Allow the one image."""
    return Containers(
        engine, [IMAGE], CEILING, worker="worker-1", owner=Owner.here(), network=False, grace_seconds=GRACE_SECONDS
    )


def sh(script: str, *arguments: str, **more) -> Container:
    """Run a script in a container."""
    return Container(IMAGE, ("/bin/sh", "-c", script, "sh", *arguments), **more)


@pytest.mark.parametrize(
    ("script", "more", "outcome", "retryable"),
    [
        ("exit 0", {}, Succeeded, None),
        ("exit 75", {}, Failed, True),
        ("exit 1", {}, Failed, False),
        ("exit 3", {"ok": (3,)}, Succeeded, None),
        ("sh -c 'kill -SEGV $$'; exit $?", {}, Failed, True),
        ("exit 125", {"ok": (125,)}, Succeeded, None),
    ],
)
async def test_container_exit_status_means_the_same_as_for_a_command(
    engine, containers, script, more, outcome, retryable
):
    ended, _ = await attempt(containers, sh(script, **more))

    assert type(ended) is outcome
    assert getattr(ended, "retryable", None) is retryable
    assert names(engine) == []


async def test_its_payload_output_variables_and_arguments_are_those_of_a_command(containers, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "hunter2")
    program = sh(
        'cat; echo; echo said >&2; env; echo "$1"',
        "$(id); 'x' \"y\"",
        environment={"GREETING": "two words", "PATH": "/bin"},
    )
    one = Attempt(containers, program, payload='{"a":1}')
    ended = await one.outcome()

    assert isinstance(ended, Succeeded)
    said = one.lines.of("stdout")
    assert said[0] == '{"a":1}'
    assert {"GREETING=two words", f"DULY_RUN_ID={one.run.run_id}", "DULY_FENCE=1", "DULY_ATTEMPT=1"} <= set(said)
    assert not any("hunter2" in line or "SECRET" in line for line in said)
    assert said[-1] == "$(id); 'x' \"y\""
    assert one.lines.of("stderr") == ["said"]


async def test_container_is_confined(containers):
    script = (
        "id -u; grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status; ls /sys/class/net;"
        " touch /x 2>/dev/null && echo writable; touch /tmp/x && echo scratch"
    )
    ended, lines = await attempt(containers, sh(script))

    assert isinstance(ended, Succeeded)
    assert lines.of("stdout") == [
        "65534",
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",  # a filter: the engine's own profile
        "lo",
        "scratch",
    ]


async def test_memory_and_processes_have_limits(containers):
    hog, _ = await attempt(
        containers, sh("head -c 200000000 /dev/zero | tr '\\0' x | grep -c y", memory_bytes=32 * MEBIBYTE)
    )
    bomb, _ = await attempt(
        containers, sh("i=0; while [ $i -lt 30 ]; do sleep 1 & i=$((i+1)); done; echo all", processes=10, ok=(0, 2))
    )

    assert isinstance(hog, Failed)
    assert isinstance(bomb, Succeeded)
    assert bomb.result != '"all"'


async def test_a_cancel_asks_it_to_end_and_removes_it(engine, containers):
    one = Attempt(containers, sh("trap 'echo bye; exit 0' TERM; echo started; while :; do sleep 0.05; done"))
    await until(lambda: one.lines.of("stdout"))

    one.cancel()

    assert await one.outcome() == Cancelled()
    assert one.lines.of("stdout") == ["started", "bye"]
    assert names(engine) == []


async def test_container_that_ignores_the_stop_request_is_killed_and_removed(engine, containers):
    one = Attempt(containers, sh("trap '' TERM; echo started; while :; do sleep 0.05; done"))
    await until(lambda: one.lines.of("stdout"))

    began = time.monotonic()
    one.cancel()

    assert await one.outcome() == Cancelled()
    assert time.monotonic() - began >= GRACE_SECONDS
    assert names(engine) == []


async def test_a_timeout_removes_it_at_any_moment_of_its_start(engine, containers):
    for seconds in (0.05, 0.15, 0.2, 0.25, 0.3, 0.35):
        one = Attempt(containers, sh("sleep 1000"), timeout=seconds)
        assert await one.outcome() == TimedOut(seconds)

    await until(lambda: names(engine) == [])


async def test_container_is_identifiable_while_it_runs(engine, containers):
    one = Attempt(containers, sh("echo started; sleep 1000", environment={"TOKEN": "hunter3"}))
    await until(lambda: one.lines.of("stdout"))

    [name] = names(engine)
    labels = msgspec.json.decode(ask(engine, "inspect", "--format", "{{json .Config.Labels}}", name))
    lines = command_lines().values()
    one.cancel()
    await one.outcome()

    assert name == f"duly-{one.run.run_id}-1"
    assert labels["duly.worker"] == "worker-1"
    assert labels["duly.run"] == str(one.run.run_id)
    assert labels["duly.fence"] == "1"
    assert Owner.read(labels[OWNER_LABEL]) == Owner.here()
    assert not any("hunter3" in line for line in lines)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (Container("docker.io/library/other"), "docker.io/library/other is not allowed"),
        (Container(IMAGE, memory_bytes=1 << 40), "command_memory"),
        (Container(IMAGE, processes=1_000), "command_processes"),
        (Container(IMAGE, network=True), "command_network"),
        (Container(IMAGE, memory_bytes=-1), "more than 0"),
        (Container(IMAGE, processes=-1), "more than 0"),
        (Container(IMAGE, cpus=-1.0), "more than 0"),
        (Container(IMAGE, cpus=100_000.0), "CPUs"),
        (Container(IMAGE, environment={"A": "two\nlines"}), "more than one line"),
    ],
)
async def test_container_target_that_is_not_allowed_fails_permanently(containers, target, words):
    ended, _ = await attempt(containers, target)

    assert isinstance(ended, Failed)
    assert not ended.retryable
    assert words in ended.reason


async def test_an_engine_that_cannot_run_it_is_worth_another_attempt(engine):
    runner = Containers(
        engine, ["localhost/none:1"], CEILING, worker="w", owner=Owner.here(), network=False, grace_seconds=1
    )

    ended, _ = await attempt(runner, Container("localhost/none:1"))

    assert isinstance(ended, Failed)
    assert ended.retryable
    assert "could not run localhost/none:1" in ended.reason


def test_target_handlers_list_only_allowed_programs_and_images(containers):
    assert [handler.name for handler in containers.handlers()] == [CONTAINER + IMAGE]
