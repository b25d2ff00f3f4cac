"""The documentation site builds without a warning, and every generated page is current."""

import os
import re
import subprocess

import pytest

from scripts.reference.pages import pages
from tests.docs.blocks import PAGES, ROOT

MKDOCS = ROOT / ".venv" / "docs" / "bin" / "mkdocs"
LINK = re.compile(r"(?<!`)\]\((?!https?:|#|mailto:)([^)#\s]+)[^)\s]*\)")
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", sorted(pages()))
def test_a_generated_page_is_as_the_code_is(path):
    assert (ROOT / path).read_text() == pages()[path], "run `make reference`"


def test_no_generated_page_is_left_over():
    here = {str(page.relative_to(ROOT)) for page in (ROOT / "docs" / "reference" / "api").glob("*.md")}

    assert here <= set(pages())


@pytest.mark.skipif(not MKDOCS.exists(), reason="`make docs` installs mkdocs")
def test_the_site_builds_without_a_warning(tmp_path):
    built = subprocess.run(
        [MKDOCS, "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=100,
    )  # fmt: skip

    assert built.returncode == 0, built.stderr
    assert (tmp_path / "site" / "index.html").exists()
    assert (tmp_path / "site" / "tutorial.html").exists()


@pytest.mark.parametrize("page", [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "SECURITY.md"], ids=lambda page: page.name)
def test_each_link_leads_to_a_file(page):
    links = LINK.findall(FENCED.sub("", page.read_text()))

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_readme_is_short_and_names_the_command_that_tests():
    readme = (ROOT / "README.md").read_text()

    assert len(readme.splitlines()) <= 145
    assert "\nmake test\n" in readme
