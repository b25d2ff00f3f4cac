"""The packages: the same bytes from the same tree, and a wheel that runs where the repository is not."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

from duly import __version__
from tests.cli.processes import environment, wait_for
from tests.deploy.deployed import ROOT, submit

# `git ls-files` is not asked, so that the sdist can run this, too.
SOURCES = ("src", "ui", "docs", "scripts", "examples", "deploy", "benchmarks", "tests")
LEFT_OVER = shutil.ignore_patterns("node_modules", "__pycache__", ".duly", "secrets")
APP = """
from duly import App

app = App()

@app.handler
def double(number: int) -> int:
    return 2 * number
"""

needs_dashboard = pytest.mark.skipif(
    not (ROOT / "src/duly/dashboard/static/index.html").exists(), reason="the dashboard is not built; make dashboard"
)
pytestmark = [needs_dashboard, pytest.mark.timeout(300)]  # Beside other tests an installation takes a minute.


def package(tree: Path, folder: Path, umask: int = 0o022, **more: str) -> dict[str, bytes]:
    """Build the packages of a tree, and return their bytes."""
    command = [str(tree / "scripts/package"), sys.executable, str(folder)]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | more, umask=umask)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The packages of this tree."""
    folder: Path = tmp_path_factory.mktemp("built") / "dist"
    package(ROOT, folder)
    return folder


@pytest.fixture(scope="module")
def copied(tmp_path_factory) -> Path:
    """A copy of the tree elsewhere, with other times of its files and without a repository."""
    tree: Path = tmp_path_factory.mktemp("copied") / "tree"
    for name in SOURCES:
        shutil.copytree(ROOT / name, tree / name, ignore=LEFT_OVER, copy_function=shutil.copy)
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, tree / file.name)
    return tree


def test_wheel_sdist_sums_and_bill_of_materials_are_built(built):
    names = {f"duly-{__version__}{kind}" for kind in ("-py3-none-any.whl", ".tar.gz", ".cdx.json")}

    assert {file.name for file in built.iterdir()} == names | {"SHA256SUMS"}
    sums = dict(reversed(line.split()) for line in (built / "SHA256SUMS").read_text().splitlines())
    assert sums == {name: hashlib.sha256((built / name).read_bytes()).hexdigest() for name in names}
    assert json.loads((built / f"duly-{__version__}.cdx.json").read_text())["bomFormat"] == "CycloneDX"


def test_two_builds_are_the_same_wherever_and_however_they_are_made(built, copied, tmp_path):
    for file in (copied / "src").rglob("*.py"):
        os.utime(file, (1, 1))
    more = {"SOURCE_DATE_EPOCH": moment_of(built), "TZ": "Asia/Tokyo", "LC_ALL": "C"}

    again = package(copied, tmp_path / "again", umask=0o077, **more)

    assert again == {file.name: file.read_bytes() for file in built.iterdir()}


def test_the_sdist_builds_the_same_wheel(built, tmp_path):
    with tarfile.open(built / f"duly-{__version__}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    again = package(tmp_path / f"duly-{__version__}", tmp_path / "dist", SOURCE_DATE_EPOCH=moment_of(built))

    [wheel] = built.glob("*.whl")
    assert again[wheel.name] == wheel.read_bytes()


def moment_of(built: Path) -> str:
    """Return the moment that a build wrote into its archives."""
    with tarfile.open(built / f"duly-{__version__}.tar.gz") as archive:
        return str(int(archive.getmembers()[0].mtime))


def test_the_wheel_has_the_dashboard_and_nothing_of_the_repository(built):
    [wheel] = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()

    assert {name.split("/")[0] for name in names} == {"duly", f"duly-{__version__}.dist-info"}
    assert "duly/dashboard/static/index.html" in names
    assert any(name.startswith("duly/store/schema/functions/") for name in names)


def test_the_sdist_has_what_a_packager_needs_and_no_secret(built):
    with tarfile.open(built / f"duly-{__version__}.tar.gz") as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    wanted = (
        "LICENSE",
        "CHANGELOG.md",
        "SECURITY.md",
        "Dockerfile",
        "deploy/compose.yaml",
        "deploy/helm/duly/Chart.yaml",
    )
    assert {*wanted, "requirements.lock", "src/duly/dashboard/static/index.html", "tests/conftest.py"} <= names
    assert [name for name in names if "secrets/" in name or name.startswith((".git/", ".venv/", "dist/"))] == []


def test_without_the_dashboard_no_package_is_built(copied, tmp_path):
    page = copied / "src/duly/dashboard/static/index.html"
    page.rename(page.with_suffix(".gone"))
    done = subprocess.run(
        [copied / "scripts/package", sys.executable, tmp_path / "dist"], capture_output=True, text=True
    )
    page.with_suffix(".gone").rename(page)

    assert done.returncode == 1
    assert "the dashboard is not built" in done.stderr
    assert not (tmp_path / "dist").exists()


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """A fresh environment with the wheel and its locked packages; its programs."""
    folder: Path = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder)
    [wheel] = built.glob("*.whl")
    pip = [*pip_of(folder / "bin"), "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, "--require-hashes", "-r", ROOT / "requirements.lock"], check=True)
    subprocess.run([*pip, "--no-deps", "--no-index", wheel], check=True)
    return folder / "bin"


def pip_of(programs: Path) -> list[str | Path]:
    """Return the command by which our pip works on another environment."""
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", programs / "python"]


def test_the_wheel_needs_what_the_lock_has(installed):
    done = subprocess.run([*pip_of(installed), "check"], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout


def test_the_installed_wheel_serves_the_dashboard_and_runs_a_job(installed, tmp_path):
    (tmp_path / "app.py").write_text(APP)
    version = subprocess.run([installed / "duly", "--version"], capture_output=True, text=True, check=True).stdout
    assert version.split() == ["duly", __version__]

    command = [installed / "duly", "up", "--no-demo", "--port", "0", "--app", "app:app"]
    with (tmp_path / "up.log").open("w") as log:
        up = subprocess.Popen(command, cwd=tmp_path, env=environment(), stdout=log, stderr=subprocess.STDOUT)
    try:
        said = wait_for(lambda: (text := (tmp_path / "up.log").read_text()) and "ready in" in text and text)
        address = re.search(r"dashboard +(http://\S+)", said)
        assert address, said
        page = get(address[1])
        script = re.search(r'src="([^"]+\.js)"', page)
        assert script, page
        assert len(get(address[1] + "/" + script[1].lstrip("./"))) > 10_000

        key = (tmp_path / ".duly/api-key").read_text().strip()
        assert submit(address[1], key) == 42
    finally:
        up.terminate()
        assert up.wait(30) == 0


def get(url: str) -> str:
    """Return the body of a page."""
    with urllib.request.urlopen(url, timeout=40) as answer:
        return str(answer.read().decode())
