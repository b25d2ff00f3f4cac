"""Remedies at a terminal are commands: no route of the API is named where a command does the same."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import duly
from duly.cli.failures import NOT_FOUND, explain, in_commands
from duly.cli.main import cli
from duly.client.errors import NotFound

API = Path(duly.__file__).parent / "api"
ADVICE = re.compile(r"(?:NotFound|InvalidOption)\(\s*((?:f?\".*?\"\s*)+)", re.DOTALL)


def advices():
    """Give what the API says to those whom it refuses, as far as it names a route."""
    texts = [found for path in sorted(API.rglob("*.py")) for found in ADVICE.findall(path.read_text())]
    return [re.sub(r"{\w+[!\w]*}", "x", text) for text in texts if "/v1/" in text]


def test_there_is_advice_to_look_at():
    assert len(advices()) > 10


@pytest.mark.parametrize("advice", advices())
def test_each_route_that_the_api_advises_has_a_command_that_there_is(advice):
    said = in_commands(advice)

    assert "/v1/" not in said
    [command] = re.findall(r"`(duly [^`]+)`", said)
    steps = [step for step in shlex.split(command)[1:] if step != "x"]
    assert CliRunner().invoke(cli, [*steps, "--help"]).exit_code == 0


@pytest.mark.parametrize(
    ("advice", "said"),
    [
        ("no run 7; GET /v1/runs lists them", "no run 7; `duly runs` lists them"),
        ("no node 'a'; GET /v1/workflows/7 shows them", "no node 'a'; `duly workflows show 7` shows them"),
        ("POST /v1/jobs runs one now", "`duly submit` runs one now"),
        ("GET /v1/session tells it", "GET /v1/session tells it"),
    ],
)
def test_a_route_becomes_the_command_that_does_the_same(advice, said):
    assert in_commands(advice) == said


def test_http_refusal_is_explained_with_commands():
    assert explain(NotFound("no run 7; GET /v1/runs lists them")) == ("no run 7; `duly runs` lists them", NOT_FOUND)
