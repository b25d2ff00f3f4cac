"""One version, written in several places, and a changelog that has it."""

import re

import pytest
import yaml

from duly import __version__
from tests.deploy.deployed import CHART, DEPLOY, ROOT

SEMANTIC = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:(?:-|\.?)(?:rc|dev|a|b)\d*)?")
HEADING = re.compile(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", re.MULTILINE)
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_version_is_semantic():
    assert SEMANTIC.fullmatch(__version__)


def test_the_chart_and_the_compose_file_have_it():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert chart["appVersion"] == __version__
    assert SEMANTIC.fullmatch(chart["version"])
    assert f"${{DULY_IMAGE:-duly:{__version__}}}" in (DEPLOY / "compose.yaml").read_text()
    assert f"duly:{__version__}" in (DEPLOY / "new-secrets").read_text()


@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/how-to/{name}.md" for name in ("deploying", "containers", "systemd"))]
)
def test_pages_name_no_other_version(page):
    text = (ROOT / page).read_text()

    named = re.findall(r"duly-(\d[\w.]*?)-py3-none-any|\bduly:(\d[\w.]*\d)", text)
    assert named
    assert {one or other for one, other in named} == {__version__}


def test_the_changelog_has_the_form_that_people_and_tools_expect():
    text = (ROOT / "CHANGELOG.md").read_text()
    versions = [version for version, _ in HEADING.findall(text)]

    assert versions[0] == "Unreleased"
    assert versions[1:] == sorted(versions[1:], key=lambda each: [*map(int, each.split("."))], reverse=True)
    assert all(day for version, day in HEADING.findall(text) if version != "Unreleased")
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= KINDS
    # What is built is in it: as a release, or as what the next one will be.
    assert __version__ in versions or f"will be {__version__}" in text
