"""The software bill of materials of the wheel, in CycloneDX 1.6, written while hatchling builds it.

It lists what the locks say: each Python package that an installation needs, and, where the dashboard was built, each package
whose code may be in its files. PEP 770 says where it stands: `duly-*.dist-info/sboms/duly.cdx.json`. The same locks give the
same bytes, but for licences: those of Python packages are known where the packages are installed.
"""

from __future__ import annotations

import base64
import json
import re
import tempfile
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "duly.cdx.json"
_PINNED = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>.*?))? \\$")
_HASH = re.compile(r"^    --hash=sha256:(?P<content>[0-9a-f]{64})")
_LICENCE_NAME_MAX = 100  # Some packages have the whole text where the name belongs.

Component = dict[str, Any]


class SbomHook(BuildHookInterface[Any]):
    """Put the bill of materials into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write it where hatchling takes it from; an editable install has one, too."""
        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name) / NAME
        file.write_text(json.dumps(sbom(Path(self.root), self.metadata.version), indent=1) + "\n", encoding="utf-8")
        build_data["sbom_files"].append(str(file))

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove it again."""
        self._folder.cleanup()


def sbom(root: Path, version: str) -> dict[str, Any]:
    """Return the bill of materials of the source tree at `root`."""
    components = python_packages((root / "requirements.lock").read_text(encoding="utf-8"))
    if (root / "src/duly/dashboard/static/index.html").is_file():
        components += dashboard_packages((root / "ui/package-lock.json").read_text(encoding="utf-8"))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component("application", "pypi", "duly", version, licence("Apache-2.0"))},
        "components": components,
    }


def python_packages(lock: str) -> list[Component]:
    """Return a component for each package of a requirements file with hashes, each with the hash of every archive it may be."""
    found: list[Component] = []
    for line in lock.splitlines():
        if pinned := _PINNED.match(line):
            name, version, marker = pinned["name"], pinned["version"], pinned["marker"]
            needed = {"properties": [{"name": "python:marker", "value": marker}]} if marker else {}
            found.append(
                component("library", "pypi", name, version, installed_licence(name, version), needed, hashes=[])
            )
        elif hashed := _HASH.match(line):
            found[-1]["hashes"].append({"alg": "SHA-256", "content": hashed["content"]})
        elif line and not line.lstrip().startswith("#"):
            raise ValueError(f"requirements.lock has a line that is neither a package nor a hash: {line}")
    return found


def dashboard_packages(lock: str) -> list[Component]:
    """Return a component for each package that the dashboard is made of; those that only build it are `dev` in the lock."""
    return [
        component(
            "library",
            "npm",
            path.rpartition("node_modules/")[2],
            package["version"],
            licence(package["license"]) if "license" in package else {},
            hashes=[integrity(package["integrity"])],
        )
        for path, package in json.loads(lock)["packages"].items()
        if path and not package.get("dev")
    ]


def component(kind: str, ecosystem: str, name: str, version: str, *more: Component, **fields: Any) -> Component:
    """Return what CycloneDX says of one package."""
    purl = f"pkg:{ecosystem}/{name.replace('@', '%40')}@{version.replace('+', '%2B')}"
    found: Component = {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl, **fields}
    for fact in more:
        found |= fact
    return found


def installed_licence(name: str, version: str) -> Component:
    """Return the licence that the installed package states; nothing where it is not installed in that version."""
    try:
        stated = metadata(name)
    except PackageNotFoundError:
        return {}
    if stated["Version"] != version:
        return {}
    if "License-Expression" in stated:
        return licence(stated["License-Expression"])
    classifiers = stated.get_all("Classifier", [])
    names = [entry.rpartition(" :: ")[2] for entry in classifiers if entry.startswith("License :: OSI Approved :: ")]
    names = names or [name for name in stated.get_all("License", []) if len(name) <= _LICENCE_NAME_MAX]
    return {"licenses": [{"license": {"name": name}} for name in names]} if names else {}


def licence(expression: str) -> Component:
    """Return a licence that is given as an SPDX expression."""
    return {"licenses": [{"expression": expression}]}


def integrity(text: str) -> Component:
    """Return the hash that npm writes as `sha512-` and base64."""
    kind, _, content = text.partition("-")
    return {"alg": {"sha512": "SHA-512", "sha1": "SHA-1"}[kind], "content": base64.b64decode(content).hex()}
