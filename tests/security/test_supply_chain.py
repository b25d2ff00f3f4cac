"""The supply chain: the wheel lists what it is made of, and an audit that could not ask does not pass."""

import json
import os
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

from scripts import audit, sbom

ROOT = Path(__file__).parents[2]
PIP_AUDIT = Path(sys.prefix) / "audit" / "bin" / "pip-audit"
LOCKED = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)
IMPORTED = re.compile(r"""(?:from|import) ?\(?['"](@[\w-]+/[\w-]+|[\w-]+)""")

needs_pip_audit = pytest.mark.skipif(
    not PIP_AUDIT.exists(), reason="pip-audit is not installed; make audit installs it"
)
needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="no npm")


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


class TestAudit:
    @needs_pip_audit
    @needs_npm
    def test_a_service_that_cannot_be_reached_is_reported_and_is_no_pass(self):
        done = ask(HTTPS_PROXY="http://127.0.0.1:9")

        assert done.returncode == audit.NOT_ASKED
        assert "Python: not asked: pip-audit:" in done.stdout
        assert "dashboard: not asked: request to" in done.stdout

    @needs_npm
    def test_npm_that_is_set_to_be_offline_does_not_pass_unasked(self):
        done = ask("/nowhere/pip-audit", HTTPS_PROXY="http://127.0.0.1:9", npm_config_offline="true")

        assert done.returncode == audit.NOT_ASKED
        assert "dashboard: not asked: request to" in done.stdout

    def test_a_tool_that_is_not_there_is_reported(self, tmp_path):
        answer = audit.ask_pip_audit(str(tmp_path / "pip-audit"), [ROOT / "requirements.lock"])

        assert answer.not_asked == [f"{tmp_path}/pip-audit does not start: No such file or directory"]
        assert audit.verdict([answer, audit.Answer(3, [], [])]) == audit.NOT_ASKED

    @needs_pip_audit
    def test_audit_lists_vulnerabilities_and_skipped_packages_separately(self):
        answer = audit.of_pip_audit(formatted_by_pip_audit(), {("good", "1.0"), ("bad", "2.0"), ("skipped", "3.0")})

        assert answer.found == ["bad 2.0: PYSEC-1, fixed in 2.1"]
        assert answer.not_asked == ["skipped: the service does not know it"]
        assert answer.asked == 2
        assert audit.verdict([answer]) == audit.FOUND

    @needs_pip_audit
    def test_audit_reports_a_locked_package_missing_from_the_response(self):
        answer = audit.of_pip_audit(formatted_by_pip_audit(), {("good", "1.1")})

        assert answer.not_asked == ["good: the service does not know it"]

    @needs_npm
    def test_the_report_of_npm_is_understood(self):
        """Offline npm asks nobody, and writes the report of a tree of which nothing is known."""
        environment = {**os.environ, "npm_config_offline": "true"}
        command = ["npm", "audit", "--package-lock-only", "--json"]
        done = subprocess.run(command, cwd=ROOT / "ui", env=environment, capture_output=True, text=True)
        said = json.loads(done.stdout)

        answer = audit.of_npm(said)
        assert answer.found == []
        assert answer.asked > 50
        assert audit.verdict([answer]) == audit.NOTHING_FOUND

        said["vulnerabilities"]["svelte"] = {"name": "svelte", "severity": "high", "range": "<6"}
        assert audit.of_npm(said).found == ["svelte <6: high"]

    def test_audit_verdict_ranks_findings_before_missing_responses(self):
        assert audit.verdict([audit.Answer(1, ["bad 2.0"], []), audit.Answer(0, [], ["nobody answers"])]) == audit.FOUND

    def test_audit_without_any_response_does_not_pass(self):
        assert audit.verdict([audit.Answer(0, [], [])]) == audit.NOT_ASKED


def test_the_lock_names_no_registry():
    lock = (ROOT / "ui" / "package-lock.json").read_text()

    assert '"resolved"' not in lock
    assert "://" not in re.sub(r'"(url|funding)": "[^"]*"', "", lock)


def ask(program: str = str(PIP_AUDIT), **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the audit as a command."""
    command = [sys.executable, str(ROOT / "scripts" / "audit.py"), program]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)


def formatted_by_pip_audit() -> dict[str, Any]:
    """Let pip-audit itself write an answer about three packages."""
    script = """
from packaging.version import Version
from pip_audit._format import JsonFormat
from pip_audit._service.interface import ResolvedDependency, SkippedDependency, VulnerabilityResult

known = VulnerabilityResult(id="PYSEC-1", description="", fix_versions=[Version("2.1")], aliases=set())
print(JsonFormat(False, False).format({
    ResolvedDependency("good", Version("1.0")): [],
    ResolvedDependency("bad", Version("2.0")): [known],
    SkippedDependency("skipped", "the service does not know it"): [],
}, []))
"""
    done = subprocess.run([PIP_AUDIT.with_name("python"), "-c", script], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _urlsafe(digest: bytes) -> str:
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
