"""The supply chain: the wheel lists what it is made of."""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from scripts import sbom

ROOT = Path(__file__).parents[2]
LOCKED = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)
IMPORTED = re.compile(r"""(?:from|import) ?\(?['"](@[\w-]+/[\w-]+|[\w-]+)""")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from this tree."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True)
    [file] = folder.glob("*.whl")
    with zipfile.ZipFile(file) as opened:
        yield opened


@pytest.fixture(scope="module")
def listed(wheel) -> dict[str, Any]:
    """The bill of materials in it, by purl."""
    [name] = [name for name in wheel.namelist() if re.fullmatch(r"duly-[^/]+\.dist-info/sboms/duly\.cdx\.json", name)]
    document = json.loads(wheel.read(name))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    return {component["purl"]: component for component in document["components"]}


class TestBillOfMaterials:
    def test_each_locked_package_is_in_the_wheels_list_in_its_locked_version(self, listed):
        locked = LOCKED.findall((ROOT / "requirements.lock").read_text())

        assert len(locked) > 20
        assert {f"pkg:pypi/{name}@{version}" for name, version in locked} == {
            purl for purl in listed if purl.startswith("pkg:pypi/")
        }

    def test_each_has_the_hashes_that_pip_checks(self, listed):
        hashes = re.findall(r"--hash=sha256:(\w+)", (ROOT / "requirements.lock").read_text())
        packages = [component for purl, component in listed.items() if purl.startswith("pkg:pypi/")]

        assert [entry["content"] for component in packages for entry in component["hashes"]] == hashes
        assert all(component["hashes"] for component in packages)

    def test_most_state_their_licence(self, listed):
        silent = [purl for purl, component in listed.items() if "licenses" not in component]

        assert len(silent) < len(listed) / 10, silent

    def test_each_package_that_the_dashboard_imports_is_listed(self, listed, wheel):
        if not any(name.endswith("dashboard/static/index.html") for name in wheel.namelist()):
            pytest.skip("the dashboard is not built; make dashboard")
        sources = [file.read_text() for kind in ("svelte", "ts") for file in (ROOT / "ui/src").rglob(f"*.{kind}")]
        imported = {name for source in sources for name in IMPORTED.findall(source)}
        locked = json.loads((ROOT / "ui/package-lock.json").read_text())["packages"]

        assert {"svelte", "uplot", "@dagrejs/dagre"} <= imported
        for name in imported:
            version = locked[f"node_modules/{name}"]["version"]
            assert f"pkg:npm/{name.replace('@', '%40')}@{version}" in listed

    def test_a_wheel_without_a_dashboard_lists_none_of_its_packages(self, tmp_path):
        shutil.copy(ROOT / "requirements.lock", tmp_path)

        purls = [component["purl"] for component in sbom.sbom(tmp_path, "1.0")["components"]]

        assert [purl for purl in purls if not purl.startswith("pkg:pypi/")] == []

    def test_the_record_of_the_wheel_covers_it(self, wheel):
        [record] = [name for name in wheel.namelist() if name.endswith(".dist-info/RECORD")]
        [line] = [line for line in wheel.read(record).decode().splitlines() if "/sboms/" in line]
        name, digest, _ = line.split(",")

        assert digest == f"sha256={_urlsafe(sha256(wheel.read(name)).digest())}"

    def test_a_line_of_the_lock_that_is_not_understood_is_an_error(self):
        with pytest.raises(ValueError, match="neither a package nor a hash"):
            sbom.python_packages("idna>=3.20\n")


def _urlsafe(digest: bytes) -> str:
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
