"""Commands that want to be others: nothing in an argument, a variable or a name makes another program of one that is allowed."""

import msgspec
import pytest

from duly.domain.runs.outcome import Failed, Succeeded
from duly.domain.targets.target import Command
from tests.worker.targets.scene import attempt, commands, python, sh, with_and_without_sandbox

METACHARACTERS = [
    *("$(touch /tmp/x)", "`id`", "; rm -rf /", "a && b", "| cat", "> /tmp/y"),
    *("*", "~", "$HOME", "\\", "'\"", "-n", "", "a\nb"),
]


@with_and_without_sandbox
async def test_arguments_stay_as_they_are(required):
    program = python("import json, sys; print(json.dumps(sys.argv[1:]))", *METACHARACTERS)

    ended, _ = await attempt(commands(required=required), program)

    assert isinstance(ended, Succeeded)
    assert msgspec.json.decode(ended.result or "") == METACHARACTERS


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "BASH_ENV", "PYTHONPATH", "DULY_RUN_ID", "A=B", "", "BASH_FUNC_ls%%", "A\nB"]
)
@with_and_without_sandbox
async def test_a_variable_that_would_make_another_program_of_it_is_refused(name, required):
    runner = commands(required=required, variables=(name,))

    ended, _ = await attempt(runner, sh("exit 0", environment={name: "x"}))

    assert isinstance(ended, Failed)
    assert not ended.retryable
    assert "variable" in ended.reason


@with_and_without_sandbox
async def test_a_variable_that_the_operator_does_not_allow_is_refused(required):
    """The API refuses it before; a job that came by way of SQL meets only the worker."""
    runner = commands(required=required, variables=("LANG",))

    ended, _ = await attempt(runner, sh("exit 0", environment={"LANG": "C", "HTTPS_PROXY": "x"}))

    assert isinstance(ended, Failed)
    assert not ended.retryable
    assert ended.reason.startswith("/bin/sh may not ")
    assert "variable HTTPS_PROXY: " in ended.reason
    assert "commands = /bin/sh=HTTPS_PROXY" in ended.reason


@with_and_without_sandbox
async def test_a_program_that_is_not_allowed_is_not_run_even_when_it_was_claimed(required):
    ended, _ = await attempt(commands(required=required), Command(("/usr/bin/id",)))

    assert isinstance(ended, Failed)
    assert not ended.retryable
    assert "/usr/bin/id is not allowed" in ended.reason
